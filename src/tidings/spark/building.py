"""Building a shard: what a task on an executor does with the subscriptions of one shard."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.admission import admit_policy
from tidings.engine.effects import Reject
from tidings.engine.operations import Advertise, Define, Subscribe
from tidings.engine.refusal import Refused
from tidings.engine.shelf import fast, put_up
from tidings.filters import ContextFilter, Filter
from tidings.index.rows import read
from tidings.model.advertisement import Advertisement
from tidings.model.errors import TidingsError
from tidings.model.filter import ContextFilter as ContextFilterValue
from tidings.model.schema import Schema
from tidings.policy.placement import Where
from tidings.policy.statement import MessageType
from tidings.spark.events import PROBLEM
from tidings.spark.registry import MOST_REPORTED

_TEXT = pa.string()
REPORT = pa.schema(
    [("shard", pa.int32()), ("subscriptions", pa.int64()), ("id", _TEXT), ("reason", _TEXT), ("asked", _TEXT)]
)
DDL = "shard int, subscriptions bigint, id string, reason string, asked string"
MOST_ASKED = 1_000  # values, of an attribute that everyone in a shard asks for

Offered = list[str] | str | None  # names, the JSON text of an array of names, or the text of a context filter


class Advertised(msgspec.Struct, frozen=True, kw_only=True):
    """An advertisement as text."""

    id: str
    publisher: str
    content: str = ""
    policy: str | None = None
    publisher_context: Offered = None  # None: all names
    subscriber_context: Offered = None  # None: no names


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What all shards have in common: small, and sent to every task."""

    folder: str
    settings: Settings
    advertisements: list[Advertised] = []
    schemas: dict[str, list[dict[str, str]]] = {}  # subject -> the attributes that each version has added


class Builder:
    """Called with the rows of a partition; a shard is all in one."""

    def __init__(self, plan: Plan) -> None:
        self._plan = msgspec.json.encode(plan)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        table = pa.Table.from_batches(given) if given else None
        if table is None:
            return
        for number in sorted(set(table["shard"].to_pylist())):
            rows = table.filter(pc.equal(table["shard"], number)).drop_columns(["shard"])
            yield self.build(number, rows)

    def build(self, number: int, rows: pa.Table | None) -> pa.RecordBatch:
        """Writes the folder of a shard; how many subscriptions it has, and which were refused."""
        plan = msgspec.json.decode(self._plan, type=Plan)
        engine = planned(plan)
        refused = [] if rows is None or rows.num_rows == 0 else _filled(engine, rows)
        _published(engine, Path(plan.folder), number)
        matcher = fast(engine)
        asked = msgspec.json.encode(matcher.asked_of_all(MOST_ASKED)).decode()
        said: list[tuple[int, int | None, str | None, str | None, str | None]]
        said = [(number, len(matcher), None, None, asked)]
        said += [(number, None, name, reason, None) for name, reason in refused[:MOST_REPORTED]]
        columns = list(zip(*said, strict=True))
        return pa.record_batch([pa.array(one, kind.type) for one, kind in zip(columns, REPORT, strict=True)], REPORT)


def planned(plan: Plan) -> Engine:
    """An engine that knows the schemas and advertisements, and no subscription yet."""
    engine = Engine(plan.settings)
    for subject, (first, *others) in plan.schemas.items():
        schema = Schema(subject, first)
        for added in others:
            schema = schema.extend(added)
        _accepted(engine.handle(Define(engine.name, schema), 0))
    for one in plan.advertisements:
        _accepted(
            engine.handle(
                Advertise(
                    Advertisement.of(
                        Filter.parse(one.content),
                        id=one.id,
                        publisher=one.publisher,
                        policy=one.policy,
                        publisher_context=_offer(one.publisher_context),
                        subscriber_context=_offer(one.subscriber_context) or (),
                    )
                ),
                0,
            )
        )
    return engine


def _offer(offered: Offered) -> list[str] | ContextFilterValue | None:
    if not isinstance(offered, str):
        return offered
    if offered.startswith("["):
        return msgspec.json.decode(offered, type=list[str])
    return ContextFilter.parse(offered)


def _accepted(effects: list[Any]) -> None:
    for effect in effects:
        if isinstance(effect, Reject):
            raise TidingsError(effect.reason)


def _filled(engine: Engine, rows: pa.Table) -> list[tuple[str, str]]:
    """Puts the subscriptions into the engine; the ids of those that cannot be, and why."""
    rows, unread = _without_problems(rows)
    rows, refused = _with_good_policies(rows)
    refused = unread + refused
    if engine.ruling_advertisements(MessageType.SUBSCRIPTION) or any(True for _ in engine.subjects):
        return refused + _one_by_one(engine, rows)
    matcher = fast(engine)
    try:
        matcher.add_many(rows)
    except TidingsError:
        good, bad = _readable(rows)
        matcher.add_many(good)
        refused += bad
    return refused


def _without_problems(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """What its reader has found fault with is refused for that."""
    problem, rows = rows[PROBLEM], rows.drop_columns([PROBLEM])
    if problem.null_count == len(problem):
        return rows, []
    refused = rows.filter(pc.is_valid(problem))["id"].to_pylist()
    told = [(name or "", why) for name, why in zip(refused, problem.drop_null().to_pylist(), strict=True)]
    return rows.filter(pc.is_null(problem)), told


def _with_good_policies(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    if "policy" not in rows.column_names:
        return rows, []
    reasons: dict[str, str] = {}
    for text in pc.unique(rows["policy"]).drop_null().to_pylist():
        try:
            admit_policy(text, Where.ATTACHED_TO_SUBSCRIPTION)
        except Refused as refusal:
            reasons[text] = refusal.reason
    if not reasons:
        return rows, []
    bad = pc.is_in(rows["policy"], pa.array(list(reasons), pa.string()))
    refused = rows.filter(bad).select(["id", "policy"]).to_pylist()
    return rows.filter(pc.invert(bad)), [(one["id"] or "", reasons[one["policy"]]) for one in refused]


def _readable(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Row by row, once it is known that something is wrong."""
    good, bad = [], []
    for number, row in enumerate(rows.to_pylist()):
        try:
            if row["id"] is None:
                raise TidingsError("the subscription has no id")
            read(row)
            good.append(number)
        except TidingsError as error:
            bad.append((row["id"] or "", str(error).splitlines()[0]))
    return rows.take(pa.array(good, pa.int64())), bad


def _one_by_one(engine: Engine, rows: pa.Table) -> list[tuple[str, str]]:
    """Where rules or schemas have a say in subscriptions, each is handled as a message."""
    bad = []
    for row in rows.to_pylist():
        try:
            effects = engine.handle(Subscribe(read(row)), 0)
        except TidingsError as error:
            bad.append((row["id"] or "", str(error).splitlines()[0]))
            continue
        bad += [(row["id"], effect.reason) for effect in effects if isinstance(effect, Reject)]
    return bad


def _published(engine: Engine, folder: Path, number: int) -> None:
    """Under a name of this attempt first: of several attempts at a task, one wins, and none is seen half done."""
    attempt = folder / f"{number}.{_attempt()}"
    attempt.mkdir(parents=True, exist_ok=True)
    put_up(engine, attempt)
    try:
        attempt.rename(folder / str(number))
    except OSError:  # another attempt was first
        if not (folder / str(number)).is_dir():
            raise
        shutil.rmtree(attempt)


def _attempt() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    return f"{os.getpid()}-{0 if context is None else context.taskAttemptId()}"

"""Build one shard on an executor: put its subscriptions into an engine, and save the engine to a folder."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.effects import Reject
from tidings.engine.mapped_table import index_of, save
from tidings.engine.message import Refusal
from tidings.engine.operations import Advertise, Define, Subscribe
from tidings.engine.steps.admit import admit_policy
from tidings.filters import ContextFilter, Filter
from tidings.model.advertisement import Advertisement
from tidings.model.errors import TidingsError
from tidings.model.filter import ContextFilterValue
from tidings.model.schema import Schema
from tidings.policy.ast import MessageType
from tidings.policy.placement import PolicyPlace
from tidings.spark.events import PROBLEM
from tidings.spark.shards.registry import MAX_REPORTED
from tidings.text_index import subscription_of

_TEXT = pa.string()
REPORT = pa.schema(
    [("shard", pa.int32()), ("subscriptions", pa.int64()), ("id", _TEXT), ("reason", _TEXT), ("asked", _TEXT)]
)
DDL = "shard int, subscriptions bigint, id string, reason string, asked string"
MAX_REQUESTED_VALUES = 1_000  # values of the attribute that the prefilter tests

Offered = list[str] | str | None  # names, the JSON text of an array of names, or the text of a context filter


class AdvertisementText(msgspec.Struct, frozen=True, kw_only=True):
    """An advertisement as a row of text, as the driver sends it to the tasks."""

    id: str
    publisher: str
    content: str = ""
    policy: str | None = None
    publisher_context: Offered = None  # None: all names
    subscriber_context: Offered = None  # None: no names


class ShardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What every shard is built with. It is small, since it is sent to every task."""

    folder: str
    settings: Settings
    advertisements: list[AdvertisementText] = []
    schemas: dict[str, list[dict[str, str]]] = {}  # subject -> the attributes that each version adds


class ShardBuilder:
    """The function for `mapInArrow` that builds the shards of a partition; all rows of a shard are in one partition."""

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = msgspec.json.encode(plan)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch_list = list(batches)
        table = pa.Table.from_batches(batch_list) if batch_list else None
        if table is None:
            return
        for number in sorted(set(table["shard"].to_pylist())):
            rows = table.filter(pc.equal(table["shard"], number)).drop_columns(["shard"])
            yield self.build(number, rows)

    def build(self, number: int, rows: pa.Table | None) -> pa.RecordBatch:
        """Build a shard and save it to its folder; return a row with its size, and a row per refused subscription."""
        plan = msgspec.json.decode(self._plan, type=ShardPlan)
        engine = base_engine(plan)
        refused = [] if rows is None or rows.num_rows == 0 else _add_subscriptions(engine, rows)
        _save_shard(engine, Path(plan.folder), number)
        matcher = index_of(engine.state)
        requested_values = msgspec.json.encode(matcher.common_requested_values(MAX_REQUESTED_VALUES)).decode()
        report: list[tuple[int, int | None, str | None, str | None, str | None]]
        report = [(number, len(matcher), None, None, requested_values)]
        report += [(number, None, name, reason, None) for name, reason in refused[:MAX_REPORTED]]
        columns = list(zip(*report, strict=True))
        return pa.record_batch(
            [pa.array(values, kind.type) for values, kind in zip(columns, REPORT, strict=True)], REPORT
        )


def base_engine(plan: ShardPlan) -> Engine:
    """Return an engine with the schemas and advertisements of the plan, and no subscription.

    Raises a `TidingsError` if the engine refuses one of them.
    """
    engine = Engine(plan.settings)
    for subject, (first, *others) in plan.schemas.items():
        schema = Schema(subject, first)
        for added in others:
            schema = schema.extend(added)
        _check_accepted(engine.handle(Define(engine.state.name, schema), 0))
    for advertisement in plan.advertisements:
        _check_accepted(
            engine.handle(
                Advertise(
                    Advertisement.of(
                        Filter.parse(advertisement.content),
                        id=advertisement.id,
                        publisher=advertisement.publisher,
                        policy=advertisement.policy,
                        publisher_context=_offer(advertisement.publisher_context),
                        subscriber_context=_offer(advertisement.subscriber_context) or (),
                    )
                ),
                0,
            )
        )
    return engine


def _offer(offer: Offered) -> list[str] | ContextFilterValue | None:
    if not isinstance(offer, str):
        return offer
    if offer.startswith("["):
        return msgspec.json.decode(offer, type=list[str])
    return ContextFilter.parse(offer)


def _check_accepted(effects: list[Any]) -> None:
    for effect in effects:
        if isinstance(effect, Reject):
            raise TidingsError(effect.reason)


def _add_subscriptions(engine: Engine, rows: pa.Table) -> list[tuple[str, str]]:
    """Put the subscriptions into the engine; return the ids and reasons of the refused ones."""
    rows, unread = _split_problems(rows)
    rows, refused = _split_refused_policies(rows)
    refused = unread + refused
    if engine.state.rules.advertisements_with_rules(MessageType.SUBSCRIPTION) or any(
        True for _ in engine.state.subjects
    ):
        return refused + _one_by_one(engine, rows)
    matcher = index_of(engine.state)
    try:
        matcher.add_many(rows)
    except TidingsError:
        good, bad = _split_unreadable(rows)
        matcher.add_many(good)
        refused += bad
    return refused


def _split_problems(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Split off the rows that the source could not read, with the source's reasons."""
    problem, rows = rows[PROBLEM], rows.drop_columns([PROBLEM])
    if problem.null_count == len(problem):
        return rows, []
    refused = rows.filter(pc.is_valid(problem))["id"].to_pylist()
    reasons = [(name or "", reason) for name, reason in zip(refused, problem.drop_null().to_pylist(), strict=True)]
    return rows.filter(pc.is_null(problem)), reasons


def _split_refused_policies(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Split off the subscriptions whose policies are refused. Each distinct policy is checked once."""
    if "policy" not in rows.column_names:
        return rows, []
    reasons: dict[str, str] = {}
    for text in pc.unique(rows["policy"]).drop_null().to_pylist():
        try:
            admit_policy(text, PolicyPlace.ATTACHED_TO_SUBSCRIPTION)
        except Refusal as refusal:
            reasons[text] = refusal.reason
    if not reasons:
        return rows, []
    bad = pc.is_in(rows["policy"], pa.array(list(reasons), pa.string()))
    refused = rows.filter(bad).select(["id", "policy"]).to_pylist()
    return rows.filter(pc.invert(bad)), [(row["id"] or "", reasons[row["policy"]]) for row in refused]


def _split_unreadable(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Split the rows into those that can be parsed, and the ids and reasons of the others.

    It parses row by row, which is slow: it is called only if parsing all rows at once has failed.
    """
    good, bad = [], []
    for number, row in enumerate(rows.to_pylist()):
        try:
            if row["id"] is None:
                raise TidingsError("the subscription has no id")
            subscription_of(row)
            good.append(number)
        except TidingsError as error:
            bad.append((row["id"] or "", str(error).splitlines()[0]))
    return rows.take(pa.array(good, pa.int64())), bad


def _one_by_one(engine: Engine, rows: pa.Table) -> list[tuple[str, str]]:
    """Subscribe with one operation per row, where rules or schemas apply to subscriptions; return the refused ones."""
    bad = []
    for row in rows.to_pylist():
        try:
            effects = engine.handle(Subscribe(subscription_of(row)), 0)
        except TidingsError as error:
            bad.append((row["id"] or "", str(error).splitlines()[0]))
            continue
        bad += [(row["id"], effect.reason) for effect in effects if isinstance(effect, Reject)]
    return bad


def _save_shard(engine: Engine, folder: Path, number: int) -> None:
    """Save the engine to a temporary folder and rename it to the shard's folder.

    Of several attempts at a task the first rename wins, and readers never see an incomplete folder.
    """
    attempt = folder / f"{number}.{_attempt()}"
    attempt.mkdir(parents=True, exist_ok=True)
    save(engine, attempt)
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

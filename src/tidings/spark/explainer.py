"""What runs on executors when decisions are explained: changes are applied in their order, and of each event it is said
why the subscriptions that are asked about did, or did not, get it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tidings import journal
from tidings.engine import Engine, Settings, records
from tidings.engine.batch.publications import Publications
from tidings.engine.effects import Reject
from tidings.journal.record import PUBLISH
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.spark.events import KEY, ORDER, PROBLEM, SCHEDULED, SHARD
from tidings.spark.retracer import by_engine

ASKED = "$asked"  # beside an event: the ids of the subscriptions
DDL = "event_id string, subscription_id string, delivered boolean, step string, reason string, rules array<string>"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("event_id", "subscription_id")),
        ("delivered", pa.bool_()),
        *((name, pa.string()) for name in ("step", "reason")),
        ("rules", pa.list_(pa.string())),
    ]
)


class Answer(NamedTuple):
    event_id: str | None
    subscription_id: str
    delivered: bool
    step: str
    reason: str
    rules: tuple[str, ...] = ()


class Explainer:
    """Called with all rows of some shards, each in its order. It answers for the subscriptions that its shards know."""

    def __init__(self, settings: Settings, *, fills_contexts: bool = False) -> None:
        """With `fills_contexts` events bring no context of their own, and get the one that their publisher has."""
        self._settings, self._fills_contexts = msgspec.json.encode(settings), fills_contexts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inquiry, now = None, None
        for name, shard, rows in by_engine(batches):
            if inquiry is None or (name, shard) != now:
                settings = msgspec.json.decode(self._settings, type=Settings)
                engine = Engine(msgspec.structs.replace(settings, name=name))
                inquiry, now = Inquiry(engine, first=shard == 0, fills_contexts=self._fills_contexts), (name, shard)
            answers = inquiry.answers(rows)
            columns = list(zip(*answers, strict=True)) or [()] * len(SCHEMA)
            yield pa.record_batch([pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)


class Inquiry:
    """An engine, and what it has refused so far. The broker's own filters are in every shard: the `first` answers."""

    def __init__(self, engine: Engine, *, first: bool, fills_contexts: bool) -> None:
        self._engine, self._first, self._fills_contexts = engine, first, fills_contexts
        self._refused: dict[str, str] = {}  # subscriptions, and why

    def answers(self, rows: pa.Table) -> list[Answer]:
        found: list[Answer] = []
        kinds = rows["kind"].to_pylist()
        begin = 0
        while begin < len(kinds):
            end = begin + 1
            if kinds[begin] == PUBLISH:
                while end < len(kinds) and kinds[end] == PUBLISH:
                    end += 1
                found += self._of_events(rows.slice(begin, end - begin))
            else:
                self._change(rows.slice(begin, 1))
            begin = end
        return found

    def _change(self, row: pa.Table) -> None:
        given = row.to_pylist()[0]
        fields = {name: given.get(name) for name in journal.Operation.__struct_fields__}
        elsewhere = given["client"] == self._engine.name and not self._first
        about = fields["id"] if given["kind"] == "subscribe" and not elsewhere else None
        if records.is_aside(given["kind"], fields["body"]):
            return
        try:
            if given.get(PROBLEM) is not None:
                raise InvalidValueError(given[PROBLEM])
            effects = self._engine.handle(records.operation(journal.Operation(**fields)), given["timestamp"])
            if self._engine.held:  # a question that nobody answers here
                self._engine.held.withdraw()
        except TidingsError as error:
            effects = [Reject("admit", str(error).splitlines()[0])]
        if about is not None:
            refused = next((one.reason for one in effects if isinstance(one, Reject)), None)
            self._refused.pop(about, None)
            if refused is not None:
                self._refused[about] = refused

    def _of_events(self, rows: pa.Table) -> list[Answer]:
        ours = [name for name in (KEY, SHARD, ORDER, SCHEDULED, PROBLEM, ASKED) if name in rows.column_names]
        events = Publications(rows.drop_columns(ours))
        events.read_all()
        asked: list[tuple[Any, list[str]]] = list(zip(rows[KEY].to_pylist(), rows[ASKED].to_pylist(), strict=True))
        return [
            Answer(key, name, *said)
            for row, (key, names) in enumerate(asked)
            for name in sorted(names)
            if (said := self._said(events, row, name)) is not None
        ]

    def _said(self, events: Publications, row: int, name: str) -> tuple[bool, str, str, tuple[str, ...]] | None:
        """None: this is not the shard to ask."""
        engine = self._engine
        filed = engine.subscriptions.get(name)
        if filed is not None and filed.is_own and not self._first:
            return None
        if filed is None:
            refused = self._refused.get(name)
            return None if refused is None else (False, "admit", f"the subscription was refused: {refused}", ())
        if row in events.problems:
            return False, "admit", events.problems[row], ()
        engine.at(int(events.now[row]))
        event = events.event(row)
        if self._fills_contexts:
            event = msgspec.structs.replace(event, context=engine.context(event.publisher))
        [one] = engine.explain(event, subscription=name)
        return one.delivered, one.step, one.reason, one.rules

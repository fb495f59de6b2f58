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
from tidings.model.errors import TidingsError
from tidings.spark.events import KEY, ORDER, SHARD
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

    def __init__(self, settings: Settings) -> None:
        self._settings = msgspec.json.encode(settings)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inquiry, now = None, None
        for name, shard, rows in by_engine(batches):
            if inquiry is None or (name, shard) != now:
                settings = msgspec.json.decode(self._settings, type=Settings)
                inquiry, now = Inquiry(Engine(msgspec.structs.replace(settings, name=name))), (name, shard)
            answers = inquiry.answers(rows)
            columns = list(zip(*answers, strict=True)) or [()] * len(SCHEMA)
            yield pa.record_batch([pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)


class Inquiry:
    """An engine, and what it has refused so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
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
        about = fields["id"] if given["kind"] == "subscribe" else None
        try:
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
        events = Publications(rows.drop_columns([KEY, SHARD, ORDER, ASKED]))
        events.read_all()
        found: list[Answer] = []
        asked: list[tuple[Any, list[str]]] = list(zip(rows[KEY].to_pylist(), rows[ASKED].to_pylist(), strict=True))
        for row, (key, ids) in enumerate(asked):
            for id in sorted(ids):  # noqa: A001
                if row in events.problems and self._engine.subscriptions.get(id) is not None:
                    found.append(Answer(key, id, False, "admit", events.problems[row]))
                elif self._engine.subscriptions.get(id) is not None:
                    self._engine.at(int(events.now[row]))
                    [one] = self._engine.explain(events.event(row), subscription=id)
                    found.append(Answer(key, id, one.delivered, one.step, one.reason, one.rules))
                elif id in self._refused:
                    found.append(Answer(key, id, False, "admit", f"the subscription was refused: {self._refused[id]}"))
        return found

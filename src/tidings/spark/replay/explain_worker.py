"""Explain decisions on executors: apply the changes in order, and explain each event at its place among them."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings import journal
from tidings.engine import Engine, Settings, journal_codec
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.effects import Reject
from tidings.journal.record import PUBLISH
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import Event
from tidings.spark.events import KEY, ORDER, PROBLEM, SCHEDULED, SHARD
from tidings.spark.replay.retrace_worker import by_engine

ASKED = "$asked"  # a column of events: the ids of the subscriptions asked about
DDL = "event_id string, subscription_id string, delivered boolean, step string, reason string, rules array<string>"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("event_id", "subscription_id")),
        ("delivered", pa.bool_()),
        *((name, pa.string()) for name in ("step", "reason")),
        ("rules", pa.list_(pa.string())),
    ]
)


class ExplainAnswer(NamedTuple):
    """Whether an event is delivered to a subscription, the step and reason that decided, and the rules involved."""

    event_id: str | None
    subscription_id: str
    delivered: bool
    step: str
    reason: str
    rules: tuple[str, ...] = ()


class ExplainedEvents(Protocol):
    """The events of a table. `PublicationColumns` says what each of these is."""

    problems: dict[int, str]
    now: npt.NDArray[np.int64]

    def event(self, row: int) -> Event: ...


class ExplainWorker:
    """The function for `mapInArrow` that explains all rows of some shards, for the subscriptions in these shards."""

    def __init__(self, settings: Settings, *, fills_contexts: bool = False) -> None:
        """With `fills_contexts`, events get the contexts that their publishers have set, in place of their own."""
        self._settings, self._fills_contexts = msgspec.json.encode(settings), fills_contexts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        explainer, current = None, None
        for name, shard, rows in by_engine(batches):
            if explainer is None or (name, shard) != current:
                settings = msgspec.json.decode(self._settings, type=Settings)
                engine = Engine(msgspec.structs.replace(settings, name=name))
                explainer, current = (
                    EngineExplainer(engine, first=shard == 0, fills_contexts=self._fills_contexts),
                    (name, shard),
                )
            answers = explainer.answers(rows)
            columns = list(zip(*answers, strict=True)) or [()] * len(SCHEMA)
            yield pa.record_batch(
                [pa.array(values, kind.type) for values, kind in zip(columns, SCHEMA, strict=True)], SCHEMA
            )


class EngineExplainer:
    """Applies rows to an engine and explains events; it remembers which subscriptions were refused, and why.

    The broker's own filters are in every shard; only the `first` one answers for them.
    """

    def __init__(self, engine: Engine, *, first: bool, fills_contexts: bool) -> None:
        self._engine, self._first, self._fills_contexts = engine, first, fills_contexts
        self._refused: dict[str, str] = {}  # subscription id -> reason

    def answers(self, rows: pa.Table) -> list[ExplainAnswer]:
        """Apply the changes among the rows, in order, and return the answers for the events."""
        answers: list[ExplainAnswer] = []
        kinds = rows["kind"].to_pylist()
        begin = 0
        while begin < len(kinds):
            end = begin + 1
            if kinds[begin] == PUBLISH:
                while end < len(kinds) and kinds[end] == PUBLISH:
                    end += 1
                answers += self._explain_events(rows.slice(begin, end - begin))
            else:
                self._apply_change(rows.slice(begin, 1))
            begin = end
        return answers

    def _apply_change(self, row: pa.Table) -> None:
        """Apply a row that is not an event, and remember the reason if a subscription is refused."""
        values = row.to_pylist()[0]
        fields = {name: values.get(name) for name in journal.Operation.__struct_fields__}
        is_elsewhere = values["client"] == self._engine.state.name and not self._first
        subscription_id = fields["id"] if values["kind"] == "subscribe" and not is_elsewhere else None
        if journal_codec.is_aside(values["kind"], fields["body"]):
            return
        try:
            if values.get(PROBLEM) is not None:
                raise InvalidValueError(values[PROBLEM])
            effects = self._engine.handle(journal_codec.operation(journal.Operation(**fields)), values["timestamp"])
            if self._engine.deferred:  # no trust provider answers here
                self._engine.deferred.clear()
        except TidingsError as error:
            effects = [Reject("admit", str(error).splitlines()[0])]
        if subscription_id is not None:
            refused = next((effect.reason for effect in effects if isinstance(effect, Reject)), None)
            self._refused.pop(subscription_id, None)
            if refused is not None:
                self._refused[subscription_id] = refused

    def _explain_events(self, rows: pa.Table) -> list[ExplainAnswer]:
        added = [name for name in (KEY, SHARD, ORDER, SCHEDULED, PROBLEM, ASKED) if name in rows.column_names]
        events = PublicationColumns(rows.drop_columns(added))
        events.read_all()
        pairs: list[tuple[Any, list[str]]] = list(zip(rows[KEY].to_pylist(), rows[ASKED].to_pylist(), strict=True))
        return [
            ExplainAnswer(key, name, *answer)
            for row, (key, names) in enumerate(pairs)
            for name in sorted(names)
            if (answer := self._answer(events, row, name)) is not None
        ]

    def _answer(self, events: ExplainedEvents, row: int, name: str) -> tuple[bool, str, str, tuple[str, ...]] | None:
        """Return delivered, step, reason and rules; None if this shard does not answer for the subscription."""
        engine = self._engine
        entry = engine.state.filters.subscriptions.get(name)
        if entry is not None and entry.is_own and not self._first:
            return None
        if entry is None:
            refused = self._refused.get(name)
            return None if refused is None else (False, "admit", f"the subscription was refused: {refused}", ())
        if row in events.problems:
            return False, "admit", events.problems[row], ()
        event = events.event(row)
        if self._fills_contexts:
            event = msgspec.structs.replace(event, context=engine.state.contexts.context(event.publisher))
        [explanation] = engine.explain(event, subscription=name, now=int(events.now[row]))
        return explanation.delivered, explanation.step, explanation.reason, explanation.rules

"""`Engine.batch` and its result: a table of operations in, columns of notifications and other effects out.

Rules:

1. The result equals that of `Engine.handle` for each row in order; tests check it.
2. The table is cut into spans of rows that can be processed together (`partition`). Publications, with context changes
   between them, are matched and governed in columns (`publication_run`); runs of subscriptions are put into the index
   at once; every other operation goes through `Engine.handle` at its place (`runner`).
3. Only those publications that columns cannot express go through the engine's own steps one by one.
4. The engine has no neighbours and no deferred operations. A batch does not wait for the trust provider: a copy that
   needs an answer is withheld and listed in `asks`. To deliver it, the caller restores the engine as it was, handles
   `Trust` (answers last), and runs the batch again.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.notification_columns import NotificationBuilder, NotificationColumns
from tidings.engine.batch.results import ResultCollector
from tidings.engine.batch.row_reader import PublicationReader
from tidings.engine.batch.runner import BatchRun, Handle
from tidings.engine.effects import AskTrust, Deliver, Effect, LogMessage, MetaEventPublished, Reject
from tidings.engine.matcher import FastMatcher
from tidings.engine.steps import emit
from tidings.engine.turn import Turn
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.security.gate import DeliveryGate


class BatchResult:
    """The effects of a batch, as tables that are built when they are read.

    Events are numbered: an event of the table by its row, a meta-event from the number of rows on. `matches` has
    `event`, `subscription`, and `shape`: 0 for an event as published, else a row of `shapes`. With notify="client", the
    subscriptions of one notification are adjacent rows.
    """

    def __init__(
        self,
        results: ResultCollector,
        reader: PublicationReader,
        effects_by_row: dict[int, list[Effect]],
        gate: "DeliveryGate | None" = None,
    ) -> None:
        self._results, self._reader, self._effects_by_row, self._gate = results, reader, effects_by_row, gate
        self._copies = results.copies.deliveries()
        self._event, self._place, self._shape, self._directory = self._copies
        self._notification_builder = NotificationBuilder(results, reader, gate)

    @property
    def matches(self) -> pa.Table:
        """A row per copy: the event's number, the subscription's id, and the shape of the copy."""
        subscription = pa.DictionaryArray.from_arrays(pa.array(self._place, pa.int32()), self._directory.ids)
        return pa.table({"event": self._event, "subscription": subscription, "shape": self._shape})

    @property
    def shapes(self) -> pa.Table:
        """The distinct transformations of copies: `keeps`, `removes` (names), `added`, `trace` (JSON), `conversion`."""
        return self._results.copies.shapes.table()

    @property
    def rejected(self) -> pa.Table:
        """A row per refused operation: its row, or a meta-event's number, as `event`, the step and the reason."""
        return _table(self._results.rejected, event=pa.int64(), step=pa.string(), reason=pa.string())

    @property
    def meta_events(self) -> pa.Table:
        """The meta-events in order, as journal rows.

        `event` is the meta-event's number, `cause` the number of the event that caused it.
        """
        rows = [
            (
                self._results.rows + place,
                cause,
                str(event.id),
                event.timestamp,
                event.publisher,
                event.sequence,
                _json(event),
            )
            for place, (event, cause) in enumerate(self._results.meta_events)
        ]
        number, text = pa.int64(), pa.string()
        return _table(
            rows,
            event=number,
            cause=number,
            id=text,
            timestamp=number,
            publisher=text,
            sequence=number,
            attributes=text,
        )

    @property
    def logs(self) -> pa.Table:
        """The lines that rules logged, with the event's number."""
        return _table(self._results.logs, event=pa.int64(), line=pa.string())

    @property
    def persists(self) -> pa.Table:
        """The messages that rules stored, with the event's number and the store's name."""
        rows = [(number, effect.store, effect.message) for number, effect in self._results.persists]
        return _table(rows, event=pa.int64(), store=pa.string(), message=pa.string())

    @property
    def asks(self) -> pa.Table:
        """The unanswered questions to the trust provider, for which copies of events or changes were withheld."""
        return _table(self._results.asks, event=pa.int64(), party=pa.string(), group=pa.string())

    def notes(self) -> NotificationColumns:
        """Return the notifications as columns."""
        return self._notification_builder.build(self._copies)

    def published(self, numbers: Any) -> tuple[pa.Array, pa.Array]:
        """Return the attributes (JSON) and payloads of the events with these numbers, as published."""
        return self._notification_builder.published(numbers)

    def seals(self, numbers: Any) -> tuple[pa.Array, pa.Array]:
        """Return the tokens and signatures of the events with these numbers, as subscribers see them.

        They are null for events that are not sealed.
        """
        return self._notification_builder.seals(numbers)

    def notifications(self) -> pa.Table:
        """Return a row per notification. `attributes` and `trace` are JSON, which distinguishes 1, 1.0 and true."""
        notes = self.notes()
        events, positions = np.unique(notes.event, return_inverse=True)
        attributes, payload = (column.take(pa.array(positions)) for column in self.published(events))
        single_subscription = pa.ListArray.from_arrays(
            np.arange(len(notes.event) + 1, dtype=np.int32), notes.subscription
        )
        return pa.table(
            {
                "event": notes.event,
                "subscription": notes.subscription,
                "subscriber": notes.subscriber,
                "subscriptions": pc.coalesce(notes.subscriptions, single_subscription),
                "attributes": pc.coalesce(notes.attributes, attributes),
                "payload": pc.coalesce(notes.payload, payload),
                "trace": notes.trace,
            }
        )

    def effects(self) -> list[list[Effect]]:
        """Return the effects of each row as `Engine.handle` would return them: for tests, and slow."""
        self.read_events()
        meta_events: dict[int, list[int]] = {}
        for place, (_, cause) in enumerate(self._results.meta_events):
            meta_events.setdefault(cause, []).append(self._results.rows + place)
        rejected, asks, logs, persists = (
            _group_by_event(rows)
            for rows in (self._results.rejected, self._results.asks, self._results.logs, self._results.persists)
        )

        def of(number: int) -> Iterator[Effect]:
            yield from (Reject(step, reason) for step, reason in rejected.get(number, ()))
            low, high = np.searchsorted(self._event, [number, number + 1]).tolist()
            yield from (self._deliver_effect(*group) for group in self._notification_groups(low, high))
            yield from (AskTrust(party, group) for party, group in asks.get(number, ()))
            yield from (LogMessage(line) for (line,) in logs.get(number, ()))
            yield from (effect for (effect,) in persists.get(number, ()))
            for meta in meta_events.get(number, ()):
                yield MetaEventPublished(self._results.meta_events[meta - self._results.rows][0])
                yield from of(meta)

        return [
            self._effects_by_row[row] if row in self._effects_by_row else list(of(row))
            for row in range(self._results.rows)
        ]

    def _notification_groups(self, low: int, high: int) -> Iterator[tuple[int, list[Subscription], int]]:
        """Yield notifications: the event's number, the subscriptions that it answers, and the shape."""
        events, places, shapes = (column[low:high].tolist() for column in (self._event, self._place, self._shape))
        directory = self._directory
        at = 0
        while at < high - low:
            first = directory[places[at]]
            end = at + 1
            if first.notify == "client":
                while end < high - low and events[end] == events[at]:
                    other = directory[places[end]]
                    if other.notify != "client" or other.subscriber != first.subscriber:
                        break
                    end += 1
            yield events[at], [directory[place] for place in places[at:end]], shapes[at]
            at = end

    def _deliver_effect(self, number: int, subscriptions: list[Subscription], shape: int) -> Deliver:
        event = self.event(number)
        return emit.delivery_with_changes(
            event, subscriptions, self._results.copies.transformation(shape).changes_of(event), self._gate
        )

    def event(self, number: int) -> Event:
        """Return the event with this number: that of a row, or a meta-event."""
        return self._notification_builder.event(number)

    def read_events(self) -> None:
        self._reader.read_all()


def run(turn: Turn, handle: Handle, table: pa.Table, now: int | None) -> BatchResult:
    """Process a table of operations; see `Engine.batch`.

    Args:
        turn: The turn of the engine.
        handle: Handles one operation that is not a publication.
        table: The operations.
        now: The time of all operations; None: each has its own.

    Raises:
        InvalidValueError: The engine has neighbours or deferred operations, or its matcher is not a `FastMatcher`.
    """
    state = turn.state
    if state.links.neighbours or turn.deferred:
        raise InvalidValueError("a batch is for an engine without neighbours on which nothing waits for an answer")
    matcher = state.filters.matcher
    if not isinstance(matcher, FastMatcher):
        raise InvalidValueError("a batch needs the index: Engine(matcher=FastMatcher()), which is the default")
    batch_run = BatchRun(turn, matcher, handle, table, now)
    batch_run.run()
    return BatchResult(batch_run.results, batch_run.reader, batch_run.effects_by_row, turn.gate)


def _group_by_event(rows: list[Any]) -> dict[int, list[tuple[Any, ...]]]:
    by_event: dict[int, list[tuple[Any, ...]]] = {}
    for number, *more in rows:
        by_event.setdefault(number, []).append(tuple(more))
    return by_event


def _table(rows: list[Any], **columns: pa.DataType) -> pa.Table:
    schema = pa.schema(list(columns.items()))
    values_by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(values_by_column, columns.values(), strict=True)], schema=schema
    )


def _json(event: Any) -> str:
    return msgspec.json.encode(event.attributes).decode()

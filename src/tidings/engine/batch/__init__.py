"""`Engine.batch`: the vectorised twin of `Engine.handle`. It is held equal to it by test, and never a loop over rows.

Operations go in as a table, in their order; what comes out are columns. A batch is for an engine without neighbours,
and it cannot wait: a copy that needs an answer of the trust provider is withheld and listed in `asks`. Who wants it
delivered answers with `Trust` (that lasts) and runs the batch again on a restored engine.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import routes
from tidings.engine.batch.course import Course
from tidings.engine.batch.notes import Gazette, Notes
from tidings.engine.batch.reading import Reading
from tidings.engine.batch.record import Record
from tidings.engine.effects import Ask, Deliver, Effect, Log, Reject, Told
from tidings.engine.matcher import FastMatcher
from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine
    from tidings.security.gate import Gate


class Batch:
    """What followed. An event's number is its row in the table; meta-events are numbered on from the last row.

    `matches`: `event`, `subscription`, and `shape`, which is 0 for an event as it was published and else a row of
    `shapes`. With notify="client" all subscriptions of the one notification stand here, one after the other.
    """

    def __init__(
        self, record: Record, reading: Reading, changes: dict[int, list[Effect]], gate: "Gate | None" = None
    ) -> None:
        self._record, self._reading, self._changes, self._gate = record, reading, changes, gate
        self._copies = record.deliveries()
        self._event, self._place, self._shape, self._directory = self._copies
        self._gazette = Gazette(record, reading, gate)

    @property
    def matches(self) -> pa.Table:
        subscription = pa.DictionaryArray.from_arrays(pa.array(self._place, pa.int32()), self._directory.ids)
        return pa.table({"event": self._event, "subscription": subscription, "shape": self._shape})

    @property
    def shapes(self) -> pa.Table:
        """The distinct decisions: `keeps` and `removes` (names), `added` and `trace` (JSON), `conversion`."""
        return self._record.shapes.table()

    @property
    def rejected(self) -> pa.Table:
        return _table(self._record.rejected, event=pa.int64(), step=pa.string(), reason=pa.string())

    @property
    def meta_events(self) -> pa.Table:
        """In their order, as rows of a journal would hold them; `event` is the number, `cause` the event's it is of."""
        rows = [
            (self._record.rows + place, cause, str(one.id), one.timestamp, one.publisher, one.sequence, _json(one))
            for place, (one, cause) in enumerate(self._record.metas)
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
        return _table(self._record.logs, event=pa.int64(), line=pa.string())

    @property
    def persists(self) -> pa.Table:
        rows = [(number, one.store, one.message) for number, one in self._record.persists]
        return _table(rows, event=pa.int64(), store=pa.string(), message=pa.string())

    @property
    def asks(self) -> pa.Table:
        """What nobody has answered: copies of these events, or changes of these rows, were withheld."""
        return _table(self._record.asks, event=pa.int64(), party=pa.string(), group=pa.string())

    def notes(self) -> Notes:
        """The notifications as columns."""
        return self._gazette.notes(self._copies)

    def published(self, numbers: Any) -> tuple[pa.Array, pa.Array]:
        """Attributes, as JSON, and payloads of these events, as they were published."""
        return self._gazette.published(numbers)

    def seals(self, numbers: Any) -> tuple[pa.Array, pa.Array]:
        """Tokens and seals of these events, as whoever gets them is shown them; null for those that are plain."""
        return self._gazette.seals(numbers)

    def notifications(self) -> pa.Table:
        """One row a notification, made now: `attributes` and `trace` are JSON, which tells 1, 1.0 and true apart."""
        notes = self.notes()
        events, place = np.unique(notes.event, return_inverse=True)
        attributes, payload = (one.take(pa.array(place)) for one in self.published(events))
        alone = pa.ListArray.from_arrays(np.arange(len(notes.event) + 1, dtype=np.int32), notes.subscription)
        return pa.table(
            {
                "event": notes.event,
                "subscription": notes.subscription,
                "subscriber": notes.subscriber,
                "subscriptions": pc.coalesce(notes.subscriptions, alone),
                "attributes": pc.coalesce(notes.attributes, attributes),
                "payload": pc.coalesce(notes.payload, payload),
                "trace": notes.trace,
            }
        )

    def effects(self) -> list[list[Effect]]:
        """By row what `handle` would have given: for comparing, not for speed."""
        self._read_all()
        told: dict[int, list[int]] = {}
        for place, (_, cause) in enumerate(self._record.metas):
            told.setdefault(cause, []).append(self._record.rows + place)
        rejected, asks, logs, persists = (
            _by_event(one)
            for one in (self._record.rejected, self._record.asks, self._record.logs, self._record.persists)
        )

        def of(number: int) -> Iterator[Effect]:
            yield from (Reject(step, reason) for step, reason in rejected.get(number, ()))
            low, high = np.searchsorted(self._event, [number, number + 1]).tolist()
            yield from (self._delivered(*one) for one in self._groups(low, high))
            yield from (Ask(party, group) for party, group in asks.get(number, ()))
            yield from (Log(line) for (line,) in logs.get(number, ()))
            yield from (one for (one,) in persists.get(number, ()))
            for meta in told.get(number, ()):
                yield Told(self._record.metas[meta - self._record.rows][0])
                yield from of(meta)

        return [self._changes[row] if row in self._changes else list(of(row)) for row in range(self._record.rows)]

    def _groups(self, low: int, high: int) -> Iterator[tuple[int, list[Subscription], int]]:
        """Notifications: the event's number, the subscriptions that it answers, and the shape."""
        at = low
        events, places, shapes = (one[low:high].tolist() for one in (self._event, self._place, self._shape))
        known = self._directory
        at = 0
        while at < high - low:
            first = known[places[at]]
            end = at + 1
            if first.notify == "client":
                while end < high - low and events[end] == events[at]:
                    other = known[places[end]]
                    if other.notify != "client" or other.subscriber != first.subscriber:
                        break
                    end += 1
            yield events[at], [known[place] for place in places[at:end]], shapes[at]
            at = end

    def _delivered(self, number: int, wanted: list[Subscription], shape: int) -> Deliver:
        event = self.event(number)
        return routes.delivered_to(event, wanted, self._record.shaping(shape).of(event), self._gate)

    def event(self, number: int) -> Event:
        """The event of that number: of a row, or a meta-event."""
        return self._gazette.event(number)

    def _read_all(self) -> None:
        self._reading.read_all()


def run(engine: "Engine", table: pa.Table, now: int | None) -> Batch:
    if engine.neighbours or engine.held:
        raise InvalidValueError("a batch is for an engine without neighbours on which nothing waits for an answer")
    if not isinstance(engine.matcher, FastMatcher):
        raise InvalidValueError("a batch needs the index: Engine(matcher=FastMatcher()), which is the default")
    course = Course(engine, engine.matcher, table, now)
    course.run()
    return Batch(course.record, course.reading, course.changes, engine.gate)


def _by_event(rows: list[Any]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, *more in rows:
        found.setdefault(number, []).append(tuple(more))
    return found


def _table(rows: list[Any], **columns: pa.DataType) -> pa.Table:
    schema = pa.schema(list(columns.items()))
    given = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table([pa.array(one, kind) for one, kind in zip(given, columns.values(), strict=True)], schema=schema)


def _json(one: Any) -> str:
    return msgspec.json.encode(one.attributes).decode()

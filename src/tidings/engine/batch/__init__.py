"""`Engine.batch`: the vectorised twin of `Engine.handle`. It is held equal to it by test, and never a loop over rows.

Operations go in as a table, in their order; what comes out are columns. A batch is for an engine without neighbours,
and it cannot wait: a copy that needs an answer of the trust provider is withheld and listed in `asks`. Who wants it
delivered answers with `Trust` (that lasts) and runs the batch again on a restored engine.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tidings import journal
from tidings.engine import records, routes
from tidings.engine.batch import stretch
from tidings.engine.batch.publications import Publications
from tidings.engine.batch.record import Record
from tidings.engine.batch.regimes import Rulebook
from tidings.engine.batch.shapes import trace_text
from tidings.engine.effects import Ask, Deliver, Effect, Log, Reject, Told
from tidings.engine.matcher import FastMatcher
from tidings.journal.record import PUBLISH
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import Event, checked_client
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


Read = tuple[int, Publications, int]  # the first row of a stretch, and where its publications begin in what was read
_first = itemgetter(0)


class Batch:
    """What followed. An event's number is its row in the table; meta-events are numbered on from the last row.

    `matches`: `event`, `subscription`, and `shape`, which is 0 for an event as it was published and else a row of
    `shapes`. With notify="client" all subscriptions of the one notification stand here, one after the other.
    """

    def __init__(self, record: Record, stretches: list[Read], changes: dict[int, list[Effect]]) -> None:
        self._record, self._stretches, self._changes = record, stretches, changes
        self._event, self._place, self._shape = record.deliveries()

    @property
    def matches(self) -> pa.Table:
        ids: dict[str, int] = {}
        codes = [ids.setdefault(one.id, len(ids)) for one in self._record.subscriptions]
        subscription = pa.DictionaryArray.from_arrays(
            pa.array(np.array(codes, np.int32)[self._place] if codes else np.empty(0, np.int32)),
            pa.array(list(ids), pa.string()),
        )
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

    def notifications(self) -> pa.Table:
        """One row a notification, made now: `attributes` and `trace` are JSON, which tells 1, 1.0 and true apart."""
        made: dict[tuple[int, int], tuple[str, bytes | None, str | None]] = {}
        rows = []
        self._read_all()
        for number, places, shape in self._groups(0, len(self._event)):
            key = number, shape
            if key not in made:
                note = self._delivered(number, places, shape).notification
                made[key] = _json(note), note.payload, trace_text(note.trace)
            first = places[0]
            rows.append((number, first.id, first.subscriber, [one.id for one in places], *made[key]))
        text = pa.string()
        return _table(
            rows,
            event=pa.int64(),
            subscription=text,
            subscriber=text,
            subscriptions=pa.list_(text),
            attributes=text,
            payload=pa.binary(),
            trace=text,
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
        known = self._record.subscriptions
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
        event = self._of(number)
        return routes.delivered_to(event, wanted, self._record.shaping(shape).of(event))

    def _of(self, number: int) -> Event:
        if number >= self._record.rows:
            return self._record.metas[number - self._record.rows][0]
        first, publications, at = self._stretches[bisect_right(self._stretches, number, key=_first) - 1]
        return publications.event(at + number - first)

    def _read_all(self) -> None:
        for _, publications, _ in self._stretches:
            publications.read_all()


def run(engine: "Engine", table: pa.Table, now: int | None) -> Batch:
    if engine.neighbours or engine.held:
        raise InvalidValueError("a batch is for an engine without neighbours on which nothing waits for an answer")
    if not isinstance(engine.matcher, FastMatcher):
        raise InvalidValueError("a batch needs the index: Engine(matcher=FastMatcher()), which is the default")
    record, stretches = Record(table.num_rows), list[Read]()
    changes: dict[int, list[Effect]] = {}
    rulebook: Rulebook | None = None
    spans = list(_spans(table))
    few = _few(table, [(first, end) for first, end in spans if 0 < end <= first + stretch.FEW], now)
    at = 0  # among the few
    for first, end in spans:
        if end < 0:
            changes[first] = _change(engine, table.slice(first, 1), now, first, record)
        elif few is not None and end <= first + stretch.FEW:
            stretch.few(engine, few, range(at, at + end - first), first, record)
            stretches.append((first, few, at))
            at += end - first
            engine.at(int(few.now[at - 1]))
        else:
            publications = Publications(table.slice(first, end - first), now)
            stretches.append((first, publications, 0))
            rulebook = stretch.Stretch(engine, engine.matcher, publications, first, record).run(rulebook)
            engine.at(int(publications.now[-1]))
    return Batch(record, stretches, changes)


def _few(table: pa.Table, short: list[tuple[int, int]], now: int | None) -> Publications | None:
    """The publications of all short stretches, read together."""
    if not short:
        return None
    rows = np.concatenate([np.arange(first, end) for first, end in short])
    found = Publications(table.take(pa.array(rows)), now)
    found.read_all()
    return found


def _spans(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Stretches of publications as first and end; a row of another kind as itself and -1.

    So is a publication that says what happened to it on its way, which only a broker may.
    """
    if "kind" not in table.column_names or "body" not in table.column_names:
        if table.num_rows:
            yield 0, table.num_rows
        return
    kinds, bodies = table["kind"].to_pylist(), table["body"].to_pylist()
    first = 0
    for row, (kind, body) in enumerate(zip(kinds, bodies, strict=True)):
        if kind != PUBLISH or (body is not None and '"journey"' in body):
            if first < row:
                yield first, row
            yield row, -1
            first = row + 1
    if first < len(kinds):
        yield first, len(kinds)


def _change(engine: "Engine", table: pa.Table, now: int | None, row: int, record: Record) -> list[Effect]:
    """A change, in its place. One that would wait for an answer is not made."""
    given = table.to_pylist()[0]
    fields = {name: given.get(name) for name in journal.Operation.__struct_fields__}
    time = Publications.times(table)[0] if now is None else now
    published = Publications.times(table, "published")[0] if fields["published"] is not None else None
    try:
        checked_client(fields["client"] or fields["publisher"])
        operation = records.operation(journal.Operation(**{**fields, "published": published}))
    except (TidingsError, msgspec.MsgspecError, KeyError, TypeError) as error:  # a row that somebody else has written
        effects: list[Effect] = [Reject("admit", f"the row says nothing that can be done: {_said(error)}")]
    else:
        effects = engine.handle(operation, int(time))
    if engine.held:
        engine.held.withdraw()
    record.take(row, None, effects, engine)
    return effects


def _said(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]


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

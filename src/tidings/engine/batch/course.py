"""The course of a batch: span by span, each in the way that is the fastest for what it is made of."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings import journal
from tidings.engine import records
from tidings.engine.batch import stretch
from tidings.engine.batch.arrivals import Arrivals, are_free
from tidings.engine.batch.contexts import UNREADABLE, ContextChanges, unreadable
from tidings.engine.batch.publications import Publications
from tidings.engine.batch.reading import Reading
from tidings.engine.batch.record import Record
from tidings.engine.batch.regimes import Rulebook
from tidings.engine.batch.spans import SET_CONTEXT, Kind, Span, spans
from tidings.engine.effects import Effect, Reject
from tidings.engine.matcher import FastMatcher
from tidings.engine.operations import Operation, SetContext, Subscribe
from tidings.matching.index.programs import NotSayable
from tidings.matching.index.tables import CONTEXT, mappings, whole
from tidings.model.event import checked_client
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

Ints = npt.NDArray[np.int64]
_FIELDS = journal.Operation.__struct_fields__


class Course:
    """`changes` are the effects of operations that are no publications, where there are any."""

    def __init__(self, engine: "Engine", matcher: FastMatcher, table: pa.Table, now: int | None) -> None:
        self._engine, self._matcher, self._table, self._now = engine, matcher, table, now
        self.record, self.reading = Record(table.num_rows), Reading(table.num_rows)
        self.changes: dict[int, list[Effect]] = {}
        self._rulebook: Rulebook | None = None

    def run(self) -> None:
        given = list(spans(self._table, self._engine.name))
        singles = _Singles(self._table, [one for one in given if _is_short(one)], self._now, self.reading)
        for span in given:
            if _is_short(span):
                self._one_by_one(span, singles)
            elif span.kind is Kind.TRAFFIC:
                self._together(span)
            elif are_free(self._engine):
                self._let_in(span)
            else:
                self._one_by_one(span, self._singles(span))

    def _singles(self, span: Span) -> "_Singles":
        return _Singles(self._table, [span], self._now, self.reading)

    def _together(self, span: Span) -> None:
        table, rows = self._table.slice(span.first, span.end - span.first), np.arange(span.first, span.end)
        is_event, changes = span.is_event, None
        if not is_event.all():
            before = np.cumsum(~is_event, dtype=np.int64)[is_event]
            said = table.filter(pa.array(~is_event))
            try:
                changes = ContextChanges(self._engine, self._matcher, said, rows[~is_event], before, self.record)
            except NotSayable:
                self._one_by_one(span, self._singles(span))
                return
            table, rows = table.filter(pa.array(is_event)), rows[is_event]
        if len(rows):
            publications = Publications(table, self._now)
            self.reading.note(rows, publications)
            taken = stretch.Stretch(self._engine, self._matcher, publications, rows, self.record, changes)
            self._rulebook = taken.run(self._rulebook)
        elif changes is not None:
            changes.make_all()
        last = Publications.times(self._table.slice(span.end - 1, 1))[0] if self._now is None else self._now
        self._engine.at(int(last))

    def _let_in(self, span: Span) -> None:
        singles, arrivals = self._singles(span), Arrivals(self._engine, self._matcher)
        waiting: dict[str, int] = {}  # the rows of those that came together

        def let_in() -> None:
            for name in arrivals.let_in():
                self.changes[waiting[name]] = self._change(waiting[name], singles)
            waiting.clear()

        for row in range(span.first, span.end):
            said = singles.said(row)
            if arrivals.is_new(said["id"]):
                waiting[said["id"]] = row
                if arrivals.is_text(said):
                    continue
                operation = singles.operation_if_any(row)
                if isinstance(operation, Subscribe):
                    arrivals.add(operation.subscription)
                    continue
                del waiting[said["id"]]
            let_in()
            self.changes[row] = self._change(row, singles)
        let_in()
        self._engine.at(singles.time(span.end - 1))

    def _one_by_one(self, span: Span, singles: "_Singles") -> None:
        for row, is_event in enumerate(span.is_event.tolist(), span.first):
            if is_event:
                stretch.alone(self._engine, *singles.publication(row), row, self.record)
            else:
                self.changes[row] = self._change(row, singles)

    def _change(self, row: int, singles: "_Singles") -> list[Effect]:
        """A change, in its place. One that would wait for an answer is not made."""
        operation = singles.operation_if_any(row)
        effects: list[Effect]
        if isinstance(operation, Reject):
            effects = [operation]
        else:
            effects = self._engine.handle(operation, singles.time(row))
            if self._engine.held:
                self._engine.held.withdraw()
        self.record.take(row, None, effects, self._engine)
        return effects


class _Singles:
    """Rows of some spans, read together, to be taken one by one."""

    def __init__(self, table: pa.Table, given: list[Span], now: int | None, reading: Reading) -> None:
        self._now = now
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(one.first, one.end) for one in given)])
        is_event = np.concatenate([np.empty(0, bool), *(one.is_event for one in given)])
        self._events: Publications | None = None
        if is_event.any():
            self._events = Publications(table.take(pa.array(rows[is_event])), now)
            self._events.read_all()
            reading.note(rows[is_event], self._events)
        self._places = {row: place for place, row in enumerate(rows[is_event].tolist())}
        self._others = {row: place for place, row in enumerate(rows[~is_event].tolist())}
        if self._others:
            self._read(table.take(pa.array(rows[~is_event])))

    def publication(self, row: int) -> tuple[Publications, int]:
        assert self._events is not None  # noqa: S101
        return self._events, self._places[row]

    def time(self, row: int) -> int:
        return int(self._times[self._others[row]]) if self._now is None else self._now

    def said(self, row: int) -> dict[str, Any]:
        return self._said[self._others[row]]

    def operation_if_any(self, row: int) -> Operation | Reject:
        """The operation in a row, which somebody else has written; or that there is none."""
        try:
            return self._operation(self._others[row])
        except UNREADABLE as error:
            return Reject("admit", unreadable(error))

    def _operation(self, place: int) -> Operation:
        said = self._said[place]
        client = checked_client(said["client"] or said["publisher"])
        if said["kind"] == SET_CONTEXT and said["body"] is None and self._contexts is not None:
            if pa.types.is_string(self._contexts.type):
                said = {**said, "body": self._contexts[place].as_py()}
            else:
                context = Context(mappings(self._contexts.slice(place, 1))[0])
                return SetContext(client, context, said["id"])
        return records.operation(journal.Operation(**said))

    def _read(self, table: pa.Table) -> None:
        self._times = Publications.times(table)
        known = table.select([name for name in _FIELDS if name in table.column_names and name != CONTEXT])
        columns: dict[str, list[Any]] = {name: [None] * table.num_rows for name in _FIELDS}
        columns |= {name: known[name].to_pylist() for name in known.column_names}
        if "published" in table.column_names:
            given = table["published"].is_valid().to_pylist()
            times = Publications.times(table, "published").tolist()
            columns["published"] = [time if valid else None for time, valid in zip(times, given, strict=True)]
        self._contexts = whole(table[CONTEXT]) if CONTEXT in table.column_names else None
        if self._contexts is not None and pa.types.is_large_string(self._contexts.type):
            self._contexts = self._contexts.cast(pa.string())
        if self._contexts is not None and pa.types.is_string(self._contexts.type):
            columns[CONTEXT] = self._contexts.to_pylist()
        self._said = [dict(zip(_FIELDS, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _is_short(span: Span) -> bool:
    return span.kind is Kind.OTHER or span.end - span.first <= stretch.FEW

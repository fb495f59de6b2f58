"""The course of a batch: span by span, each in the way that is the fastest for what it is made of."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidings.engine.batch import stretch
from tidings.engine.batch.arrivals import Arrivals, are_free
from tidings.engine.batch.contexts import ContextChanges
from tidings.engine.batch.publications import Publications
from tidings.engine.batch.reading import Reading
from tidings.engine.batch.record import Record
from tidings.engine.batch.regimes import Rulebook
from tidings.engine.batch.singles import Singles
from tidings.engine.batch.spans import Kind, Span, spans
from tidings.engine.effects import Effect, Reject
from tidings.engine.matcher import FastMatcher
from tidings.engine.operations import Operation, Subscribe
from tidings.matching.index.programs import NotSayable

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


class Course:
    """`changes` are the effects of operations that are no publications, where there are any."""

    def __init__(self, engine: "Engine", matcher: FastMatcher, table: pa.Table, now: int | None) -> None:
        self._engine, self._matcher, self._table, self._now = engine, matcher, table, now
        self.record, self.reading = Record(table.num_rows), Reading(table.num_rows)
        self.changes: dict[int, list[Effect]] = {}
        self._rulebook: Rulebook | None = None

    def run(self) -> None:
        gate = self._engine.gate
        judges_replays = gate is not None and gate.ingress.freshness is not None
        given = list(spans(self._table, self._engine.name, seals_alone=judges_replays))
        singles = Singles(self._table, [one for one in given if _is_short(one)], self._now, self.reading)
        for span in given:
            if _is_short(span):
                self._one_by_one(span, singles)
            elif span.kind is Kind.TRAFFIC:
                self._together(span)
            elif are_free(self._engine):
                self._let_in(span)
            else:
                self._one_by_one(span, self._singles(span))

    def _singles(self, span: Span) -> Singles:
        return Singles(self._table, [span], self._now, self.reading)

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
        for row in range(span.first, span.end):
            operation = singles.operation(row)
            if not isinstance(operation, Subscribe) or not arrivals.take(operation.subscription):
                arrivals.let_in()
                self.changes[row] = self._change(operation, row, singles)
        arrivals.let_in()
        self._engine.at(singles.time(span.end - 1))

    def _one_by_one(self, span: Span, singles: Singles) -> None:
        for row, is_event in enumerate(span.is_event.tolist(), span.first):
            if is_event:
                stretch.alone(self._engine, *singles.publication(row), row, self.record)
            else:
                self.changes[row] = self._change(singles.operation(row), row, singles)

    def _change(self, operation: Operation | Reject | None, row: int, singles: Singles) -> list[Effect]:
        """A change, in its place. One that would wait for an answer is not made."""
        effects: list[Effect]
        if operation is None:
            return []
        if isinstance(operation, Reject):
            effects = [operation]
        else:
            effects = self._engine.handle(operation, singles.time(row))
            if self._engine.held:
                self._engine.held.withdraw()
        self.record.take(row, None, effects, self._engine)
        return effects


def _is_short(span: Span) -> bool:
    return span.kind is Kind.OTHER or span.end - span.first <= stretch.FEW

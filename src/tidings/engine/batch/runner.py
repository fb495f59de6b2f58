"""Run a batch: cut the table into spans, and process each span in the fastest way for its operations."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tidings.engine.batch import publication_run
from tidings.engine.batch.context_changes import ContextChanges
from tidings.engine.batch.partition import RowSpan, SpanKind, spans
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.batch.results import ResultCollector
from tidings.engine.batch.row_reader import PublicationReader, RowReader
from tidings.engine.batch.rule_sets import RuleSetIndex
from tidings.engine.effects import Effect, Reject
from tidings.engine.matcher import FastMatcher
from tidings.engine.operations import Operation, Subscribe
from tidings.engine.state.registration import new_entry
from tidings.engine.turn import Turn
from tidings.matching.index.kernels.programs import NotExpressible
from tidings.model.subscription import Subscription
from tidings.policy.ast import MessageType

Handle = Callable[[Operation, int], list[Effect]]  # `Engine.handle`, that lets nothing wait


class BatchRun:
    """One run of `Engine.batch` over a table; `results` collects its results.

    `effects_by_row` has, by row, the effects of those operations other than publications that were handled one by one.
    """

    def __init__(self, turn: Turn, matcher: FastMatcher, handle: Handle, table: pa.Table, now: int | None) -> None:
        """Create a run; see `tidings.engine.batch.batch.run` for the arguments."""
        self._turn, self._matcher, self._handle_one, self._table, self._now = turn, matcher, handle, table, now
        self.results, self.reader = ResultCollector(table.num_rows), PublicationReader(table.num_rows)
        self.effects_by_row: dict[int, list[Effect]] = {}
        self._rule_index: RuleSetIndex | None = None

    def run(self) -> None:
        """Process all spans in order."""
        gate = self._turn.gate
        checks_replays = gate is not None and gate.ingress.freshness is not None
        table_spans = list(spans(self._table, self._turn.state.name, seals_alone=checks_replays))
        reader = RowReader(self._table, [span for span in table_spans if _is_short(span)], self._now, self.reader)
        for span in table_spans:
            if _is_short(span):
                self._one_by_one(span, reader)
            elif span.kind is SpanKind.TRAFFIC:
                self._process_traffic(span)
            elif accepts_unchecked(self._turn):
                self._process_subscriptions(span)
            else:
                self._one_by_one(span, self._row_reader(span))

    def _row_reader(self, span: RowSpan) -> RowReader:
        return RowReader(self._table, [span], self._now, self.reader)

    def _process_traffic(self, span: RowSpan) -> None:
        """Process a span of publications and context changes in columns.

        If the index has no room for the context names, the span is processed one by one.
        """
        table, rows = self._table.slice(span.first, span.end - span.first), np.arange(span.first, span.end)
        is_event, context_changes = span.is_event, None
        if not is_event.all():
            before = np.cumsum(~is_event, dtype=np.int64)[is_event]
            context_rows = table.filter(pa.array(~is_event))
            try:
                context_changes = ContextChanges(
                    self._turn, self._matcher, context_rows, rows[~is_event], before, self.results
                )
            except NotExpressible:
                self._one_by_one(span, self._row_reader(span))
                return
            table, rows = table.filter(pa.array(is_event)), rows[is_event]
        if len(rows):
            publications = PublicationColumns(table, self._now)
            self.reader.note(rows, publications)
            publication_run_of_span = publication_run.PublicationRun(
                self._turn, self._matcher, publications, rows, self.results, context_changes
            )
            self._rule_index = publication_run_of_span.run(self._rule_index)
        elif context_changes is not None:
            context_changes.apply_all()
        last = PublicationColumns.times(self._table.slice(span.end - 1, 1))[0] if self._now is None else self._now
        self._turn.begin(int(last))

    def _process_subscriptions(self, span: RowSpan) -> None:
        """Process a span of subscriptions: those that can be collected are put into the index at once."""
        reader, bulk = self._row_reader(span), BulkSubscribe(self._turn, self._matcher)
        for row in range(span.first, span.end):
            operation = reader.operation(row)
            if not isinstance(operation, Subscribe) or not bulk.add(operation.subscription):
                bulk.flush()
                self.effects_by_row[row] = self._handle(operation, row, reader)
        bulk.flush()
        self._turn.begin(reader.time(span.end - 1))

    def _one_by_one(self, span: RowSpan, reader: RowReader) -> None:
        for row, is_event in enumerate(span.is_event.tolist(), span.first):
            if is_event:
                publication_run.process_single(self._turn, *reader.publication(row), row, self.results)
            else:
                self.effects_by_row[row] = self._handle(reader.operation(row), row, reader)

    def _handle(self, operation: Operation | Reject | None, row: int, reader: RowReader) -> list[Effect]:
        """Handle an operation that is not a publication."""
        if operation is None:
            return []
        effects: list[Effect]
        effects = [operation] if isinstance(operation, Reject) else self._handle_one(operation, reader.time(row))
        self.results.add_effects(row, None, effects, self._turn.state.filters.subscriptions)
        return effects


def _is_short(span: RowSpan) -> bool:
    return span.kind is SpanKind.OTHER or span.end - span.first <= publication_run.MAX_SINGLE_ROWS


_SUBSCRIPTION = MessageType.SUBSCRIPTION


def accepts_unchecked(turn: Turn) -> bool:
    """Return whether subscriptions are accepted without rules, schemas and a gate."""
    state = turn.state
    has_rules = state.rules.advertisements_with_rules(_SUBSCRIPTION) or state.rules.pre_match_rulings(_SUBSCRIPTION)
    return not has_rules and turn.gate is None and not any(True for _ in state.subjects)


class BulkSubscribe:
    """Collects subscriptions that follow one another, to put them into the index at once."""

    def __init__(self, turn: Turn, matcher: FastMatcher) -> None:
        self._turn, self._matcher = turn, matcher
        self._collected: dict[str, Subscription] = {}

    def add(self, subscription: Subscription) -> bool:
        """Collect a subscription and return True; return False if it must be handled by itself.

        That is so if its id is in use, or begins with `$`.
        """
        name = subscription.id
        if name.startswith("$") or name in self._collected or name in self._matcher:
            return False
        if self._turn.state.filters.advertisements.get(name) is not None:
            return False
        self._collected[name] = subscription
        return True

    def flush(self) -> None:
        """Put the collected subscriptions into the engine."""
        state = self._turn.state
        subscriptions, self._collected = list(self._collected.values()), {}
        if subscriptions:
            self._matcher.put_many(subscriptions)
        for subscription in subscriptions:
            entry = new_entry(state, subscription, subscription.subscriber, None)
            state.filters.subscriptions.put(entry)
            state.rules.update(entry)

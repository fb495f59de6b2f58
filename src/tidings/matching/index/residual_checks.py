"""Finish matches that kernels leave open: content that the reference must confirm, and context filters."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidings.matching.index import arrow_tables
from tidings.matching.index.batch import EventBatch, Pairs, PublisherContextEncoder, each
from tidings.matching.index.context_filters import GONE, NO_FILTER, Others
from tidings.matching.index.contexts import is_plain
from tidings.matching.index.kernels import programs
from tidings.matching.index.pending_context_changes import ContextsAtEvents, PendingContextChanges
from tidings.matching.index.segment_matcher import Positions
from tidings.matching.reference import Scope, matches_context, passes_structure, passes_subject, truth
from tidings.model.filter import ContextFilterValue
from tidings.model.subscription import Subscription
from tidings.model.values import Context, Value

_UNSURE_BYTE = bytes([programs.UNSURE])
ParseContextFilter = Callable[[str], ContextFilterValue]


class CheckedSubscriptions(Protocol):
    """The subscription at each position, its program and its client. `PositionTable` says what each of these is."""

    programs: npt.NDArray[np.int32]
    clients: npt.NDArray[np.int32]

    def __getitem__(self, position: int) -> Subscription: ...


class SubscriberContexts(Protocol):
    """The contexts of subscribers. `Contexts` says what each of these does."""

    def get(self, client: str) -> Context: ...
    def at_events(self, event: Any, client: Any) -> ContextsAtEvents: ...


class ContextFilterEvaluation(PublisherContextEncoder, Protocol):
    """Evaluates context filters. `ContextFilterPrograms` says what each of these does."""

    in_use: bool

    def evaluate_publisher(self, positions: Any, programs: Any, clients: Any, context: Mapping[str, Value]) -> Any: ...
    def evaluate_publishers(
        self, which: Any, programs: Any, subscriber_contexts: ContextsAtEvents, publishers: Others
    ) -> Any: ...
    def evaluate_subscribers(
        self, event_filter: ContextFilterValue, subscriber_contexts: ContextsAtEvents, publisher: Mapping[str, Value]
    ) -> Any | None: ...


class ResidualChecks:
    """Checks the positions of subscriptions whose content matched, or may match, an event.

    It acquires `lock` where contexts and programs must not change meanwhile.
    """

    def __init__(
        self,
        position_table: CheckedSubscriptions,
        contexts: SubscriberContexts,
        programs: ContextFilterEvaluation,
        lock: threading.RLock,
        parse: ParseContextFilter,
    ) -> None:
        self._position_table = position_table
        self._contexts = contexts
        self._programs = programs
        self._lock = lock
        self._parse = parse  # parses the text of a context filter

    def confirm(self, positions: Positions, scope: Scope) -> Positions:
        """Return the certain positions, and those doubtful ones that the reference confirms.

        A doubtful position is represented by its complement, which is negative.
        """
        doubtful = positions < 0
        sure = positions[~doubtful]
        sure_positions = set(sure.tolist())
        to_confirm = [
            position for position in dict.fromkeys((~positions[doubtful]).tolist()) if position not in sure_positions
        ]
        return np.concatenate([sure, np.array([p for p in to_confirm if self._is_true(p, scope)], np.int32)])

    def _is_true(self, position: int, scope: Scope) -> bool:
        subscription = self._subscription(position)
        return (
            subscription is not None
            and passes_subject(subscription, scope.subject)
            and passes_structure(subscription, scope.subject, scope.attributes)
            and truth(subscription.content.expression, scope) is True
        )

    def _subscription(self, position: int) -> Subscription | None:
        """Return the subscription at a position; None if it was removed a moment ago."""
        try:
            return self._position_table[position]
        except KeyError:
            return None

    def have_context_filters(self, positions: Positions) -> bool:
        """Return whether one of the subscriptions has a `publishers` filter."""
        return self._programs.in_use and bool((self._position_table.programs[positions] != NO_FILTER).any())

    def check_contexts(
        self, positions: Positions, context: Mapping[str, Any] | None, subscribers: ContextFilterValue | None
    ) -> Positions:
        """Return the positions for which both context filters are true.

        These are the subscription's `publishers`, on the publisher's context, and the event's `subscribers`, on the
        subscriber's.
        """
        if context is None or not is_plain(context):
            context = Context.of(context)
        if self._programs.in_use:
            table = self._position_table
            with self._lock:
                answers = self._programs.evaluate_publisher(positions, table.programs, table.clients, context)
            positions = positions[_resolved(answers, lambda at: self._accepts_publisher(int(positions[at]), context))]
        if subscribers is None:
            return positions
        with self._lock:
            subscriber_contexts = self._contexts.at_events(None, self._position_table.clients[positions])
            return positions[
                self._passes_event_filter(positions, subscribers, Context.of(context), subscriber_contexts)
            ]

    def check_batch(
        self, event: Any, position: Positions, batch: EventBatch, moves: PendingContextChanges | None = None
    ) -> Pairs:
        """Confirm the doubtful pairs of a batch and check both context filters; return the pairs that remain.

        Args:
            event: The number of each pair's event, ascending.
            position: The position of each pair's subscription, or its complement if it is doubtful.
            batch: The events.
            moves: Changes of contexts between the events, if there are any.
        """
        if (position < 0).any():
            event, position = each(event, position, lambda e, p: self.confirm(p, arrow_tables.scope_of(batch.row(e))))
        contexts, table = moves or self._contexts, self._position_table
        if self._programs.in_use:
            with self._lock:
                publishers = batch.contexts(self._programs)
                subscriber_contexts = contexts.at_events(event, table.clients[position])
                answers = self._programs.evaluate_publishers(
                    event, table.programs[position], subscriber_contexts, publishers
                )

            def accepts(at: int) -> bool:
                subscription = self._subscription(int(position[at]))
                return subscription is not None and matches_context(
                    subscription.publishers, batch.context(int(event[at])), subscriber_contexts.context(at)
                )

            accepted = _resolved(answers, accepts)
            event, position = event[accepted], position[accepted]
        if batch.has_subscribers:
            texts = batch.subscribers()
            subscriber_contexts = contexts.at_events(event, table.clients[position])

            def select_subscribers(e: int, pairs: Positions) -> Positions:
                text = texts[e]
                if text is None:
                    return pairs
                return pairs[
                    self._passes_event_filter(
                        position[pairs], self._parse(text), batch.context(e), subscriber_contexts.select(pairs)
                    )
                ]

            event, pairs = each(event, np.arange(len(event), dtype=np.int32), select_subscribers)
            position = position[pairs]
        return event, position

    def _accepts_publisher(self, position: int, context: Mapping[str, Any]) -> bool:
        subscription = self._subscription(position)
        if subscription is None:
            return False
        return matches_context(
            subscription.publishers, Context.of(context), self._contexts.get(subscription.subscriber)
        )

    def _passes_event_filter(
        self,
        positions: Positions,
        event_filter: ContextFilterValue,
        context: Context,
        subscriber_contexts: ContextsAtEvents,
    ) -> npt.NDArray[np.bool_]:
        """Return for which of the positions the event's own `subscribers` filter is true."""
        with self._lock:
            answers = self._programs.evaluate_subscribers(event_filter, subscriber_contexts, context)
            if answers is None:
                answers = np.full(len(positions), programs.UNSURE, np.uint8)
            answers[self._position_table.programs[positions] == GONE] = programs.FALSE
            return _resolved(
                answers, lambda at: matches_context(event_filter, subscriber_contexts.context(at), context)
            )


def _resolved(answers: npt.NDArray[np.uint8], decide: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
    """Return which answers are true; for UNSURE ones, `decide` is called with their index."""
    accepted: npt.NDArray[np.bool_] = answers == programs.TRUE
    if _UNSURE_BYTE in answers.tobytes():  # for few answers, the usual case, much faster than an array operation
        for at in np.flatnonzero(answers == programs.UNSURE).tolist():
            accepted[at] = decide(at)
    return accepted

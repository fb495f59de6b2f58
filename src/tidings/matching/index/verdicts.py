"""What the content kernels leave open: candidates that the reference confirms, and contexts in both directions."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index import programs, tables
from tidings.matching.index.batch import Batch, Pairs, each
from tidings.matching.index.contexts import Contexts, is_plain
from tidings.matching.index.matcher import Positions
from tidings.matching.index.moves import Moves, Seen
from tidings.matching.index.register import Register
from tidings.matching.index.scopes import GONE, NO_FILTER, Scopes
from tidings.matching.reference import Scope, matches_context, passes_structure, passes_subject, truth
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Context

_DOUBT = bytes([programs.UNSURE])
Change = Callable[[str], ContextFilter]


class Verdicts:
    """On subscriptions whose content matched. `changing` is held where nothing may change meanwhile."""

    def __init__(
        self, register: Register, contexts: Contexts, scopes: Scopes, changing: threading.RLock, parse: Change
    ) -> None:
        self._register = register
        self._contexts = contexts
        self._scopes = scopes
        self._changing = changing
        self._parse = parse  # a filter that comes as text

    def confirmed(self, found: Positions, scope: Scope) -> Positions:
        """With those of the doubtful, who come as their complement, of whom the reference says that they match."""
        doubtful = found < 0
        sure = found[~doubtful]
        known = set(sure.tolist())
        asked = [position for position in dict.fromkeys((~found[doubtful]).tolist()) if position not in known]
        return np.concatenate([sure, np.array([p for p in asked if self._is_true(p, scope)], np.int32)])

    def _is_true(self, position: int, scope: Scope) -> bool:
        subscription = self._subscription(position)
        return (
            subscription is not None
            and passes_subject(subscription, scope.subject)
            and passes_structure(subscription, scope.subject, scope.attributes)
            and truth(subscription.content.expression, scope) is True
        )

    def _subscription(self, position: int) -> Subscription | None:
        """The one that stands there; none if it was removed a moment ago."""
        try:
            return self._register[position]
        except KeyError:
            return None

    def are_scoped(self, found: Positions) -> bool:
        """Whether some of them have a `publishers` filter."""
        return self._scopes.in_use and bool((self._register.programs[found] != NO_FILTER).any())

    def in_context(
        self, found: Positions, context: Mapping[str, Any] | None, subscribers: ContextFilter | None
    ) -> Positions:
        """Those of whom both context filters are true, theirs and the event's."""
        if context is None or not is_plain(context):
            context = Context.of(context)
        if self._scopes.in_use:
            register = self._register
            with self._changing:
                answers = self._scopes.judge_publisher(found, register.programs, register.clients, context)
            found = found[_settled(answers, lambda at: self._accepts_publisher(int(found[at]), context))]
        if subscribers is None:
            return found
        with self._changing:
            seen = self._contexts.seen(None, self._register.clients[found])
            return found[self._meant(found, subscribers, Context.of(context), seen)]

    def of_batch(self, event: Any, position: Positions, batch: Batch, moves: Moves | None = None) -> Pairs:
        """The same of the pairs of a batch, doubtful candidates and all; with the changes that lie between its events,
        if there are any."""
        if (position < 0).any():
            event, position = each(event, position, lambda e, p: self.confirmed(p, tables.scope_of(batch.row(e))))
        sight, register = moves or self._contexts, self._register
        if self._scopes.in_use:
            with self._changing:
                publishers = batch.contexts(self._scopes)
                seen = sight.seen(event, register.clients[position])
                answers = self._scopes.judge_publishers(event, register.programs[position], seen, publishers)

            def accepts(at: int) -> bool:
                subscription = self._subscription(int(position[at]))
                return subscription is not None and matches_context(
                    subscription.publishers, batch.context(int(event[at])), seen.context(at)
                )

            kept = _settled(answers, accepts)
            event, position = event[kept], position[kept]
        if batch.has_subscribers:
            texts = batch.subscribers()
            seen = sight.seen(event, register.clients[position])

            def meant(e: int, pairs: Positions) -> Positions:
                text = texts[e]
                if text is None:
                    return pairs
                return pairs[self._meant(position[pairs], self._parse(text), batch.context(e), seen.those(pairs))]

            event, pairs = each(event, np.arange(len(event), dtype=np.int32), meant)
            position = position[pairs]
        return event, position

    def _accepts_publisher(self, position: int, context: Mapping[str, Any]) -> bool:
        subscription = self._subscription(position)
        if subscription is None:
            return False
        return matches_context(
            subscription.publishers, Context.of(context), self._contexts.get(subscription.subscriber)
        )

    def _meant(self, found: Positions, wanted: ContextFilter, context: Context, seen: Seen) -> npt.NDArray[np.bool_]:
        """Of whose context the event's own filter is true."""
        with self._changing:
            answers = self._scopes.judge_subscribers(wanted, seen, context)
            if answers is None:
                answers = np.full(len(found), programs.UNSURE, np.uint8)
            answers[self._register.programs[found] == GONE] = programs.FALSE
            return _settled(answers, lambda at: matches_context(wanted, seen.context(at), context))


def _settled(answers: npt.NDArray[np.uint8], ask: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
    """Which answers are true; what the programs could not say is asked, by place."""
    kept: npt.NDArray[np.bool_] = answers == programs.TRUE
    if _DOUBT in answers.tobytes():  # for the few that there mostly are, much faster than through an array
        for at in np.flatnonzero(answers == programs.UNSURE).tolist():
            kept[at] = ask(at)
    return kept

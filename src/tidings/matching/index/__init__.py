"""The index: which of very many subscriptions does an event concern, given everyone's context now?"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index import kernels
from tidings.matching.index.columns import Columns
from tidings.matching.index.conjuncts import Conjunct, Constraint, Kind, conjuncts_of
from tidings.matching.index.kernels import RESIDUAL, SEVERAL, Events, Scratch
from tidings.matching.index.store import Store
from tidings.matching.reference import Scope, matches_context, truth
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.filter import ContextFilter
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context, Value

Positions = npt.NDArray[np.int32]


class Index:
    """Subscriptions by position, contexts by client. One thread may change it while others match."""

    def __init__(self) -> None:
        self._columns = Columns()
        self._store = Store()
        self._subscriptions: list[Subscription | None] = []
        self._positions: dict[str, int] = {}
        self._scoped = np.zeros(64, bool)  # whether a position has a `publishers` filter
        self._contexts: dict[str, Context] = {}
        self._changing = threading.RLock()
        self._local = threading.local()
        self._checked = self._matched = 0

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, id: object) -> bool:  # noqa: A002 - the subscription's own word
        return id in self._positions

    # Subscriptions

    def put(self, subscription: Subscription) -> int:
        """Adds a subscription, or replaces the one of the same id; it counts from the moment that this returns."""
        conjuncts = [_with_structure(one, subscription) for one in conjuncts_of(subscription.content.expression)]
        several = SEVERAL if len(conjuncts) > 1 else 0
        with self._changing:
            position = len(self._subscriptions)
            self._subscriptions.append(subscription)
            if position >= len(self._scoped):
                self._scoped = np.concatenate([self._scoped, np.zeros(len(self._scoped), bool)])
            self._scoped[position] = subscription.publishers is not None
            replaced = self._positions.get(subscription.id)
            for one in conjuncts:
                flags = several | (0 if one.exact else RESIDUAL)
                predicates = self._columns.predicates(one)
                self._store.add(position, flags, predicates, len(self._columns))
            self._positions[subscription.id] = position
            if replaced is not None:
                self._forget(replaced)
            return position

    def remove(self, id: str) -> None:  # noqa: A002
        """Takes a subscription out; `KeyError` if there is none of that id."""
        with self._changing:
            self._forget(self._positions.pop(id))

    def id(self, position: int) -> str:
        """The id of the subscription at a position that `match_positions` gave."""
        found = self._subscriptions[position]
        if found is None:
            raise KeyError(position)
        return found.id

    def _forget(self, position: int) -> None:
        self._store.remove(position)
        self._subscriptions[position] = None

    # Contexts

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """The client's context from now on; whether it differs from the one before."""
        given = Context.of(context)
        changed = self._contexts.get(client) != given
        if changed:
            self._contexts[client] = given
        return changed

    # Matching

    def match(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilter | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> set[str]:
        """The ids of the subscriptions that an event concerns."""
        found = self.match_positions(
            event, context=context, subscribers=subscribers, subject=subject, payload=payload, publisher=publisher
        )
        subscriptions = self._subscriptions
        return {one.id for position in found.tolist() if (one := subscriptions[position]) is not None}

    def match_positions(
        self,
        event: Mapping[str, Any],
        *,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilter | None = None,
        subject: str | None = None,
        payload: bytes | None = None,
        publisher: str | None = None,
    ) -> Positions:
        """The same as positions, which are numbers that `id` knows."""
        attributes = Attributes.of(event)
        scope = Scope(attributes, {}, subject, payload, publisher)
        found = self._content(scope)
        scoped = self._scoped[found]
        if subscribers is None and not scoped.any():
            return found
        given = Context.of(context)
        return found[[self._in_context(position, given, subscribers) for position in found.tolist()]]

    def _content(self, scope: Scope) -> Positions:
        encoded = self._columns.encode(_everything(scope, self._columns))
        parts = [self._match_segment(arrays, encoded) for arrays in self._store.segments]
        found = np.concatenate(parts)
        doubtful = found < 0
        if not doubtful.any():
            return found
        sure = found[~doubtful]
        known = set(sure.tolist())
        confirmed = [p for p in dict.fromkeys((~found[doubtful]).tolist()) if p not in known and self._is_true(p, scope)]
        return np.concatenate([sure, np.array(confirmed, np.int32)])

    def _match_segment(self, arrays: Any, events: Events) -> Positions:
        scratch, out = self._scratch()
        ends = np.zeros(1, np.int64)
        done, needed, checked = kernels.match_events(arrays, events, scratch, 0, out, ends)
        while not done:
            self._local.out = out = np.empty(2 * needed, np.int32)
            done, needed, checked = kernels.match_events(arrays, events, scratch, 0, out, ends)
        self._checked += checked
        self._matched += int(ends[0])
        return out[: ends[0]].copy()

    def _scratch(self) -> tuple[Scratch, Positions]:
        """This thread's scratch memory, large enough for what the index holds."""
        local = self._local
        attributes, tests, positions = len(self._columns), self._columns.test_count, len(self._subscriptions)
        known: Scratch | None = getattr(local, "scratch", None)
        if known is None or len(known.kind) < attributes or len(known.test_stamp) < tests or len(known.seen) < positions:
            size, marks = 2 * attributes + 64, 2 * tests + 64
            local.scratch = Scratch(
                np.zeros(size, np.uint8), np.zeros(size), np.zeros(size, np.int16), np.zeros(size, np.int32),
                np.zeros(marks, np.int64), np.zeros(2 * positions + 64, np.int64), np.zeros(1, np.int64),
            )  # fmt: skip
        if not hasattr(local, "out"):
            local.out = np.empty(4096, np.int32)
        return local.scratch, local.out

    def _is_true(self, position: int, scope: Scope) -> bool:
        subscription = self._subscriptions[position]
        return subscription is not None and truth(subscription.content.expression, scope) is True

    def _in_context(self, position: int, context: Context, subscribers: ContextFilter | None) -> bool:
        subscription = self._subscriptions[position]
        if subscription is None:
            return False
        own = self._contexts.get(subscription.subscriber, _NOWHERE)
        return matches_context(subscription.publishers, context, own) and matches_context(subscribers, own, context)


_NOWHERE = Context()


def _everything(scope: Scope, columns: Columns) -> dict[str, Value | None]:
    """The event's attributes, and what the system says of it as far as some filter asks."""
    system = {SUBJECT: scope.subject, PUBLISHER: scope.publisher}
    if PAYLOAD in columns.numbers:
        from tidings.matching.documents import text_of

        system[PAYLOAD] = text_of(scope.payload)
    return {**scope.attributes, **system}


def _with_structure(conjunct: Conjunct, subscription: Subscription) -> Conjunct:
    """Subject and structure, as constraints like any other."""
    subject, structure = subscription.subject, subscription.structure
    if subject is None and structure is None:
        return conjunct
    asked: dict[str, Constraint] = {}
    if structure is not None:
        asked |= {name: Constraint(Kind.PRESENT) for name in structure.names}
        asked |= {name: Constraint(Kind.MISSING) for name in structure.absent}
        asked[SUBJECT] = Constraint(Kind.STRING, text=structure.schema.subject)
    if subject is not None:
        asked[SUBJECT] = Constraint(Kind.STRING, text=subject)
    for name, constraint in asked.items():
        known = conjunct.constraints.get(name)
        conjunct.constraints[name] = constraint if known is None else known
    clash = any(conjunct.constraints[name] != constraint for name, constraint in asked.items())
    return conjunct._replace(exact=conjunct.exact and not clash)

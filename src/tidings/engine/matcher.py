"""Who is concerned: the one question that an engine asks of a matcher, answered fast or obviously right."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.directory import Directory
from tidings.filters import ContextFilter
from tidings.index import Index
from tidings.matching.index.conjuncts import Kind
from tidings.matching.index.several import Several
from tidings.matching.reference import due
from tidings.model.event import Event
from tidings.model.expression import PAYLOAD
from tidings.model.subscription import Subscription
from tidings.model.values import Context

_TOGETHER = 4  # events that are matched faster together than one by one
_WORTHWHILE = 4  # a directory of all, to be kept, is made where no more than so many subscriptions come to a pair


class Matcher(Protocol):
    def put(self, subscription: Subscription) -> Any: ...
    def remove(self, id: str) -> None: ...  # noqa: A002 - the subscription's own word
    def set_context(self, client: str, context: Mapping[str, Any]) -> bool: ...
    def concerned(self, event: Event) -> list[str]: ...
    def foresee(self, events: list[Event]) -> None:
        """These will be asked for; perhaps it is quicker to find out of all of them at once."""

    @property
    def is_untidy(self) -> bool:
        """Whether it would pay to `tidy`."""
        ...

    def tidy(self) -> None:
        """Makes answers quicker, by any thread, while others ask and change."""


class Asked(NamedTuple):
    """Whoever is concerned by an event has asked for one of these values of that attribute; "" and none: nobody is."""

    name: str
    numbers: list[float]
    texts: list[str]


class FastMatcher(Index):
    """The index."""

    def __init__(self) -> None:
        super().__init__()
        self._directory: tuple[tuple[int, int], Directory, Any] | None = None  # of which state of the register
        # Answers to questions that have not been asked yet, by the identity of events; and what was the case then.
        self._foreseen: dict[int, tuple[Event, list[str]]] = {}
        self._foreseen_in: tuple[tuple[int, int], int] | None = None

    @property
    def asks_payload(self) -> bool:
        """Whether any filter looks into payloads."""
        return PAYLOAD in self._columns.numbers

    @property
    def names(self) -> list[str]:
        """The ids by position."""
        return self._register.names

    def subscription(self, id: str) -> Subscription:  # noqa: A002 - its own word
        return self._register[self._register.positions[id]]

    def table(self) -> pa.Table:
        """The subscriptions as rows of text."""
        return self._register.saved(self._written)[1]

    def position(self, id: str) -> int:  # noqa: A002
        """The row of a subscription in that table."""
        return self._register.positions[id]

    def pairs(self, table: pa.Table) -> tuple[Any, Any]:
        """Like `match_batch`: row numbers and positions."""
        found = self.match_batch(table)
        event, subscription = found["event"].to_numpy(), found["subscription"]
        if subscription.num_chunks == 1:
            return event, np.asarray(subscription.chunk(0).indices)
        known = self._register.positions  # it came in parts, whose dictionaries may be others
        return event, np.array([known[name] for name in subscription.to_pylist()], np.int32)

    def directory(self, positions: Any) -> tuple[Directory, Any]:
        """The subscriptions at these positions, perhaps among others, by rising id; and by position their places."""
        state = self._register.state
        known = self._directory
        if known is None or known[0] != state:
            if _WORTHWHILE * len(positions) < self._register.size:
                used = np.flatnonzero(np.bincount(positions)) if len(positions) else np.empty(0, np.int64)
                return self._listed(used)
            known = self._directory = state, *self._listed(np.arange(self._register.size))
        return known[1:]

    def _listed(self, used: Any) -> tuple[Directory, Any]:
        ids = self._register.ids().take(pa.array(used))
        order = np.asarray(pc.array_sort_indices(ids))
        place = np.zeros(int(used[-1]) + 1 if len(used) else 0, np.int64)
        place[used[order]] = np.arange(len(used))
        clients = self._contexts.clients
        rows = self._register.clients[used[order]]
        if len(used) < self._register.size:
            subscribers = pa.array([clients[row] for row in rows.tolist()], pa.string())
        else:
            subscribers = pa.array(clients, pa.string()).take(pa.array(rows))
        return Directory(ids.take(pa.array(order)), subscribers, positions=used[order]), place

    def asked_of_all(self, most: int) -> "Asked | None":
        """An attribute that everyone wants to have one of at most so many values; None if there is none."""
        conjuncts = self._store.living()
        if self._homes:
            return None
        if conjuncts is None or not len(conjuncts.owner):
            return Asked("", [], [])
        pred, first = conjuncts.pred, conjuncts.pred_first
        one = np.repeat(np.arange(len(conjuncts.owner)), np.diff(first))
        kind, attribute = pred["what"] & 7, pred["what"] >> 3
        equal = (pred["low"] == pred["high"]) & ((kind == Kind.NUMBER) | ((kind == Kind.STRING) & (pred["low"] >= 0)))
        pairs = np.unique(one[equal] * np.int64(len(self._columns)) + attribute[equal]) % len(self._columns)
        best: Asked | None = None
        names = self._columns.saved()["columns"]
        for number in np.flatnonzero(np.bincount(pairs) == len(conjuncts.owner)).tolist():
            mine = equal & (attribute == number)
            numbers = np.unique(pred["low"][mine & (kind == Kind.NUMBER)]).tolist()
            codes = np.unique(pred["low"][mine & (kind == Kind.STRING)]).astype(int).tolist()
            if len(numbers) + len(codes) <= min(most, most if best is None else len(best.numbers) + len(best.texts)):
                best = Asked(names[number]["name"], numbers, [names[number]["strings"][code] for code in codes])
        return best

    def _parse_context(self, text: str) -> ContextFilter:
        return _context_filter(text)

    def concerned(self, event: Event) -> list[str]:
        if self._foreseen:
            known = self._foreseen.pop(id(event), None)
            if known is not None and known[0] is event and self._foreseen_in == self._state:
                return known[1]
        found = self._positions(
            event.attributes, event.context, event.subscribers, event.subject, event.payload, event.publisher
        )
        names = self._register.names
        return [names[position] for position in found.tolist()]

    def foresee(self, events: list[Event]) -> None:
        state = self._state
        pairs = self._attempt_pairs(Several(events)) if len(events) >= _TOGETHER else None
        self._foreseen, self._foreseen_in = {}, state
        if pairs is None:
            return
        names = self._register.names
        found: list[list[str]] = [[] for _ in events]
        for at, position in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
            found[at].append(names[position])
        if self._state == state:
            self._foreseen = {id(event): (event, ids) for event, ids in zip(events, found, strict=True)}

    @property
    def _state(self) -> tuple[tuple[int, int], int]:
        """The same as long as the same events concern the same subscriptions."""
        return self._register.state, self._contexts.written


@lru_cache(maxsize=1024)
def _context_filter(text: str) -> ContextFilter:
    return ContextFilter.parse(text)  # of many events, one after the other, mostly the same


class NaiveMatcher:
    """The reference, subscription by subscription: what the fast one is held to."""

    is_untidy = False

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._contexts: dict[str, Context] = {}

    def put(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription

    def remove(self, id: str) -> None:  # noqa: A002
        del self._subscriptions[id]

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        given = Context.of(context)
        changed = self._contexts.get(client, Context()) != given
        self._contexts[client] = given
        return changed

    def foresee(self, events: list[Event]) -> None:
        """One by one is how it answers."""

    def tidy(self) -> None:
        """There is nothing to put in order."""

    def concerned(self, event: Event) -> list[str]:
        nowhere = Context()
        return [
            name
            for name, one in self._subscriptions.items()
            if due(one, event, self._contexts.get(one.subscriber, nowhere))
        ]

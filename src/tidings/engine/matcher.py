"""Matchers: find the subscriptions that an event matches, with an index or with the naive reference."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.state.recipients import RecipientColumns
from tidings.filters import ContextFilter
from tidings.matching.index.batch import EventList
from tidings.matching.index.conjuncts import ConstraintKind
from tidings.matching.reference import due
from tidings.model.event import Event
from tidings.model.expression import PAYLOAD
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.text_index import Index

_PREFETCH_MIN_EVENTS = 4  # from so many events on, matching them together is faster
_CACHE_MAX_SUBSCRIPTIONS_PER_PAIR = (
    4  # columns of all subscriptions are cached if there are at most so many subscriptions per pair
)


class Matcher(Protocol):
    """Finds which of a set of subscriptions an event matches."""

    def put(self, subscription: Subscription) -> Any:
        """Add a subscription, or replace the one of its id."""
        ...

    def remove(self, id: str) -> None:  # noqa: A002 - the subscription's own word
        """Remove a subscription. Raises `KeyError` if there is none of that id."""
        ...

    def set_context(self, client: str, context: Mapping[str, Any]) -> bool:
        """Set the context of a client's subscriptions; return whether it has changed."""
        ...

    def match_event(self, event: Event) -> list[str]:
        """Return the ids of the subscriptions to which the event is due, in any order."""
        ...

    def prefetch(self, events: list[Event]) -> None:
        """Prepare for these events to be matched one after the other, perhaps by matching them all at once."""

    @property
    def is_untidy(self) -> bool:
        """Whether calling `tidy` would make matching faster."""
        ...

    def tidy(self) -> None:
        """Compact the index. Any thread may call this while others match and change subscriptions."""


class RequestedValues(NamedTuple):
    """An attribute for which every subscription requires one of the listed values.

    If the name is empty and there are no values, no event can match any subscription.
    """

    name: str
    numbers: list[float]
    texts: list[str]


class FastMatcher(Index):
    """The matcher that uses the subscription index."""

    def __init__(self) -> None:
        super().__init__()
        # The cached result of `recipients`, after the state of the register that it was made for.
        self._recipients: tuple[tuple[int, int], RecipientColumns, Any] | None = None
        # Prefetched matches by the `id()` of the event, and the state in which they are valid.
        self._prefetched: dict[int, tuple[Event, list[str]]] = {}
        self._prefetched_state: tuple[tuple[int, int], int] | None = None

    @property
    def reads_payload(self) -> bool:
        """Whether any filter looks into payloads."""
        return PAYLOAD in self._columns.numbers

    @property
    def names(self) -> list[str]:
        """The ids of the subscriptions, by position in the index."""
        return self._position_table.names

    def subscription(self, id: str) -> Subscription:  # noqa: A002 - its own word
        """Return the subscription of an id. Raises `KeyError` if there is none."""
        return self._position_table[self._position_table.positions[id]]

    def table(self) -> pa.Table:
        """Return the subscriptions as text in an Arrow table; row i is the subscription at position i of the index."""
        return self._position_table.saved(self._written)[1]

    def position(self, id: str) -> int:  # noqa: A002
        """Return the row of a subscription in `table`."""
        return self._position_table.positions[id]

    def pairs(self, table: pa.Table) -> tuple[Any, Any]:
        """Match a table of events; return two arrays: the row of the event and the position of the subscription."""
        found = self.match_batch(table)
        event, subscription = found["event"].to_numpy(), found["subscription"]
        if subscription.num_chunks == 1:
            return event, np.asarray(subscription.chunk(0).indices)
        known = self._position_table.positions  # several chunks, which may have different dictionaries
        return event, np.array([known[name] for name in subscription.to_pylist()], np.int32)

    def recipients(self, positions: Any) -> tuple[RecipientColumns, Any]:
        """Return recipients that include the subscriptions at `positions`, and an array from position to place.

        The recipients are sorted by id; a place is a row of them. If the positions are a large part of all, the
        recipients are all subscriptions, and cached until the subscriptions change.
        """
        state = self._position_table.state
        known = self._recipients
        if known is None or known[0] != state:
            if _CACHE_MAX_SUBSCRIPTIONS_PER_PAIR * len(positions) < self._position_table.size:
                used = np.flatnonzero(np.bincount(positions)) if len(positions) else np.empty(0, np.int64)
                return self._recipients_at(used)
            known = self._recipients = state, *self._recipients_at(np.arange(self._position_table.size))
        return known[1:]

    def _recipients_at(self, used: Any) -> tuple[RecipientColumns, Any]:
        """Return the recipients at the rising positions `used`, sorted by id, and an array from position to place."""
        ids = self._position_table.ids().take(pa.array(used))
        order = np.asarray(pc.array_sort_indices(ids))
        place = np.zeros(int(used[-1]) + 1 if len(used) else 0, np.int64)
        place[used[order]] = np.arange(len(used))
        clients = self._contexts.clients
        rows = self._position_table.clients[used[order]]
        if len(used) < self._position_table.size:
            subscribers = pa.array([clients[row] for row in rows.tolist()], pa.string())
        else:
            subscribers = pa.array(clients, pa.string()).take(pa.array(rows))
        return RecipientColumns(ids.take(pa.array(order)), subscribers, positions=used[order]), place

    def common_requested_values(self, most: int) -> "RequestedValues | None":
        """Return an attribute for which every subscription requires one of at most `most` values; None if none is."""
        conjuncts = self._store.live_conjuncts()
        if self._spatial_groups:
            return None
        if conjuncts is None or not len(conjuncts.owner):
            return RequestedValues("", [], [])
        pred, first = conjuncts.pred, conjuncts.pred_first
        one = np.repeat(np.arange(len(conjuncts.owner)), np.diff(first))
        kind, attribute = pred["what"] & 7, pred["what"] >> 3
        equal = (pred["low"] == pred["high"]) & (
            (kind == ConstraintKind.NUMBER) | ((kind == ConstraintKind.STRING) & (pred["low"] >= 0))
        )
        pairs = np.unique(one[equal] * np.int64(len(self._columns)) + attribute[equal]) % len(self._columns)
        best: RequestedValues | None = None
        names = self._columns.saved()["columns"]
        for number in np.flatnonzero(np.bincount(pairs) == len(conjuncts.owner)).tolist():
            mine = equal & (attribute == number)
            numbers = np.unique(pred["low"][mine & (kind == ConstraintKind.NUMBER)]).tolist()
            codes = np.unique(pred["low"][mine & (kind == ConstraintKind.STRING)]).astype(int).tolist()
            if len(numbers) + len(codes) <= min(most, most if best is None else len(best.numbers) + len(best.texts)):
                best = RequestedValues(
                    names[number]["name"], numbers, [names[number]["strings"][code] for code in codes]
                )
        return best

    def _parse_context(self, text: str) -> ContextFilter:
        return _context_filter(text)

    def match_event(self, event: Event) -> list[str]:
        """Return the ids of the subscriptions to which the event is due, from a prefetched match if it is valid."""
        if self._prefetched:
            known = self._prefetched.pop(id(event), None)
            if known is not None and known[0] is event and self._prefetched_state == self._state:
                return known[1]
        found = self._positions(
            event.attributes, event.context, event.subscribers, event.subject, event.payload, event.publisher
        )
        names = self._position_table.names
        return [names[position] for position in found.tolist()]

    def prefetch(self, events: list[Event]) -> None:
        """Match the events at once and cache the results until subscriptions or contexts change."""
        state = self._state
        pairs = self._attempt_pairs(EventList(events)) if len(events) >= _PREFETCH_MIN_EVENTS else None
        self._prefetched, self._prefetched_state = {}, state
        if pairs is None:
            return
        names = self._position_table.names
        found: list[list[str]] = [[] for _ in events]
        for at, position in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
            found[at].append(names[position])
        if self._state == state:
            self._prefetched = {id(event): (event, ids) for event, ids in zip(events, found, strict=True)}

    @property
    def _state(self) -> tuple[tuple[int, int], int]:
        """A version of the subscriptions and contexts: it changes whenever an event might match others than before."""
        return self._position_table.state, self._contexts.write_count


@lru_cache(maxsize=1024)
def _context_filter(text: str) -> ContextFilter:
    return ContextFilter.parse(text)  # consecutive events mostly have the same filter


class NaiveMatcher:
    """Matches subscription by subscription with the reference implementation; tests compare `FastMatcher` with it."""

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

    def prefetch(self, events: list[Event]) -> None:
        """Do nothing: this matcher always matches event by event."""

    def tidy(self) -> None:
        """Do nothing: there is no index."""

    def match_event(self, event: Event) -> list[str]:
        nowhere = Context()
        return [
            name
            for name, subscription in self._subscriptions.items()
            if due(subscription, event, self._contexts.get(subscription.subscriber, nowhere))
        ]

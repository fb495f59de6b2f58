"""The context table of paper 004, section 3.1: the contexts that each broker has announced for its clients.

Evaluating a filter against all contexts is expensive. So the result for a filter, a `ContextSelection`, is shared by
all subscriptions with that filter and updated incrementally when contexts are added or removed.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np

from tidings.matching.index.index import SubscriptionIndex
from tidings.matching.reference import matches_context
from tidings.model.filter import ContextFilterValue
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.bloom import Bloom, context_id, halves_of

AnnouncedContext = Context | None  # None: any context (publishers in another sub-overlay announce none here)
ANY = b"any"  # the id in place of a context that is None
Pair = tuple[str, bytes]  # a broker, and the id of a context of one of its clients
_NOTHING = Context()


def announced_context_id(context: AnnouncedContext) -> bytes:
    """Return the id of a context, or `ANY` for None."""
    return ANY if context is None else context_id(context)


class ContextSelection:
    """The announced contexts that one filter selects, and the subscriptions that use this filter.

    `pairs` are the selected (broker, context id), and `brokers` counts them by broker. `users` are the ids of all
    subscriptions with the filter, `passing` those of them that came from neighbours.
    """

    __slots__ = ("brokers", "context_filter", "pairs", "passing", "users")

    def __init__(self, context_filter: ContextFilterValue | None) -> None:
        self.context_filter = context_filter
        self.pairs: set[Pair] = set()
        self.brokers: Counter[str] = Counter()
        self.users: set[str] = set()
        self.passing: set[str] = set()

    def selects(self, context: AnnouncedContext) -> bool:
        """Return whether the filter selects a context; None stands for any context and is always selected."""
        return context is None or matches_context(self.context_filter, context, _NOTHING)

    def add(self, pair: Pair) -> None:
        """Add a selected pair."""
        if pair not in self.pairs:
            self.pairs.add(pair)
            self.brokers[pair[0]] += 1

    def remove(self, pair: Pair) -> None:
        """Remove a pair, if it is selected."""
        if pair in self.pairs:
            self.pairs.remove(pair)
            self.brokers[pair[0]] -= 1
            if not self.brokers[pair[0]]:
                del self.brokers[pair[0]]


class ContextTable:
    """The announced contexts of all brokers, and the selections that subscriptions use."""

    def __init__(self) -> None:
        self._contexts: dict[str, dict[bytes, AnnouncedContext]] = {}
        self._selections: dict[ContextFilterValue | None, ContextSelection] = {}
        self._by_pair: dict[Pair, set[ContextSelection]] = {}
        self._matcher = ContextMatcher()  # all contexts, matched together

    def of(self, broker: str) -> dict[bytes, AnnouncedContext]:
        """Return the announced contexts of a broker by their ids."""
        return self._contexts.get(broker, {})

    def brokers(self) -> Iterable[str]:
        """Return the brokers with announced contexts."""
        return self._contexts.keys()

    def add(self, broker: str, contexts: Iterable[AnnouncedContext]) -> list[ContextSelection]:
        """Add announced contexts of a broker; return the selections that changed."""
        broker_contexts = self._contexts.setdefault(broker, {})
        changed: dict[int, ContextSelection] = {}
        for context in contexts:
            context_key = announced_context_id(context)
            if context_key in broker_contexts:
                continue
            broker_contexts[context_key] = context
            if context is not None:
                self._matcher.join(context_key, context)
            for selection in self._selections.values():
                if selection.selects(context):
                    self._add(selection, (broker, context_key))
                    changed[id(selection)] = selection
        return list(changed.values())

    def remove(self, broker: str, ids: Iterable[bytes]) -> list[ContextSelection]:
        """Remove contexts that no client of the broker has any longer; return the selections that changed."""
        broker_contexts = self._contexts.get(broker, {})
        changed: dict[int, ContextSelection] = {}
        for context_key in ids:
            if context_key in broker_contexts:
                if broker_contexts.pop(context_key) is not None:
                    self._matcher.leave(context_key)
                for selection in self._by_pair.pop((broker, context_key), ()):
                    selection.remove((broker, context_key))
                    changed[id(selection)] = selection
        return list(changed.values())

    def forget(self, broker: str) -> list[ContextSelection]:
        """Remove all contexts of a broker; return the selections that changed."""
        changed = self.remove(broker, list(self.of(broker)))
        self._contexts.pop(broker, None)
        return changed

    def selection(self, context_filter: ContextFilterValue | None) -> ContextSelection:
        """Return what a filter selects now; the result is kept up to date only if a subscription uses the filter."""
        selection = self._selections.get(context_filter)
        if selection is None:
            selection = ContextSelection(context_filter)
            for broker, contexts in self._contexts.items():
                for context_key, context in contexts.items():
                    if selection.selects(context):
                        selection.add((broker, context_key))
        return selection

    def use(self, context_filter: ContextFilterValue | None, subscription: str, *, passes: bool) -> ContextSelection:
        """Return the selection of a filter and keep it up to date for a subscription, until `release`.

        `passes` says that the subscription came from a neighbour.
        """
        selection = self.selection(context_filter)
        if not selection.users:
            self._selections[context_filter] = selection
            for pair in selection.pairs:
                self._by_pair.setdefault(pair, set()).add(selection)
        selection.users.add(subscription)
        if passes:
            selection.passing.add(subscription)
        return selection

    def release(self, selection: ContextSelection, subscription: str) -> None:
        """End the use of a selection by a subscription; without users it is no longer updated."""
        selection.users.discard(subscription)
        selection.passing.discard(subscription)
        if not selection.users and self._selections.get(selection.context_filter) is selection:
            del self._selections[selection.context_filter]
            for pair in selection.pairs:
                self._by_pair[pair].discard(selection)

    def attracted_by(self, pair: Pair) -> Collection[ContextSelection]:
        """Return the selections in use that contain this pair of a broker and a context id."""
        return self._by_pair.get(pair, ())

    def _add(self, selection: ContextSelection, pair: Pair) -> None:
        selection.add(pair)
        self._by_pair.setdefault(pair, set()).add(selection)

    def selected_contexts_bloom(self, context_filter: ContextFilterValue) -> Bloom:
        """Return a Bloom filter of the contexts, at all brokers, that a publisher's `subscribers` filter selects."""
        return self._matcher.selected_contexts_bloom(context_filter)


_FEW = 16


class ContextMatcher:
    """All distinct announced contexts, with reference counts, matched together by an index."""

    def __init__(self) -> None:
        self._contexts: dict[bytes, Context] = {}
        self._holders: Counter[bytes] = Counter()
        self._index: SubscriptionIndex | None = None
        self._halves = np.zeros((0, 2), np.uint64)  # halves of the ids, by position in the index

    def join(self, context_key: bytes, context: Context) -> None:
        """Count one more broker with this context; add the context if it is new."""
        self._holders[context_key] += 1
        if context_key not in self._contexts:
            self._contexts[context_key] = context
            self._enter(context_key, context)

    def leave(self, context_key: bytes) -> None:
        """Count one broker fewer with this context; remove the context with the last one."""
        self._holders[context_key] -= 1
        if not self._holders[context_key]:
            del self._holders[context_key], self._contexts[context_key]
            if self._index is not None:
                self._index.remove(context_key.hex())

    def selected_contexts_bloom(self, context_filter: ContextFilterValue) -> Bloom:
        """Return a Bloom filter of the contexts that a publisher's `subscribers` filter selects.

        An index is built as soon as there are more than a few contexts.
        """
        if self._index is None and len(self._contexts) > _FEW:
            self._index = SubscriptionIndex()
            for context_key, context in self._contexts.items():
                self._enter(context_key, context)
        if self._index is None:
            return Bloom.of(
                context_key
                for context_key, context in self._contexts.items()
                if matches_context(context_filter, context, _NOTHING)
            )
        return Bloom.of_halves(self._halves[self._index.match_positions({}, subscribers=context_filter)])

    def _enter(self, context_key: bytes, context: Context) -> None:
        """Index the context, if there is an index, as that of a subscriber to all events: only `subscribers` filters
        decide."""
        index = self._index
        if index is None:
            return
        position = index.put(Subscription(id=context_key.hex(), subscriber=context_key.hex()))
        index.set_context(context_key.hex(), context)
        if position >= len(self._halves):
            self._halves = np.resize(self._halves, (2 * position + _FEW, 2))
        self._halves[position] = halves_of([context_key])[0]

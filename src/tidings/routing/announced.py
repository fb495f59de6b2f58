"""The context table of paper 004, section 3.1: which contexts the clients of each broker have, as announced.

Filters are judged against it once each: what a filter reaches is remembered and kept up while contexts come and go.
"""

from collections import Counter
from collections.abc import Iterable

from tidings.matching.reference import matches_context
from tidings.model.filter import ContextFilter
from tidings.model.values import Context
from tidings.routing.identity import context_id

Situation = Context | None  # None: any, of publishers in another sub-overlay, whose contexts are not announced here
ANY = b"any"  # which stands for that where a context is named
Pair = tuple[str, bytes]  # a broker, and the id of a context that one of its clients has
_NOTHING = Context()


def situation_id(context: Situation) -> bytes:
    return ANY if context is None else context_id(context)


class Reach:
    """What a context filter selects of what is announced; `users` are the subscriptions that have it."""

    __slots__ = ("brokers", "pairs", "users", "wanted")

    def __init__(self, wanted: ContextFilter | None) -> None:
        self.wanted = wanted
        self.pairs: set[Pair] = set()
        self.brokers: Counter[str] = Counter()
        self.users: set[str] = set()

    def selects(self, context: Situation) -> bool:
        return context is None or matches_context(self.wanted, context, _NOTHING)

    def add(self, pair: Pair) -> None:
        if pair not in self.pairs:
            self.pairs.add(pair)
            self.brokers[pair[0]] += 1

    def remove(self, pair: Pair) -> None:
        if pair in self.pairs:
            self.pairs.remove(pair)
            self.brokers[pair[0]] -= 1
            if not self.brokers[pair[0]]:
                del self.brokers[pair[0]]


class Announced:
    def __init__(self) -> None:
        self._contexts: dict[str, dict[bytes, Situation]] = {}
        self._reaches: dict[ContextFilter | None, Reach] = {}

    def of(self, broker: str) -> dict[bytes, Situation]:
        return self._contexts.get(broker, {})

    def brokers(self) -> Iterable[str]:
        return self._contexts.keys()

    def add(self, broker: str, contexts: Iterable[Situation]) -> list[Reach]:
        """Contexts of a broker's clients; the filters that select one of them."""
        known = self._contexts.setdefault(broker, {})
        found: dict[int, Reach] = {}
        for context in contexts:
            name = situation_id(context)
            if name in known:
                continue
            known[name] = context
            for reach in self._reaches.values():
                if reach.selects(context):
                    reach.add((broker, name))
                    found[id(reach)] = reach
        return list(found.values())

    def remove(self, broker: str, ids: Iterable[bytes]) -> list[Reach]:
        """Contexts that no client of the broker has any more; the filters that selected one of them."""
        known = self._contexts.get(broker, {})
        found: dict[int, Reach] = {}
        for name in ids:
            if name in known:
                del known[name]
                for reach in self._reaches.values():
                    if (broker, name) in reach.pairs:
                        reach.remove((broker, name))
                        found[id(reach)] = reach
        return list(found.values())

    def forget(self, broker: str) -> list[Reach]:
        """Everything of a broker."""
        found = self.remove(broker, list(self.of(broker)))
        self._contexts.pop(broker, None)
        return found

    def use(self, wanted: ContextFilter | None, subscription: str) -> Reach:
        """What a subscription's filter selects, from now on kept up for it."""
        reach = self._reaches.get(wanted)
        if reach is None:
            reach = self._reaches[wanted] = Reach(wanted)
            for broker, contexts in self._contexts.items():
                for name, context in contexts.items():
                    if reach.selects(context):
                        reach.add((broker, name))
        reach.users.add(subscription)
        return reach

    def release(self, wanted: ContextFilter | None, subscription: str) -> None:
        reach = self._reaches.get(wanted)
        if reach is not None:
            reach.users.discard(subscription)
            if not reach.users:
                del self._reaches[wanted]

    def selected(self, wanted: ContextFilter) -> set[bytes]:
        """The ids of all contexts that a publisher's filter selects."""
        return {
            name
            for contexts in self._contexts.values()
            for name, context in contexts.items()
            if context is not None and matches_context(wanted, context, _NOTHING)
        }

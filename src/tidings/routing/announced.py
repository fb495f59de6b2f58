"""The context table of paper 004, section 3.1: which contexts the clients of each broker have, as announced.

Filters are judged against it once each: what a filter reaches is remembered and kept up while contexts come and go.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from tidings.matching.reference import matches_context
from tidings.model.filter import ContextFilter
from tidings.model.values import Context
from tidings.routing.bloom import Bloom
from tidings.routing.crowd import Crowd
from tidings.routing.identity import context_id

Situation = Context | None  # None: any, of publishers in another sub-overlay, whose contexts are not announced here
ANY = b"any"  # which stands for that where a context is named
Pair = tuple[str, bytes]  # a broker, and the id of a context that one of its clients has
_NOTHING = Context()


def situation_id(context: Situation) -> bytes:
    return ANY if context is None else context_id(context)


class Reach:
    """What a context filter selects of what is announced; `users` are the subscriptions that have it, and `passing`
    those of them that came from neighbours."""

    __slots__ = ("brokers", "pairs", "passing", "users", "wanted")

    def __init__(self, wanted: ContextFilter | None) -> None:
        self.wanted = wanted
        self.pairs: set[Pair] = set()
        self.brokers: Counter[str] = Counter()
        self.users: set[str] = set()
        self.passing: set[str] = set()

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
        self._by_pair: dict[Pair, set[Reach]] = {}
        self._crowd = Crowd()  # all contexts, to be asked about together

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
            if context is not None:
                self._crowd.join(name, context)
            for reach in self._reaches.values():
                if reach.selects(context):
                    self._add(reach, (broker, name))
                    found[id(reach)] = reach
        return list(found.values())

    def remove(self, broker: str, ids: Iterable[bytes]) -> list[Reach]:
        """Contexts that no client of the broker has any more; the filters that selected one of them."""
        known = self._contexts.get(broker, {})
        found: dict[int, Reach] = {}
        for name in ids:
            if name in known:
                if known.pop(name) is not None:
                    self._crowd.leave(name)
                for reach in self._by_pair.pop((broker, name), ()):
                    reach.remove((broker, name))
                    found[id(reach)] = reach
        return list(found.values())

    def forget(self, broker: str) -> list[Reach]:
        """Everything of a broker."""
        found = self.remove(broker, list(self.of(broker)))
        self._contexts.pop(broker, None)
        return found

    def reach(self, wanted: ContextFilter | None) -> Reach:
        """What a filter selects now."""
        reach = self._reaches.get(wanted)
        if reach is None:
            reach = Reach(wanted)
            for broker, contexts in self._contexts.items():
                for name, context in contexts.items():
                    if reach.selects(context):
                        reach.add((broker, name))
        return reach

    def use(self, wanted: ContextFilter | None, subscription: str, *, passes: bool) -> Reach:
        """The same, from now on kept up for a subscription; `passes`: it came from a neighbour."""
        reach = self.reach(wanted)
        if not reach.users:
            self._reaches[wanted] = reach
            for pair in reach.pairs:
                self._by_pair.setdefault(pair, set()).add(reach)
        reach.users.add(subscription)
        if passes:
            reach.passing.add(subscription)
        return reach

    def release(self, reach: Reach, subscription: str) -> None:
        reach.users.discard(subscription)
        reach.passing.discard(subscription)
        if not reach.users and self._reaches.get(reach.wanted) is reach:
            del self._reaches[reach.wanted]
            for pair in reach.pairs:
                self._by_pair[pair].discard(reach)

    def attracted_by(self, pair: Pair) -> Collection[Reach]:
        """The filters that select a context of a broker's clients."""
        return self._by_pair.get(pair, ())

    def _add(self, reach: Reach, pair: Pair) -> None:
        reach.add(pair)
        self._by_pair.setdefault(pair, set()).add(reach)

    def audience(self, wanted: ContextFilter) -> Bloom:
        """The contexts that a publisher's filter selects, of whichever broker's clients."""
        return self._crowd.audience(wanted)

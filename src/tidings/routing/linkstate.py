"""Link state: what every broker says about its own links, numbered, so that all come to know the same network.

Paper 004, section 3.1. A link counts when both of its ends say that it is up; its cost is the larger one that they
name.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_BROKERS, MAX_LINK_COST, MAX_LINKS
from tidings.routing.topology import Topology, link


class LinkState(msgspec.Struct, frozen=True):
    """The links of one broker. The higher number is the newer one, also after the broker has started anew."""

    broker: str
    number: int
    links: dict[str, int]  # neighbour -> cost


class LinkStates:
    """What one broker knows of all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._states = {name: LinkState(name, 0, {})}
        self._topology: tuple[Topology, str] | None = None

    @property
    def own(self) -> LinkState:
        return self._states[self.name]

    def all(self) -> tuple[LinkState, ...]:
        return tuple(self._states[name] for name in sorted(self._states))

    def join(self, neighbour: str, cost: int, now: int) -> LinkState:
        """A link of one's own is up; what there is now to tell of oneself."""
        if not 1 <= cost <= MAX_LINK_COST:
            raise InvalidValueError(f"the cost of a link is a whole number from 1 to MAX_LINK_COST ({MAX_LINK_COST:,})")
        if len(self.own.links) >= MAX_LINKS and neighbour not in self.own.links:
            raise InvalidValueError(f"more than MAX_LINKS ({MAX_LINKS:,}) links to other brokers")
        return self._put_own({**self.own.links, neighbour: cost}, now)

    def leave(self, neighbour: str, now: int) -> LinkState:
        return self._put_own({name: cost for name, cost in self.own.links.items() if name != neighbour}, now)

    def take(self, states: Iterable[LinkState], now: int) -> list[LinkState]:
        """What others say; what of it is news, to be told on. News about oneself from before a restart is outdone."""
        news = []
        for one in states:
            known = self._states.get(one.broker)
            if known is not None and one.number <= known.number:
                continue
            if one.broker == self.name:
                news.append(self._put_own(self.own.links, max(now, one.number + 1)))
            elif known is not None or len(self._states) < MAX_BROKERS:
                self._states[one.broker] = one
                self._topology = None
                news.append(one)
        return news

    def topology(self) -> tuple[Topology, str]:
        """The network around this broker, and its digest: the same for all who know the same of it."""
        if self._topology is None:
            links = {}
            for one in self._states.values():
                for neighbour, cost in one.links.items():
                    other = self._states.get(neighbour)
                    if other is not None and one.broker in other.links:
                        links[link(one.broker, neighbour)] = max(cost, other.links[one.broker])
            found = Topology.of(links, self.name)
            # The numbers are in it: a broker that was gone for a moment has forgotten what it was told.
            said = [(name, self._states[name].number) for name in sorted(found.brokers)]
            self._topology = found, blake2b(msgspec.msgpack.encode(said), digest_size=8).hexdigest()
        return self._topology

    def _put_own(self, links: dict[str, int], now: int) -> LinkState:
        self._states[self.name] = own = LinkState(self.name, max(now, self.own.number + 1), links)
        self._topology = None
        return own

"""Link state: numbered reports of each broker about its own links, from which all brokers compute the same network.

A link counts if both ends report it; its cost is the larger of the two that they report (paper 004, section 3.1).
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_BROKERS, MAX_LINK_COST, MAX_LINKS
from tidings.routing.topology import BrokerGraph, link


class LinkState(msgspec.Struct, frozen=True):
    """The report of one broker about its links. The report with the higher number is newer, also across restarts."""

    broker: str
    number: int
    links: dict[str, int]  # neighbour -> cost


class LinkStates:
    """The newest report of every broker, as one broker knows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._states = {name: LinkState(name, 0, {})}
        self._topology: tuple[BrokerGraph, str] | None = None

    @property
    def own(self) -> LinkState:
        """This broker's own report."""
        return self._states[self.name]

    def all(self) -> tuple[LinkState, ...]:
        """Return all reports, by the names of the brokers."""
        return tuple(self._states[name] for name in sorted(self._states))

    def join(self, neighbour: str, cost: int, now: int) -> LinkState:
        """Record that a link to a neighbour is up, and return this broker's new report.

        Raises an `InvalidValueError` if the cost is out of range or there are too many links.
        """
        if not 1 <= cost <= MAX_LINK_COST:
            raise InvalidValueError(f"the cost of a link is a whole number from 1 to MAX_LINK_COST ({MAX_LINK_COST:,})")
        if len(self.own.links) >= MAX_LINKS and neighbour not in self.own.links:
            raise InvalidValueError(f"more than MAX_LINKS ({MAX_LINKS:,}) links to other brokers")
        return self._put_own({**self.own.links, neighbour: cost}, now)

    def leave(self, neighbour: str, now: int) -> LinkState:
        """Record that a link to a neighbour is down, and return this broker's new report."""
        return self._put_own({name: cost for name, cost in self.own.links.items() if name != neighbour}, now)

    def take(self, states: Iterable[LinkState], now: int) -> list[LinkState]:
        """Take over newer reports of other brokers; return the reports to send on to the neighbours.

        A newer report about this broker itself is from before its restart; the broker answers it with an own report of
        a higher number.
        """
        newer = []
        for state in states:
            former = self._states.get(state.broker)
            if former is not None and state.number <= former.number:
                continue
            if state.broker == self.name:
                newer.append(self._put_own(self.own.links, max(now, state.number + 1)))
            elif former is not None or len(self._states) < MAX_BROKERS:
                self._states[state.broker] = state
                self._topology = None
                newer.append(state)
        return newer

    def topology(self) -> tuple[BrokerGraph, str]:
        """Return the network around this broker and its digest, which is equal at brokers with the same reports."""
        if self._topology is None:
            links = {}
            for state in self._states.values():
                for neighbour, cost in state.links.items():
                    other = self._states.get(neighbour)
                    if other is not None and state.broker in other.links:
                        links[link(state.broker, neighbour)] = max(cost, other.links[state.broker])
            graph = BrokerGraph.of(links, self.name)
            # The digest includes the numbers: a broker that was down for a moment has lost its tables.
            numbers = [(name, self._states[name].number) for name in sorted(graph.brokers)]
            self._topology = graph, blake2b(msgspec.msgpack.encode(numbers), digest_size=8).hexdigest()
        return self._topology

    def _put_own(self, links: dict[str, int], now: int) -> LinkState:
        self._states[self.name] = own = LinkState(self.name, max(now, self.own.number + 1), links)
        self._topology = None
        return own

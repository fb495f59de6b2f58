"""The links of a broker: its neighbours, the topology for which the routing tables are built, and the covering sets."""

from collections.abc import Collection, Mapping
from typing import Any

from tidings.engine.settings import Settings
from tidings.engine.state.filters import FilterEntry
from tidings.routing.covering_classes import CoveringClasses
from tidings.routing.link_covering_set import LinkCoveringSet
from tidings.routing.linkstate import LinkStates
from tidings.routing.strategy import Strategy
from tidings.routing.topology import BrokerGraph

KNOWN_NETWORKS = 4  # recent topologies remembered, so that events in flight still find their way


class LinkTables:
    """The links of a broker. A neighbour in another sub-overlay is external; a broker treats it like a client.

    Args:
        settings: The broker's configuration.
        strategy: Its routing strategy.
        covering_classes: A cache of covering decisions, which engines of one process may share.
    """

    def __init__(self, settings: Settings, strategy: Strategy, covering_classes: CoveringClasses | None) -> None:
        self._name, self._covers = settings.name, strategy.covers
        self._neighbours: dict[str, None] = {}
        self.neighbours: Mapping[str, None] = self._neighbours  # in the order of their links
        # The brokers and links of the sub-overlay for which the routing tables are built, with their digest.
        self.topology, self.digest = LinkStates(settings.name).topology()
        self.recent: dict[str, BrokerGraph] = {self.digest: self.topology}
        self._covering_classes = CoveringClasses() if covering_classes is None else covering_classes
        self._covering_sets: dict[str, LinkCoveringSet] = {}  # by neighbour
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Use a changed configuration from now on."""
        self._abroad, self._merging = settings.abroad, settings.merging

    def adopt(self, topology: BrokerGraph, digest: str) -> None:
        """Use a topology from now on; the last few before it stay known."""
        self.topology, self.digest = topology, digest
        self.recent.pop(digest, None)
        self.recent[digest] = topology
        if len(self.recent) > KNOWN_NETWORKS:
            del self.recent[next(iter(self.recent))]

    def is_external(self, receiver: str) -> bool:
        """Whether a neighbour belongs to another sub-overlay."""
        return receiver in self._abroad

    def is_ingress(self, sender: str) -> bool:
        """Whether this broker is the ingress for a sender: a client, or a neighbour in another sub-overlay."""
        return sender not in self.neighbours or sender in self._abroad

    def digest_for(self, neighbour: str) -> str:
        """Return the topology digest to put into messages for `neighbour`: empty for another sub-overlay."""
        return "" if neighbour in self._abroad else self.digest

    def tree_neighbours(self) -> list[str]:
        """Return the neighbours that get broadcasts: those in the shared tree, and those of other sub-overlays."""
        shared = self.topology.shared.neighbours(self._name)
        return [name for name in self.neighbours if name in shared or name in self._abroad]

    def covering_set(self, neighbour: str) -> LinkCoveringSet | None:
        """Return the covering set of the link to a neighbour; None if filters do not cover others on that link."""
        if not self._covers and neighbour not in self._abroad:
            return None
        covering_set = self._covering_sets.get(neighbour)
        if covering_set is None:
            covering_set = self._covering_sets[neighbour] = LinkCoveringSet(
                self._merging, self._name, self._covering_classes
            )
        return covering_set

    def forget_covering_sets(self, *, but: Collection[str] = (), neighbour: str | None = None) -> None:
        """Forget the covering set of one neighbour, or those of all neighbours that are not in `but`."""
        names = self._covering_sets.keys() - set(but) if neighbour is None else self._covering_sets.keys() & {neighbour}
        for name in names:
            self._covering_sets.pop(name).clear()


def add_neighbour(links: LinkTables, neighbour: str) -> None:
    """Add a link to a neighbour."""
    links._neighbours[neighbour] = None


def remove_neighbour(links: LinkTables, neighbour: str) -> None:
    """Remove the link to a neighbour."""
    del links._neighbours[neighbour]


def is_current(links: LinkTables, entry: FilterEntry[Any]) -> bool:
    """Whether a filter is local or was sent under the digest of the current topology."""
    return entry.is_local or entry.digest == links.digest

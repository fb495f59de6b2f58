"""Graph subscription forwarding (GSF), the second baseline of paper 004, section 4: subscriptions are known
everywhere, and events follow the shortest-path tree of the broker where they were published, pruned by
subscriptions.

Subscriptions flood the shared tree, and each says whose client has it: which branch of which tree it is on, every
broker computes for itself. Contexts are encoded as in `asf`.
"""

from tidings.routing.strategy import Around, Placed, Strategy, along
from tidings.routing.topology import Topology


class GraphForwarding(Strategy):
    name = "gsf"
    binds = True
    by_source = True

    def toward(self, around: Around, one: Placed) -> dict[str, bool]:
        return along(around.topology.shared.neighbours(around.name), one)

    def link(self, around: Around, one: Placed, topology: Topology, source: str) -> str | None:
        return topology.tree(source).below(around.name, one.origin)

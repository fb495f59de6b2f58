"""Shortest path context forwarding (SPCF): paper 004, section 3, made safe.

Brokers announce the contexts of their clients along their trees. A subscription goes to the set D of brokers that
have a client whose context its filter selects, against the direction of their trees; of these, D_N are those that are
reached by way of the neighbour N. Each broker on the way is nearer to the announcing one and knows at least as much,
so it finds D anew: what is announced while a subscription is under way is not missed. D never contains the
subscriber's own broker.

An event follows the tree of the broker where it was published, to the subscriptions that its publisher's context
attracted, if a Bloom filter of the contexts that it is for says that theirs may be among them. The last broker
decides.
"""

from tidings.routing.announced import Pair
from tidings.routing.strategy import Around, Placed, Strategy
from tidings.routing.topology import Topology


class ContextForwarding(Strategy):
    name = "spcf"
    binds = True
    announces = True
    by_source = True

    def toward(self, around: Around, one: Placed) -> dict[str, bool]:
        return dict.fromkeys(sorted(partition(around, one)), False)

    def link(self, around: Around, one: Placed, topology: Topology, source: str) -> str | None:
        return topology.tree(source).below(around.name, one.origin)


def destinations(around: Around, one: Placed) -> set[str]:
    """D, as far as it is this broker's business: those whose trees pass it on the way to the subscriber."""
    selected = around.announced.reach(one.bound).brokers
    here = around.name
    return {
        broker
        for broker in selected
        if broker not in (here, one.origin)
        and broker in around.topology.brokers
        and (one.origin == here or around.topology.tree(broker).below(here, one.origin) is not None)
    }


def partition(around: Around, one: Placed) -> dict[str, set[str]]:
    """D_N by neighbour N: the next one toward each of D, which is this broker's parent in its tree."""
    found: dict[str, set[str]] = {}
    for broker in destinations(around, one):
        parent = around.topology.tree(broker).parent(around.name)
        if parent is not None:
            found.setdefault(parent, set()).add(broker)
    return found


def content_table(around: Around, placed: list[Placed]) -> dict[tuple[str, bytes, str], set[str]]:
    """The content table of the paper's Fig. 1: (broker, its context, neighbour) -> subscriptions behind it."""
    table: dict[tuple[str, bytes, str], set[str]] = {}
    for one in placed:
        pairs: set[Pair] = around.announced.reach(one.bound).pairs
        for broker, context in pairs:
            if one.origin in (around.name, broker) or broker not in around.topology.brokers:
                continue
            neighbour = around.topology.tree(broker).below(around.name, one.origin)
            if neighbour is not None:
                table.setdefault((broker, context, neighbour), set()).add(one.value.id)
    return table

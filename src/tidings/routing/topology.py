"""The graph of brokers as link state tells it, and the shortest-path trees in it.

Paper 004, section 3.1: every broker knows the network and computes the tree rooted at each broker for itself. So that
all of them come to the same trees, ties are broken by cost, then by hops, then by the smallest id.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

import rustworkx as rx

from tidings.model.limits import MAX_REMEMBERED_TOPOLOGIES

Link = tuple[str, str]  # its ends, the smaller name first


def link(one: str, other: str) -> Link:
    return (one, other) if one < other else (other, one)


class Topology:
    """Brokers that reach each other, with the costs of their links. Never changes; `Topology.of` remembers."""

    def __init__(self, brokers: frozenset[str], links: frozenset[tuple[Link, int]]) -> None:
        self.brokers, self.links = brokers, dict(sorted(links))
        self._trees: dict[str, Tree] = {}

    @staticmethod
    def of(links: Mapping[Link, int], around: str) -> "Topology":
        """The part of the network that a broker reaches."""
        near: dict[str, list[str]] = {}
        for one, other in links:
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
        reached, left = {around}, [around]
        while left:
            for other in near.get(left.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    left.append(other)
        inside = frozenset((ends, cost) for ends, cost in links.items() if ends[0] in reached)
        return _known(frozenset(reached), inside)

    def tree(self, root: str) -> "Tree":
        """The shortest paths from a broker to all others."""
        known = self._trees.get(root)
        if known is None:
            known = self._trees[root] = Tree(root, self._parents(root))
        return known

    @cached_property
    def shared(self) -> "Tree":
        """The one tree that all brokers agree on where an acyclic overlay is wanted: that of the smallest name."""
        return self.tree(min(self.brokers))

    @cached_property
    def _graph(self) -> tuple[rx.PyGraph, dict[str, int], list[str]]:
        names = sorted(self.brokers)
        places = {name: place for place, name in enumerate(names)}
        graph: rx.PyGraph = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(names)
        # With the hops in the last digits one number orders by cost and then by hops.
        graph.add_edges_from(
            [(places[one], places[other], cost * (len(names) + 1) + 1) for (one, other), cost in self.links.items()]
        )
        return graph, places, names

    def _parents(self, root: str) -> dict[str, str]:
        graph, places, names = self._graph
        start = places[root]
        lengths = dict(rx.dijkstra_shortest_path_lengths(graph, start, float))
        lengths[start] = 0.0
        parents: dict[str, str] = {}
        for place, name in enumerate(names):
            if place != start:
                near = graph.adj(place)
                parents[name] = min(names[one] for one, cost in near.items() if lengths[one] + cost == lengths[place])
        return parents


@lru_cache(maxsize=MAX_REMEMBERED_TOPOLOGIES)
def _known(brokers: frozenset[str], links: frozenset[tuple[Link, int]]) -> Topology:
    """Trees are computed once for all brokers of a process that see the same network."""
    return Topology(brokers, links)


class Tree:
    """Paths from one broker, the root, to all others."""

    def __init__(self, root: str, parents: dict[str, str]) -> None:
        self.root, self.parents = root, parents
        children: dict[str, list[str]] = {}
        for name in sorted(parents):
            children.setdefault(parents[name], []).append(name)
        self._children = {name: tuple(found) for name, found in children.items()}
        self._below: dict[tuple[str, str], str | None] = {}

    def parent(self, broker: str) -> str | None:
        """The next one toward the root; None at the root."""
        return self.parents.get(broker)

    def children(self, broker: str) -> tuple[str, ...]:
        return self._children.get(broker, ())

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Those next to a broker in the tree."""
        parent = self.parents.get(broker)
        return self.children(broker) if parent is None else (parent, *self.children(broker))

    def below(self, broker: str, target: str) -> str | None:
        """The child of a broker on the way from the root to the target; None if that way does not pass the broker."""
        key = broker, target
        if key in self._below:
            return self._below[key]
        at: str | None = target
        found = None
        while at is not None:
            above = self.parents.get(at)
            if above == broker:
                found = at
                break
            at = above
        self._below[key] = found
        return found

    def path(self, target: str) -> list[str]:
        """The brokers from the root to the target, both included."""
        way = [target]
        while way[-1] != self.root:
            way.append(self.parents[way[-1]])
        return way[::-1]


def links_of(ends: Iterable[tuple[str, str] | tuple[str, str, int]]) -> dict[Link, int]:
    """Links by their ends; without a cost they cost one."""
    return {link(one[0], one[1]): (one[2] if len(one) > 2 else 1) for one in ends}

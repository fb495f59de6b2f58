"""The graph of brokers, as link state reports it, and the shortest-path trees in it.

Every broker knows the network and computes the tree of each root for itself (paper 004, section 3.1). So that all
brokers compute the same trees, paths are ordered by cost, then by number of hops, then by the smallest broker id.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

import rustworkx as rx

from tidings.model.limits import MAX_REMEMBERED_TOPOLOGIES

Link = tuple[str, str]  # the two ends, the smaller name first


def link(one: str, other: str) -> Link:
    """Return the link between two brokers, with the smaller name first."""
    return (one, other) if one < other else (other, one)


class BrokerGraph:
    """The brokers that can reach each other, with the costs of their links; immutable.

    Use `BrokerGraph.of`, which returns the same object for the same network.
    """

    def __init__(self, brokers: frozenset[str], links: frozenset[tuple[Link, int]]) -> None:
        self.brokers, self.links = brokers, dict(sorted(links))
        self._trees: dict[str, Tree] = {}

    @staticmethod
    def of(links: Mapping[Link, int], around: str) -> "BrokerGraph":
        """Return the part of the network that the broker `around` can reach."""
        neighbours: dict[str, list[str]] = {}
        for one, other in links:
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        reached, pending = {around}, [around]
        while pending:
            for other in neighbours.get(pending.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    pending.append(other)
        inside = frozenset((ends, cost) for ends, cost in links.items() if ends[0] in reached)
        return _cached_graph(frozenset(reached), inside)

    def tree(self, root: str) -> "Tree":
        """Return the tree of shortest paths from a broker to all others."""
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = Tree(root, self._parents(root))
        return tree

    @cached_property
    def shared(self) -> "Tree":
        """The tree of the broker with the smallest name, which all brokers use as their acyclic overlay."""
        return self.tree(min(self.brokers))

    @cached_property
    def _graph(self) -> tuple[rx.PyGraph, dict[str, int], list[str]]:
        names = sorted(self.brokers)
        places = {name: place for place, name in enumerate(names)}
        graph: rx.PyGraph = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(names)
        # Scaled so that one number orders paths by cost and then by hops.
        graph.add_edges_from(
            [(places[one], places[other], cost * (len(names) + 1) + 1) for (one, other), cost in self.links.items()]
        )
        return graph, places, names

    def _parents(self, root: str) -> dict[str, str]:
        """Return each broker's parent in the shortest-path tree of a root; ties go to the smallest name."""
        graph, places, names = self._graph
        start = places[root]
        lengths = dict(rx.dijkstra_shortest_path_lengths(graph, start, float))
        lengths[start] = 0.0
        parents: dict[str, str] = {}
        for place, name in enumerate(names):
            if place != start:
                parents[name] = min(
                    names[neighbour]
                    for neighbour, cost in graph.adj(place).items()
                    if lengths[neighbour] + cost == lengths[place]
                )
        return parents


@lru_cache(maxsize=MAX_REMEMBERED_TOPOLOGIES)
def _cached_graph(brokers: frozenset[str], links: frozenset[tuple[Link, int]]) -> BrokerGraph:
    """Return a cached graph, so that all brokers of one process with the same network compute trees only once."""
    return BrokerGraph(brokers, links)


class Tree:
    """The shortest paths from one broker, the root, to all others."""

    def __init__(self, root: str, parents: dict[str, str]) -> None:
        self.root, self.parents = root, parents
        children: dict[str, list[str]] = {}
        for name in sorted(parents):
            children.setdefault(parents[name], []).append(name)
        self._children = {name: tuple(names) for name, names in children.items()}
        self._below: dict[tuple[str, str], str | None] = {}

    def parent(self, broker: str) -> str | None:
        """Return the next broker toward the root; None at the root."""
        return self.parents.get(broker)

    def children(self, broker: str) -> tuple[str, ...]:
        """Return the next brokers away from the root."""
        return self._children.get(broker, ())

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Return the brokers next to a broker in the tree: its parent and its children."""
        parent = self.parents.get(broker)
        return self.children(broker) if parent is None else (parent, *self.children(broker))

    def below(self, broker: str, target: str) -> str | None:
        """Return the child of `broker` on the path from the root to `target`; None if that path avoids `broker`."""
        key = broker, target
        if key in self._below:
            return self._below[key]
        current: str | None = target
        child = None
        while current is not None:
            parent = self.parents.get(current)
            if parent == broker:
                child = current
                break
            current = parent
        self._below[key] = child
        return child

    def path(self, target: str) -> list[str]:
        """Return the brokers from the root to the target, both included."""
        path = [target]
        while path[-1] != self.root:
            path.append(self.parents[path[-1]])
        return path[::-1]


def links_of(ends: Iterable[tuple[str, str] | tuple[str, str, int]]) -> dict[Link, int]:
    """Return links by their two ends; a link without a cost costs 1."""
    return {link(end[0], end[1]): (end[2] if len(end) > 2 else 1) for end in ends}

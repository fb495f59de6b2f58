"""Topologies: the brokers of an overlay and the links between them, with costs."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.simulation.rng import seeded_random


class Edge(NamedTuple):
    """A link between two brokers."""

    one: str
    other: str
    cost: int = 1


class Topology(msgspec.Struct, frozen=True):
    """Brokers and links in a fixed order. `Topology.of` checks its arguments; the constructor does not."""

    brokers: tuple[str, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, links: Iterable[tuple[str, str] | tuple[str, str, int]], brokers: Iterable[str] = ()) -> Self:
        """Create a topology from links and the names of brokers without links. Raises `InvalidValueError`."""
        edges = tuple(Edge(*link) for link in links)
        for one, other, cost in edges:
            if one == other:
                raise InvalidValueError(f"{one} cannot be linked to itself")
            if type(cost) is not int or cost < 1:
                raise InvalidValueError(f"the link of {one} and {other} costs {cost!r}: must be an int from 1 on")
        if len({frozenset((one, other)) for one, other, _ in edges}) < len(edges):
            raise InvalidValueError("two brokers are linked once")
        names = dict.fromkeys([*(name for edge in edges for name in (edge.one, edge.other)), *brokers])
        if not names:
            raise InvalidValueError("a topology has at least one broker")
        return cls(tuple(map(checked_client, names)), edges)

    def neighbours(self, broker: str) -> list[str]:
        """Return the brokers that are linked to this one, sorted."""
        edges = [edge for edge in self.edges if broker in edge[:2]]
        return sorted(edge.other if edge.one == broker else edge.one for edge in edges)


def line(brokers: int) -> Topology:
    """A topology in which each broker is linked to the next one."""
    return _numbered(brokers, [(number, number + 1) for number in range(1, brokers)])


def star(brokers: int) -> Topology:
    """A topology in which all brokers are linked to the first one."""
    return _numbered(brokers, [(1, number) for number in range(2, brokers + 1)])


def ring(brokers: int) -> Topology:
    """A line whose last broker is linked to the first one."""
    closing = [(brokers, 1)] if brokers > 2 else []
    return _numbered(brokers, [(number, number + 1) for number in range(1, brokers)] + closing)


def tree(brokers: int, branches: int = 2) -> Topology:
    """A topology with the first broker as the root, in which each broker has up to `branches` children."""
    if branches < 1:
        raise InvalidValueError("branches: must be at least 1")
    return _numbered(brokers, [((number - 2) // branches + 1, number) for number in range(2, brokers + 1)])


def random_graph(brokers: int, degree: int, seed: int = 0) -> Topology:
    """A random connected topology in which each broker has at most `degree` links, and nearly all have that many."""
    if degree < min(2, brokers - 1):
        raise InvalidValueError("degree: must be at least 2 for the brokers to be connected")
    rng = seeded_random(seed, "topology")
    left = dict.fromkeys(range(1, brokers + 1), min(degree, brokers - 1))
    pairs: dict[tuple[int, int], None] = {}

    def link(one: int, other: int) -> None:
        pairs[min(one, other), max(one, other)] = None
        left[one] -= 1
        left[other] -= 1

    for number in range(2, brokers + 1):
        link(rng.choice([earlier for earlier in range(1, number) if left[earlier]]), number)
    # Brokers that lack most links go first, so that hardly any broker is left without a partner.
    while free := [number for number, count in left.items() if count]:
        most = max(left[number] for number in free)
        one = rng.choice([number for number in free if left[number] == most])
        partners = [number for number in free if number != one and (min(one, number), max(one, number)) not in pairs]
        if partners:
            link(one, rng.choice(partners))
        else:
            left[one] = 0
    return _numbered(brokers, list(pairs))


def _numbered(brokers: int, pairs: list[tuple[int, int]]) -> Topology:
    if brokers < 1:
        raise InvalidValueError("a topology has at least one broker")
    names = [f"b{number}" for number in range(1, brokers + 1)]
    return Topology(tuple(names), tuple(Edge(f"b{one}", f"b{other}") for one, other in pairs))

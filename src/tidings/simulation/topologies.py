"""Topologies: which brokers there are, and which of them are linked, at what cost."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.simulation.chance import drawn_from


class Edge(NamedTuple):
    """A link between two brokers."""

    one: str
    other: str
    cost: int = 1


class Topology(msgspec.Struct, frozen=True):
    """Brokers and links in a fixed order; `Topology.of` is the door that checks."""

    brokers: tuple[str, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, links: Iterable[tuple[str, str] | tuple[str, str, int]], brokers: Iterable[str] = ()) -> Self:
        """From a list of links; brokers without any are named besides."""
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
        found = [edge for edge in self.edges if broker in edge[:2]]
        return sorted(edge.other if edge.one == broker else edge.one for edge in found)


def line(brokers: int) -> Topology:
    return _numbered(brokers, [(number, number + 1) for number in range(1, brokers)])


def star(brokers: int) -> Topology:
    """The first one is in the middle."""
    return _numbered(brokers, [(1, number) for number in range(2, brokers + 1)])


def ring(brokers: int) -> Topology:
    closing = [(brokers, 1)] if brokers > 2 else []
    return _numbered(brokers, [(number, number + 1) for number in range(1, brokers)] + closing)


def tree(brokers: int, branches: int = 2) -> Topology:
    """The first one is the root; every broker has so many below it, as far as there are enough."""
    if branches < 1:
        raise InvalidValueError("branches: must be at least 1")
    return _numbered(brokers, [((number - 2) // branches + 1, number) for number in range(2, brokers + 1)])


def random_graph(brokers: int, degree: int, seed: int = 0) -> Topology:
    """Connected, and no broker has more links than the degree; nearly all of them have that many."""
    if degree < min(2, brokers - 1):
        raise InvalidValueError("degree: must be at least 2 for the brokers to be connected")
    chance = drawn_from(seed, "topology")
    left = dict.fromkeys(range(1, brokers + 1), min(degree, brokers - 1))
    pairs: dict[tuple[int, int], None] = {}

    def link(one: int, other: int) -> None:
        pairs[min(one, other), max(one, other)] = None
        left[one] -= 1
        left[other] -= 1

    for number in range(2, brokers + 1):
        link(chance.choice([known for known in range(1, number) if left[known]]), number)
    # Those who lack most go first, so that hardly any is left over without a partner.
    while free := [number for number, count in left.items() if count]:
        most = max(left[number] for number in free)
        one = chance.choice([number for number in free if left[number] == most])
        partners = [number for number in free if number != one and (min(one, number), max(one, number)) not in pairs]
        if partners:
            link(one, chance.choice(partners))
        else:
            left[one] = 0
    return _numbered(brokers, list(pairs))


def _numbered(brokers: int, pairs: list[tuple[int, int]]) -> Topology:
    if brokers < 1:
        raise InvalidValueError("a topology has at least one broker")
    names = [f"b{number}" for number in range(1, brokers + 1)]
    return Topology(tuple(names), tuple(Edge(f"b{one}", f"b{other}") for one, other in pairs))

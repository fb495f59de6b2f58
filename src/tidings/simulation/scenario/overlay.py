"""`[overlay]` of a scenario: brokers, links, and the conditions of the network."""

import csv
from pathlib import Path
from typing import Any

import msgspec

from tidings.configuration import at_least_one, one_of
from tidings.model.errors import InvalidValueError
from tidings.routing import strategy
from tidings.simulation import topologies
from tidings.simulation.clock import microseconds
from tidings.simulation.network import Conditions
from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.scenario.values import check_values, draw_value
from tidings.simulation.topologies import Edge, Topology

SHAPES = ("line", "star", "ring", "tree", "random")


class OverlaySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[overlay]`. Times are seconds.

    The shape is a `topology` with a number of `brokers`, a list of `links`, or a `file` with links.
    """

    topology: str | None = None
    brokers: int | None = None
    branches: int = 2  # children per broker in a tree
    degree: int = 3  # links per broker in a random graph
    costs: int | list[int] = 1  # a constant or values to draw from, for links without a cost of their own
    links: list[list[str | int]] = []
    file: str | None = None
    strategy: str = "advertisement"
    latency: float = 0.001
    jitter: float = 0.001
    bandwidth: int | None = None
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    merging: bool = False
    settling: float = 0.2
    grace: float = 10.0
    advertisements_required: bool | None = None
    count_bytes: bool = True

    def __post_init__(self) -> None:
        if (self.topology is not None) + bool(self.links) + (self.file is not None) != 1:
            raise InvalidValueError("an overlay has a topology, links or a file of links: one of the three")
        if self.topology is not None:
            one_of("topology", self.topology, SHAPES)
            if self.brokers is None:
                raise InvalidValueError("brokers: is missing")
        elif self.brokers is not None:
            raise InvalidValueError("brokers: is for a topology alone; links name their brokers themselves")
        at_least_one("brokers", self.brokers)
        at_least_one("branches", self.branches)
        _check_costs(self.costs)
        for number, link in enumerate(self.links):
            _check_link(f"links[{number}]", link)
        strategy(self.strategy)
        for name in ("settling", "grace"):
            if getattr(self, name) < 0:
                raise InvalidValueError(f"{name}: must not be negative")
        Conditions(
            latency=microseconds(self.latency),
            jitter=microseconds(self.jitter),
            bandwidth=self.bandwidth,
            loss=self.loss,
            duplication=self.duplication,
            reordering=self.reordering,
        )

    def made(self, seed: int) -> Topology:
        """Return the topology. Links without a cost get one from `costs`."""
        rng = seeded_random(seed, "costs")
        if not self.links:
            shape = self._shaped(seed)
            return Topology.of([Edge(one, other, self._cost(rng)) for one, other, _ in shape.edges], shape.brokers)
        return Topology.of(
            [Edge(str(one), str(other), int(cost[0]) if cost else self._cost(rng)) for one, other, *cost in self.links]
        )

    def _cost(self, rng: Random) -> int:
        return int(draw_value(self.costs, rng))  # type: ignore[arg-type]  # list is invariant, so mypy refuses list[int]

    def settings(self) -> dict[str, Any]:
        """Return the engine settings of all brokers."""
        return {
            "merging": self.merging,
            "settling_microseconds": microseconds(self.settling),
            "grace_microseconds": microseconds(self.grace),
            "advertisements_required": self.advertisements_required,
        }

    def _shaped(self, seed: int) -> Topology:
        brokers = self.brokers or 1
        match self.topology:
            case "tree":
                return topologies.tree(brokers, self.branches)
            case "random":
                return topologies.random_graph(brokers, self.degree, seed)
            case "star":
                return topologies.star(brokers)
            case "ring":
                return topologies.ring(brokers)
            case _:
                return topologies.line(brokers)


def links_in(path: Path) -> list[list[str | int]]:
    """Read links from a CSV file: two brokers and an optional cost per line, with an optional header
    `one,other,cost`."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = [(number, row) for number, row in enumerate(csv.reader(lines), start=1) if row]
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"{path}: is not UTF-8 text") from None
    if rows and [cell.strip() for cell in rows[0][1]] in (["one", "other"], ["one", "other", "cost"]):
        del rows[0]
    links: list[list[str | int]] = []
    for number, row in rows:
        cells: list[str | int] = [cell.strip() for cell in row]
        if len(cells) == 3 and str(cells[2]).isdecimal():
            cells[2] = int(cells[2])
        _check_link(f"{path}:{number}", cells)
        links.append(cells)
    if not links:
        raise InvalidValueError(f"{path}: names no links; a line is two brokers and, if you like, a cost: b1,b2,3")
    return links


def _check_link(where: str, link: list[str | int]) -> None:
    names, cost = link[:2], link[2:]
    if len(names) < 2 or len(cost) > 1 or not all(isinstance(name, str) and name for name in names):
        raise InvalidValueError(f"{where}: a link is two brokers and, if you like, a cost: 'b1', 'b2', 3")
    if cost and (not isinstance(cost[0], int) or cost[0] < 1):
        raise InvalidValueError(f"{where}: the cost of a link is a whole number from 1 on, not {cost[0]!r}")


def _check_costs(costs: int | list[int]) -> None:
    cost_values: Any = costs
    check_values("costs", {"it": cost_values})
    if min(costs if isinstance(costs, list) else [costs]) < 1:
        raise InvalidValueError("costs: whole numbers from 1 on")

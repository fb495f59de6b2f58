"""What happens in a scenario, and when: drawn from the seed before anything is done, each kind from a source of its
own, so that more of one does not change another."""

from collections.abc import Iterator
from typing import NamedTuple

from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.scenario.clients import Group
from tidings.simulation.scenario.scenario import Publications, Scenario
from tidings.simulation.scenario.values import drawn_all
from tidings.simulation.steps import Moves, Publishes, SetsContext, Step
from tidings.simulation.topologies import Topology


class Timed(NamedTuple):
    at: float  # seconds since the workload began
    step: Step


def schedule(scenario: Scenario, topology: Topology) -> list[Timed]:
    """In the order of time."""
    seconds, seed = scenario.workload.seconds, scenario.seed
    groups = {one.name: one for one in scenario.clients}
    found: list[Timed] = []
    for number, one in enumerate(scenario.workload.publications):
        found += _publications(one, groups[one.by], seconds, drawn_from(seed, f"publications {number}"))
    for group in scenario.clients:
        found += _changes(group, seconds, drawn_from(seed, f"contexts {group.name}"))
        found += _moves(group, topology, seconds, drawn_from(seed, f"moves {group.name}"))
    for number, trouble in enumerate(scenario.faults):
        found += (Timed(one.at, one) for one in trouble.made(topology, seed + number, seconds))
    return sorted((one for one in found if one.at <= seconds), key=lambda one: one.at)


def _publications(one: Publications, group: Group, seconds: float, chance: Random) -> Iterator[Timed]:
    names = group.names()
    for at in _times(one.per_second, seconds, chance):
        yield Timed(at, Publishes(chance.choice(names), drawn_all(one.attributes, chance), one.subscribers))


def _changes(group: Group, seconds: float, chance: Random) -> Iterator[Timed]:
    names = group.names()
    for at in _times(group.context_changes, seconds, chance):
        yield Timed(at, SetsContext(chance.choice(names), drawn_all(group.context, chance)))


def _moves(group: Group, topology: Topology, seconds: float, chance: Random) -> Iterator[Timed]:
    names, places = group.names(), group.places(topology.brokers)
    for at in _times(group.moves, seconds, chance):
        yield Timed(at, Moves(chance.choice(names), chance.choice(places)))


def _times(per_second: float, seconds: float, chance: Random) -> list[float]:
    return [chance.uniform(0, seconds) for _ in range(round(per_second * seconds))]

"""Publishers that move from broker to broker while subscribers stay: messages by type, paper 000's Figs. 11 and 12.

With advertisements that flood, every move takes an advertisement back and floods it anew, and subscriptions follow it.
With the flooding policy of Fig. 8, on the publishers' advertisements and on one of each broker's own, advertisements
stay where they are made, and subscriptions are everywhere already. Both have to tell the same clients of the same
events. Under both, `Reside` tells all brokers where a client is now, which the paper does not count.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tidings.cli.bench import Measurement, drawing, steps
from tidings.cli.bench.network_workload import Told, take_told
from tidings.engine.operations import Advertise
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.policy import policies
from tidings.simulation import World
from tidings.simulation.chance import drawn_from
from tidings.simulation.topologies import tree

_FLEET = "class = 'fleet'"
_PAPER = {
    "advertisements flood": "Fig. 11: advertisements, unadvertisements and subscriptions are continuously routed "
    "throughout the network",
    "flooding policy": "Fig. 12: no additional advertisement or subscription messages need to be routed",
}


class Size(NamedTuple):
    brokers: int = 7
    publishers: int = 5
    subscribers: int = 3  # each at a broker of its own, as far as there are enough


class Journey(NamedTuple):
    """What was sent for each move and the publication that followed it, in order; and who was told."""

    sent: list[dict[str, int]]
    told: Told

    @property
    def by_type(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for one in self.sent:
            found.update(one)
        return found


def measure(size: Size, moves: int, plot: Path | None) -> list[Measurement]:
    """The publishers move in turns, each to another broker by chance, and publish there."""
    with steps(len(_PAPER)) as step:
        found = {}
        for way in _PAPER:
            step(way)
            found[way] = _driven(size, moves, floods=way == "flooding policy")
    advertised, flooded = found.values()
    if advertised.told != flooded.told:
        raise RuntimeError("under the policy, clients were told of other events than without it")
    if plot is not None:
        _draw(found, plot)
    rows = [one for way, journey in found.items() for one in _told(way, journey, moves)]
    saved = advertised.by_type.total() / flooded.by_type.total()
    return [*rows, Measurement("advertisements flood / flooding policy, all messages", saved, "times")]


def _driven(size: Size, moves: int, *, floods: bool) -> Journey:
    world = World(tree(size.brokers), seed=1, resends=False)
    brokers = list(world.brokers)
    world.settle()
    policy = policies.flood() if floods else None
    if floods:
        for broker in brokers:
            own = Advertisement.of(Filter.parse(_FLEET), id=f"of {broker}", publisher=broker, policy=str(policy))
            world.do(broker, Advertise(own))
    for number in range(size.subscribers):
        world.client(f"home{number}", brokers[-1 - number % size.brokers]).subscribe(_FLEET)
    for number in range(size.publishers):
        world.client(f"truck{number}", brokers[number % size.brokers]).advertise(_FLEET, policy=policy)
    world.settle()
    chance = drawn_from(world.seed, "moves")
    sent = []
    for number in range(moves):
        truck = world.clients[f"truck{number % size.publishers}"]
        before = world.counters.counts()
        truck.move(chance.choice([broker for broker in brokers if broker != truck.broker]))
        world.settle()
        truck.publish({"class": "fleet", "stop": number})
        world.settle()
        sent.append((world.counters.counts() - before).by_kind())
    return Journey(sent, take_told(world))


def _told(way: str, journey: Journey, moves: int) -> list[Measurement]:
    return [
        Measurement(f"{way}: {kind}", count / moves, "messages a move", "", _PAPER[way] if kind == "Publish" else "")
        for kind, count in sorted(journey.by_type.items())
    ]


def _draw(found: dict[str, Journey], plot: Path) -> None:
    """All messages so far, by type, after each move."""
    panels: dict[str, dict[str, dict[float, float]]] = {}
    kinds = sorted({kind for journey in found.values() for kind in journey.by_type})
    for way, journey in found.items():
        lines = panels[way] = {kind: {} for kind in kinds}
        so_far: Counter[str] = Counter()
        for number, one in enumerate(journey.sent, 1):
            so_far.update(one)
            for kind in kinds:
                lines[kind][number] = so_far[kind]
    caption = f"The paper, {'. '.join(_PAPER.values())}."
    drawing.panels(panels, "moves", "messages so far", caption, plot, logarithmic=False)

"""Measure publishers that move between brokers while subscribers stay: messages by type, paper 000's Figs. 11 and 12.

- With advertisements that flood, every move removes the advertisement and floods it again, and subscriptions follow it.
- With the flooding policy of Fig. 8, on the advertisements of the publishers and on one of each broker itself,
  advertisements stay at their broker, and subscriptions are at all brokers already.

Both must give the same notifications. In both, `Reside` messages announce a client's new broker to all brokers, which
the paper does not count.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks import drawing
from benchmarks.workloads.network_workload import NotificationCounts, take_notifications
from tidings.cli.measurement import Measurement, steps
from tidings.engine.operations import Advertise
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.policy import policies
from tidings.simulation import World
from tidings.simulation.rng import seeded_random
from tidings.simulation.topologies import tree

_FLEET = "class = 'fleet'"
_PAPER = {
    "advertisements flood": "Fig. 11: advertisements, unadvertisements and subscriptions are continuously routed "
    "throughout the network",
    "flooding policy": "Fig. 12: no additional advertisement or subscription messages need to be routed",
}


class RoamingSize(NamedTuple):
    """The size of the overlay: brokers, publishers that move, and subscribers that stay."""

    brokers: int = 7
    publishers: int = 5
    subscribers: int = 3  # each at its own broker, as long as there are enough brokers


class RoamingTraffic(NamedTuple):
    """The messages by type of each move and the publication after it, in order, and all notifications."""

    sent: list[dict[str, int]]
    notifications: NotificationCounts

    @property
    def by_type(self) -> Counter[str]:
        """The messages of all moves by type."""
        totals: Counter[str] = Counter()
        for counts in self.sent:
            totals.update(counts)
        return totals


def measure(size: RoamingSize, moves: int, plot: Path | None) -> list[Measurement]:
    """Move the publishers in turns, each to a random other broker, and publish there.

    Raises RuntimeError if the two ways give different notifications.
    """
    with steps(len(_PAPER)) as step:
        journeys = {}
        for way in _PAPER:
            step(way)
            journeys[way] = _run(size, moves, floods=way == "flooding policy")
    advertised, flooded = journeys.values()
    if advertised.notifications != flooded.notifications:
        raise RuntimeError("under the policy, clients were told of other events than without it")
    if plot is not None:
        _draw(journeys, plot)
    rows = [measurement for way, journey in journeys.items() for measurement in _measurements(way, journey, moves)]
    saved = advertised.by_type.total() / flooded.by_type.total()
    return [*rows, Measurement("advertisements flood / flooding policy, all messages", saved, "times")]


def _run(size: RoamingSize, moves: int, *, floods: bool) -> RoamingTraffic:
    world = World(tree(size.brokers), seed=1, resends=False)
    brokers = list(world.brokers)
    world.settle()
    policy = policies.flood() if floods else None
    if floods:
        for broker in brokers:
            advertisement = Advertisement.of(
                Filter.parse(_FLEET), id=f"of {broker}", publisher=broker, policy=str(policy)
            )
            world.do(broker, Advertise(advertisement))
    for number in range(size.subscribers):
        world.client(f"home{number}", brokers[-1 - number % size.brokers]).subscribe(_FLEET)
    for number in range(size.publishers):
        world.client(f"truck{number}", brokers[number % size.brokers]).advertise(_FLEET, policy=policy)
    world.settle()
    random = seeded_random(world.seed, "moves")
    sent = []
    for number in range(moves):
        truck = world.clients[f"truck{number % size.publishers}"]
        before = world.counters.counts()
        truck.move(random.choice([broker for broker in brokers if broker != truck.broker]))
        world.settle()
        truck.publish({"class": "fleet", "stop": number})
        world.settle()
        sent.append((world.counters.counts() - before).by_kind())
    return RoamingTraffic(sent, take_notifications(world))


def _measurements(way: str, journey: RoamingTraffic, moves: int) -> list[Measurement]:
    return [
        Measurement(f"{way}: {kind}", count / moves, "messages a move", "", _PAPER[way] if kind == "Publish" else "")
        for kind, count in sorted(journey.by_type.items())
    ]


def _draw(journeys: dict[str, RoamingTraffic], plot: Path) -> None:
    """Draw the messages so far, by type, after each move."""
    panels: dict[str, dict[str, dict[float, float]]] = {}
    kinds = sorted({kind for journey in journeys.values() for kind in journey.by_type})
    for way, journey in journeys.items():
        lines = panels[way] = {kind: {} for kind in kinds}
        so_far: Counter[str] = Counter()
        for number, counts in enumerate(journey.sent, 1):
            so_far.update(counts)
            for kind in kinds:
                lines[kind][number] = so_far[kind]
    caption = f"The paper, {'. '.join(_PAPER.values())}."
    drawing.panels(panels, "moves", "messages so far", caption, plot, logarithmic=False)

"""Measure a context change in an overlay, compared with re-subscribing: paper 001's Fig. 10.

There are five brokers with a publisher and a hundred subscribers each, and ten subscriptions per subscriber, each for
publishers in a box around the subscriber. A change of position is made in three ways:

- The box is written with `this.`; the subscriber only sends its new context.
- As in SIENA, positions are attributes of events; each subscription is removed and made again with new constants.
- Under the strategy `asf`, the broker itself does the latter.

In the end all three must give the same notifications.
"""

from typing import Any, NamedTuple

from benchmarks.workloads import moving_workload
from benchmarks.workloads.network_workload import NotificationCounts, take_notifications
from tidings.cli.measurement import Measurement, processor_seconds, steps
from tidings.simulation import World
from tidings.simulation.client import SimulatedClient
from tidings.simulation.counters import Counts
from tidings.simulation.topologies import Topology, line, star

_EVENTS = 50  # events after each round, to compare the notifications
_LEVELS = "level >= 0"
_PAPER = "the paper: about five times faster than SIENA, sockets included; by three orders of magnitude on one broker"

Place = dict[str, Any]  # client, x and y


class OverlaySize(NamedTuple):
    """The size of the overlay; the defaults are the paper's."""

    brokers: int = 5
    subscribers: int = 100  # per broker
    subscriptions: int = 10  # per subscriber

    @property
    def clients(self) -> int:
        return self.brokers * self.subscribers


class ContextNetwork:
    """A simulated overlay whose subscribers set their context when they move."""

    def __init__(self, topology: Topology, size: OverlaySize, strategy: str = "advertisement") -> None:
        self.world = World(topology, seed=1, strategy=strategy, resends=False)
        self._subscriptions = size.subscriptions
        self._contents = moving_workload.contents(size.clients * size.subscriptions)
        self.world.settle()
        for broker in topology.brokers:
            self._advertise(self.world.client(_publisher(broker), broker))
        self.world.settle()
        for place in moving_workload.everyone(size.clients).to_pylist():
            broker = topology.brokers[_number(place) // size.subscribers]
            self._subscribe(self.world.client(place["client"], broker), place)
        self.world.settle()

    def move(self, places: list[Place]) -> None:
        """Move clients to these positions, and run the world until it has settled."""
        for place in places:
            self._move(self.world.clients[place["client"]], place)
        self.world.settle()

    def publish(self, broker: str, attributes: dict[str, Any], position: dict[str, float]) -> None:
        """Publish an event at a broker, with the position as the publisher's context."""
        publisher = self.world.clients[_publisher(broker)]
        publisher.set_context(position)
        publisher.publish(attributes)

    def _advertise(self, publisher: SimulatedClient) -> None:
        publisher.advertise(_LEVELS, publisher_context=("x", "y"))

    def _subscribe(self, client: SimulatedClient, place: Place) -> None:
        self._move(client, place)
        for name, content in self._contents_of(place):
            client.subscribe(content, publishers=moving_workload.BOX, id=name)

    def _move(self, client: SimulatedClient, place: Place) -> None:
        client.set_context(x=place["x"], y=place["y"])

    def _contents_of(self, place: Place) -> list[tuple[str, str]]:
        """Return the ids and the contents of a client's subscriptions."""
        first = _number(place) * self._subscriptions
        return [(f"s{number}", self._contents[number]) for number in range(first, first + self._subscriptions)]


class ResubscribingNetwork(ContextNetwork):
    """A simulated overlay whose subscribers write their position into their subscriptions, and re-subscribe when
    they move."""

    def publish(self, broker: str, attributes: dict[str, Any], position: dict[str, float]) -> None:
        """Publish an event at a broker, with the position among its attributes."""
        self.world.clients[_publisher(broker)].publish(attributes | position)

    def _advertise(self, publisher: SimulatedClient) -> None:
        publisher.advertise(f"{_LEVELS} and x >= 0 and y >= 0")

    def _subscribe(self, client: SimulatedClient, place: Place) -> None:
        box = moving_workload.box(place["x"], place["y"])
        for name, content in self._contents_of(place):
            client.subscribe(f"{content} and {box}", id=name)

    def _move(self, client: SimulatedClient, place: Place) -> None:
        for name, _ in self._contents_of(place):
            client.unsubscribe(name)
        self._subscribe(client, place)


class MoveCost(NamedTuple):
    """The cost of one change of position: processor seconds, and messages between brokers."""

    seconds: float
    messages: float
    by_type: dict[str, float]


def measure(size: OverlaySize, changes: int, rounds: int) -> list[Measurement]:
    """Measure on a line and on a star. In each round the three ways take turns with the same changes."""
    measurements = []
    with steps(2) as step:
        for name, topology in (("line", line(size.brokers)), ("star", star(size.brokers))):
            step(name)
            networks = {
                "set_context": ContextNetwork(topology, size),
                "subscribe anew": ResubscribingNetwork(topology, size),
                "asf": ContextNetwork(topology, size, "asf"),
            }
            measurements += _measurements(name, _costs(networks, size, changes, rounds))
    return measurements


def _costs(networks: dict[str, ContextNetwork], size: OverlaySize, changes: int, rounds: int) -> dict[str, MoveCost]:
    """Return the cost per change of each way: the best time of all rounds, and the messages of the first round.

    Raises RuntimeError if the ways give different notifications.
    """
    seconds: dict[str, list[float]] = {way: [] for way in networks}
    sent: dict[str, Counts] = {}
    for number in range(1, rounds + 1):
        places = moving_workload.moves(changes, size.clients, number).to_pylist()
        for way, network in networks.items():
            before = network.world.counters.counts()
            seconds[way].append(processor_seconds(lambda: network.move(places)) / changes)  # noqa: B023
            sent.setdefault(way, network.world.counters.counts() - before)
        notifications = [publish_everywhere(network, number) for network in networks.values()]
        if any(counts != notifications[0] for counts in notifications):
            raise RuntimeError("after the same changes, clients were told of different events")
    return {
        way: MoveCost(
            min(seconds[way]),
            counts.messages / changes,
            {kind: count / changes for kind, count in counts.by_kind().items()},
        )
        for way, counts in sent.items()
    }


def publish_everywhere(network: ContextNetwork, seed: int) -> NotificationCounts:
    """Publish events at one broker after the other, and return the notifications."""
    brokers = list(network.world.brokers)
    for number, row in enumerate(moving_workload.events(_EVENTS, seed).to_pylist()):
        attributes = {name: row[name] for name in ("kind", "level")}
        network.publish(brokers[number % len(brokers)], attributes, row["context"])
    network.world.settle()
    return take_notifications(network.world)


def _measurements(topology: str, costs: dict[str, MoveCost]) -> list[Measurement]:
    rows = []
    for way, cost in costs.items():
        by_type = ", ".join(f"{kind} {count:.3g}" for kind, count in cost.by_type.items())
        rows += [
            Measurement(f"{topology}: {way}", cost.messages, "messages a change", "", by_type),
            Measurement(f"{topology}: {way}", cost.seconds * 1e6, "us"),
        ]
    context_cost = costs["set_context"]
    for way, paper in (("subscribe anew", _PAPER), ("asf", "")):
        what, other_cost = f"{topology}: {way} / set_context", costs[way]
        rows += [
            Measurement(f"{what}, messages", other_cost.messages / context_cost.messages, "times", "5"),
            Measurement(f"{what}, processor time", other_cost.seconds / context_cost.seconds, "times", "50", paper),
        ]
    return rows


def _publisher(broker: str) -> str:
    return f"publisher at {broker}"


def _number(place: Place) -> int:
    return int(place["client"].removeprefix("c"))

"""A change of context in an overlay, beside subscribing anew: paper 001's Fig. 10.

Five brokers, a publisher and a hundred subscribers at each, ten subscriptions a subscriber, each for publishers in a
box around the subscriber. Either the box is written with `this.`, and only the subscriber's position is told where it
changes; or, as in SIENA, positions are attributes of events, and every subscription is taken back and made anew with
other numbers. Under `asf` a broker does that by itself. In the end all have to tell the same clients of the same
events.
"""

from typing import Any, NamedTuple

from tidings.cli.bench import Measurement, moving_workload, processor_seconds, steps
from tidings.cli.bench.network_workload import Told, take_told
from tidings.simulation import World
from tidings.simulation.client import Client
from tidings.simulation.counters import Counts
from tidings.simulation.topologies import Topology, line, star

_EVENTS = 50  # after each round, to see that all tell the same
_LEVELS = "level >= 0"
_PAPER = "the paper: about five times faster than SIENA, sockets included; by three orders of magnitude on one broker"

Place = dict[str, Any]  # client, x and y


class Size(NamedTuple):
    """The paper's, unless another one is wanted."""

    brokers: int = 5
    subscribers: int = 100  # at each broker
    subscriptions: int = 10  # of each subscriber

    @property
    def clients(self) -> int:
        return self.brokers * self.subscribers


class Situated:
    """A network whose subscribers set their context where they have moved."""

    def __init__(self, topology: Topology, size: Size, strategy: str = "advertisement") -> None:
        self.world = World(topology, seed=1, strategy=strategy, resends=False)
        self._subscriptions = size.subscriptions
        self._contents = moving_workload.contents(size.clients * size.subscriptions)
        self.world.settle()
        for broker in topology.brokers:
            self._advertise(self.world.client(_publisher(broker), broker))
        self.world.settle()
        for place in moving_workload.everyone(size.clients).to_pylist():
            broker = topology.brokers[_number(place) // size.subscribers]
            self._begin(self.world.client(place["client"], broker), place)
        self.world.settle()

    def move(self, places: list[Place]) -> None:
        """All of them, until the world has settled."""
        for place in places:
            self._move(self.world.clients[place["client"]], place)
        self.world.settle()

    def publish(self, broker: str, said: dict[str, Any], position: dict[str, float]) -> None:
        publisher = self.world.clients[_publisher(broker)]
        publisher.set_context(position)
        publisher.publish(said)

    def _advertise(self, publisher: Client) -> None:
        publisher.advertise(_LEVELS, publisher_context=("x", "y"))

    def _begin(self, client: Client, place: Place) -> None:
        self._move(client, place)
        for name, content in self._wanted(place):
            client.subscribe(content, publishers=moving_workload.BOX, id=name)

    def _move(self, client: Client, place: Place) -> None:
        client.set_context(x=place["x"], y=place["y"])

    def _wanted(self, place: Place) -> list[tuple[str, str]]:
        """The names of a client's subscriptions, and their contents."""
        first = _number(place) * self._subscriptions
        return [(f"s{number}", self._contents[number]) for number in range(first, first + self._subscriptions)]


class Rewritten(Situated):
    """A network whose subscribers write where they are into their subscriptions, and subscribe anew."""

    def publish(self, broker: str, said: dict[str, Any], position: dict[str, float]) -> None:
        self.world.clients[_publisher(broker)].publish(said | position)

    def _advertise(self, publisher: Client) -> None:
        publisher.advertise(f"{_LEVELS} and x >= 0 and y >= 0")

    def _begin(self, client: Client, place: Place) -> None:
        box = moving_workload.box(place["x"], place["y"])
        for name, content in self._wanted(place):
            client.subscribe(f"{content} and {box}", id=name)

    def _move(self, client: Client, place: Place) -> None:
        for name, _ in self._wanted(place):
            client.unsubscribe(name)
        self._begin(client, place)


class Cost(NamedTuple):
    """Of a change of position."""

    seconds: float
    messages: float
    by_type: dict[str, float]


def measure(size: Size, changes: int, rounds: int) -> list[Measurement]:
    """On a line and on a star; in each round the three ways take turns with the same changes."""
    found = []
    with steps(2) as step:
        for name, topology in (("line", line(size.brokers)), ("star", star(size.brokers))):
            step(name)
            networks = {
                "set_context": Situated(topology, size),
                "subscribe anew": Rewritten(topology, size),
                "asf": Situated(topology, size, "asf"),
            }
            found += _told(name, _costs(networks, size, changes, rounds))
    return found


def _costs(networks: dict[str, Situated], size: Size, changes: int, rounds: int) -> dict[str, Cost]:
    """The best of the rounds; messages are those of the first."""
    seconds: dict[str, list[float]] = {way: [] for way in networks}
    sent: dict[str, Counts] = {}
    for number in range(1, rounds + 1):
        places = moving_workload.moves(changes, size.clients, number).to_pylist()
        for way, network in networks.items():
            before = network.world.counters.counts()
            seconds[way].append(processor_seconds(lambda: network.move(places)) / changes)  # noqa: B023
            sent.setdefault(way, network.world.counters.counts() - before)
        told = [published(network, number) for network in networks.values()]
        if any(one != told[0] for one in told):
            raise RuntimeError("after the same changes, clients were told of different events")
    return {
        way: Cost(
            min(seconds[way]),
            counts.messages / changes,
            {kind: count / changes for kind, count in counts.by_kind().items()},
        )
        for way, counts in sent.items()
    }


def published(network: Situated, seed: int) -> Told:
    """What clients are told of events that are published at one broker after the other."""
    brokers = list(network.world.brokers)
    for number, row in enumerate(moving_workload.events(_EVENTS, seed).to_pylist()):
        said = {name: row[name] for name in ("kind", "level")}
        network.publish(brokers[number % len(brokers)], said, row["context"])
    network.world.settle()
    return take_told(network.world)


def _told(topology: str, costs: dict[str, Cost]) -> list[Measurement]:
    rows = []
    for way, cost in costs.items():
        by_type = ", ".join(f"{kind} {count:.3g}" for kind, count in cost.by_type.items())
        rows += [
            Measurement(f"{topology}: {way}", cost.messages, "messages a change", "", by_type),
            Measurement(f"{topology}: {way}", cost.seconds * 1e6, "us"),
        ]
    own = costs["set_context"]
    for way, paper in (("subscribe anew", _PAPER), ("asf", "")):
        what, other = f"{topology}: {way} / set_context", costs[way]
        rows += [
            Measurement(f"{what}, messages", other.messages / own.messages, "times", "5"),
            Measurement(f"{what}, processor time", other.seconds / own.seconds, "times", "50", paper),
        ]
    return rows


def _publisher(broker: str) -> str:
    return f"publisher at {broker}"


def _number(place: Place) -> int:
    return int(place["client"].removeprefix("c"))

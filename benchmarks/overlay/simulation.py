"""Measure the simulator itself: messages between brokers per second on one core, and a large world with many
clients."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks import processes
from tidings.cli.measurement import Measurement, processor_seconds, steps
from tidings.engine.matcher import NaiveMatcher
from tidings.simulation import Topology, World
from tidings.simulation.clock import SECOND
from tidings.simulation.rng import seeded_random
from tidings.simulation.topologies import line, random_graph, tree

_LINE = 20  # brokers on the line
_TOPICS = 100
_PUBLISHERS = 10
_DEGREE = 4
_MEGA = 1e6


class WorldSize(NamedTuple):
    """The size of the large world."""

    brokers: int = 1_000
    clients: int = 10_000


def measure(size: WorldSize, events: int, rounds: int) -> list[Measurement]:
    """Measure `events` events per round on a line of brokers, and a tenth of them in the large worlds."""
    shapes: dict[str, Callable[[], Topology]] = {
        "tree": lambda: tree(size.brokers),
        f"random, degree {_DEGREE}": lambda: random_graph(size.brokers, _DEGREE, seed=1),
    }
    with steps(1 + len(shapes)) as step:
        step(f"a line of {_LINE} brokers")
        measurements = [_measure_line(events, rounds)]
        for name, shape in shapes.items():
            step(f"{size.brokers:,} brokers, {size.clients:,} clients, {name}")
            measurements += _measure_large_world(name, shape(), size.clients, max(1, events // 10))
    return measurements


def _measure_line(events: int, rounds: int) -> Measurement:
    """Measure plain publications from one end of a line of brokers to the other."""
    world = World(line(_LINE), seed=1)
    world.settle()
    publisher, subscriber = world.client("publisher", "b1"), world.client("subscriber", f"b{_LINE}")
    publisher.advertise("n > 0")
    world.settle()
    subscriber.subscribe("n > 0")
    world.settle()

    def publish() -> None:
        for number in range(1, events + 1):
            publisher.publish({"n": number, "a": "text", "b": 2.5})
        world.settle()

    before = world.counters.counts()
    seconds = min(processor_seconds(publish) for _ in range(rounds))
    messages = (world.counters.counts() - before).messages / rounds
    if len(subscriber.notifications) != events * rounds:
        raise RuntimeError("not all events have reached the other end of the line")
    what = f"a line of {_LINE} brokers, plain publications"
    return Measurement(what, messages / seconds, "messages/s", "20,000", f"{seconds / messages * 1e6:.3g} us a message")


def _measure_large_world(name: str, topology: Topology, clients: int, events: int) -> list[Measurement]:
    """Measure a world in which each client subscribes to one of a hundred topics, and ten others publish.

    A broker has few clients and so uses the naive matcher: a thousand indexes would cost more memory than they save
    time. Raises RuntimeError unless each subscriber is notified exactly once of each matching event.
    """
    worlds: list[World] = []
    settling = processor_seconds(lambda: worlds.append(_settled_world(topology)))
    (world,) = worlds
    virtual = world.now / SECOND
    subscribing = processor_seconds(lambda: _subscribe(world, clients))
    before, memory = world.counters.counts(), processes.memory()
    publishing = processor_seconds(lambda: _publish(world, events))
    messages = (world.counters.counts() - before).messages
    notified = sum(len(client.notifications) for client in world.clients.values())
    if notified != sum(len(range(number % _TOPICS, clients, _TOPICS)) for number in range(events)):
        raise RuntimeError("not all subscribers were told, or some of them twice")
    where = f"{len(topology.brokers):,} brokers, {name}"
    many = f"{clients:,} clients subscribe"
    return [
        Measurement(f"{where}: the network settles", settling, "s", "", f"in {virtual:.2g} s of virtual time"),
        Measurement(f"{where}: {many}, and it settles", subscribing, "s", "", f"{before.messages:,} messages so far"),
        Measurement(f"{where}: memory of the process then", memory / _MEGA, "MB"),
        Measurement(
            f"{where}: events",
            events / publishing,
            "events/s",
            "",
            f"{messages / events:.3g} messages and {notified / events:.3g} notifications an event",
        ),
    ]


def _settled_world(topology: Topology) -> World:
    world = World(topology, seed=1, matcher=NaiveMatcher)
    world.settle()
    return world


def _subscribe(world: World, clients: int) -> None:
    brokers = list(world.brokers)
    for number in range(_PUBLISHERS):
        broker = brokers[number * len(brokers) // _PUBLISHERS]
        world.client(_publisher(number), broker).advertise("n >= 0")
    world.settle()
    places = seeded_random(world.seed, "places").choices(brokers, k=clients)
    for number, broker in enumerate(places):
        client = world.client(f"client{number}", broker)
        client.subscribe(f"topic = '{_topic(number)}' and n >= 0")
    world.settle()


def _publish(world: World, events: int) -> None:
    for number in range(events):
        publisher = world.clients[_publisher(number % _PUBLISHERS)]
        publisher.publish({"n": number, "topic": _topic(number)})
    world.settle()


def _publisher(number: int) -> str:
    return f"publisher{number}"


def _topic(number: int) -> str:
    return f"t{number % _TOPICS}"

"""Histories drawn from a seed: small overlays, a few clients, and filters and values so few that they meet often."""

from collections.abc import Callable

from tidings.policy import policies
from tidings.routing import STRATEGIES
from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.history import History
from tidings.simulation.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
    Waits,
)
from tidings.simulation.topologies import Edge, Topology, line, random_graph, ring, star, tree

CONTENTS = ("", "a > 1", "a < 3 and b > 0", "b is null", "a = 2 or b = 1", "a >= 1")
PUBLISHERS = (None, None, None, "x > 0", "x = this.x", "x is null", "x >= 0")
SUBSCRIBERS = (None, None, None, "x > 0", "x = this.x", "x is null", "x between this.x - 1 and this.x + 1")
POLICIES = (None, None, None, str(policies.trim()))
NETWORKS: tuple[dict[str, float], ...] = ({}, {}, {"loss": 0.1, "duplication": 0.1, "reordering": 0.2})
OFFERS: tuple[tuple[str, ...], ...] = ((), ("x",))
DURABLE = 2  # the number of each client's durable subscription
_NUMBERS = range(4)
_USUALLY: tuple[tuple[int, str], ...] = (
    (20, "publish"),
    (6, "subscribe"),
    (8, "context"),
    (3, "unsubscribe"),
    (3, "advertise"),
    (1, "unadvertise"),
    (1, "leave"),
    (2, "return"),
    (2, "move"),
    (10, "wait"),
    (5, "settle"),
)
_AT_FIRST = ("context", "advertise", "subscribe", "subscribe")
_FAULTS: tuple[tuple[int, str], ...] = (
    (2, "cut"),
    (2, "heal"),
    (1, "crash"),
    (2, "restart"),
    (1, "slow"),
    (1, "lossy"),
)


_PAUSES: tuple[tuple[int, str], ...] = ((2, "pause"), (2, "resume"))


def drawn(
    seed: int, *, strategy: str | None = None, steps: int = 40, faults: bool = True, pauses: bool = False
) -> History:
    """The history of a seed. Without a strategy given, they take turns."""
    chance = drawn_from(seed, "history")
    topology = _topology(chance, seed)
    clients = [f"c{number}" for number in range(1, chance.randint(2, 8) + 1)]
    weighted = _USUALLY + (_FAULTS if faults else ()) + (_PAUSES if pauses else ())
    weights, kinds = [weight for weight, _ in weighted], [kind for _, kind in weighted]
    chosen = chance.choices(kinds, weights, k=steps)
    homes = {name: chance.choice(topology.brokers) for name in clients}
    # Everybody says something first, so that there is something to go wrong.
    before = [_DRAWN[kind](chance, topology, name) for name in clients for kind in _AT_FIRST]
    return History(
        topology=topology,
        homes=homes,
        steps=(*before, Settles(), *(_DRAWN[kind](chance, topology, chance.choice(clients)) for kind in chosen)),
        strategy=sorted(STRATEGIES)[seed % len(STRATEGIES)] if strategy is None else strategy,
        seed=seed,
        network=chance.choice(NETWORKS),
    )


def _topology(chance: Random, seed: int) -> Topology:
    brokers = chance.randint(2, 7)
    shape = chance.choice((line, star, ring, tree, lambda count: random_graph(count, 3, seed)))
    made = shape(brokers)
    edges = (Edge(one, other, chance.randint(1, 3)) for one, other, _ in made.edges)
    return Topology(made.brokers, tuple(edges))


def _subscribes(chance: Random, _: Topology, client: str) -> Step:
    number = chance.randint(0, DURABLE)
    return Subscribes(
        client,
        f"{client}.{number}",
        chance.choice(CONTENTS),
        chance.choice(PUBLISHERS),
        chance.choice(POLICIES),
        f"d{number}" if number == DURABLE else None,
    )


def _advertises(chance: Random, _: Topology, client: str) -> Step:
    content = chance.choice(("", "", *CONTENTS))
    return Advertises(
        client, f"{client}.a{chance.randint(0, 1)}", content, chance.choice((None, *OFFERS)), chance.choice(OFFERS)
    )


def _context(chance: Random) -> dict[str, int]:
    return {} if chance.random() < 0.2 else {"x": chance.choice(_NUMBERS)}


def _publishes(chance: Random, _: Topology, client: str) -> Step:
    attributes = {"a": chance.choice(_NUMBERS)} | ({"b": chance.choice(_NUMBERS)} if chance.random() < 0.6 else {})
    return Publishes(client, dict(attributes), chance.choice(SUBSCRIBERS))


def _link(chance: Random, topology: Topology) -> tuple[str, str]:
    one, other, _ = chance.choice(topology.edges)
    return (one, other) if chance.random() < 0.5 else (other, one)


_DRAWN: dict[str, Callable[[Random, Topology, str], Step]] = {
    "publish": _publishes,
    "subscribe": _subscribes,
    "context": lambda chance, _, client: SetsContext(client, dict(_context(chance))),
    "unsubscribe": lambda chance, _, client: Unsubscribes(client, f"{client}.{chance.randint(0, DURABLE)}"),
    "advertise": _advertises,
    "unadvertise": lambda chance, _, client: Unadvertises(client, f"{client}.a{chance.randint(0, 1)}"),
    "leave": lambda _, __, client: Leaves(client),
    "return": lambda _, __, client: Returns(client),
    "move": lambda chance, topology, client: Moves(client, chance.choice(topology.brokers)),
    "wait": lambda chance, _, __: Waits(chance.choice((0.0005, 0.002, 0.01, 0.7))),
    "settle": lambda _, __, ___: Settles(),
    "cut": lambda chance, topology, _: Cut(0, *_link(chance, topology), one_way=chance.random() < 0.3),
    "heal": lambda chance, topology, _: Heal(0, *_link(chance, topology)),
    "crash": lambda chance, topology, _: Crash(0, chance.choice(topology.brokers)),
    "restart": lambda chance, topology, _: Restart(0, chance.choice(topology.brokers)),
    "pause": lambda chance, topology, _: Pause(0, chance.choice(topology.brokers)),
    "resume": lambda chance, topology, _: Resume(0, chance.choice(topology.brokers)),
    "slow": lambda chance, topology, _: Slow(0, *_link(chance, topology), chance.choice((2.0, 10.0, 100.0))),
    "lossy": lambda chance, topology, _: Lossy(0, *_link(chance, topology), chance.choice((0.05, 0.3)), 0.1, 0.1),
}

"""Histories drawn from a seed: small overlays, a few clients, and filters and values so few that they meet often."""

from collections.abc import Callable, Iterable

from tidings.policy import policies
from tidings.routing import STRATEGIES
from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.clock import SECOND
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.history import History
from tidings.simulation.link import HEARTBEAT, PATIENCE
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
OWN_PLACE = ("x = this.x", "x between this.x - 1 and this.x + 1", "x is null or x > this.x")  # of publishers
_NUMBERS = range(4)
_MOMENTS = (0.0005, 0.002, 0.01, 0.7)  # seconds
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
_OUTAGES = (1, 2)  # of one history
_NOTICED = (PATIENCE + 1) * HEARTBEAT / SECOND  # after a failure; somewhat earlier where links are bad
# Seconds after a failure: before the neighbours notice it, until tables are made anew, and after that.
_AFTER_FAILURE = (0.01, *(round(_NOTICED + more, 3) for more in (-0.4, -0.1, 0.01, 0.05, 0.1, 0.15, 0.2, 0.21, 0.25)))


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
    after = [_DRAWN[kind](chance, topology, chance.choice(clients)) for kind in chosen]
    network = chance.choice(NETWORKS)
    return History(
        topology=topology,
        homes=homes,
        steps=(*before, Settles(), *(_with_outages(seed, topology, homes, after) if faults else after)),
        strategy=sorted(STRATEGIES)[seed % len(STRATEGIES)] if strategy is None else strategy,
        seed=seed,
        network=network,
    )


def _with_outages(seed: int, topology: Topology, homes: dict[str, str], steps: list[Step]) -> list[Step]:
    """The steps with outages among them. These have a chance of their own: the other steps are the same without."""
    chance = drawn_from(seed, "outages")
    found = list(steps)
    for _ in range(chance.choice(_OUTAGES)):
        place = chance.randint(0, len(found))
        found[place:place] = outage(chance, topology, places(homes, found[:place]))
    return found


def places(homes: dict[str, str], steps: Iterable[Step]) -> dict[str, str]:
    """The brokers at which clients are, after these steps."""
    return homes | {step.client: step.broker for step in steps if isinstance(step, Moves)}


def outage(chance: Random, topology: Topology, places: dict[str, str]) -> tuple[Step, ...]:
    """The broker of a subscriber fails, or a link of that broker; the subscriber goes to another broker at about the
    time at which the failure is noticed and tables are made anew; then its context changes, and somebody publishes."""
    client, publisher = chance.choice(list(places)), chance.choice(list(places))
    home = places[client]
    failure, recovery = _failure(chance, topology, home)
    elsewhere = [name for name in topology.brokers if name != home]
    steps: list[tuple[float, Step]] = [  # each with how likely it is to be taken
        (0.8, Restart(0, home)),
        (0.8, Returns(client)),
        (0.8, Advertises(publisher, f"{publisher}.a0", "", ("x",), chance.choice(OFFERS))),
        (0.8, _wants_own_place(chance, client)),
        (1.0, Settles()),
        (1.0, failure),
        (1.0, Waits(chance.choice(_AFTER_FAILURE))),
        (1.0, Moves(client, chance.choice(elsewhere))),
        (0.3, SetsContext(client, dict(_context(chance)))),
        (0.3, Waits(chance.choice(_MOMENTS))),
        (0.3, recovery),
        (0.8, Settles()),
        (0.8, SetsContext(client, dict(_context(chance)))),
        (0.8, Settles()),
        (0.8, _publishes(chance, topology, publisher)),
        (0.8, Settles()),
        (0.7, recovery),
    ]
    return tuple(step for likelihood, step in steps if chance.random() < likelihood)


def _failure(chance: Random, topology: Topology, broker: str) -> tuple[Step, Step]:
    """A broker fails, or one of its links; and what brings it back."""
    links = [link for link in topology.edges if broker in link[:2]]
    if chance.random() < 0.5 or not links:
        return Crash(0, broker), Restart(0, broker)
    one, other, _ = chance.choice(links)
    return Cut(0, one, other), Heal(0, one, other)


def _wants_own_place(chance: Random, client: str) -> Step:
    """A durable subscription to the events of publishers where the subscriber is."""
    return Subscribes(
        client,
        f"{client}.{DURABLE}",
        chance.choice(CONTENTS),
        chance.choice(OWN_PLACE),
        chance.choice(POLICIES),
        f"d{DURABLE}",
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
    "wait": lambda chance, _, __: Waits(chance.choice(_MOMENTS)),
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

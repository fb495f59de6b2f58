"""Random histories drawn from a seed: small overlays, a few clients, and few filters and values, so that they often
match."""

from collections.abc import Callable, Iterable

from tidings.policy import policies
from tidings.routing import STRATEGIES
from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import (
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
from tidings.simulation.clock import SECOND
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.link import HEARTBEAT, PATIENCE
from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.topologies import Edge, Topology, line, random_graph, ring, star, tree

CONTENTS = ("", "a > 1", "a < 3 and b > 0", "b is null", "a = 2 or b = 1", "a >= 1")
PUBLISHERS = (None, None, None, "x > 0", "x = this.x", "x is null", "x >= 0")
SUBSCRIBERS = (None, None, None, "x > 0", "x = this.x", "x is null", "x between this.x - 1 and this.x + 1")
POLICIES = (None, None, None, str(policies.trim()))
NETWORKS: tuple[dict[str, float], ...] = ({}, {}, {"loss": 0.1, "duplication": 0.1, "reordering": 0.2})
OFFERS: tuple[tuple[str, ...], ...] = ((), ("x",))
DURABLE = 2  # the number in the name of each client's durable subscription
OWN_PLACE = ("x = this.x", "x between this.x - 1 and this.x + 1", "x is null or x > this.x")  # `publishers` filters
_NUMBERS = range(4)
_MOMENTS = (0.0005, 0.002, 0.01, 0.7)  # seconds to wait
_STEP_WEIGHTS: tuple[tuple[int, str], ...] = (
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
_INITIAL_STEPS = ("context", "advertise", "subscribe", "subscribe")
_FAULT_WEIGHTS: tuple[tuple[int, str], ...] = (
    (2, "cut"),
    (2, "heal"),
    (1, "crash"),
    (2, "restart"),
    (1, "slow"),
    (1, "lossy"),
)


_PAUSE_WEIGHTS: tuple[tuple[int, str], ...] = ((2, "pause"), (2, "resume"))
_OUTAGES = (1, 2)  # the number of outages in a history
_NOTICED = (PATIENCE + 1) * HEARTBEAT / SECOND  # seconds until a failure is noticed; less where links are bad
# Seconds after a failure: before the neighbours notice it, until the tables are rebuilt, and after that.
_AFTER_FAILURE = (0.01, *(round(_NOTICED + more, 3) for more in (-0.4, -0.1, 0.01, 0.05, 0.1, 0.15, 0.2, 0.21, 0.25)))


def draw_history(
    seed: int, *, strategy: str | None = None, steps: int = 40, faults: bool = True, pauses: bool = False
) -> History:
    """Return the random history of a seed.

    Args:
        seed: The seed.
        strategy: The routing strategy; by default the seed chooses it.
        steps: The number of random steps after the initial ones.
        faults: Include faults and outages.
        pauses: Include paused brokers.
    """
    rng = seeded_random(seed, "history")
    topology = _topology(rng, seed)
    clients = [f"c{number}" for number in range(1, rng.randint(2, 8) + 1)]
    weighted = _STEP_WEIGHTS + (_FAULT_WEIGHTS if faults else ()) + (_PAUSE_WEIGHTS if pauses else ())
    weights, kinds = [weight for weight, _ in weighted], [kind for _, kind in weighted]
    chosen = rng.choices(kinds, weights, k=steps)
    homes = {name: rng.choice(topology.brokers) for name in clients}
    # Every client first sets a context, advertises and subscribes, so that there is something to go wrong.
    before = [_STEP_FACTORIES[kind](rng, topology, name) for name in clients for kind in _INITIAL_STEPS]
    after = [_STEP_FACTORIES[kind](rng, topology, rng.choice(clients)) for kind in chosen]
    network = rng.choice(NETWORKS)
    return History(
        topology=topology,
        homes=homes,
        steps=(*before, Settles(), *(_with_outages(seed, topology, homes, after) if faults else after)),
        strategy=sorted(STRATEGIES)[seed % len(STRATEGIES)] if strategy is None else strategy,
        seed=seed,
        network=network,
    )


def _with_outages(seed: int, topology: Topology, homes: dict[str, str], steps: list[Step]) -> list[Step]:
    """Insert outages into the steps. They use random numbers of their own, so the other steps are the same without
    them."""
    rng = seeded_random(seed, "outages")
    changed = list(steps)
    for _ in range(rng.choice(_OUTAGES)):
        position = rng.randint(0, len(changed))
        changed[position:position] = outage(rng, topology, places(homes, changed[:position]))
    return changed


def places(homes: dict[str, str], steps: Iterable[Step]) -> dict[str, str]:
    """Return the broker that each client is at after these steps."""
    return homes | {step.client: step.broker for step in steps if isinstance(step, Moves)}


def outage(rng: Random, topology: Topology, places: dict[str, str]) -> tuple[Step, ...]:
    """Return the steps of an outage around a subscriber's broker.

    The broker or one of its links fails. The subscriber moves to another broker at about the time at which the
    failure is noticed and the tables are rebuilt. Then the subscriber's context changes, and a client publishes.
    """
    client, publisher = rng.choice(list(places)), rng.choice(list(places))
    home = places[client]
    failure, recovery = _failure(rng, topology, home)
    elsewhere = [name for name in topology.brokers if name != home]
    steps: list[tuple[float, Step]] = [  # with the probability of each step
        (0.8, Restart(0, home)),
        (0.8, Returns(client)),
        (0.8, Advertises(publisher, f"{publisher}.a0", "", ("x",), rng.choice(OFFERS))),
        (0.8, _subscribes_near(rng, client)),
        (1.0, Settles()),
        (1.0, failure),
        (1.0, Waits(rng.choice(_AFTER_FAILURE))),
        (1.0, Moves(client, rng.choice(elsewhere))),
        (0.3, SetsContext(client, dict(_context(rng)))),
        (0.3, Waits(rng.choice(_MOMENTS))),
        (0.3, recovery),
        (0.8, Settles()),
        (0.8, SetsContext(client, dict(_context(rng)))),
        (0.8, Settles()),
        (0.8, _publishes(rng, topology, publisher)),
        (0.8, Settles()),
        (0.7, recovery),
    ]
    return tuple(step for likelihood, step in steps if rng.random() < likelihood)


def _failure(rng: Random, topology: Topology, broker: str) -> tuple[Step, Step]:
    """Return a failure of the broker or of one of its links, and its repair."""
    links = [link for link in topology.edges if broker in link[:2]]
    if rng.random() < 0.5 or not links:
        return Crash(0, broker), Restart(0, broker)
    one, other, _ = rng.choice(links)
    return Cut(0, one, other), Heal(0, one, other)


def _subscribes_near(rng: Random, client: str) -> Step:
    """Return a durable subscription to publishers whose context is near the subscriber's own."""
    return Subscribes(
        client,
        f"{client}.{DURABLE}",
        rng.choice(CONTENTS),
        rng.choice(OWN_PLACE),
        rng.choice(POLICIES),
        f"d{DURABLE}",
    )


def _topology(rng: Random, seed: int) -> Topology:
    brokers = rng.randint(2, 7)
    shape = rng.choice((line, star, ring, tree, lambda count: random_graph(count, 3, seed)))
    topology = shape(brokers)
    edges = (Edge(one, other, rng.randint(1, 3)) for one, other, _ in topology.edges)
    return Topology(topology.brokers, tuple(edges))


def _subscribes(rng: Random, _: Topology, client: str) -> Step:
    number = rng.randint(0, DURABLE)
    return Subscribes(
        client,
        f"{client}.{number}",
        rng.choice(CONTENTS),
        rng.choice(PUBLISHERS),
        rng.choice(POLICIES),
        f"d{number}" if number == DURABLE else None,
    )


def _advertises(rng: Random, _: Topology, client: str) -> Step:
    content = rng.choice(("", "", *CONTENTS))
    return Advertises(
        client, f"{client}.a{rng.randint(0, 1)}", content, rng.choice((None, *OFFERS)), rng.choice(OFFERS)
    )


def _context(rng: Random) -> dict[str, int]:
    return {} if rng.random() < 0.2 else {"x": rng.choice(_NUMBERS)}


def _publishes(rng: Random, _: Topology, client: str) -> Step:
    attributes = {"a": rng.choice(_NUMBERS)} | ({"b": rng.choice(_NUMBERS)} if rng.random() < 0.6 else {})
    return Publishes(client, dict(attributes), rng.choice(SUBSCRIBERS))


def _link(rng: Random, topology: Topology) -> tuple[str, str]:
    one, other, _ = rng.choice(topology.edges)
    return (one, other) if rng.random() < 0.5 else (other, one)


_STEP_FACTORIES: dict[str, Callable[[Random, Topology, str], Step]] = {
    "publish": _publishes,
    "subscribe": _subscribes,
    "context": lambda rng, _, client: SetsContext(client, dict(_context(rng))),
    "unsubscribe": lambda rng, _, client: Unsubscribes(client, f"{client}.{rng.randint(0, DURABLE)}"),
    "advertise": _advertises,
    "unadvertise": lambda rng, _, client: Unadvertises(client, f"{client}.a{rng.randint(0, 1)}"),
    "leave": lambda _, __, client: Leaves(client),
    "return": lambda _, __, client: Returns(client),
    "move": lambda rng, topology, client: Moves(client, rng.choice(topology.brokers)),
    "wait": lambda rng, _, __: Waits(rng.choice(_MOMENTS)),
    "settle": lambda _, __, ___: Settles(),
    "cut": lambda rng, topology, _: Cut(0, *_link(rng, topology), one_way=rng.random() < 0.3),
    "heal": lambda rng, topology, _: Heal(0, *_link(rng, topology)),
    "crash": lambda rng, topology, _: Crash(0, rng.choice(topology.brokers)),
    "restart": lambda rng, topology, _: Restart(0, rng.choice(topology.brokers)),
    "pause": lambda rng, topology, _: Pause(0, rng.choice(topology.brokers)),
    "resume": lambda rng, topology, _: Resume(0, rng.choice(topology.brokers)),
    "slow": lambda rng, topology, _: Slow(0, *_link(rng, topology), rng.choice((2.0, 10.0, 100.0))),
    "lossy": lambda rng, topology, _: Lossy(0, *_link(rng, topology), rng.choice((0.05, 0.3)), 0.1, 0.1),
}

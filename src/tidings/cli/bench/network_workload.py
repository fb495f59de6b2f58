"""Paper 004's network: clients spread evenly over a random graph of brokers, each with a context of its own.

A context is a number x, and the clients' are evenly spread from 0 to 1. A context filter is a window of x, anywhere, as
wide as the share of the contexts that it selects. The paper does not say whether a client's subscriptions share their
context filter, as in its Table 2, where it comes from the client's own position; here they do unless the interests are
varied, which costs the strategies differently. Each of a client's subscriptions is for a class of events of its own,
and for a window of each of two numbers: three constraints, and as large a part of the events as is asked for. Thirty
subscriptions of a hundred clients have 9,000 constraints; no two subscriptions are the same.

With locality, clients of similar contexts are at the same broker, or at brokers near to each other.
"""

from collections import Counter
from typing import Any, NamedTuple

from tidings.filters import ContextFilter
from tidings.simulation import World
from tidings.simulation.chance import Random, drawn_from
from tidings.simulation.topologies import Topology, random_graph

STRATEGIES = ("spcf", "gsf", "asf")

Told = Counter[tuple[str, str, str, int]]  # by subscriber, subscription, publisher and the number of its event


class Size(NamedTuple):
    """The paper's, unless another one is wanted."""

    brokers: int = 20
    degree: int = 6
    clients: int = 100
    subscriptions: int = 30  # of each client


class Interests(NamedTuple):
    """What the clients subscribe to, and where they are."""

    content: float  # the share of the events that concern a client by their content
    publishers: float | None = None  # the share of the contexts that a subscription selects; None: it does not ask
    is_local: bool = False
    is_varied: bool = False  # whether every subscription has a context filter of its own, not every client

    def publishers_filter(self, chance: Random) -> str | None:
        return None if self.publishers is None else selecting(self.publishers, chance)


class Publication(NamedTuple):
    client: str
    attributes: dict[str, Any]
    subscribers: ContextFilter | None


def worlds(size: Size, interests: Interests, seed: int = 1) -> dict[str, World]:
    """The same clients and subscriptions under each strategy."""
    return {strategy: _world(size, interests, strategy, seed) for strategy in STRATEGIES}


def publications(size: Size, count: int, subscribers: float | None, seed: int) -> list[Publication]:
    """By anyone; each for so large a share of the contexts, or for all."""
    chance = drawn_from(seed, "publications")
    found = []
    for _ in range(count):
        client = client_name(chance.randrange(size.clients))
        attributes = {"class": _class(chance.randrange(size.subscriptions)), "a": chance.random(), "b": chance.random()}
        wanted = None if subscribers is None else ContextFilter.parse(selecting(subscribers, chance))
        found.append(Publication(client, attributes, wanted))
    return found


def publish(world: World, given: list[Publication]) -> None:
    """All of them, until the world has settled."""
    for one in given:
        world.clients[one.client].publish(one.attributes, one.subscribers)
    world.settle()


def take_told(world: World) -> Told:
    """What the clients were told since this was last asked."""
    found: Told = Counter()
    for name, client in world.clients.items():
        notes = client.notifications
        found.update((name, note.subscription, note.event.publisher, note.event.sequence) for note in notes)
        notes.clear()
    return found


def selecting(share: float, chance: Random) -> str:
    """A context filter that selects so large a share of the contexts."""
    return f"x {_window(share, chance)}"


def content(number: int, share: float, chance: Random) -> str:
    """The filter of a client's subscription of that number: so large a share of the events of its class."""
    side = share**0.5
    return f"class = '{_class(number)}' and a {_window(side, chance)} and b {_window(side, chance)}"


def client_name(number: int) -> str:
    return f"c{number}"


def walk(topology: Topology) -> list[str]:
    """All brokers in an order in which one mostly has a link to the next."""
    found: dict[str, None] = {}
    ahead = [topology.brokers[0]]
    while ahead:
        broker = ahead.pop()
        if broker not in found:
            found[broker] = None
            ahead += reversed(topology.neighbours(broker))
    return list(found)


def _world(size: Size, interests: Interests, strategy: str, seed: int) -> World:
    """Whoever is there is known before anyone subscribes."""
    topology = random_graph(size.brokers, size.degree, seed)
    required = {"advertisements_required": False}
    world = World(topology, seed=seed, strategy=strategy, settings=required, resends=False)
    world.settle()
    chance = drawn_from(seed, "clients")
    ranks = list(range(size.clients))
    if not interests.is_local:
        chance.shuffle(ranks)
    brokers = walk(topology)
    for number, rank in enumerate(ranks):
        broker = brokers[number * size.brokers // size.clients]
        world.client(client_name(number), broker).set_context(x=(rank + 0.5) / size.clients)
    world.settle()
    for client in world.clients.values():
        wanted = interests.publishers_filter(chance)
        for number in range(size.subscriptions):
            if interests.is_varied:
                wanted = interests.publishers_filter(chance)
            client.subscribe(content(number, interests.content, chance), publishers=wanted)
    world.settle()
    return world


def _window(share: float, chance: Random) -> str:
    """So large a share of the numbers from 0 to 1; all of them are in a window that nobody else has, either."""
    if share >= 1:
        return f"between {-chance.random()!r} and {1 + chance.random()!r}"
    low = chance.random() * (1 - share)
    return f"between {low!r} and {low + share!r}"


def _class(number: int) -> str:
    return f"k{number}"

"""The network of paper 004: clients spread evenly over a random graph of brokers, each with a context of its own.

- A context is a number x; the clients' values are evenly spread from 0 to 1. A context filter is a window of x at a
  random place, as wide as the share of the contexts that it selects.
- Each subscription asks for its own class of events and for a window of each of two numbers: three constraints, which
  together select the requested share of the events. A hundred clients with thirty subscriptions each have 9,000
  constraints. No two subscriptions are equal.
- The paper does not say whether a client's subscriptions share their context filter, as in its Table 2, where the
  filter comes from the client's position. Here they do, unless the interests are varied; the two cost the strategies
  differently.
- With locality, clients with similar contexts are at the same broker or at brokers near each other.
"""

from collections import Counter
from typing import Any, NamedTuple

from tidings.filters import ContextFilter
from tidings.simulation import World
from tidings.simulation.rng import Random, seeded_random
from tidings.simulation.topologies import Topology, random_graph

STRATEGIES = ("spcf", "gsf", "asf")

NotificationCounts = Counter[tuple[str, str, str, int]]  # by subscriber, subscription, publisher and sequence


class NetworkSize(NamedTuple):
    """The size of the network; the defaults are the paper's."""

    brokers: int = 20
    degree: int = 6
    clients: int = 100
    subscriptions: int = 30  # per client


class Interests(NamedTuple):
    """What the clients subscribe to, and how they are placed."""

    content: float  # the share of the events that a client's subscriptions match by content
    publishers: float | None = None  # the share of the contexts that a subscription selects; None: no context filter
    is_local: bool = False
    is_varied: bool = False  # each subscription has its own context filter, instead of each client

    def publishers_filter(self, chance: Random) -> str | None:
        """Draw a context filter for a subscription; None without one."""
        return None if self.publishers is None else selecting(self.publishers, chance)


class WorkloadPublication(NamedTuple):
    """An event to publish, with its publisher and the filter of subscribers' contexts."""

    client: str
    attributes: dict[str, Any]
    subscribers: ContextFilter | None


def worlds(size: NetworkSize, interests: Interests, seed: int = 1) -> dict[str, World]:
    """Return one simulated world per routing strategy, all with the same clients and subscriptions, settled."""
    return {strategy: _world(size, interests, strategy, seed) for strategy in STRATEGIES}


def publications(size: NetworkSize, count: int, subscribers: float | None, seed: int) -> list[WorkloadPublication]:
    """Draw events of random publishers, each for this share of the subscribers' contexts.

    Args:
        size: The size of the network.
        count: The number of events.
        subscribers: The share of the contexts that an event is for; None: all, without a filter.
        seed: The seed of the random numbers.
    """
    chance = seeded_random(seed, "publications")
    result = []
    for _ in range(count):
        client = client_name(chance.randrange(size.clients))
        attributes = {"class": _class(chance.randrange(size.subscriptions)), "a": chance.random(), "b": chance.random()}
        subscriber_filter = None if subscribers is None else ContextFilter.parse(selecting(subscribers, chance))
        result.append(WorkloadPublication(client, attributes, subscriber_filter))
    return result


def publish(world: World, publications: list[WorkloadPublication]) -> None:
    """Publish the events, and run the world until it has settled."""
    for publication in publications:
        world.clients[publication.client].publish(publication.attributes, publication.subscribers)
    world.settle()


def take_notifications(world: World) -> NotificationCounts:
    """Return the notifications of all clients since the last call, and clear them."""
    counts: NotificationCounts = Counter()
    for name, client in world.clients.items():
        notifications = client.notifications
        counts.update(
            (name, notification.subscription, notification.event.publisher, notification.event.sequence)
            for notification in notifications
        )
        notifications.clear()
    return counts


def selecting(share: float, chance: Random) -> str:
    """Return a context filter that selects this share of the contexts."""
    return f"x {_window(share, chance)}"


def content(number: int, share: float, chance: Random) -> str:
    """Return the content filter of a client's subscription `number`, which selects this share of the events of its
    class."""
    side = share**0.5
    return f"class = '{_class(number)}' and a {_window(side, chance)} and b {_window(side, chance)}"


def client_name(number: int) -> str:
    """Return the name of a client."""
    return f"c{number}"


def walk(topology: Topology) -> list[str]:
    """Return all brokers in depth-first order, so that neighbours in the list are mostly linked."""
    visited: dict[str, None] = {}
    stack = [topology.brokers[0]]
    while stack:
        broker = stack.pop()
        if broker not in visited:
            visited[broker] = None
            stack += reversed(topology.neighbours(broker))
    return list(visited)


def _world(size: NetworkSize, interests: Interests, strategy: str, seed: int) -> World:
    """Build a world in which all clients and contexts are known before the first subscription."""
    topology = random_graph(size.brokers, size.degree, seed)
    required = {"advertisements_required": False}
    world = World(topology, seed=seed, strategy=strategy, settings=required, resends=False)
    world.settle()
    chance = seeded_random(seed, "clients")
    ranks = list(range(size.clients))
    if not interests.is_local:
        chance.shuffle(ranks)
    brokers = walk(topology)
    for number, rank in enumerate(ranks):
        broker = brokers[number * size.brokers // size.clients]
        world.client(client_name(number), broker).set_context(x=(rank + 0.5) / size.clients)
    world.settle()
    for client in world.clients.values():
        publishers = interests.publishers_filter(chance)
        for number in range(size.subscriptions):
            if interests.is_varied:
                publishers = interests.publishers_filter(chance)
            client.subscribe(content(number, interests.content, chance), publishers=publishers)
    world.settle()
    return world


def _window(share: float, chance: Random) -> str:
    """Return a random window with this share of the numbers from 0 to 1; a full share gives a unique window around
    them."""
    if share >= 1:
        return f"between {-chance.random()!r} and {1 + chance.random()!r}"
    low = chance.random() * (1 - share)
    return f"between {low!r} and {low + share!r}"


def _class(number: int) -> str:
    return f"k{number}"

"""What takes the same steps in different ways: the reference, a hub, and overlays of brokers under each strategy.

A driver takes one step, waits until everything that follows from it has happened, and says what clients were told.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from tidings import Hub
from tidings.coerce import content_filter, context_filter
from tidings.engine.matcher import NaiveMatcher
from tidings.hub.client import HubClient
from tidings.matching.reference import due
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context, Value
from tidings.policy import policies
from tidings.simulation import Topology, World
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
)

TRIM, REMOVE_B, KEEP_A = str(policies.trim()), str(policies.remove("b")), str(policies.keep_only("a"))


class Told(NamedTuple):
    """A notification, as far as all have to agree on it."""

    client: str
    subscription: str
    publisher: str
    sequence: int
    attributes: tuple[tuple[str, Value], ...]


class Driver(Protocol):
    def take(self, step: Step) -> list[Told]:
        """What clients are told because of a step, sorted."""


class ReferenceDriver:
    """The meaning: who is due what, by the naive evaluator, in the order of steps."""

    _LEFT: Mapping[str | None, Callable[[Subscription, Attributes], set[str]]] = {
        None: lambda _, given: set(given),
        TRIM: lambda one, given: set(given) & one.content.names,
        REMOVE_B: lambda _, given: set(given) - {"b"},
        KEEP_A: lambda _, given: set(given) & {"a"},
    }

    def __init__(self) -> None:
        self._here: set[str] = set()
        self._contexts: dict[str, Context] = {}
        self._wanted: dict[str, Subscription] = {}
        self._published: dict[str, int] = {}
        self._waiting: dict[str, list[Told]] = {}

    def take(self, step: Step) -> list[Told]:
        if isinstance(step, Returns | Moves):
            self._here.add(step.client)
            return sorted(self._waiting.pop(step.client, []))
        client = getattr(step, "client", "")
        if client not in self._published:
            self._here.add(client)
            self._published[client] = 0
        if client not in self._here:
            return []  # it has left, and is refused
        match step:
            case Subscribes():
                held = self._wanted.get(step.id)
                policy = held.policy if step.policy is None and held is not None else step.policy
                self._wanted[step.id] = _subscription(step, policy)
            case Unsubscribes(_, id):
                self._wanted.pop(id, None)
            case SetsContext(_, context):
                self._contexts[client] = Context.of(context)
            case Leaves():
                self._leave(client)
            case Publishes():
                return self._publish(step)
        return []

    def _leave(self, client: str) -> None:
        self._here.discard(client)
        for one in [one for one in self._wanted.values() if one.subscriber == client and one.durable is None]:
            del self._wanted[one.id]
        if not any(one.subscriber == client for one in self._wanted.values()):
            self._contexts.pop(client, None)

    def _publish(self, step: Publishes) -> list[Told]:
        self._published[step.client] += 1
        event = Event.of(
            Attributes.of(step.attributes),
            id=uuid7(0, bytes(10)),
            publisher=step.client,
            timestamp=0,
            sequence=self._published[step.client],
            context=self._contexts.get(step.client, Context()),
            subscribers=context_filter(step.subscribers),
        )
        told: list[Told] = []
        for one in self._wanted.values():
            if due(one, event, self._contexts.get(one.subscriber, Context())):
                names = self._LEFT[one.policy](one, event.attributes)
                left = tuple(sorted((name, event.attributes[name]) for name in names))
                note = Told(one.subscriber, one.id, event.publisher, event.sequence, left)
                if one.subscriber in self._here:
                    told.append(note)
                else:
                    self._waiting.setdefault(one.subscriber, []).append(note)
        return sorted(told)


class HubDriver:
    """One hub; a client that comes back subscribes again to what is durable, as its library would in an overlay."""

    def __init__(self) -> None:
        self._hub = Hub()
        self._clients: dict[str, HubClient] = {}
        self._left: set[str] = set()
        self._durable: dict[str, dict[str, Subscribes]] = {}

    def take(self, step: Step) -> list[Told]:
        name = getattr(step, "client", "")
        if isinstance(step, Returns | Moves):
            self._left.discard(name)
            self._clients[name] = self._hub.client(name)
            for wanted in self._durable.get(name, {}).values():
                self._subscribe(wanted)
        elif name not in self._left:
            self._clients.setdefault(name, self._hub.client(name))
            self._take(step, self._clients[name])
        return self._told()

    def _take(self, step: Step, client: HubClient) -> None:
        match step:
            case Subscribes(name, id):
                self._subscribe(step)
                if step.durable is not None:
                    self._durable.setdefault(name, {})[id] = step
            case Unsubscribes(name, id):
                if id in {one.id for one in client.subscriptions()}:
                    client.unsubscribe(id)
                    self._durable.get(name, {}).pop(id, None)
            case SetsContext(_, context):
                client.set_context(context)
            case Advertises():
                client.advertise(step.content, step.publisher_context, step.subscriber_context, id=step.id)
            case Unadvertises(_, id):
                client.unadvertise(id)
            case Publishes():
                client.publish(step.attributes, subscribers=step.subscribers)
            case Leaves(name):
                client.close()
                self._left.add(name)

    def _subscribe(self, step: Subscribes) -> None:
        self._clients[step.client].subscribe(
            step.content, publishers=step.publishers, policy=step.policy, durable=step.durable, id=step.id
        )

    def _told(self) -> list[Told]:
        notes: list[Notification] = []
        for name in self._clients.keys() - self._left:
            for held in self._clients[name].subscriptions():
                notes += (taken := held.take())
                if held.durable is not None:
                    held.acknowledge(*taken)
        return sorted(map(told_of, notes))


class SimulatorDriver:
    """An overlay in virtual time, which settles after every step; clients are spread over its brokers."""

    def __init__(self, strategy: str, topology: Topology) -> None:
        self._world = World(topology, strategy=strategy, matcher=NaiveMatcher)
        self._read: dict[str, int] = {}

    def take(self, step: Step) -> list[Told]:
        world, name = self._world, getattr(step, "client", None)
        if name is not None and name not in world.clients:
            brokers = world.topology.brokers
            world.client(name, brokers[len(world.clients) % len(brokers)])
        step.apply(world)
        world.settle()
        notes: list[Notification] = []
        for one, client in world.clients.items():
            notes += client.notifications[self._read.get(one, 0) :]
            self._read[one] = len(client.notifications)
        return sorted(map(told_of, notes))


def told_of(note: Notification) -> Told:
    attributes: Any = note.attributes
    return Told(
        note.subscriber, note.subscription, note.event.publisher, note.event.sequence, tuple(sorted(attributes.items()))
    )


def _subscription(step: Subscribes, policy: str | None) -> Subscription:
    return Subscription.of(
        content_filter(step.content, "sql"),
        id=step.id,
        subscriber=step.client,
        publishers=context_filter(step.publishers),
        policy=policy,
        durable=step.durable,
    )

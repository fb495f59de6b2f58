"""Checks what clients of a world are notified of: what they must, may and must never receive.

Terms. A *burst* is the time between two moments at which the world has settled; what is done in a burst is
concurrent with the events published in it. A *state* of a client is where it is, its context, subscriptions and
advertisements. The network is *whole* when every broker reaches every other.

Rules:

1. Must. A client must be notified of an event that is due under every state that the client had in the burst.
2. May. It may be notified of an event that is due under at least one of them, and of no other.
3. Excuses. Nothing is required if publisher or subscriber connected, left or moved during the burst. If they are at
   different brokers, nothing is required either if, at some moment of the burst before the publication, there was no
   path between them, or if a link or broker failed after it; or, with routing by advertisements, if the event was
   not advertised during the whole burst. What failed earlier and was noticed, or what came back, is no excuse.
4. Durable subscriptions. What a client must be notified of while it is away is owed: it must have it once it is back
   and the network is whole, whatever crashed meanwhile.
5. Always: no notification twice, and none after a later one of the same publisher, except for a backlog that has
   followed its client from another broker.

If brokers resend what may have been lost (`World.resends`), rules 3 to 5 change:

- A failure is no excuse for a durable subscription: what it must receive is owed from the event's acceptance until
  the network is whole, as long as the subscription and its context stay such that it is due.
- Until the network is whole, an event may also be notified if it is due under a later state of the client.
- Order holds per subscription, not per client. Events of a publisher that has moved may come late, because otherwise
  they would never come.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol, Self
from uuid import UUID

import msgspec

from tidings.matching.reference import due, matches
from tidings.model.advertisement import unoffered_names
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.routing.topology import BrokerGraph, links_of
from tidings.simulation.broker import SimulatedBroker
from tidings.simulation.checking.client_history import ClientHistory
from tidings.simulation.checking.steps import Leaves, Moves, Publishes, Settles, Step
from tidings.simulation.client import SimulatedClient
from tidings.simulation.clock import SECOND
from tidings.simulation.disk import Key, key_of
from tidings.simulation.link import SimulatedLink

_SYMPTOM_WORDS = 3

Kind = Literal[
    "lost",  # required, but not notified
    "undue",  # notified, but not due under any state
    "twice",  # notified again
    "order",  # notified after a later event of the same publisher
    "altered",  # notified with attributes that were not published
    "tables",  # a broker's tables differ from those in a fresh network
    "unsettled",  # the world did not settle in time
    "error",  # an exception was raised
]


class Violation(msgspec.Struct, frozen=True):
    """A broken guarantee: its kind and a description."""

    kind: Kind
    what: str

    @property
    def symptom(self) -> str:
        """The kind and the first words of the description, which name the client but neither the event nor the time.

        A fault shows the same symptom when some steps have been removed. For an error the last line counts.
        """
        words = self.what.splitlines()[-1].split() if self.what else []
        return " ".join([self.kind, *words[:_SYMPTOM_WORDS]])

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class ObservedWorld(Protocol):
    """What the checker reads of a world."""

    @property
    def now(self) -> int: ...
    @property
    def resends(self) -> bool: ...
    @property
    def clients(self) -> Mapping[str, SimulatedClient]: ...
    @property
    def brokers(self) -> Mapping[str, SimulatedBroker]: ...
    @property
    def links(self) -> Mapping[tuple[str, str], SimulatedLink]: ...


class NetworkState(NamedTuple):
    """The state of the network at one moment: which brokers reach each other, and the incarnations of all links."""

    incarnations: list[int]  # of all link ends; each changes when the link, or the broker at that end, fails
    parts: dict[str, frozenset[str]]  # each broker that is up, with the brokers that it reaches

    @classmethod
    def of(cls, world: ObservedWorld) -> Self:
        """Return the present state of a world's network."""
        ends = [end for link in world.links.values() for end in link.ends]
        up = [link for link in world.links.values() if all(end.is_up for end in link.ends)]
        links = links_of((link.ends[0].name, link.ends[1].name, link.cost) for link in up)
        reached = {name: BrokerGraph.of(links, name).brokers for name, broker in world.brokers.items() if broker.is_up}
        return cls([end.incarnation for end in ends], reached)


class CheckedPublication(NamedTuple):
    """A publication of the current burst, and the state of the network when it was published."""

    event: Event
    ingress: str
    reached: frozenset[str]  # brokers that the ingress broker has reached during the whole burst so far
    incarnations: list[int]  # of all link ends, at the publication


class Checker:
    """Takes the steps of a history in a world, and checks all notifications at the end of each burst.

    All clients of the world must exist when the checker is created. `violations` has what was found. See the
    module docstring for the rules.
    """

    def __init__(self, world: ObservedWorld, strategy: str, apply: Callable[[Step], Event | None]) -> None:
        """Create a checker before the first step.

        Args:
            world: The world that is observed.
            strategy: The routing strategy of its brokers.
            apply: Takes a step in this world; returns the event that a `Publishes` published.
        """
        self._world, self._apply = world, apply
        self._uses_advertisements = strategy == "advertisement"
        self.violations: list[Violation] = []
        self._client_histories = {name: ClientHistory(client) for name, client in world.clients.items()}
        self._events: dict[UUID, Event] = {}
        self._burst: list[CheckedPublication] = []
        self._allowed: set[Key] = set()
        self._owed: dict[Key, str] = {}  # notification -> client: required when the client is back (rule 4)
        self._resends = world.resends
        self._unsettled_events: list[Event] = []  # events published since the network was whole
        self._due: dict[Key, str] = {}  # notification -> client: required when the network is whole
        self._ever_due: set[Key] = set()  # all that ever was in `_due`
        self._recently_moved: set[str] = set()  # clients that have moved since the network was whole
        self._notified: set[Key] = set()
        self._checked_counts = dict.fromkeys(world.clients, 0)  # the number of checked notifications of each client
        self._last_sequences: dict[
            tuple[str, str], int
        ] = {}  # (client or subscription, publisher) -> highest sequence so far
        self._move_times: dict[str, int] = {}  # client -> the time of its last move
        self._always_reached = NetworkState.of(
            world
        ).parts  # the brokers that each one has reached during the whole burst
        self._ever_reached: dict[str, set[str]] = {name: {name} for name in world.brokers}  # ever reached when settled

    def take(self, step: Step) -> None:
        """Take one step in the world, observe all clients, and check the burst if the step settles the world."""
        if isinstance(step, Publishes):
            event = self._apply(step)
            if event is not None:
                self._events[event.id] = event
                ingress = self._world.clients[step.client].broker
                reached = self._always_reached.get(ingress, frozenset())
                self._burst.append(
                    CheckedPublication(event, ingress, reached, NetworkState.of(self._world).incarnations)
                )
        else:
            self._apply(step)
            self._always_reached = _intersection(self._always_reached, NetworkState.of(self._world).parts)
        if isinstance(step, Moves):
            self._move_times[step.client] = self._world.now
            self._recently_moved.add(step.client)
        for name, history in self._client_histories.items():
            history.observe(leaves=isinstance(step, Leaves) and step.client == name)
        if isinstance(step, Settles):
            self._check_burst()

    def take_all(self, steps: Iterable[Step]) -> list[Violation]:
        """Take steps until one of them shows a violation. Returns the violations."""
        for step in steps:
            if self.violations:
                break
            self.take(step)
        return self.violations

    def unreached_clients(self) -> list[str]:
        """Return the clients whose latest state no broker has received."""
        return [name for name, history in self._client_histories.items() if not history.is_known_to_a_broker]

    # Checking a burst

    def _check_burst(self) -> None:
        """Check everything that clients were notified of in the burst that has ended, and start another burst."""
        network = NetworkState.of(self._world)
        self._always_reached = network.parts
        required = self._required(network.incarnations)
        if self._resends:
            self._require_durable()
            self._move_times |= dict.fromkeys(self._recently_moved, self._world.now)
        self._unsettled_events += (publication.event for publication in self._burst)
        for event in self._unsettled_events:
            self._allow(event)
        self._check_notifications()
        for key, client in required.items():
            if key in self._notified:
                continue
            if self._client_histories[client].now.is_connected:
                self._report("lost", f"{client} was not told of {self._describe(key)}")
            else:
                self._owed[key] = client
        all_brokers = frozenset(self._world.brokers)
        is_whole = all(network.parts.get(name) == all_brokers for name in all_brokers)
        self._check_owed(is_whole=is_whole)
        self._check_due(is_whole=is_whole)
        for name, part in network.parts.items():
            self._ever_reached[name] |= part
        if is_whole or not self._resends:
            self._unsettled_events, self._recently_moved = [], set()
        self._burst = []
        for history in self._client_histories.values():
            history.settle(is_whole=is_whole)

    def _required(self, incarnations_now: list[int]) -> dict[Key, str]:
        """Return the notifications that rules 1 and 3 require, each with its client. `incarnations_now` are the present
        incarnations."""
        required: dict[Key, str] = {}
        for event, ingress, always_reached, incarnations in self._burst:
            reached = always_reached if incarnations == incarnations_now else {ingress}
            publisher = self._client_histories[event.publisher]
            if not publisher.is_steady:
                continue
            for name, history in self._client_histories.items():
                egress = history.now.broker
                if not history.is_steady or egress not in reached:
                    continue
                for subscription_id in history.subscription_ids():
                    versions = history.versions(subscription_id)
                    if all(
                        subscription is not None
                        and _is_due(subscription, event, context)
                        and (egress == ingress or self._attracts(subscription, event, publisher))
                        for subscription, context in versions
                    ):
                        required[subscription_id, event.id] = name
        return required

    def _require_durable(self) -> None:
        """Add what durable subscriptions must receive whatever fails, from brokers that theirs have ever reached."""
        for event, ingress, _, _ in self._burst:
            publisher = self._client_histories[event.publisher]
            for name, history in self._client_histories.items():
                if not self._ever_reached[ingress].issuperset(state.broker for state in history.all):
                    continue
                for subscription_id in history.subscription_ids():
                    if all(
                        subscription is not None
                        and subscription.durable is not None
                        and _is_due(subscription, event, context)
                        and (history.now.broker == ingress or self._attracts(subscription, event, publisher))
                        for subscription, context in history.versions(subscription_id)
                    ):
                        self._due[subscription_id, event.id] = name
                        self._ever_due.add((subscription_id, event.id))

    def _check_due(self, *, is_whole: bool) -> None:
        """Check what is owed to durable subscriptions, once the network is whole."""
        for key, client in list(self._due.items()):
            history, event = self._client_histories[client], self._events[key[1]]
            is_still_due = all(
                subscription is not None and _is_due(subscription, event, context)
                for subscription, context in history.versions(key[0])
            )
            if key in self._notified or not is_still_due:
                del self._due[key]
            elif is_whole and history.now.is_connected:
                del self._due[key]
                self._report("lost", f"{client} was promised {self._describe(key)}, and was not told of it")

    def _attracts(self, subscription: Subscription, event: Event, publisher: ClientHistory) -> bool:
        """Return whether a lasting advertisement of the publisher attracts the subscription. True for other
        strategies."""
        names = frozenset[str]() if subscription.publishers is None else subscription.publishers.names
        return not self._uses_advertisements or any(
            matches(advertisement.content, event) and not unoffered_names(advertisement, names)
            for advertisement in publisher.unchanged_advertisements()
        )

    def _allow(self, event: Event) -> None:
        """Add the notifications of an event that rule 2 permits."""
        for history in self._client_histories.values():
            for subscription_id in history.subscription_ids():
                if any(
                    _is_due(subscription, event, context)
                    for subscription, context in history.possible_pairs(subscription_id)
                ):
                    self._allowed.add((subscription_id, event.id))

    def _check_notifications(self) -> None:
        """Check all new notifications of all clients."""
        for name, client in self._world.clients.items():
            for note in client.notifications[self._checked_counts[name] :]:
                self._check_notification(name, note)
            self._checked_counts[name] = len(client.notifications)

    def _check_notification(self, client: str, note: Notification) -> None:
        """Check one notification for being undue, repeated, altered or out of order."""
        key, event = key_of(note), self._events.get(note.event.id)
        if event is None:
            self._report("undue", f"{client} was told of an event that nobody published: {note.event}")
            return
        if key not in self._allowed:
            self._report("undue", f"{client} was told of {self._describe(key)}")
        if key in self._notified:
            self._report("twice", f"{client} was told of {self._describe(key)}")
        self._notified.add(key)
        if not note.attributes.items() <= event.attributes.items():
            self._report("altered", f"{client} was told of {self._describe(key)} as {dict(note.attributes)}")
        pair = note.subscription if self._resends else client, event.publisher
        if self._may_be_late(client, note):
            return
        if event.sequence < self._last_sequences.get(pair, 0):
            self._report(
                "order", f"{client} was told of {self._describe(key)} behind number {self._last_sequences[pair]}"
            )
        self._last_sequences[pair] = max(event.sequence, self._last_sequences.get(pair, 0))

    def _may_be_late(self, client: str, note: Notification) -> bool:
        """Return whether a notification may come after a later one of its publisher.

        It may if it waited at an earlier broker of the client or publisher, or was resent because other brokers
        did not know the subscription at first.
        """
        if self._resends and self._has_moved_since(note.event.publisher, note.event):
            return True
        versions = (
            subscription
            for subscription, _ in self._client_histories[client].versions(note.subscription)
            if subscription is not None
        )
        if all(subscription.durable is None for subscription in versions):
            return False
        return self._has_moved_since(client, note.event) or (self._resends and key_of(note) not in self._ever_due)

    def _has_moved_since(self, client: str, event: Event) -> bool:
        return self._move_times.get(client, -1) >= event.timestamp

    def _check_owed(self, *, is_whole: bool) -> None:
        """Check what is owed to clients that were away and are back (rule 4)."""
        for key, client in list(self._owed.items()):
            state = self._client_histories[client].now
            if key in self._notified or key[0] not in state.subscriptions:
                del self._owed[key]
            elif is_whole and state.is_connected:
                del self._owed[key]
                self._report("lost", f"{client} came back and was not told of {self._describe(key)}")

    # Reporting

    def _report(self, kind: Kind, what: str) -> None:
        self.violations.append(Violation(kind, f"{what} (at {self._world.now / SECOND:g} s)"))

    def _describe(self, key: Key) -> str:
        event = self._events[key[1]]
        whom = "" if event.subscribers is None else f" for {event.subscribers}"
        return f"{event.publisher}'s event {event.sequence} {dict(event.attributes)}{whom}, subscription {key[0]}"


def _is_due(subscription: Subscription, event: Event, context: Context) -> bool:
    """Return whether the reference matches the event; a sealed one also requires a token."""
    return (event.signature is None or subscription.token is not None) and due(subscription, event, context)


def _intersection(before: dict[str, frozenset[str]], after: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the brokers that reached each other before and still do."""
    return (
        before
        if before == after
        else {name: reached & before.get(name, frozenset()) for name, reached in after.items()}
    )

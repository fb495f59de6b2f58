"""Hand over clients that have moved to another broker: their durable backlog, their context, their pending decisions.

- When the engine reports that a client has moved (`HandOver`), its session here ends, and notifications that it has not
  acknowledged are put back into the inboxes.
- The backlog is sent in parcels (`TransferBacklog`), one at a time for each subscription. A parcel is kept until the
  other broker has stored it (`HandoverDone`), and is sent again after a timeout.
- The context is sent in the same way. The other broker ignores it if the client has set one there.
- A client that moves on before all of this is stored takes it along: its destination changes (`ClientMoved`), and what
  the former destination has not confirmed is sent to the new one.
- A publication about which the client is owed a decision is published once more, for this client alone, and is decided
  at the other broker. The decision is owed until that publication is settled.
- Once the backlog of a subscription is empty, the subscription is removed here.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from tidings.broker.pending_decisions import PendingDecisions
from tidings.broker.ports import Scheduler, Sessions
from tidings.broker.sessions.inboxes import SessionDurableInbox
from tidings.engine import Engine
from tidings.engine.effects import DecisionMade, PublicationSettled
from tidings.engine.operations import Operation, Redecide, Republish, TransferBacklog, Unsubscribe
from tidings.engine.overlay.redelivery import MOVING
from tidings.model.errors import TidingsError
from tidings.model.notification import Notification
from tidings.model.values import Context
from tidings.runtime.outcome import OperationOutcome
from tidings.runtime.subscription_registry import RegisteredSubscription, SubscriptionRegistry

_MAX_PARCEL = 200  # notifications of a parcel, at most
_MAX_PARCEL_BYTES = 1024 * 1024  # payload bytes, above which a parcel takes no more notifications
_RESEND_SECONDS = 2.0  # seconds until a parcel that was not stored is sent again


class BacklogTransfer(NamedTuple):
    """A parcel on its way to another broker: notifications of one subscription, or a client's context."""

    client: str
    subscription: RegisteredSubscription | None  # None: the client's context
    events: list[UUID]
    sent: float


class Destination(NamedTuple):
    """The broker to which a client has moved, and the number of the client's session there."""

    broker: str
    session: int


class DurableBacklog(NamedTuple):
    """What waits for a client that has moved, in one of its durable subscriptions."""

    client: str
    subscription: RegisteredSubscription
    inbox: SessionDurableInbox


class FollowUpPublication(NamedTuple):
    """An event that was published once more, in this round, for a client that has moved."""

    client: str
    round: int
    sent: float


class HandoverNode(Protocol):
    """What the handover needs of the node."""

    @property
    def engine(self) -> Engine:
        """The engine; a rebuild replaces it."""
        ...

    @property
    def registry(self) -> SubscriptionRegistry[RegisteredSubscription]:
        """The subscriptions and the state of the clients."""
        ...

    @property
    def pending_decisions(self) -> PendingDecisions:
        """The decisions that are owed to clients."""
        ...

    @property
    def acknowledge(self) -> Callable[[RegisteredSubscription, Iterable[UUID]], int]:
        """Acknowledges events of a durable subscription; returns how many notifications are newly acknowledged."""
        ...

    def drive(self, operation: Operation) -> OperationOutcome[RegisteredSubscription]:
        """Have the engine handle an operation that is not journaled itself."""
        ...

    def decide(self, decision: DecisionMade) -> None:
        """Record that a client is no longer owed a decision here."""
        ...

    def end_moved_subscription(self, operation: Unsubscribe) -> None:
        """Journal the end of a subscription whose client is at another broker."""
        ...

    def log_line(self, line: str) -> None:
        """Log a line under the name of the broker."""
        ...


class Handover:
    """Hands over the clients of the broker `name` that have moved to other brokers."""

    def __init__(self, name: str, node: HandoverNode, scheduler: Scheduler, sessions: Sessions) -> None:
        self._name, self._node, self._scheduler, self._sessions = name, node, scheduler, sessions
        self._destinations: dict[str, Destination] = {}  # by client
        self._contexts: dict[str, Context] = {}  # contexts of clients, until the other broker has stored them
        self._parcels: dict[int, BacklogTransfer] = {}  # by number
        self._reading: set[str] = set()  # subscriptions whose backlog is being read
        self._number = 0
        self._known_everywhere_at: dict[str, float] = {}  # when a client's move is known everywhere, by client
        self._moved_on: set[str] = set()  # clients that have moved from their first destination to another broker
        self._follow_ups: dict[UUID, FollowUpPublication] = {}  # events whose decisions the new brokers will make

    @property
    def is_settled(self) -> bool:
        """Whether no parcel is under way, and nothing waits for a broker that can be reached."""
        return not self._parcels and not self._reading and not any(map(self._can_hand_over, self._destinations))

    @property
    def pending_clients(self) -> list[str]:
        """The clients of which something has yet to be handed over."""
        return sorted({parcel.client for parcel in self._parcels.values()} | self._destinations.keys())

    def hand_over(self, client: str, destination: Destination, context: Context) -> None:
        """Begin to hand over `client`, which is connected to its destination now and had this `context` here."""
        broker = destination.broker
        session = self._sessions.get(client)
        if session is not None:
            session.connection.abort(f"{client} has connected to {broker}")
            self._sessions.ended(session, f"the client has connected to {broker}")
        in_parcels = self._ids_in_parcels()
        for subscription in self._durable_subscriptions(client):
            if subscription.id not in in_parcels:
                subscription.inbox.redeliver()  # what was sent and not acknowledged is handed over, too
        self._node.registry.forget_context(client)
        self._destinations[client] = destination
        self._moved_on.discard(client)
        if context:
            self._contexts[client] = context
        self._known_everywhere_at[client] = self._scheduler.now() + MOVING / 1_000_000
        self._node.pending_decisions.engine_forgot(client)
        self.send_next()

    def cancel(self, client: str) -> None:
        """Stop handing over a client that is connected here again."""
        self._forget_destination(client)
        self._contexts.pop(client, None)
        self._drop_transfers(client)

    def client_moved(self, client: str, destination: Destination) -> None:
        """Hand over to a new destination what a client's former one has not confirmed."""
        former = self._destinations.get(client)
        if former is None or destination.session <= former.session:
            return
        for parcel in self._drop_transfers(client):
            if parcel.subscription is not None:
                parcel.subscription.inbox.redeliver()
        self._destinations[client] = destination
        self._moved_on.add(client)
        self._known_everywhere_at[client] = self._scheduler.now() + MOVING / 1_000_000
        self.send_next()

    def _forget_destination(self, client: str) -> None:
        self._destinations.pop(client, None)
        self._moved_on.discard(client)
        self._known_everywhere_at.pop(client, None)

    def _drop_transfers(self, client: str) -> list[BacklogTransfer]:
        """Forget what is under way of a client, and return its parcels."""
        self._follow_ups = {
            event: follow_up for event, follow_up in self._follow_ups.items() if follow_up.client != client
        }
        numbers = [number for number, parcel in self._parcels.items() if parcel.client == client]
        return [self._parcels.pop(number) for number in numbers]

    def parcel_stored(self, number: int) -> None:
        """Remove a parcel that the other broker has stored, acknowledge its notifications, and send the next one."""
        parcel = self._parcels.pop(number, None)
        if parcel is None:
            return
        if parcel.subscription is None:
            self._contexts.pop(parcel.client, None)
        else:
            self._node.acknowledge(parcel.subscription, parcel.events)
        self.send_next()

    def publication_settled(self, settled: PublicationSettled) -> None:
        """Handle the settlement of a publication: if it was sent again to a moved client's new broker, that broker now
        takes the pending decision."""
        follow_up = self._follow_ups.get(settled.event)
        if follow_up is not None and follow_up.round == settled.round:
            del self._follow_ups[settled.event]
            self._node.decide(DecisionMade(settled.event, follow_up.client))
            self.send_next()

    def send_next(self) -> None:
        """Send what can be sent, and send parcels again that were not stored in time. Called at every heartbeat."""
        now = self._scheduler.now()
        for number, parcel in list(self._parcels.items()):
            if now - parcel.sent > _RESEND_SECONDS:
                del self._parcels[number]
                if parcel.subscription is not None:
                    parcel.subscription.inbox.redeliver()
        for client in list(self._destinations):
            self._send(client)

    def _durable_subscriptions(self, client: str) -> list[RegisteredSubscription]:
        """Return the durable subscriptions of a client that are still registered here."""
        return [
            subscription
            for subscription in self._node.registry.subscriptions_of(client)
            if isinstance(subscription.inbox, SessionDurableInbox)
        ]

    def _ids_in_parcels(self) -> set[str]:
        """Return the ids of the subscriptions that have a parcel under way."""
        return {parcel.subscription.id for parcel in self._parcels.values() if parcel.subscription is not None}

    def _can_hand_over(self, client: str) -> bool:
        """Return whether the client's broker can be reached, and something is to be handed over to it."""
        if self._destinations[client].broker not in self._node.engine.topology.brokers:
            return False
        is_any_waiting = any(subscription.waiting for subscription in self._durable_subscriptions(client))
        return is_any_waiting or client in self._contexts or bool(self._pending_decisions(client))

    def _pending_decisions(self, client: str) -> list[Redecide]:
        """Return the pending decisions that can be handed over.

        A decision that depends on rules of an advertisement is left out once that advertisement is gone.
        """
        advertisements = self._node.engine.state.filters.advertisements
        return [
            redecide
            for redecide in self._node.pending_decisions.of(client)
            if all(rule.kind != "advertisement" or advertisements.get(rule.id) is not None for rule in redecide.rules)
        ]

    def _send(self, client: str) -> None:
        """Send the next parcels of a client, and remove its subscriptions whose backlog is empty."""
        self._send_context(client)
        self._republish_undecided(client)
        in_parcels = self._ids_in_parcels()
        for subscription in self._durable_subscriptions(client):
            inbox = subscription.inbox
            if (
                subscription.id in in_parcels
                or subscription.id in self._reading
                or not isinstance(inbox, SessionDurableInbox)
            ):
                continue
            backlog = DurableBacklog(client, subscription, inbox)
            if not inbox.waiting and self._node.pending_decisions.of(client):
                continue
            if not inbox.waiting:
                self._end_subscription(backlog)
            elif not self._can_hand_over(client):
                continue
            elif inbox.must_read:
                self._reading.add(subscription.id)
                loop = asyncio.get_running_loop()
                done = loop.run_in_executor(self._scheduler.readers, _take_parcel, inbox)
                done.add_done_callback(partial(self._backlog_read, backlog))
            else:
                self._send_parcel(backlog, _take_parcel(inbox))
        if not self._durable_subscriptions(client) and client not in self._contexts:
            self._forget_destination(client)

    def _send_context(self, client: str) -> None:
        """Send the client's context, unless that is under way.

        The context of a client that has moved on waits, so that the one that it had at the broker in between comes
        first: its new broker takes the first one.
        """
        if client in self._moved_on and self._scheduler.now() < self._known_everywhere_at[client]:
            return
        is_under_way = any(parcel.client == client and parcel.subscription is None for parcel in self._parcels.values())
        if client in self._contexts and not is_under_way and self._can_hand_over(client):
            number = self._store_parcel(BacklogTransfer(client, None, [], self._scheduler.now()))
            contexts = {client: self._contexts[client]}
            self._node.drive(TransferBacklog(self._name, self._destinations[client].broker, number, (), contexts))

    def _republish_undecided(self, client: str) -> None:
        """Publish events about which the client is owed a decision once more, for the client at its new broker."""
        node, now = self._node, self._scheduler.now()
        if now < self._known_everywhere_at.get(client, 0.0) or not self._can_hand_over(client):
            return
        for redecide in self._pending_decisions(client):
            event, follow_up = redecide.event, self._follow_ups.get(redecide.event.id)
            if follow_up is not None and now - follow_up.sent < _RESEND_SECONDS:
                continue
            if redecide.journey.own or not redecide.journey.common.is_plain:  # rules on its path have changed this copy
                node.log_line(f"the event {event.id} cannot be handed over to {client}: policy rules have changed it")
                node.decide(DecisionMade(event.id, client))
                continue
            self._number = max(self._number + 1, self._scheduler.clock.now())
            self._follow_ups[event.id] = FollowUpPublication(client, self._number, now)
            node.drive(Republish(event, self._number, (self._destinations[client].broker,), (client,)))

    def _backlog_read(self, backlog: DurableBacklog, done: "asyncio.Future[list[Notification]]") -> None:
        """Send the notifications that a thread has read from the journal."""
        self._reading.discard(backlog.subscription.id)
        error = done.exception()
        if isinstance(error, TidingsError):
            self._node.log_line(f"the durable backlog of {backlog.client} cannot be handed over: {error}")
            return
        if backlog.client in self._destinations:
            self._send_parcel(backlog, done.result())
            self._scheduler.flush()

    def _send_parcel(self, backlog: DurableBacklog, notifications: list[Notification]) -> None:
        """Send a parcel of notifications."""
        if not notifications:
            return
        client, subscription, _ = backlog
        events = [notification.event.id for notification in notifications]
        number = self._store_parcel(BacklogTransfer(client, subscription, events, self._scheduler.now()))
        parcel = tuple((notification, subscription.durable or "") for notification in notifications)
        self._node.drive(TransferBacklog(self._name, self._destinations[client].broker, number, parcel))

    def _store_parcel(self, parcel: BacklogTransfer) -> int:
        """Store a parcel under a new number, higher than all before it, and return the number."""
        self._number = max(self._number + 1, self._scheduler.clock.now())
        self._parcels[self._number] = parcel
        return self._number

    def _end_subscription(self, backlog: DurableBacklog) -> None:
        """Remove a subscription whose backlog was handed over: it belongs to the other broker alone now."""
        self._node.end_moved_subscription(Unsubscribe(backlog.client, backlog.subscription.id))


class ParcelSource(Protocol):
    """The inbox of a durable subscription, as far as parcels are taken out of it."""

    @property
    def must_read(self) -> bool:
        """Whether the next `take` would read the journal."""
        ...

    def take(self, limit: int | None = None) -> list[Notification]:
        """Take notifications out of the inbox."""
        ...


def _take_parcel(inbox: ParcelSource) -> list[Notification]:
    """Take the notifications of the next parcel out of an inbox: as many as make a frame of moderate size."""
    notifications = inbox.take(1)
    size = sum(len(notification.payload or b"") for notification in notifications)
    while notifications and len(notifications) < _MAX_PARCEL and size < _MAX_PARCEL_BYTES and not inbox.must_read:
        next_notifications = inbox.take(1)
        if not next_notifications:
            break
        notifications += next_notifications
        size += len(next_notifications[0].payload or b"")
    return notifications

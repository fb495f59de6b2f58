"""The simulated disk of a broker: what survives a crash.

It holds the journal, the redelivery state, durable subscriptions with the contexts of their clients,
unacknowledged notifications, and decisions that are pending.
"""

from collections.abc import Iterator
from uuid import UUID

from tidings.engine.operations import Connect, Operation, Redecide, SetContext, Subscribe
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.engine.state.filters import BrokerTables
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context

Key = tuple[str, UUID]  # the ids of a subscription and an event
StoredNotification = tuple[Notification, str]  # a notification, and the durable name of its subscription


class SimulatedDisk:
    """Everything of a broker that survives a crash."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.contexts: dict[str, Context] = {}
        self.sessions: dict[str, int] = {}  # client -> its last session at this broker
        self.moved_in: set[str] = set()  # clients that have moved to this broker from another one
        self.last_operation: dict[str, int] = {}  # client -> when it last sent an operation
        self.moved: dict[str, str] = {}  # client -> the broker that it moved to, and that gets its backlog
        self.journal: list[Event] = []  # events that were published at this broker
        self.topic_gossip = b""  # encoded state: secure topics, and the replay guard
        self.redelivery: RedeliveryState | None = None  # events of the journal that other brokers may have missed
        self._waiting: dict[str, dict[Key, StoredNotification]] = {}  # unacknowledged notifications by client, in order
        self._pending_decisions: dict[tuple[str, UUID], Redecide] = {}  # by client and event id, in order

    def write(self, event: Event) -> int:
        """Append an event to the journal and return its offset."""
        self.journal.append(event)
        return len(self.journal) - 1

    def write_tables(self, tables: BrokerTables) -> None:
        """Store the durable subscriptions of local clients and their contexts.

        Every accepted change counts as durable at once, so it is enough to call this when the broker crashes.
        """
        self.subscriptions = [
            subscription
            for subscription in tables.subscriptions
            if subscription.durable is not None and tables.hops.get(subscription.id) == subscription.subscriber
        ]
        owners = {subscription.subscriber for subscription in self.subscriptions}
        self.contexts = {name: context for name, context in tables.contexts.items() if name in owners}

    def restoring_operations(self) -> Iterator[tuple[Operation, int]]:
        """Yield the operations that restore a new engine, each with its original time.

        The time matters: an old registration of a client must not override news of the client having moved since.
        """
        clients = {subscription.subscriber for subscription in self.subscriptions}
        for client in sorted(clients, key=lambda name: (self.last_operation[name], name)):
            time = self.last_operation[client]
            yield Connect(client, client in self.moved_in, self.sessions[client]), time
            if client in self.contexts:
                yield SetContext(client, self.contexts[client]), time
            for subscription in self.subscriptions:
                if subscription.subscriber == client:
                    yield Subscribe(subscription), time

    def store(self, note: Notification, durable: str) -> bool:
        """Store a notification until it is acknowledged. Returns False if it is stored already."""
        notifications = self._waiting.setdefault(note.subscriber, {})
        if key_of(note) in notifications:
            return False
        notifications[key_of(note)] = note, durable
        return True

    def store_pending_decision(self, decision: Redecide) -> None:
        """Store a pending decision until it is made."""
        self._pending_decisions.setdefault((decision.client, decision.event.id), decision)

    def remove_decision(self, event: UUID, client: str) -> None:
        """Remove a pending decision that was made."""
        self._pending_decisions.pop((client, event), None)

    def pending_decisions(self, client: str) -> list[Redecide]:
        """Return the pending decisions about notifications of a client."""
        return [decision for (name, _), decision in self._pending_decisions.items() if name == client]

    def acknowledge(self, client: str, key: Key) -> None:
        """Remove a notification that the client, or another broker, has."""
        notifications = self._waiting.get(client, {})
        notifications.pop(key, None)
        if not notifications:
            self._waiting.pop(client, None)

    def waiting(self, client: str) -> list[Notification]:
        """Return the unacknowledged notifications of a client, in order."""
        return [note for note, _ in self._waiting.get(client, {}).values()]

    def backlog(self, client: str) -> tuple[StoredNotification, ...]:
        """Return the unacknowledged notifications with their durable names, to transfer to another broker."""
        return tuple(self._waiting.get(client, {}).values())

    def remove_subscription(self, client: str, id: str) -> None:  # noqa: A002
        """Remove the notifications of a subscription that has ended."""
        for key in [key for key in self._waiting.get(client, {}) if key[0] == id]:
            self.acknowledge(client, key)


def key_of(note: Notification) -> Key:
    """Return the ids of a notification's subscription and event."""
    return note.subscription, note.event.id

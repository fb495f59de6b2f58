"""The subscriptions of a hub or a broker with their inboxes, and its clients' contexts, schemas and recent events.

The registry follows accepted operations by `apply`, both live and when a journal is read again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from tidings.engine.operations import (
    Define,
    Disconnect,
    Operation,
    SetContext,
    SetPolicy,
    Subscribe,
    Unsubscribe,
)
from tidings.model.limits import (
    DEFAULT_INBOX_NOTIFICATIONS,
    MAX_REMEMBERED_EVENTS,
    MAX_REMEMBERED_PUBLISHERS,
    MAX_STORED_MESSAGES,
)
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.runtime.inboxes import Inbox
from tidings.runtime.receipts import Receipts

LIMIT = "$limit"  # journal note on a subscription: the limit of its inbox
EMPTY_CONTEXT = Context()


class RegisteredSubscription:
    """A subscription and its inbox. Drivers extend it by what their subscribers need."""

    __slots__ = ("inbox", "subscription")

    def __init__(self, subscription: Subscription, inbox: Inbox) -> None:
        self.subscription = subscription
        self.inbox = inbox

    @property
    def durable(self) -> str | None:
        return self.subscription.durable

    @property
    def id(self) -> str:
        return self.subscription.id

    @property
    def subscriber(self) -> str:
        return self.subscription.subscriber

    @property
    def waiting(self) -> int:
        """The number of notifications to be taken; of a durable subscription, including those only in the journal."""
        return self.inbox.waiting

    def end(self) -> None:
        """Close the inbox: no more notifications come."""
        self.inbox.close()

    def detach(self) -> None:
        """Detach the listener; the inbox of a durable subscription goes on collecting."""
        self.inbox.detach_listener()


S = TypeVar("S", bound=RegisteredSubscription)


class RecentEvents:
    """The ids of the most recent events, for deduplication, and the sequence numbers of the most recent publishers."""

    def __init__(self) -> None:
        self.sequences: dict[str, int] = {}  # the last sequence number of each publisher
        self._ids: set[int] = set()
        self._order: deque[int] = deque()  # the same ids, oldest first

    def record(self, publisher: str, sequence: int, event: UUID) -> None:
        """Record the sequence number and the id of an accepted event."""
        if sequence > self.sequences.get(publisher, 0):
            self.sequences[publisher] = sequence
            if len(self.sequences) > MAX_REMEMBERED_PUBLISHERS:  # each publication may come from a new publisher
                del self.sequences[next(iter(self.sequences))]
        self.remember_id(event.int)

    def remember_id(self, event: int) -> None:
        """Remember the id of an event, and forget the oldest if there are too many."""
        self._ids.add(event)
        self._order.append(event)
        if len(self._order) > MAX_REMEMBERED_EVENTS:
            self._ids.discard(self._order.popleft())

    def forget(self, event: UUID) -> None:
        """Forget the id of an event that could not be journaled."""
        self._ids.discard(event.int)

    def remembers(self, event: UUID) -> bool:
        """Return whether the event is among the most recent ones."""
        return event.int in self._ids

    def __iter__(self) -> Iterator[int]:
        """Yield the ids, oldest first."""
        return iter(self._order)

    def restore(self, sequences: Mapping[str, int], ids: Iterable[int]) -> None:
        """Restore the sequence numbers and the ids of a snapshot."""
        self.sequences.update(sequences)
        for event in ids:
            self.remember_id(event)


class SubscriptionRegistry(Generic[S]):
    """Subscriptions and client state, outside the engine. Changes need the processor's lock.

    `create` makes the record of a new subscription, with an inbox of the given limit.
    """

    def __init__(self, create: Callable[[Subscription, int], S]) -> None:
        self._create = create
        self.subscriptions: dict[str, S] = {}
        self.contexts: dict[str, Context] = {}
        self.schemas: dict[str, Schema] = {}
        self.stored: deque[tuple[str, str]] = deque(maxlen=MAX_STORED_MESSAGES)
        self.events = RecentEvents()
        self.receipts = Receipts()  # receipts of sealed events
        self._by_client: dict[str, dict[str, S]] = {}
        self._durable: dict[tuple[str, str], S] = {}

    def subscriptions_of(self, client: str) -> list[S]:
        """Return the client's subscriptions."""
        return list(self._by_client.get(client, {}).values())

    def count(self, client: str) -> int:
        """Return the number of the client's subscriptions."""
        return len(self._by_client.get(client, ()))

    def find_durable(self, client: str, name: str) -> S | None:
        """Return the client's durable subscription of that name, or None."""
        return self._durable.get((client, name))

    def apply(self, operation: Operation, row_notes: Mapping[str, Any]) -> None:
        """Apply an operation that the engine has accepted, with the notes of its journal row."""
        match operation:
            case SetContext(client, context):
                if context:
                    self.contexts[client] = context
                else:
                    self.contexts.pop(client, None)
            case Subscribe(subscription):
                self._add(subscription, row_notes.get(LIMIT, DEFAULT_INBOX_NOTIFICATIONS))
            case Unsubscribe(_, id):
                self._remove(id)
            case SetPolicy(client, id, policy):
                existing = self.subscriptions.get(id)
                if existing is not None and existing.subscriber == client:
                    existing.subscription = msgspec.structs.replace(existing.subscription, policy=policy)
            case Define(_, schema):
                self.schemas[schema.subject] = schema
            case Disconnect(client):
                self._remove_client(client)
            case _:
                pass

    def forget_context(self, client: str) -> None:
        """Forget the context of a client that moved to another broker, which holds the context from now on."""
        self.contexts.pop(client, None)

    def _add(self, subscription: Subscription, limit: int) -> None:
        existing = self.subscriptions.get(subscription.id)
        if existing is not None and existing.durable == subscription.durable:
            existing.subscription = subscription
            existing.inbox.limit = limit
            return
        if existing is not None:
            self._remove(subscription.id)
        added = self._create(subscription, limit)
        self.subscriptions[subscription.id] = added
        self._by_client.setdefault(subscription.subscriber, {})[subscription.id] = added
        if subscription.durable is not None:
            self._durable[subscription.subscriber, subscription.durable] = added

    def _remove(self, id: str) -> None:  # noqa: A002
        subscription = self.subscriptions.pop(id, None)
        if subscription is None:
            return
        of_subscriber = self._by_client[subscription.subscriber]
        del of_subscriber[id]
        if not of_subscriber:
            del self._by_client[subscription.subscriber]
        if subscription.durable is not None:
            self._durable.pop((subscription.subscriber, subscription.durable), None)
        subscription.end()

    def _remove_client(self, client: str) -> None:
        for subscription in self.subscriptions_of(client):
            if subscription.durable is None:
                self._remove(subscription.id)
            else:
                subscription.detach()
        if client not in self._by_client:
            self.contexts.pop(client, None)

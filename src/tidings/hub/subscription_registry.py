"""The subscriptions of a hub with their inboxes, and its clients' contexts, schemas, sequences and recent event ids.

The registry follows accepted operations by `apply`, both live and when a journal is read again.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
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
from tidings.hub.subscription import HubSubscription
from tidings.model.limits import (
    DEFAULT_INBOX_NOTIFICATIONS,
    MAX_REMEMBERED_EVENTS,
    MAX_REMEMBERED_PUBLISHERS,
    MAX_STORED_MESSAGES,
)
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.runtime.receipts import Receipts

LIMIT = "$limit"  # journal note on a subscription: the limit of its inbox
EMPTY_CONTEXT = Context()


class SubscriptionFactory(Protocol):
    """Creates the handle and the inbox of a subscription; a hub's `Processor` implements it."""

    def open(self, subscription: Subscription, limit: int) -> HubSubscription:
        """Create the handle of a subscription, with an inbox of that limit."""
        ...


class SubscriptionRegistry:
    """Subscriptions and client state, outside the engine. Changes need the hub's lock."""

    def __init__(self, factory: SubscriptionFactory) -> None:
        self._factory = factory
        self.subscriptions: dict[str, HubSubscription] = {}
        self.contexts: dict[str, Context] = {}
        self.schemas: dict[str, Schema] = {}
        self.sequences: dict[str, int] = {}  # the last sequence number of each publisher
        self.stored: deque[tuple[str, str]] = deque(maxlen=MAX_STORED_MESSAGES)
        self.receipts = Receipts()  # receipts of sealed events
        self._by_client: dict[str, dict[str, HubSubscription]] = {}
        self._durable: dict[tuple[str, str], HubSubscription] = {}
        self._remembered: set[int] = set()  # ids of recent events, for deduplication
        self._order: deque[int] = deque()  # the same, oldest first

    def subscriptions_of(self, client: str) -> list[HubSubscription]:
        """Return the client's subscriptions."""
        return list(self._by_client.get(client, {}).values())

    def count(self, client: str) -> int:
        """Return the number of the client's subscriptions."""
        return len(self._by_client.get(client, ()))

    def find_durable(self, client: str, name: str) -> HubSubscription | None:
        """Return the client's durable subscription of that name, or None."""
        return self._durable.get((client, name))

    def record_event(self, publisher: str, sequence: int, event: UUID) -> None:
        """Record the sequence number and the id of an accepted event."""
        if sequence > self.sequences.get(publisher, 0):
            self.sequences[publisher] = sequence
            if len(self.sequences) > MAX_REMEMBERED_PUBLISHERS:  # each publication may come from a new publisher
                del self.sequences[next(iter(self.sequences))]
        self.remember_id(event.int)

    def remember_id(self, event: int) -> None:
        """Remember the id of an event, and forget the oldest if there are too many."""
        self._remembered.add(event)
        self._order.append(event)
        if len(self._order) > MAX_REMEMBERED_EVENTS:
            self._remembered.discard(self._order.popleft())

    def forget(self, event: UUID) -> None:
        """Forget an event that could not be journaled."""
        self._remembered.discard(event.int)
        self.receipts.forget(event)

    def remembers(self, event: UUID) -> bool:
        """Return whether the event is among the most recent ones."""
        return event.int in self._remembered

    @property
    def remembered(self) -> Iterator[int]:
        """The ids of the most recent events, oldest first."""
        return iter(self._order)

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
        added = self._factory.open(subscription, limit)
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

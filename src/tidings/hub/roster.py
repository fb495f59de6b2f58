"""The roster: the subscriptions of a hub with their inboxes, and what the hub must know of its clients.

It follows the operations that were accepted, live and when a journal is read again: by the same words, `book`.
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
from tidings.hub.receipts import Receipts
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

LIMIT = "$limit"  # of the inbox, noted with a subscription
NOTHING = Context()


class Opener(Protocol):
    """Makes the handle and the inbox of a subscription; the hub's desk is one."""

    def open(self, subscription: Subscription, limit: int) -> HubSubscription: ...


class Roster:
    """Changed only by who holds the hub's lock."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.subscriptions: dict[str, HubSubscription] = {}
        self.contexts: dict[str, Context] = {}
        self.schemas: dict[str, Schema] = {}
        self.sequences: dict[str, int] = {}  # the last of each publisher
        self.stored: deque[tuple[str, str]] = deque(maxlen=MAX_STORED_MESSAGES)
        self.receipts = Receipts()  # of sealed events
        self._of: dict[str, dict[str, HubSubscription]] = {}
        self._durable: dict[tuple[str, str], HubSubscription] = {}
        self._remembered: set[int] = set()  # ids of events
        self._order: deque[int] = deque()  # the same, oldest first

    def of(self, client: str) -> list[HubSubscription]:
        return list(self._of.get(client, {}).values())

    def count(self, client: str) -> int:
        return len(self._of.get(client, ()))

    def durable(self, client: str, name: str) -> HubSubscription | None:
        return self._durable.get((client, name))

    def published(self, publisher: str, sequence: int, event: UUID) -> None:
        if sequence > self.sequences.get(publisher, 0):
            self.sequences[publisher] = sequence
            if len(self.sequences) > MAX_REMEMBERED_PUBLISHERS:  # there may be a new name with every publication
                del self.sequences[next(iter(self.sequences))]
        self.remember(event.int)

    def remember(self, event: int) -> None:
        self._remembered.add(event)
        self._order.append(event)
        if len(self._order) > MAX_REMEMBERED_EVENTS:
            self._remembered.discard(self._order.popleft())

    def forget(self, event: UUID) -> None:
        """It was not published after all."""
        self._remembered.discard(event.int)
        self.receipts.forget(event)

    def remembers(self, event: UUID) -> bool:
        """Whether it is among the last that were published."""
        return event.int in self._remembered

    @property
    def remembered(self) -> Iterator[int]:
        return iter(self._order)

    def book(self, operation: Operation, notes: Mapping[str, Any]) -> None:
        """Follows an operation that the engine has accepted."""
        match operation:
            case SetContext(client, context):
                if context:
                    self.contexts[client] = context
                else:
                    self.contexts.pop(client, None)
            case Subscribe(subscription):
                self._subscribed(subscription, notes.get(LIMIT, DEFAULT_INBOX_NOTIFICATIONS))
            case Unsubscribe(_, id):
                self._remove(id)
            case SetPolicy(client, id, policy):
                held = self.subscriptions.get(id)
                if held is not None and held.subscriber == client:
                    held.subscription = msgspec.structs.replace(held.subscription, policy=policy)
            case Define(_, schema):
                self.schemas[schema.subject] = schema
            case Disconnect(client):
                self._left(client)
            case _:
                pass

    def moved(self, client: str) -> None:
        """The client is at another broker: its context is set there, and this broker knows none of it."""
        self.contexts.pop(client, None)

    def _subscribed(self, subscription: Subscription, limit: int) -> None:
        held = self.subscriptions.get(subscription.id)
        if held is not None and held.durable == subscription.durable:
            held.subscription = subscription
            held.inbox.limit = limit
            return
        if held is not None:
            self._remove(subscription.id)
        made = self._opener.open(subscription, limit)
        self.subscriptions[subscription.id] = made
        self._of.setdefault(subscription.subscriber, {})[subscription.id] = made
        if subscription.durable is not None:
            self._durable[subscription.subscriber, subscription.durable] = made

    def _remove(self, id: str) -> None:  # noqa: A002
        held = self.subscriptions.pop(id, None)
        if held is None:
            return
        own = self._of[held.subscriber]
        del own[id]
        if not own:
            del self._of[held.subscriber]
        if held.durable is not None:
            self._durable.pop((held.subscriber, held.durable), None)
        held.end()

    def _left(self, client: str) -> None:
        for held in self.of(client):
            if held.durable is None:
                self._remove(held.id)
            else:
                held.detach()
        if client not in self._of:
            self.contexts.pop(client, None)

"""Serves the clients of a hub: processes their operations, waits for the journal, and delivers in the caller's thread.

The `Processor` does the part that needs the lock. `_finish` does the rest in the thread of the caller: it syncs the
journal, once for all threads that wait, drains the delivery queue, runs callbacks, starts the journal's upkeep, and
raises `RefusedError` if the engine refused the operation.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.coerce import policy_text
from tidings.engine.operations import (
    ApplyNotice,
    LearnTopic,
    Operation,
    ReportLoss,
    Revoke,
    SetContext,
    Subscribe,
    Unsubscribe,
)
from tidings.engine.security import sealed_events
from tidings.engine.settings import Settings
from tidings.hub.delivery_queue import Callbacks, DeliveryQueue, Runnable
from tidings.hub.secure_clients import SecureClients
from tidings.hub.subscription import Callback, HubSubscription
from tidings.model.errors import (
    InvalidValueError,
    JournalError,
    PublishedBeforeError,
    RefusedError,
    SecurityError,
    TidingsError,
)
from tidings.model.event import Event
from tidings.model.filter import ContextFilterValue
from tidings.model.identity import uuid7
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.receipt import Durability, Receipt
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.runtime.clock import Clock
from tidings.runtime.due_from_journal import Since
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.inboxes import BoundedInbox
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.outcome import OperationOutcome
from tidings.runtime.processor import Processor
from tidings.runtime.queries import replay_events
from tidings.runtime.receipts import epoch_of
from tidings.runtime.subscription_registry import EMPTY_CONTEXT, LIMIT, RegisteredSubscription
from tidings.runtime.trust import Provider, ask_provider

if TYPE_CHECKING:
    from tidings.security.gate import Gate


class Stats(msgspec.Struct, kw_only=True):
    """Counters since the hub was opened; `clients`, `subscriptions`, `waiting` and `offset` are current values."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    told: int = 0  # meta-events published
    callback_errors: int = 0
    clients: int = 0
    subscriptions: int = 0
    waiting: int = 0
    offset: int = 0


class HubNode:
    """Processes the operations of a hub's clients, and delivers to their subscriptions."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        journal_store: JournalStore | None,
        gate: "Gate | None" = None,
    ) -> None:
        self._trust, self._journal_store = trust, journal_store
        self._callbacks = Callbacks()
        self._delivery_queue = DeliveryQueue(self._callbacks)
        self.members = SecureClients()
        self.processor = Processor(
            settings, clock, trust, self._ask, journal_store, self._delivery_queue, self._create, gate
        )
        self.log_line = self.processor.log_line
        self.decrypt = self.members.decrypt
        self.processor.restore()

    def _ask(self, party: str, group: str, now: int) -> tuple[bool, int]:
        return ask_provider(self._trust, party, group, now)

    def _create(self, subscription: Subscription, limit: int) -> HubSubscription:
        """Create the handle and the inbox of a subscription."""
        store = self._journal_store
        if subscription.durable is None:
            return HubSubscription(self, subscription, BoundedInbox(limit))
        read = None if store is None else store.history.due_to(subscription)
        return HubSubscription(self, subscription, DurableInbox(limit, read))

    # Publications

    def publish(
        self,
        publisher: str,
        attributes: Attributes,
        *,
        subscribers: ContextFilterValue | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: str | None = None,
        id: UUID | None = None,  # noqa: A002
        sync: bool = True,
        must_seal: bool = False,
    ) -> Receipt:
        """Publish an event for `publisher`; return its receipt once the event is as durable as `sync` asks.

        The caller has checked all values.

        Args:
            publisher: The publishing client.
            attributes: The event's attributes.
            subscribers: Filter over the contexts of the subscribers that the event is for.
            payload: The event's payload.
            subject: The event's subject.
            policy: The policy attached to the event.
            id: The event's id; a new one by default.
            sync: Whether to wait until the journal is synced.
            must_seal: Whether to refuse an event that would not be sealed.

        Raises:
            PublishedBeforeError: An event of this id was published before.
            RefusedError: The engine refused the event.
        """
        processor = self.processor
        registry = processor.registry
        with processor.lock:
            processor.check_open()
            now = processor.now()
            if id is None:
                id = uuid7(now, processor.clock.entropy())  # noqa: A001
            elif registry.events.remembers(id):
                raise PublishedBeforeError("admit", f"the event {id} was published before")
            event = Event(
                id=id,
                publisher=publisher,
                timestamp=now,
                sequence=registry.events.sequences.get(publisher, 0) + 1,
                attributes=attributes,
                subject=subject,
                payload=payload,
                context=registry.contexts.get(publisher, EMPTY_CONTEXT),
                subscribers=subscribers,
                policy=policy,
            )
            sealed = self.members.seal(event, now, required=must_seal)
            outcome, offset = processor.publish(sealed, now, sync=sync)
            end = processor.next
        self._finish(outcome, end if sync else 0)
        return Receipt(event, offset, epoch_of(sealed), self._durability(sync))

    def publish_event(self, event: Event, *, sync: bool = True) -> Receipt:
        """Publish a ready-made, possibly sealed event; only its timestamp is replaced, by the time of acceptance.

        A sealed event that is sent again gets its first receipt and is not processed again.

        Raises:
            PublishedBeforeError: The event is not sealed, and an event of its id was published before.
            RefusedError: Another sealed event was published under this id, or the engine refused the event.
        """
        processor = self.processor
        registry = processor.registry
        with processor.lock:
            processor.check_open()
            receipt = registry.receipts.first_receipt(event)
            if receipt is None:
                if registry.events.remembers(event.id):
                    raise PublishedBeforeError("admit", f"the event {event.id} was published before")
                now = processor.now()
                accepted = msgspec.structs.replace(event, timestamp=now)
                outcome, offset = processor.publish(accepted, now, sync=sync)
                receipt = Receipt(accepted, offset, epoch_of(accepted), self._durability(sync))
            else:
                receipt = msgspec.structs.replace(receipt, safe=self._durability(sync))
                outcome = OperationOutcome()
            end = processor.next
        self._finish(outcome, end if sync else 0)
        return receipt

    def _durability(self, sync: bool) -> Durability:
        """Return the durability of an event, given whether its publisher waited for the disk."""
        return "journaled" if sync and self._journal_store is not None else "accepted"

    # Other operations

    def control(self, operation: Operation) -> list[str]:
        """Process an operation other than a publication, and wait until it is on disk.

        Returns the remarks on the operation's policy; raises `RefusedError` if the engine refused it.
        """
        processor = self.processor
        with processor.lock:
            outcome = processor.control(operation)
            end = processor.next
        self._finish(outcome, end)
        return list(outcome.findings)

    def set_context(
        self, client: str, by: str | None, context: Context | None, changes: Mapping[str, Any], *, sync: bool
    ) -> None:
        """Set the context of a client; an unchanged context costs nothing.

        Args:
            client: The client whose context is set.
            by: The other client that sets it; None if it is the client itself.
            context: The new context, or None to merge `changes` into the present one.
            changes: Names and values, where None removes one.
            sync: Whether to wait until the change is on disk.
        """
        processor = self.processor
        with processor.lock:
            present = processor.registry.contexts.get(client, EMPTY_CONTEXT)
            context = present.merged(changes) if context is None else context
            if context == present and (by is None or by in processor.engine.state.contexts.delegates.get(client, ())):
                return
            outcome = processor.control(SetContext(client, context, by))
            end = processor.next
        self._finish(outcome, end if sync else 0)

    def subscribe(
        self,
        subscription: Subscription,
        id: str | None,  # noqa: A002
        limit: int | None,
        callback: Callback | None,
    ) -> HubSubscription:
        """Subscribe, or resume an existing subscription of the same durable name or id; return its handle.

        Args:
            subscription: The subscription, whose id is set here.
            id: The id that the client asks for; None for that of the existing subscription or a new one.
            limit: The checked limit of the inbox; None for the existing or the default one.
            callback: Called with each notification.

        Raises:
            InvalidValueError: The durable name is that of a subscription with another id.
            RefusedError: The engine refused the subscription.
        """
        processor, client = self.processor, subscription.subscriber
        size = DEFAULT_INBOX_NOTIFICATIONS if limit is None else limit
        outcome, end = None, 0
        with processor.lock:
            subscription = self._with_token(subscription)
            existing = self._existing(subscription, id)
            size = size if existing is None or limit is not None else existing.inbox.limit
            subscription = _with_id(subscription, existing, processor.new_id(client) if id is None else id)
            if existing is None or existing.subscription != subscription or existing.inbox.limit != size:
                outcome = processor.control(Subscribe(subscription), {LIMIT: size})
                end = processor.next
            if outcome is None or outcome.refused is None:
                existing = processor.registry.subscriptions[subscription.id]
                if outcome is not None:
                    existing.set_policy_findings(list(outcome.findings))
                existing.attach(callback)
        if outcome is not None:
            self._finish(outcome, end)
        assert existing is not None  # noqa: S101 - what was refused has raised
        self.wake(existing)
        return existing

    def _with_token(self, subscription: Subscription) -> Subscription:
        """Add the member's token to a subscription that asks for just a secure topic and has no token."""
        topic_gossip = self.processor.engine.topic_gossip
        record = (
            None
            if subscription.token is not None or topic_gossip is None
            else topic_gossip.token_requirements.of(subscription)
        )
        token = None if record is None else self.members.token(subscription.subscriber, record.id)
        return subscription if token is None else msgspec.structs.replace(subscription, token=token)

    def _existing(self, subscription: Subscription, id: str | None) -> HubSubscription | None:  # noqa: A002
        """Return the client's existing subscription with the same durable name or id, or None."""
        registry, client = self.processor.registry, subscription.subscriber
        if subscription.durable is not None:
            existing = registry.find_durable(client, subscription.durable)
            if existing is not None and id is not None and existing.id != id:
                raise InvalidValueError(
                    f"durable: {subscription.durable!r} is the subscription {existing.id}, not {id}"
                )
            if existing is not None:
                return existing
        existing = None if id is None else registry.subscriptions.get(id)
        return existing if existing is not None and existing.subscriber == client else None

    def unsubscribe(self, client: str, id: str, policy: Any = None) -> None:  # noqa: A002
        """Remove a subscription of the client; `policy` holds the rules to run before the removal."""
        self.control(Unsubscribe(client, id, policy_text(policy)))

    def acknowledge(self, subscription: RegisteredSubscription, events: Iterable[UUID]) -> int:
        """Acknowledge events of a durable subscription; return how many notifications are newly acknowledged."""
        return self.processor.acknowledge(subscription, events)

    def wake(self, subscription: Runnable) -> None:
        """Run the callback of the subscription if notifications wait for it."""
        self._callbacks.wake(subscription)
        self._callbacks.run()

    def replay(self, ids: list[str], since: Since) -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that the subscriptions would get now."""
        return self._decrypt_all(replay_events(self.processor, ids, since))

    def _decrypt_all(self, notifications: Iterator[Notification]) -> Iterator[Notification]:
        for notification in notifications:
            subscription = self.processor.registry.subscriptions.get(notification.subscription)
            opened = self.members.decrypt(
                notification, None if subscription is None else subscription.subscription.policy
            )
            if opened is not None:
                yield opened

    # Secure topics

    def apply_security_news(self, operation: LearnTopic | ApplyNotice | Revoke) -> None:
        """Process news of secure topics, then resume callbacks that were stalled by an invalid token."""
        self.control(operation)
        with self.processor.lock:
            subscriptions = list(self.processor.registry.subscriptions.values())
        for subscription in subscriptions:
            if subscription.resume():
                self.wake(subscription)

    def check_token(self, subscription: Subscription) -> None:
        """Raise `SecurityError` if the subscription's token is no longer valid."""
        processor = self.processor
        if processor.gate is not None and subscription.token is not None:
            with processor.lock:
                processor.gate.check_subscription(subscription.token, subscription.subscriber, processor.now())

    def may_receive(self, notification: Notification) -> bool:
        """Return whether a waiting notification may still be handed to its subscriber, given later revocations."""
        processor = self.processor
        if processor.gate is None or notification.event.signature is None:
            return True
        with processor.lock:
            try:
                sealed_events.check_notification(
                    processor.engine.state, processor.engine.gate, notification, processor.now()
                )
            except SecurityError:
                return False
        return True

    # Counters and closing

    def stats(self, clients: int) -> Stats:
        """Return the counters since the hub was opened, and the current numbers."""
        processor = self.processor
        with processor.lock:
            subscriptions, counts = processor.registry.subscriptions.values(), processor.counts
            return Stats(
                published=counts.published,
                refused=counts.refused,
                told=counts.meta_events,
                delivered=self._delivery_queue.delivered,
                lost=self._delivery_queue.lost,
                callback_errors=self._callbacks.failed,
                clients=clients,
                subscriptions=len(subscriptions),
                waiting=sum(subscription.waiting for subscription in subscriptions),
                offset=processor.next,
            )

    def close(self) -> None:
        """Refuse further operations, deliver the journaled events, close the journal, and end all subscriptions."""
        processor, journal_store = self.processor, self._journal_store
        with processor.lock:
            if processor.closed:
                return
            processor.closed = True
            subscriptions = list(processor.registry.subscriptions.values())
        try:
            if journal_store is not None:
                with contextlib.suppress(JournalError):
                    journal_store.sync(processor.next)
                    self._drain()
                journal_store.close()
        finally:
            for subscription in subscriptions:
                subscription.end()

    # Delivery

    def _finish(self, outcome: OperationOutcome[HubSubscription], end: int) -> None:
        """Sync the journal up to `end`, deliver, run callbacks, and raise `RefusedError` if the operation was refused.

        The lock must not be held.
        """
        journal_store = self._journal_store
        if journal_store is not None and end:
            try:
                journal_store.sync(end)
            except JournalError as error:
                self.processor.failure = error
                raise
        if outcome.deliveries:
            self._drain()
            self._callbacks.run()
        if journal_store is not None and journal_store.upkeep.is_due:
            journal_store.upkeep.start()
        engine = self.processor.engine
        if engine.is_untidy:
            engine.tidy()
        if outcome.refused is not None:
            raise RefusedError(outcome.refused.step, outcome.refused.reason)

    def _drain(self) -> None:
        synced = 0 if self._journal_store is None else self._journal_store.synced
        losses = self._delivery_queue.drain(synced)
        reported = set()
        for subscription, notification in losses:
            # Reported at 1, 2, 4, 8, ... losses: often enough to be noticed, without a flood of meta-events.
            if (
                notification.event.publisher != self.processor.name
                and subscription.lost & (subscription.lost - 1) == 0
                and subscription.id not in reported
            ):
                reported.add(subscription.id)
                self._report_loss(subscription)

    def _report_loss(self, subscription: RegisteredSubscription) -> None:
        """Have the engine publish a meta-event about notifications that a subscription lost."""
        processor = self.processor
        try:
            with processor.lock:
                processor.check_open()
                now = processor.now()
                outcome = processor.handle(
                    ReportLoss(subscription.subscriber, subscription.id, subscription.inbox.lost), now
                )
                processor.journal_effects(outcome, now)
            self._finish(outcome, 0)
        except TidingsError as error:
            lost, subscriber = subscription.inbox.lost, subscription.subscriber
            processor.log_line(f"{subscriber} has lost {lost} notifications of {subscription.id}, and {error}")


def _with_id(subscription: Subscription, existing: RegisteredSubscription | None, id: str) -> Subscription:  # noqa: A002
    """Return the subscription with its id; resuming without a policy or a token keeps the present ones."""
    if existing is None:
        return msgspec.structs.replace(subscription, id=id)
    policy = existing.subscription.policy if subscription.policy is None else subscription.policy
    token = existing.subscription.token if subscription.token is None else subscription.token
    return msgspec.structs.replace(subscription, id=existing.id, policy=policy, token=token)

"""Processes a hub's operations: runs the engine, appends to the journal, and delivers once the journal is synced.

Rules:

1. Operations are processed one at a time, under the lock, in the order of their timestamps and journal offsets.
2. No notification enters an inbox before the rows of its publication are on disk (unless the publisher did not ask
   to wait for the disk), and deliveries enter the inboxes in the order of their publications.
3. The journal is synced, and callbacks run, outside the lock. Trust providers and policies run under it, and get an
   error if they use the hub.

Theory of operation. Under the lock an operation gets a timestamp that rises strictly, the engine handles it, its rows
are appended to the journal, and its deliveries are added to the delivery queue, each with the journal offset that must
be synced first (`handle_control` and `_handle_publication`). Outside the lock, `finish` syncs the journal, once for all
threads that wait, and drains the delivery queue, runs callbacks, starts the journal's upkeep, and raises `RefusedError`
if the engine refused the operation.

Failures. If the journal refuses rows (a full disk), `_undo` brings the engine back to the journal's state and the
caller gets the error. If the journal fails otherwise, `failure` is set, and every later operation raises it.

A broker's processor extends this class; the methods whose docstring begins with "Hook" do nothing in a hub.
"""

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings import journal
from tidings.coerce import policy_text
from tidings.engine import Engine
from tidings.engine.operations import (
    ApplyNotice,
    Disconnect,
    LearnTopic,
    Operation,
    Publish,
    ReportLoss,
    Revoke,
    SetContext,
    SetLoad,
    Unsubscribe,
)
from tidings.engine.security import sealed_events
from tidings.engine.settings import Settings
from tidings.hub.client import HubClient
from tidings.hub.delivery_queue import Callbacks, DeliveryQueue, ReleaseBatch
from tidings.hub.journal_store import JournalStore
from tidings.hub.outcome import LOAD, TRUST, OperationOutcome, handle_operation
from tidings.hub.queries import replay_events
from tidings.hub.secure_clients import SecureClients
from tidings.hub.stats import Stats
from tidings.hub.subscription import HubSubscription
from tidings.hub.subscription_registry import EMPTY_CONTEXT, SubscriptionRegistry
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    JournalError,
    JournalFullError,
    PublishedBeforeError,
    RefusedError,
    SecurityError,
    TidingsError,
)
from tidings.model.event import Event
from tidings.model.filter import ContextFilterValue
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_LOG_LINES
from tidings.model.notification import Notification
from tidings.model.receipt import Durability, Receipt
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.runtime.clock import Clock
from tidings.runtime.due_from_journal import Since
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.inboxes import BoundedInbox
from tidings.runtime.lock import EngineLock
from tidings.runtime.receipts import epoch_of
from tidings.runtime.trust import Provider, ask_provider

if TYPE_CHECKING:
    from tidings.security.gate import Gate
    from tidings.security.member import SealingMember

_LOG = logging.getLogger("tidings")


class Processor:
    """Processes the operations of a hub's clients, and owns the engine, the registry and the journal store."""

    own_kinds: frozenset[str] = frozenset()  # kinds of journal rows that only a broker writes

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        journal_store: JournalStore | None,
        gate: "Gate | None" = None,
    ) -> None:
        self.settings, self.name = settings, settings.name
        self.clock, self.journal_store, self.gate = clock, journal_store, gate
        self.lock = EngineLock()
        self.engine = Engine(settings, gate=gate)
        self.registry = SubscriptionRegistry(self)
        self.stats = Stats()
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.failure: TidingsError | None = None
        self.closed = False
        self.trust = trust
        self._id_numbers = itertools.count(clock.now())  # counts up from the current time: unique across restarts
        self._clients: dict[str, HubClient] = {}
        self.members = SecureClients()
        self._callbacks = Callbacks()
        self._delivery_queue = DeliveryQueue(self._callbacks)
        self._time = 0
        self._next = 0  # the offset that the next row gets; counted here where there is no journal
        self.load = 0.0
        if journal_store is not None:
            journal_store.restore(self)
            self.load = self.engine.state.rules.load

    # Operations

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
        registry = self.registry
        with self.lock:
            self.check_open()
            now = self.now()
            if id is None:
                id = uuid7(now, self.clock.entropy())  # noqa: A001
            elif registry.remembers(id):
                raise PublishedBeforeError("admit", f"the event {id} was published before")
            sequence = registry.sequences.get(publisher, 0) + 1
            event = Event(
                id=id,
                publisher=publisher,
                timestamp=now,
                sequence=sequence,
                attributes=attributes,
                subject=subject,
                payload=payload,
                context=registry.contexts.get(publisher, EMPTY_CONTEXT),
                subscribers=subscribers,
                policy=policy,
            )
            sealed = self.members.seal(event, now, required=must_seal)
            outcome, offset, end = self._handle_publication(sealed, now, sync)
        self.finish(outcome, end if sync else 0)
        return Receipt(event, offset, epoch_of(sealed), self._durability(sync))

    def publish_event(self, event: Event, *, sync: bool = True) -> Receipt:
        """Publish a ready-made, possibly sealed event; only its timestamp is replaced, by the time of acceptance.

        A sealed event that is sent again gets its first receipt and is not processed again.

        Raises:
            PublishedBeforeError: The event is not sealed, and an event of its id was published before.
            RefusedError: Another sealed event was published under this id, or the engine refused the event.
        """
        registry = self.registry
        with self.lock:
            self.check_open()
            receipt = registry.receipts.first_receipt(event)
            if receipt is None:
                if registry.remembers(event.id):
                    raise PublishedBeforeError("admit", f"the event {event.id} was published before")
                now = self.now()
                accepted = msgspec.structs.replace(event, timestamp=now)
                outcome, offset, end = self._handle_publication(accepted, now, sync)
                receipt = Receipt(accepted, offset, epoch_of(accepted), self._durability(sync))
            else:
                receipt = msgspec.structs.replace(receipt, safe=self._durability(sync))
                outcome, end = OperationOutcome(), self._next
        self.finish(outcome, end if sync else 0)
        return receipt

    def _durability(self, sync: bool) -> Durability:
        """Return the durability of an event, given whether its publisher waited for the disk."""
        return "journaled" if sync and self.journal_store is not None else "accepted"

    def _handle_publication(self, event: Event, now: int, sync: bool) -> tuple[OperationOutcome, int, int]:
        """Handle and journal an event; return its outcome, its offset, and the offset up to which to sync.

        The lock is held; `finish` must follow.
        """
        operation, registry = Publish(event), self.registry
        outcome = handle_operation(self, operation, now)
        try:
            offset = self._append_outcome(operation, outcome, now, {}, sync)
        except BaseException:
            if self.gate is not None and outcome.refused is None:
                self.gate.take_back(event)
            raise
        if outcome.refused is None:
            registry.record_event(event.publisher, event.sequence, event.id)
            registry.receipts.record(event, offset)
            self.stats.published += 1
        return outcome, offset, self._next

    def control(
        self, operation: Operation, row_notes: Mapping[str, Any] | None = None, *, sync: bool = True
    ) -> list[str]:
        """Process an operation other than a publication: handle it, journal it, and wait for the disk if `sync`.

        `row_notes` are stored with the journal row. Returns the remarks on the operation's policy; raises
        `RefusedError` if the engine refused it.
        """
        with self.lock:
            findings, end, outcome = self.handle_control(operation, row_notes)
        self.finish(outcome, end if sync else 0)
        return findings

    def handle_control(
        self, operation: Operation, row_notes: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int, OperationOutcome]:
        """Do the part of `control` that needs the lock, which the caller holds; `finish` must follow.

        Returns the remarks on the policy, the offset up to which to sync, and the outcome.
        """
        self.check_open()
        now = self.now()
        outcome = self.handle(operation, now)
        row_notes = dict(row_notes or {})
        if outcome.trust_answers:
            row_notes[TRUST] = outcome.trust_answers
        if self.load:
            row_notes[LOAD] = self.load
        try:
            self._append_outcome(operation, outcome, now, row_notes, sync=True)
        except BaseException as error:
            if outcome.refused is None:
                self._undo(operation, now, error)
            raise
        if outcome.refused is None:
            self.registry.apply(operation, row_notes)
        return list(outcome.findings), self._next, outcome

    def set_load(self, load: float) -> None:
        """Set the load that policies see. The journal stores it with each later control operation."""
        with self.lock:
            self.check_open()
            self.engine.handle(SetLoad(load), self.now())
            self.load = load

    def unsubscribe(self, client: str, id: str, policy: Any = None) -> None:  # noqa: A002
        """Remove a subscription of the client; `policy` holds the rules to run before the removal."""
        self.control(Unsubscribe(client, id, policy_text(policy)))

    def acknowledge(self, subscription: HubSubscription, events: Iterable[UUID]) -> int:
        """Acknowledge events of a durable subscription; return how many notifications are newly acknowledged.

        The journal row is written but not synced: acknowledgements lost in a crash lead to redelivery.

        Raises:
            InvalidValueError: The subscription is not durable.
        """
        inbox = subscription.inbox
        if not isinstance(inbox, DurableInbox):
            raise InvalidValueError(f"{subscription.id} is not durable: there is nothing to acknowledge")
        with self.lock:
            self.check_open()
            acknowledged = inbox.acknowledgement(events)
            if acknowledged is None:
                return 0
            if self.journal_store is not None and not inbox.closed:
                body = {"offset": acknowledged.floor, "beyond": acknowledged.beyond, "count": acknowledged.count}
                row = journal.Operation.control(
                    "acknowledge", client=subscription.subscriber, id=subscription.durable, body=body
                )
                self._append([row], self.now())
            inbox.acknowledge(acknowledged)
        self.wake(subscription)
        return acknowledged.count

    def count_callback_failure(self) -> None:
        """Count a callback that raised."""
        self._callbacks.count_failure()

    def wake(self, subscription: HubSubscription) -> None:
        """Run the callback of the subscription if notifications wait for it."""
        if subscription.callback is not None:
            self._callbacks.wake(subscription)
            self._callbacks.run()

    def replay(self, ids: list[str], since: Since) -> Iterator[Notification]:
        """Replay the journaled events from `since` on: yield the notifications that the subscriptions would get now."""
        return self._decrypt_all(replay_events(self, ids, since))

    def _decrypt_all(self, notifications: Iterator[Notification]) -> Iterator[Notification]:
        for notification in notifications:
            subscription = self.registry.subscriptions.get(notification.subscription)
            opened = self.members.decrypt(
                notification, None if subscription is None else subscription.subscription.policy
            )
            if opened is not None:
                yield opened

    def client(self, name: str, member: "SealingMember | None" = None) -> HubClient:
        """Return the client of that name, created if needed, and attach it to its durable subscriptions."""
        with self.lock:
            self.check_open()
            if member is not None:
                self.members.put(name, member)
            client = self._clients.get(name)
            if client is None:
                client = self._clients[name] = HubClient(self, name)
                for subscription in self.registry.subscriptions_of(name):
                    subscription.attach(None)  # durable subscriptions stay when their client leaves
            return client

    def leave(self, client: HubClient) -> None:
        """Disconnect a client and free its name; its subscriptions are removed, except durable ones."""
        if not self.closed:
            self.control(Disconnect(client.name))
        with self.lock:
            if self._clients.get(client.name) is client:
                del self._clients[client.name]
                self.members.forget(client.name)

    def new_id(self, client: str) -> str:
        """Return a new id for a subscription or an advertisement: the client's name and a suffix that sorts by age."""
        return f"{client[:200]}.{next(self._id_numbers):014x}{self.clock.entropy()[:4].hex()}"

    def stats_snapshot(self) -> Stats:
        """Return the counters since the hub was opened, and the current numbers."""
        with self.lock:
            subscriptions = self.registry.subscriptions.values()
            return msgspec.structs.replace(
                self.stats,
                delivered=self._delivery_queue.delivered,
                lost=self._delivery_queue.lost,
                callback_errors=self._callbacks.failed,
                clients=len(self._clients),
                subscriptions=len(subscriptions),
                waiting=sum(subscription.waiting for subscription in subscriptions),
                offset=self._next,
            )

    def handle(self, operation: Operation, now: int) -> OperationOutcome:
        """Have the engine handle an operation; return the outcome of its effects. The lock is held."""
        return handle_operation(self, operation, now)

    def ask(self, party: str, group: str, now: int) -> tuple[bool, int] | None:
        """Ask the trust provider whether `party` belongs to `group`; return the answer and until when it is valid.

        Returns None, in a broker only, if the answer will arrive later as a `Trust` operation.
        """
        return ask_provider(self.trust, party, group, now)

    def trusts(self, party: str, group: str) -> bool:
        """Ask the trust provider whether `party` belongs to `group`, without caching the answer."""
        return ask_provider(self.trust, party, group, 0)[0]

    # Secure topics

    def apply_security_news(self, operation: LearnTopic | ApplyNotice | Revoke) -> None:
        """Process news of secure topics, then resume callbacks that were stalled by an invalid token."""
        self.control(operation)
        with self.lock:
            subscriptions = list(self.registry.subscriptions.values())
        for subscription in subscriptions:
            if subscription.resume():
                self.wake(subscription)

    def check_token(self, subscription: Subscription) -> None:
        """Raise `SecurityError` if the subscription's token is no longer valid."""
        if self.gate is not None and subscription.token is not None:
            with self.lock:
                self.gate.check_subscription(subscription.token, subscription.subscriber, self.now())

    def may_receive(self, notification: Notification) -> bool:
        """Return whether a waiting notification may still be handed to its subscriber, given later revocations."""
        if self.gate is None or notification.event.signature is None:
            return True
        with self.lock:
            try:
                sealed_events.check_notification(self.engine.state, self.engine.gate, notification, self.now())
            except SecurityError:
                return False
        return True

    # Time, closing, and hooks for the broker

    def now(self) -> int:
        """Return the acceptance time, which rises strictly even if the clock steps back. The lock is held."""
        now = self.clock.now()
        self._time = now if now > self._time else self._time + 1
        return self._time

    @property
    def next(self) -> int:
        """The offset that the next row will get."""
        return self._next

    def resume_at(self, timestamp: int, offset: int) -> None:
        """Continue after the journal's last timestamp, with `offset` as the next offset."""
        self._time, self._next = max(self._time, timestamp), offset

    def close(self) -> None:
        """Refuse further operations, deliver the journaled events, close the journal, and end all subscriptions."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            subscriptions = list(self.registry.subscriptions.values())
        try:
            if self.journal_store is not None:
                with contextlib.suppress(JournalError):
                    self.journal_store.sync(self._next)
                    self._drain()
                self.journal_store.close(self)
        finally:
            for subscription in subscriptions:
                subscription.end()

    def open(self, subscription: Subscription, limit: int) -> HubSubscription:
        """Create the handle and the inbox of a subscription; the registry calls it."""
        read = None if self.journal_store is None else self.journal_store.history.due_to(subscription)
        inbox = BoundedInbox(limit) if subscription.durable is None else DurableInbox(limit, read)
        return HubSubscription(self, subscription, inbox)

    def restore_row(self, row: journal.Operation) -> None:
        """Hook: restore from a journal row of one of `own_kinds`."""

    def restore_delivery(self, subscription: HubSubscription, row: journal.Operation) -> None:
        """Hook: restore that the event of a row was delivered to a durable subscription."""

    def restore_pending_decisions(self, row: journal.Operation, offset: int) -> None:
        """Hook: restore that decisions about the publication of a row are pending."""

    def needed(self) -> int | None:
        """Hook: return the lowest journal offset that neighbours or pending decisions still need; None if none.

        The lock is held.
        """
        return None

    def snapshot_extension(self) -> bytes:
        """Hook: return the broker's additional state for a snapshot."""
        return b""

    def restore_extension(self, saved: bytes) -> None:
        """Hook: restore the additional state that `snapshot_extension` returned."""

    def log_line(self, line: str) -> None:
        """Log a line: to the hub's own log, and to the logger "tidings"."""
        self.log.append(line)
        _LOG.info("%s: %s", self.name, line)

    # Implementation

    def check_open(self) -> None:
        """Raise if the hub is closed or its journal has failed."""
        if self.closed:
            raise ClosedError(f"the hub {self.name} is closed")
        if self.failure is not None:
            raise self.failure

    def _append_outcome(
        self, operation: Operation | None, outcome: OperationOutcome, now: int, row_notes: dict[str, Any], sync: bool
    ) -> int:
        """Append the rows of an outcome and queue its deliveries; return the offset of the first row."""
        if outcome.refused is not None:
            operation = None
            outcome.keep_only_meta_events()
        if self.journal_store is not None:
            first = self._append(outcome.rows(operation, row_notes), now)
        else:
            first = self._next
            self._next += (operation is not None) + len(outcome.meta_events) + len(outcome.persisted)
        for persist in outcome.persisted:
            self.registry.stored.append((persist.store, persist.message))
        if outcome.meta_events:
            self.stats.told += len(outcome.meta_events)
            for event in outcome.meta_events:
                self.registry.record_event(event.publisher, event.sequence, event.id)
        if outcome.pending_decisions or outcome.decided:
            self.record_pending_decisions(outcome, first, first + (operation is not None))
        if outcome.deliveries:
            self._queue_deliveries(outcome, first, first + (operation is not None), sync)
        return first

    def record_pending_decisions(self, outcome: OperationOutcome, first: int, meta_events_offset: int) -> None:
        """Hook: record which decisions of the outcome are pending and which are made.

        In a hub, trust answers come at once, so no decision is pending.
        """

    def _queue_deliveries(self, outcome: OperationOutcome, first: int, meta_events_offset: int, sync: bool) -> None:
        after = self._next if sync and self.journal_store is not None else 0
        if not outcome.meta_events and not outcome.durable:
            self._delivery_queue.add(ReleaseBatch(outcome.deliveries, first, after))
            return
        for batch in outcome.batches(first, meta_events_offset, after):
            self._delivery_queue.add(batch)
            for subscription, _ in batch.deliveries:
                subscription.inbox.expect(batch.offset)

    def _append(self, rows: list[journal.Operation], now: int) -> int:
        if self.journal_store is None or not rows:
            return self._next
        try:
            span = self.journal_store.append(rows, now)
        except JournalFullError:
            raise
        except JournalError as error:
            self.failure = error
            raise
        self._time, self._next = span.timestamp + len(span) - 1, span.next
        return span.first

    def _undo(self, operation: Operation, now: int, error: BaseException) -> None:
        """Bring the engine, which accepted an operation that the journal refused, back to the journal's state."""
        if self.failure is not None or self.journal_store is None:
            return
        try:
            if isinstance(operation, SetContext):
                context = self.registry.contexts.get(operation.client, EMPTY_CONTEXT)
                self.engine.handle(SetContext(operation.client, context), now)
            else:
                self.engine = self.journal_store.rebuild_engine(self)
                self.engine.handle(SetLoad(self.load), now)
        except Exception as failed:
            self.failure = JournalError(f"after '{error}' the hub could not be put back: {failed}; open it again")
            raise self.failure from error

    def finish(self, outcome: OperationOutcome, end: int) -> None:
        """Sync the journal up to `end`, deliver, run callbacks, and raise `RefusedError` if the operation was refused.

        The lock must not be held.
        """
        if self.journal_store is not None and end:
            try:
                self.journal_store.sync(end)
            except JournalError as error:
                self.failure = error
                raise
        if outcome.deliveries:
            self._drain()
            self._callbacks.run()
        if self.journal_store is not None and self.journal_store.is_due:
            self.journal_store.start_upkeep(self)
        if self.engine.is_untidy:
            self.engine.tidy()
        if outcome.refused is not None:
            raise RefusedError(outcome.refused.step, outcome.refused.reason)

    def _drain(self) -> None:
        synced = 0 if self.journal_store is None else self.journal_store.synced
        losses = self._delivery_queue.drain(synced)
        reported = set()
        for subscription, notification in losses:
            # Reported at 1, 2, 4, 8, ... losses: often enough to be noticed, without a flood of meta-events.
            if (
                notification.event.publisher != self.name
                and subscription.lost & (subscription.lost - 1) == 0
                and subscription.id not in reported
            ):
                reported.add(subscription.id)
                self._report_loss(subscription)

    def _report_loss(self, subscription: HubSubscription) -> None:
        """Have the engine publish a meta-event about notifications that a subscription lost."""
        try:
            with self.lock:
                self.check_open()
                now = self.now()
                outcome = handle_operation(
                    self, ReportLoss(subscription.subscriber, subscription.id, subscription.lost), now
                )
                self._append_outcome(None, outcome, now, {}, sync=False)
            self.finish(outcome, 0)
        except TidingsError as error:
            lost, subscriber = subscription.lost, subscription.subscriber
            self.log_line(f"{subscriber} has lost {lost} notifications of {subscription.id}, and {error}")

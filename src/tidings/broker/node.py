"""Process a broker's operations on the event loop: run the engine, append to the journal, release what follows.

`Node` is a hub's `Processor` with links to other brokers. While the broker serves, it never waits for the disk. Rules:

- Everything that changes state runs in the event loop's thread; readers in other threads take `lock`. The sync of the
  journal runs in a thread of its own, one sync at a time, for all rows that were appended before it began.
- The engine handles an operation, and its rows are appended to the journal, in the call that brings the operation.
- Whatever follows from an operation (deliveries, replies, receipts, messages to neighbours) goes through
  `release_queue` in the order of the operations. What requires durability names the offset below which the journal must
  be synced first; nothing behind it overtakes it. `flush` releases what is ready at the end of each turn of the event
  loop.
- An operation that depends on a trust answer that is not there yet raises `TrustPendingError` and is not journaled. The
  session submits it again with the answer.
- If the disk is full, the operation is refused. If the engine had accepted it already, the engine is rebuilt from the
  journal and every link is made anew, since a rebuilt engine knows no neighbours.
- If the journal fails in any other way, nobody knows what is on the disk: the broker refuses everything until it is
  started again.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import msgspec

from tidings import journal
from tidings.broker.links.resender import DEBTS, read_redelivery_row, redelivery_row
from tidings.broker.logs import Log
from tidings.broker.metrics import OperationMetrics
from tidings.broker.pending_decisions import PendingDecisions, TrustPendingError
from tidings.broker.ports import LinksPort
from tidings.broker.publish_handler import PublishHandler
from tidings.broker.recent_deliveries import RecentDeliveries
from tidings.broker.release_queue import ReleaseQueue
from tidings.broker.sessions.inboxes import SessionDurableInbox, SessionSubscription
from tidings.engine import journal_codec
from tidings.engine.effects import DecisionMade, Effect, Reject
from tidings.engine.operations import (
    Connect,
    Disconnect,
    Operation,
    Publish,
    Receive,
    ReportLoss,
    TransferBacklog,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
    client_of,
)
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.engine.settings import Settings
from tidings.hub.journal_store import JournalStore
from tidings.hub.outcome import OperationOutcome, handle_operation
from tidings.hub.processor import Processor
from tidings.hub.subscription import HubSubscription
from tidings.model.errors import JournalError, JournalFullError, SecurityError
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.runtime.clock import Clock
from tidings.runtime.delivery_record import DECIDED, decided_by, pending_decisions_of
from tidings.runtime.trust import Provider
from tidings.security.gate import Gate

Reply = Callable[[list[str] | Reject], None]
_LOG = Log("tidings.broker")


class _BrokerSnapshot(msgspec.Struct, frozen=True):
    """The part of a journal snapshot that only brokers write, beside what a hub writes."""

    debts: RedeliveryState
    given: dict[str, bytes]
    owed: list[tuple[int, str]] = []  # the offset of a publication, and a client that is owed a decision about it


class Node(Processor):
    """Processes the operations of one broker: of its clients, its neighbours, its timers and the broker itself.

    The module's docstring has the rules.

    Args:
        settings: The engine's settings; the broker's name is among them.
        clock: The source of acceptance times.
        trust: Answers whether a party belongs to a trust group, without asking the party.
        journal_store: The journal; None for a broker that has none.
        metrics: The counters that the node increments.
        neighbours: Sends effects to other brokers, and asks parties for proofs of trust.
        gate: Checks tokens and seals of secure topics; None if the broker has no identity.
    """

    own_kinds = frozenset({DEBTS, DECIDED})

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        journal_store: JournalStore | None,
        metrics: OperationMetrics,
        neighbours: LinksPort,
        gate: Gate | None = None,
    ) -> None:
        self.metrics = metrics
        self.neighbours = neighbours
        self.release_queue = ReleaseQueue()
        self.publish_handler = PublishHandler(self)
        self._syncing = False
        self._sync_start = 0
        self._syncer = ThreadPoolExecutor(1, "tidings-sync")
        self.saved_redelivery_state: RedeliveryState | None = None
        self.recent_deliveries = RecentDeliveries()
        self.pending_decisions = PendingDecisions()
        self._unjournaled_disconnects: dict[str, None] = {}  # clients whose `Disconnect` did not fit on the disk
        self._is_full = False  # the last publication did not fit on the disk
        self._is_rebuilt_after_full_disk = False  # the engine was rebuilt, and no row was appended since
        self._relink_error: JournalError | None = None  # operations raise this until the links are closed
        super().__init__(settings, clock, trust, journal_store, gate)

    def remove_transient_state(self) -> None:
        """Remove what does not outlive a process, after the journal was read.

        No client is connected, so every client is disconnected and its non-durable subscriptions and its advertisements
        end. The broker's own subscriptions and advertisements are removed, too; its configuration installs them again.
        """
        owners = {entry.owner for entry in self.engine.state.filters.entries() if entry.is_client}
        for client in sorted(owners | set(self.registry.contexts) - {self.name}):
            if client != self.name:
                self.operate(Disconnect(client), sync=False)
        for subscription in self.engine.state.filters.subscriptions.of(self.name):
            self.operate(Unsubscribe(self.name, subscription.id), sync=False)
        for advertisement in self.engine.state.filters.advertisements.of(self.name):
            self.operate(Unadvertise(self.name, advertisement.id), sync=False)

    def append_batch(self, rows: list[journal.Operation], base: int, count: int) -> int:
        """Append the rows of a batch, and return the offset of the first row.

        `base` is the time of the first row, `count` the number of rows. Without a journal `rows` may be empty: offsets
        and time advance by `count` all the same. Raises a `JournalError` if the rows cannot be appended.
        """
        if not count:
            return self._next
        if self.journal_store is not None:
            return self._append(rows, base)
        first = self._next
        self._next += count
        self._time = base + max(0, count - 1)
        return first

    # Operations

    def operate(
        self,
        operation: Operation,
        reply: Reply | None = None,
        row_notes: Mapping[str, Any] | None = None,
        *,
        sync: bool,
    ) -> OperationOutcome:
        """Handle an operation of a client or of the broker itself, journal it, and queue what follows from it.

        Args:
            operation: The operation to handle.
            reply: Called in its turn, with the findings on the operation's policy, or with the `Reject` if it was
                refused.
            row_notes: Values that are stored with the operation's row in the journal.
            sync: Whether the reply and the effects wait until the operation is on disk.

        Returns:
            The outcome; `outcome.refused` is set if the operation was refused.

        Raises:
            TrustPendingError: The operation must wait for a trust answer. It was not done, and `reply` is not called.
            JournalError: The operation could not be journaled, and was undone.
        """
        findings, end, outcome = self.handle_control(operation, row_notes)
        sync_offset = end if sync and self.journal_store is not None else 0
        self.queue_remote_effects(sync_offset, outcome.others)
        if outcome.refused is not None:
            self.metrics.refused[outcome.refused.step] += 1
        if reply is not None:
            self.release_queue.add(
                sync_offset, self._call_reply, reply, findings if outcome.refused is None else outcome.refused
            )
        return outcome

    @staticmethod
    def _call_reply(reply: Reply, result: list[str] | Reject) -> None:
        """Call `reply`. `_fail` recognises queued replies by this function."""
        reply(result)

    def ask(self, party: str, group: str, now: int) -> tuple[bool, int] | None:
        """Return whether `party` belongs to the trust group `group`, and until when (microseconds) that holds.

        Returns None if `party` was challenged; the answer then comes later, as a `Trust` operation.
        """
        return self.neighbours.trust_answer(party, group)

    def handle(self, operation: Operation, now: int) -> OperationOutcome:
        """Have the engine handle a client's operation, and return the outcome; nothing is journaled yet.

        Raises `TrustPendingError` if the operation must wait for a trust answer. The engine then does not keep the
        operation: the client's session submits it again with the answer, so that the journal never holds an operation
        that may yet be refused.
        """
        outcome = handle_operation(self, operation, now)
        if self.engine.deferred and not isinstance(operation, Connect | Disconnect):
            question = self.engine.deferred.undo_last(client_of(operation))
            if question is not None:
                if isinstance(operation, Publish) and self.engine.gate is not None:
                    self.engine.gate.take_back(operation.event)  # the session submits it again: that is no replay
                raise TrustPendingError(question, outcome)
        return outcome

    def record_trust_answer(self, answer: Trust, *, journaled: bool) -> None:
        """Give the engine the answer to a trust question: whether a party belongs to a trust group.

        `journaled` says whether the answer is journaled, so that it counts again when the journal is read. If the
        journal cannot take it, that is logged.
        """
        if journaled and self.journal_store is not None:
            try:
                self.write(journal_codec.row(answer))
            except JournalError as error:
                self.log_line(
                    f"that {answer.party} was asked whether it belongs to {answer.group} is not kept: {error}"
                )
        self.drive(answer)

    def client_connected(self, client: str) -> None:
        """Have the engine make the pending decisions about events for `client`, which has connected anew.

        What the engine was waiting for on the client's former connection is gone. The decisions are made before
        anything newer reaches the client. Also called for every client after the engine was rebuilt.
        """
        self.pending_decisions.engine_forgot(client)
        self.redecide_pending(client)

    def redecide_pending(self, client: str) -> None:
        """Have the engine decide whether `client` gets the events about which it is still owed a decision.

        A decision waits if its subscriptions are registered here but the engine has none of them: the client has come
        back from another broker, and has not subscribed again yet.
        """
        for redecide in self.pending_decisions.of(client):
            is_here = any(
                self.engine.state.filters.subscriptions.get(subscription) is not None
                for subscription in redecide.subscriptions
            )
            if is_here or not any(
                subscription in self.registry.subscriptions for subscription in redecide.subscriptions
            ):
                self.drive(redecide)

    def decide(self, decision: DecisionMade) -> None:
        """Record that a client is no longer owed a decision here: another broker owes it now, or none does."""
        outcome = OperationOutcome()
        outcome.decide(decision)
        self.queue_outcome(outcome)

    def receive(self, neighbour: str, operation: Travelling) -> None:
        """Handle an operation that `neighbour` has sent.

        Durable notifications that follow from it are journaled. A backlog transfer for subscriptions that are not
        registered here yet is ignored: the sending broker repeats it until it is acknowledged.
        """
        if (
            isinstance(operation, TransferBacklog)
            and operation.to == self.name
            and not self._has_all_subscriptions(operation)
        ):
            return  # the client has not subscribed here yet; the other broker sends the backlog again
        self.drive(Receive(neighbour, operation))

    def _has_all_subscriptions(self, transfer: TransferBacklog) -> bool:
        """Return whether every subscription of a backlog transfer is registered here."""
        return all(
            notification.subscription in self.registry.subscriptions for notification, _ in transfer.notifications
        )

    def drive(self, operation: Operation) -> OperationOutcome:
        """Have the engine handle an operation that is not journaled itself: of a neighbour, a timer or a link.

        The durable notifications, meta-events and pending decisions that follow from it are journaled. Once the journal
        has failed, the operation is ignored and the outcome is empty. Raises a `JournalError` if the rows cannot be
        appended.
        """
        if self.failure is not None:
            return OperationOutcome()
        with self.lock:
            self.check_open()
            now = self.now()
            outcome = handle_operation(self, operation, now)
            self._journal_effects(outcome, now)
        self._queue_effects(outcome)
        return outcome

    def queue_outcome(self, outcome: OperationOutcome) -> None:
        """Journal and queue what follows from effects that precede an operation which waits for an answer."""
        with self.lock:
            self._journal_effects(outcome, self.now())
        self._queue_effects(outcome)

    def _journal_effects(self, outcome: OperationOutcome, now: int) -> None:
        """Journal and queue what follows from an operation that is not journaled itself.

        A durable notification is dropped if its subscription was given the same event before.
        """
        if outcome.durable:
            outcome.keep_only(
                lambda subscription, notification: self.recent_deliveries.record(subscription, notification.event.id)
            )
        if outcome.pending_decisions or outcome.decided:
            self._drop_journaled_decisions(outcome)
        if outcome.deliveries or outcome.needs_rows:
            needs_rows = bool(outcome.durable or outcome.needs_rows)
            rows = outcome.rows(None, {}, self.engine.state.seen_events.matched_at) if needs_rows else []
            try:
                first = self.append_batch(rows, now, len(rows))
            except JournalError:
                for subscription, notification in outcome.durable:
                    self.recent_deliveries.forget(subscription, notification.event.id)
                raise
            self.record_effects(outcome)
            self.record_pending_decisions(outcome, first, first)
            sync_offset = self._next if rows and self.journal_store is not None else 0
            outcome.expect(first, first)
            self.release_queue.add(sync_offset, self.deliver, outcome, first, first)
            self.metrics.delivered += len(outcome.deliveries)

    def _queue_effects(self, outcome: OperationOutcome) -> None:
        """Queue an outcome's effects on other brokers, behind the sync if it has durable or pending parts."""
        must_sync = outcome.durable or outcome.pending_decisions
        sync_offset = self._next if self.journal_store is not None and must_sync else 0
        self.queue_remote_effects(sync_offset, outcome.others)

    def _drop_journaled_decisions(self, outcome: OperationOutcome) -> None:
        """Drop from `outcome` pending decisions that are journaled already, and ends of decisions that never were."""
        is_pending = self.pending_decisions.is_pending
        for decision in outcome.pending_decisions:
            self.pending_decisions.engine_waits(decision.event.id, decision.client)
        outcome.pending_decisions = tuple(
            decision for decision in outcome.pending_decisions if not is_pending(decision.event.id, decision.client)
        )
        outcome.decided = tuple(decision for decision in outcome.decided if is_pending(decision.event, decision.client))

    def record_pending_decisions(self, outcome: OperationOutcome, first: int, meta_events_offset: int) -> None:
        """Record which decisions an outcome leaves pending, with the offsets of their publications, and which it ends.

        `first` is the offset of the operation's own row, `meta_events_offset` that of the first meta-event behind it.
        """
        for redecide, offset in outcome.pending_decisions_with_offsets(first, meta_events_offset):
            self.pending_decisions.add(redecide, offset)
            self.pending_decisions.engine_waits(redecide.event.id, redecide.client)
        for decision in outcome.decided:
            self.pending_decisions.remove(decision.event, decision.client)

    def handle_control(
        self, operation: Operation, row_notes: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int, OperationOutcome]:
        """Handle and journal an operation; return findings on its policy, the next offset and the outcome.

        Rows that a full disk left out are appended first. Raises `TrustPendingError` if the operation must wait for an
        answer.
        """
        try:
            with self.lock:
                if not isinstance(operation, Disconnect):
                    self._append_overdue_rows()
                return super().handle_control(operation, row_notes)
        except TrustPendingError as pending:
            self.queue_outcome(pending.earlier_outcome)
            raise

    # Full disk and failed journal

    def _append(self, rows: list[journal.Operation], now: int) -> int:
        """Append rows, and log once when the disk has become full and once when it has room again.

        Only an appended publication shows that there is room again: the journal takes other rows from a reserve.
        """
        try:
            first = super()._append(rows, now)
        except JournalFullError as error:
            if not self._is_full:
                self._is_full = True
                _LOG.error("the disk is full, and publications are refused", reason=error)
            raise
        except JournalError as error:
            _log_failure(error)
            raise
        if self._is_full and any(row.kind == journal.PUBLISH for row in rows):
            self._is_full = False
            _LOG.info("the disk has room again")
        return first

    def check_open(self) -> None:
        """Raise an error if the broker is closed, its journal has failed, or its links are about to be made anew."""
        super().check_open()
        if self._relink_error is not None:
            raise self._relink_error

    def resume_after_rebuild(self) -> None:
        """Accept operations again, after the engine was rebuilt: the broker is closing its links now."""
        self._relink_error = None

    def _append_outcome(
        self, operation: Operation | None, outcome: OperationOutcome, now: int, row_notes: dict[str, Any], sync: bool
    ) -> int:
        """Append an operation's rows and queue its deliveries; return the offset of the first row.

        A `Disconnect` counts even if the disk has no room for it, else the client's subscriptions would stay for ever.
        It is appended later; if the journal is read again before that, no client is connected anyway.
        """
        try:
            return super()._append_outcome(operation, outcome, now, row_notes, sync)
        except JournalFullError as error:
            if not isinstance(operation, Disconnect):
                raise
            self._unjournaled_disconnects[operation.client] = None
            self.log_line(f"{operation.client} has left, and {error}")
            return self._next

    def _append_overdue_rows(self) -> None:
        """Append the rows that a full disk left out, before the engine sees the next operation.

        These are `Disconnect`s and, after a rebuild of the engine, a row that shows that there is room. Raises a
        `JournalFullError` if there is still no room: to refuse an operation now is cheap, to undo it later means to
        rebuild the engine.
        """
        if (
            self.journal_store is None
            or self.failure is not None
            or not (self._unjournaled_disconnects or self._is_rebuilt_after_full_disk)
        ):
            return
        rows = [journal_codec.row(Disconnect(client)) for client in self._unjournaled_disconnects]
        self._append(rows or [redelivery_row(self.neighbours.redelivery_state())], self.now())
        self._unjournaled_disconnects.clear()
        self._is_rebuilt_after_full_disk = False

    def _undo(self, operation: Operation, now: int, error: BaseException) -> None:
        """Undo an operation that could not be journaled; if that rebuilds the engine, have every link made anew.

        A rebuilt engine knows no neighbours. Until the links are closed, `check_open` raises the journal's error.
        """
        former_engine = self.engine
        super()._undo(operation, now, error)
        if self.engine is former_engine:
            return
        self._is_rebuilt_after_full_disk = True
        self._relink_error = error if isinstance(error, JournalError) else None
        self.engine.state.subjects.number_as(former_engine.state.subjects)
        for client in self._unjournaled_disconnects:
            self.engine.handle(Disconnect(client), now)
        self.neighbours.relink_all()

    def end_moved_subscription(self, operation: Unsubscribe) -> None:
        """Journal the end of a subscription that the engine has removed, since its client is at another broker."""
        with self.lock:
            self.check_open()
            if self.journal_store is not None:
                self._append([journal_codec.row(operation)], self.now())
            self.registry.apply(operation, {})

    # Broker state in the journal

    def write(self, row: journal.Operation) -> None:
        """Append a row of one of the broker's own kinds; ignored once the journal has failed or is closed."""
        with self.lock:
            if self.failure is None and not self.closed:
                self._append([row], self.now())

    def restore_delivery(self, subscription: HubSubscription, row: journal.Operation) -> None:
        """Record, while the journal is read, that a durable subscription was given the event of `row`."""
        if row.id is not None:
            self.recent_deliveries.record(subscription, UUID(row.id))

    def restore_pending_decisions(self, row: journal.Operation, offset: int) -> None:
        """Record, while the journal is read, the decisions that were owed about the publication of `row`."""
        for redecide in pending_decisions_of(row):
            self.pending_decisions.add(redecide, offset)

    def restore_row(self, row: journal.Operation) -> None:
        """Apply, while the journal is read, a row of one of the broker's own kinds."""
        if row.kind == DECIDED:
            self.pending_decisions.remove(*decided_by(row))
            return
        self.saved_redelivery_state = read_redelivery_row(row, self.saved_redelivery_state)

    def needed(self) -> int | None:
        """Return the offset from which the journal may have to be read again; None if no part of it has to be.

        Other brokers may have missed publications from there on, or clients may be owed decisions about them.
        """
        offsets = self.neighbours.needed(), self.pending_decisions.lowest_offset(self.registry.subscriptions)
        return min((offset for offset in offsets if offset is not None), default=None)

    def snapshot_extension(self) -> bytes:
        """Return the broker's part of a snapshot: redelivery state, recent deliveries and pending decisions."""
        deliveries = self.recent_deliveries.state(self.registry.subscriptions.values())
        return msgspec.msgpack.encode(
            _BrokerSnapshot(self.neighbours.redelivery_state(), deliveries, self.pending_decisions.state())
        )

    def restore_extension(self, saved: bytes) -> None:
        """Restore the broker's part of a snapshot, as `snapshot_extension` has written it."""
        if saved:
            extension = msgspec.msgpack.decode(saved, type=_BrokerSnapshot)
            self.saved_redelivery_state = extension.debts
            self.recent_deliveries.restore(extension.given, self.registry.subscriptions)
            self._restore_pending_decisions(extension.owed)

    def _restore_pending_decisions(self, saved: list[tuple[int, str]]) -> None:
        """Read the publications before a snapshot about which decisions were still owed, by offset and client."""
        if self.journal_store is None:
            return
        for offset, client in saved:
            for record in self.journal_store.journal.read(offset, offset + 1):
                for redecide in pending_decisions_of(record.operation):
                    if redecide.client == client:
                        self.pending_decisions.add(redecide, offset)

    # Release

    def flush(self) -> None:
        """Release what is ready, and start a sync if something else waits for the disk.

        Called at the end of each turn of the event loop.
        """
        journal_store = self.journal_store
        if journal_store is None:
            self.release_queue.drain(0)
            return
        self.release_queue.drain(journal_store.synced)
        if self.release_queue and not self._syncing and self.failure is None:
            self._syncing = True
            self.neighbours.before_sync()
            self._sync_start = self.clock.now()
            done = asyncio.get_running_loop().run_in_executor(self._syncer, journal_store.sync, self._next)
            done.add_done_callback(self._sync_done)

    def settle_receipts(self) -> None:
        """Hash the sealed events that were accepted last. Called after their deliveries have gone out."""
        with self.lock:
            self.registry.receipts.hash_pending()

    @property
    def is_settled(self) -> bool:
        """Whether the engine's tables are complete, nothing waits to be released, and no sync is running."""
        return self.engine.is_settled and not self.release_queue and not self._syncing

    def _sync_done(self, done: "asyncio.Future[None]") -> None:
        """Release what the sync has made durable, and begin a snapshot if one is due."""
        self._syncing = False
        self.metrics.commits.record((self.clock.now() - self._sync_start) / 1_000_000)
        error = done.exception()
        if isinstance(error, JournalError):
            self._fail(error)
            return
        if error is not None:
            raise error
        self.neighbours.flush()
        if self.journal_store is not None and self.journal_store.is_due and not self.closed:
            self.journal_store.start_upkeep(self)

    def _fail(self, error: JournalError) -> None:
        """Refuse everything from now on, since the journal has failed.

        What is on disk is released. Every other queued reply and publication is answered with the error, and other
        queued calls are dropped.
        """
        self.failure = error
        _log_failure(error)
        for sync_offset, call, arguments in self.release_queue.take_all():
            if self.journal_store is not None and sync_offset <= self.journal_store.synced:
                call(*arguments)
            elif call == self._call_reply:
                reply, _ = arguments
                reply(Reject("journal", str(error)))
            else:
                self.publish_handler.refuse_queued(call, arguments, error)
        self.neighbours.flush()

    def _queue_deliveries(self, outcome: OperationOutcome, first: int, meta_events_offset: int, sync: bool) -> None:
        """Queue the deliveries of a journaled operation."""
        sync_offset = self._next if self.journal_store is not None and outcome.durable else 0
        outcome.expect(first, meta_events_offset)
        self.release_queue.add(sync_offset, self.deliver, outcome, first, meta_events_offset)
        self.metrics.delivered += len(outcome.deliveries)

    def deliver(self, outcome: OperationOutcome, first: int, meta_events_offset: int) -> None:
        """Put the notifications of an outcome into the inboxes of their subscriptions, in the order of offsets.

        `first` is the offset of the operation's own row, `meta_events_offset` that of the first meta-event.
        """
        for batch in outcome.batches(first, meta_events_offset, 0):
            for subscription, notification in batch.deliveries:
                subscription.inbox.put(notification, batch.offset)

    def queue_remote_effects(self, sync_offset: int, effects: list[Effect]) -> None:
        """Queue effects that concern other brokers, until everything below the offset `sync_offset` is on disk."""
        for call, arguments in self.neighbours.tasks_for(effects) if effects else ():
            self.release_queue.add(sync_offset, call, *arguments)

    def record_effects(self, outcome: OperationOutcome) -> None:
        """Record an outcome's meta-events, persisted messages and durable events in registry and metrics."""
        for message in outcome.persisted:
            self.registry.stored.append((message.store, message.message))
        self.metrics.told += len(outcome.meta_events)
        for event in outcome.meta_events:
            self.registry.record_event(event.publisher, event.sequence, event.id)
        for _, notification in outcome.durable:
            if not self.registry.remembers(notification.event.id):
                self.registry.remember_id(notification.event.id.int)

    def open(self, subscription: Subscription, limit: int) -> HubSubscription:
        """Return the hub's record of a new subscription, with an inbox that fits: durable, or the session's."""
        if subscription.durable is None:
            return SessionSubscription(self, subscription)
        read = None if self.journal_store is None else self.journal_store.history.due_to(subscription)
        return HubSubscription(self, subscription, SessionDurableInbox(limit, read))

    def may_receive(self, notification: Notification) -> bool:
        """Return whether a stored notification may be handed out, now or when its subscriber has a fresh token."""
        if self.gate is None or notification.event.signature is None:
            return True
        with self.lock:
            try:
                self.gate.check_stored(notification.event, notification.event.timestamp)
            except SecurityError:
                return False
        return True

    def report_loss(self, client: str, subscription: str, count: int) -> None:
        """Have the engine publish a meta-event: `client` has lost `count` notifications of `subscription` altogether.

        The caller reports at 1, 2, 4, 8, ... losses only.
        """
        try:
            self.drive(ReportLoss(client, subscription, count))
        except JournalError as error:
            self.log_line(f"{client} has lost {count} notifications of {subscription}, and {error}")

    def stop(self) -> None:
        """Sync the journal, release everything that waits, and close the journal with a snapshot."""
        if self.journal_store is not None and self.failure is None:
            self.journal_store.sync(self._next)
            self.release_queue.drain(self.journal_store.synced)
        self._syncer.shutdown()
        self.close()

    def abort(self) -> None:
        """Close the journal without a snapshot, and drop what waits to be released."""
        self._syncer.shutdown()
        self.closed = True
        if self.journal_store is not None:
            self.journal_store.history.close()
            self.journal_store.journal.close()


def _log_failure(error: JournalError) -> None:
    _LOG.error("the journal has failed, and everything is refused until the broker is started again", reason=error)

"""Process a broker's operations on the event loop: run the engine, append to the journal, release what follows.

`Node` runs a `Processor`, as a hub does, and releases what follows. While the broker serves, it never waits for the
disk. Rules:

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
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any
from uuid import UUID

from tidings import journal
from tidings.broker.journal_extension import BrokerJournal, log_failure, redelivery_row
from tidings.broker.metrics import OperationMetrics
from tidings.broker.publish_handler import PublishHandler
from tidings.broker.release_queue import LinksPort, ReleaseQueue
from tidings.broker.sessions.inboxes import SessionDurableInbox, SessionSubscription
from tidings.engine import Engine, journal_codec
from tidings.engine.effects import DecisionMade, Reject
from tidings.engine.operations import (
    Disconnect,
    Operation,
    Receive,
    ReportLoss,
    TransferBacklog,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.engine.settings import Settings
from tidings.model.errors import JournalError, JournalFullError, TidingsError
from tidings.model.subscription import Subscription
from tidings.runtime.clock import Clock
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.outcome import OperationOutcome, keep_only, needs_rows, record_decision
from tidings.runtime.processor import Processor, TrustPendingError
from tidings.runtime.subscription_registry import RegisteredSubscription
from tidings.runtime.trust import Provider
from tidings.security.gate import Gate

Reply = Callable[[list[str] | Reject], None]
Outcome = OperationOutcome[RegisteredSubscription]


class Node:
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
        self.name = settings.name
        self.metrics, self.neighbours, self.journal_store = metrics, neighbours, journal_store
        self._journal = BrokerJournal(None if journal_store is None else journal_store.journal, neighbours)
        self.pending_decisions = self._journal.pending_decisions
        self.recent_deliveries = self._journal.recent_deliveries
        self.release_queue = ReleaseQueue(metrics, self.pending_decisions)
        self.processor = Processor(
            settings, clock, trust, self._ask, journal_store, self.release_queue, self._create, gate
        )
        self.registry, self.lock = self.processor.registry, self.processor.lock
        self.publish_handler = PublishHandler(self)
        self._syncing = False
        self._sync_start = 0.0
        self._syncer = ThreadPoolExecutor(1, "tidings-sync")
        self._unjournaled_disconnects: dict[str, None] = {}  # clients whose `Disconnect` did not fit on the disk
        self._is_rebuilt_after_full_disk = False  # the engine was rebuilt, and no row was appended since
        self.processor.restore(self._journal)
        self._synced = 0 if journal_store is None else journal_store.synced  # as far as this thread knows

    @property
    def engine(self) -> Engine:
        """The present engine; another one takes its place when it is rebuilt."""
        return self.processor.engine

    @property
    def failure(self) -> TidingsError | None:
        """The error of the journal, once it has failed: everything is refused."""
        return self.processor.failure

    @property
    def saved_redelivery_state(self) -> RedeliveryState | None:
        """The redelivery state that was read from the journal."""
        return self._journal.saved_redelivery_state

    @property
    def sync_offset(self) -> int:
        """The offset below which the journal must be synced for all rows to be on disk; 0 without a journal."""
        return 0 if self.journal_store is None else self.processor.next

    def set_settings(self, settings: Settings) -> None:
        """Apply other settings from now on."""
        with self.lock:
            self.processor.settings = settings
            self.engine.state.configure(settings)

    def set_load(self, load: float) -> None:
        """Set the load that policies see."""
        self.processor.set_load(load)

    def log_line(self, line: str) -> None:
        """Log a line."""
        self.processor.log_line(line)

    def acknowledge(self, subscription: RegisteredSubscription, events: Iterable[UUID]) -> int:
        """Acknowledge events of a durable subscription; return how many notifications are newly acknowledged."""
        return self.processor.acknowledge(subscription, events)

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

    # Operations

    def operate(
        self,
        operation: Operation,
        reply: Reply | None = None,
        row_notes: Mapping[str, Any] | None = None,
        *,
        sync: bool,
    ) -> Outcome:
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
        outcome = self._control(operation, row_notes)
        sync_offset = self.sync_offset if sync else 0
        if outcome.others:
            self.release_queue.add_tasks(sync_offset, self.neighbours.tasks_for(outcome.others))
        if outcome.refused is not None:
            self.metrics.refused[outcome.refused.step] += 1
        if reply is not None:
            result = list(outcome.findings) if outcome.refused is None else outcome.refused
            self.release_queue.add(sync_offset, self._call_reply, reply, result)
        return outcome

    def _control(self, operation: Operation, row_notes: Mapping[str, Any] | None) -> Outcome:
        """Handle and journal an operation; rows that a full disk left out are appended first.

        A `Disconnect` counts even if the disk has no room for it, else the client's subscriptions would stay for ever.
        It is appended later; if the journal is read again before that, no client is connected anyway.
        """
        processor = self.processor
        former_engine = processor.engine
        try:
            with self.lock:
                if isinstance(operation, Disconnect):
                    return processor.control(operation, row_notes, partial(self._disk_is_full, operation))
                if self._unjournaled_disconnects or self._is_rebuilt_after_full_disk:
                    self._append_overdue_rows()
                return processor.control(operation, row_notes)
        except TrustPendingError as pending:
            self.queue_outcome(pending.earlier_outcome)
            raise
        except BaseException as error:
            if processor.engine is not former_engine:
                self._engine_rebuilt(former_engine, error)
            raise

    @staticmethod
    def _call_reply(reply: Reply, result: list[str] | Reject) -> None:
        """Call `reply`. `_fail` recognises queued replies by this function."""
        reply(result)

    def _ask(self, party: str, group: str, now: int) -> tuple[bool, int] | None:
        """Return whether `party` belongs to the trust group `group`, and until when (microseconds) that holds.

        Returns None if `party` was challenged; the answer then comes later, as a `Trust` operation.
        """
        return self.neighbours.trust_answer(party, group)

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
        outcome: Outcome = OperationOutcome()
        record_decision(outcome, decision)
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

    def drive(self, operation: Operation) -> Outcome:
        """Have the engine handle an operation that is not journaled itself: of a neighbour, a timer or a link.

        The durable notifications, meta-events and pending decisions that follow from it are journaled. Once the journal
        has failed, the operation is ignored and the outcome is empty. Raises a `JournalError` if the rows cannot be
        appended.
        """
        processor = self.processor
        if processor.failure is not None:
            return OperationOutcome()
        with self.lock:
            processor.check_open()
            now = processor.now()
            outcome = processor.handle(operation, now)
            self._journal_effects(outcome, now)
        self._queue_effects(outcome)
        return outcome

    def queue_outcome(self, outcome: Outcome) -> None:
        """Journal and queue what follows from effects that precede an operation which waits for an answer."""
        with self.lock:
            self._journal_effects(outcome, self.processor.now())
        self._queue_effects(outcome)

    def _journal_effects(self, outcome: Outcome, now: int) -> None:
        """Journal and queue what follows from an operation that is not journaled itself.

        A durable notification is dropped if its subscription was given the same event before.
        """
        if outcome.durable:
            keep_only(
                outcome,
                lambda subscription, notification: self.recent_deliveries.record(subscription, notification.event.id),
            )
        if outcome.pending_decisions or outcome.decided:
            self.pending_decisions.drop_journaled(outcome)
        has_rows = needs_rows(outcome)
        if outcome.deliveries or has_rows:
            rows = (
                outcome.rows(None, {}, self.engine.state.seen_events.matched_at) if has_rows or outcome.durable else []
            )
            try:
                first = self.processor.append_batch(rows, now, len(rows))
            except JournalError:
                for subscription, notification in outcome.durable:
                    self.recent_deliveries.forget(subscription, notification.event.id)
                raise
            self.record_effects(outcome)
            self.pending_decisions.record(outcome, first, first)
            self.release_queue.add_deliveries(outcome, first, first, self.sync_offset if rows else 0)

    def _queue_effects(self, outcome: Outcome) -> None:
        """Queue an outcome's effects on other brokers, behind the sync if it has durable or pending parts."""
        if outcome.others:
            must_sync = outcome.durable or outcome.pending_decisions
            sync_offset = self.sync_offset if must_sync else 0
            self.release_queue.add_tasks(sync_offset, self.neighbours.tasks_for(outcome.others))

    # Full disk and failed journal

    def resume_after_rebuild(self) -> None:
        """Accept operations again, after the engine was rebuilt: the broker is closing its links now."""
        self.processor.suspension = None

    def _disk_is_full(self, operation: Disconnect, error: JournalFullError) -> None:
        """Note that a `Disconnect` is to be appended later."""
        self._unjournaled_disconnects[operation.client] = None
        self.log_line(f"{operation.client} has left, and {error}")

    def _append_overdue_rows(self) -> None:
        """Append the rows that a full disk left out, before the engine sees the next operation. The lock is held.

        These are `Disconnect`s and, after a rebuild of the engine, a row that shows that there is room. Raises a
        `JournalFullError` if there is still no room: to refuse an operation now is cheap, to undo it later means to
        rebuild the engine.
        """
        if self.journal_store is None or self.processor.failure is not None:
            return
        rows = [journal_codec.row(Disconnect(client)) for client in self._unjournaled_disconnects]
        rows = rows or [redelivery_row(self.neighbours.redelivery.state())]
        self.processor.append(rows, self.processor.now())
        self._unjournaled_disconnects.clear()
        self._is_rebuilt_after_full_disk = False

    def _engine_rebuilt(self, former_engine: Engine, error: BaseException) -> None:
        """Have every link made anew, since an operation could not be journaled and the engine was rebuilt.

        A rebuilt engine knows no neighbours. Until the links are closed, every operation raises the journal's error.
        """
        processor = self.processor
        with self.lock:
            self._is_rebuilt_after_full_disk = True
            processor.suspension = error if isinstance(error, JournalError) else None
            processor.engine.state.subjects.number_as(former_engine.state.subjects)
            for client in self._unjournaled_disconnects:
                processor.engine.handle(Disconnect(client), processor.now())
        self.neighbours.relink_all()

    def end_moved_subscription(self, operation: Unsubscribe) -> None:
        """Journal the end of a subscription that the engine has removed, since its client is at another broker."""
        with self.lock:
            self.processor.check_open()
            if self.journal_store is not None:
                self.processor.append([journal_codec.row(operation)], self.processor.now())
            self.registry.apply(operation, {})

    # Broker state in the journal

    def write(self, row: journal.Operation) -> None:
        """Append a row of one of the broker's own kinds; ignored once the journal has failed or is closed."""
        with self.lock:
            if self.processor.failure is None and not self.processor.closed:
                self.processor.append([row], self.processor.now())

    def needed(self) -> int | None:
        """Return the offset from which the journal may have to be read again; None if no part of it has to be."""
        return self._journal.needed(self.registry.subscriptions)

    # Release

    def flush(self) -> None:
        """Release what is ready, and start a sync if something else waits for the disk.

        Called at the end of each turn of the event loop.
        """
        queue, journal_store = self.release_queue, self.journal_store
        queue.drain(self._synced)
        if journal_store is not None and not self._syncing and queue and self.processor.failure is None:
            self._syncing = True
            self.neighbours.before_sync()
            self._sync_start = perf_counter()
            done = asyncio.get_running_loop().run_in_executor(self._syncer, _sync, journal_store, self.sync_offset)
            done.add_done_callback(self._sync_done)

    def settle_receipts(self) -> None:
        """Hash the sealed events that were accepted last. Called after their deliveries have gone out."""
        with self.lock:
            self.registry.receipts.hash_pending()

    @property
    def is_settled(self) -> bool:
        """Whether the engine's tables are complete, nothing waits to be released, and no sync is running."""
        return self.engine.is_settled and not self.release_queue and not self._syncing

    def _sync_done(self, done: "asyncio.Future[tuple[int, bool]]") -> None:
        """Release what the sync has made durable, and begin a snapshot if one is due."""
        self._syncing = False
        self.metrics.commits.record(perf_counter() - self._sync_start)
        error = done.exception()
        if isinstance(error, JournalError):
            self._fail(error)
            return
        if error is not None:
            raise error
        self._synced, is_snapshot_due = done.result()
        self.neighbours.flush()
        if is_snapshot_due and self.journal_store is not None and not self.processor.closed:
            self.journal_store.upkeep.start()

    def _fail(self, error: JournalError) -> None:
        """Refuse everything from now on, since the journal has failed.

        What is on disk is released. Every other queued reply and publication is answered with the error, and other
        queued calls are dropped.
        """
        self.processor.failure = error
        log_failure(error)
        for sync_offset, call, arguments in self.release_queue.take_all():
            if self.journal_store is not None and sync_offset <= self.journal_store.synced:
                call(*arguments)
            elif call == self._call_reply:
                reply, _ = arguments
                reply(Reject("journal", str(error)))
            else:
                self.publish_handler.refuse_queued(call, arguments, error)
        self.neighbours.flush()

    def record_effects(self, outcome: Outcome) -> None:
        """Record an outcome's meta-events, persisted messages and durable events in registry and metrics."""
        events = self.registry.events
        for message in outcome.persisted:
            self.registry.stored.append((message.store, message.message))
        self.metrics.told += len(outcome.meta_events)
        for event in outcome.meta_events:
            events.record(event.publisher, event.sequence, event.id)
        for _, notification in outcome.durable:
            if not events.remembers(notification.event.id):
                events.remember_id(notification.event.id.int)

    def _create(self, subscription: Subscription, limit: int) -> RegisteredSubscription:
        """Return the record of a new subscription, with an inbox that fits: durable, or the session's."""
        if subscription.durable is None:
            return SessionSubscription(subscription)
        read = None if self.journal_store is None else self.journal_store.history.due_to(subscription)
        return RegisteredSubscription(subscription, SessionDurableInbox(limit, read))

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
        processor, journal_store = self.processor, self.journal_store
        if journal_store is not None and processor.failure is None:
            journal_store.sync(processor.next)
            self.release_queue.drain(journal_store.synced)
        self._syncer.shutdown()
        with self.lock:
            if processor.closed:
                return
            processor.closed = True
            subscriptions = list(self.registry.subscriptions.values())
        try:
            if journal_store is not None:
                journal_store.close()
        finally:
            for subscription in subscriptions:
                subscription.end()

    def abort(self) -> None:
        """Close the journal without a snapshot, and drop what waits to be released."""
        self._syncer.shutdown()
        self.processor.closed = True
        if self.journal_store is not None:
            self.journal_store.abort()


def _sync(journal_store: JournalStore, end: int) -> tuple[int, bool]:
    """Sync the journal up to the offset `end`; return up to where it is durable, and whether a snapshot is due."""
    journal_store.sync(end)
    return journal_store.synced, journal_store.upkeep.is_due

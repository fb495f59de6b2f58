"""Processes operations: runs the engine under the lock, and appends what follows to the journal.

Rules:

1. Operations are processed one at a time, under the lock, in the order of their timestamps and journal offsets.
2. Whatever an operation delivers is handed to the driver's `Release` under the lock, so in the order of the journal. A
   `Release` puts nothing into an inbox before the rows that it depends on are on disk.
3. The journal is synced outside the lock. Trust providers and policies run under it, and get an error if they use the
   hub.

Theory of operation. Under the lock an operation gets a timestamp that rises strictly, the engine handles it (`handle`),
its effects become an `OperationOutcome`, the outcome's rows are appended to the journal, and its deliveries go to the
`Release` (`control`, `publish`, `publish_batch`). Syncing, delivering and answering are left to the driver: `hub.node`
does it in the caller's thread, `broker.node` at the end of a turn of the event loop.

Failures. If the journal refuses rows (a full disk), the engine is brought back to the journal's state and the caller
gets the error. If the journal fails otherwise, `failure` is set, and every later operation raises it.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

from tidings import journal
from tidings.engine import Engine
from tidings.engine.effects import (
    AskTrust,
    DecisionMade,
    DecisionPending,
    Deliver,
    Effect,
    LogMessage,
    MetaEventPublished,
    Persist,
    PolicyWarning,
    Reject,
    SecurityNewsLearnt,
    SubscriptionExpelled,
    ask_for_processing_time,
    with_processing_time,
)
from tidings.engine.operations import (
    Connect,
    Disconnect,
    Operation,
    Publish,
    SetContext,
    SetLoad,
    Trust,
    Unsubscribe,
    client_of,
)
from tidings.engine.settings import Settings
from tidings.model.errors import (
    ClosedError,
    InvalidValueError,
    JournalError,
    JournalFullError,
    PublishedBeforeError,
    RefusedError,
    TidingsError,
)
from tidings.model.event import Event
from tidings.model.limits import MAX_INTEGER, MAX_LOG_LINES
from tidings.model.receipt import Receipt
from tidings.model.subscription import Subscription
from tidings.runtime.clock import Clock
from tidings.runtime.due_from_journal import JournalHistory
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.journal_store import JournalStore
from tidings.runtime.journal_upkeep import JournalExtension
from tidings.runtime.outcome import (
    LOAD,
    TRUST,
    OperationOutcome,
    keep_only_meta_events,
    needs_rows,
    record_decision,
)
from tidings.runtime.subscription_registry import EMPTY_CONTEXT, RegisteredSubscription, S, SubscriptionRegistry
from tidings.runtime.trust import Provider, ask_provider

if TYPE_CHECKING:
    from tidings.security.gate import Gate

_LOG = logging.getLogger("tidings")


class EngineLock:
    """A lock for `with` around each use of the engine; entering it again in the same thread raises a `TidingsError`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._inside:
            self._lock.release()
            raise TidingsError(
                "a trust provider, or a condition or action of a policy, cannot use the hub that is asking it"
            )
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._lock.release()


class Release(Protocol[S]):
    """Delivers what operations cause, in the order of the journal: a hub's delivery queue, a broker's release queue."""

    def queue(self, outcome: OperationOutcome[S], first: int, meta_events_offset: int, end: int) -> None:
        """Queue the deliveries of a journaled outcome. The processor's lock is held.

        Args:
            outcome: The outcome, which has deliveries or decisions.
            first: The offset of the operation's own row.
            meta_events_offset: The offset of the first meta-event's row; the rows of other brokers' events follow.
            end: The offset below which the journal must be synced for the outcome to be durable; 0 if the caller does
                not wait for the disk, or there is no journal.
        """


class TrustPendingError(Exception):
    """An operation must wait for the answer to a trust question: whether a party belongs to a trust group.

    The operation was not done. `question` is the party and the group; `earlier_outcome` has the effects that the engine
    produced before the operation, which the caller must carry out.
    """

    def __init__(self, question: tuple[str, str], earlier_outcome: OperationOutcome[Any]) -> None:
        super().__init__("whether {} belongs to {} is not known yet".format(*question))
        self.question, self.earlier_outcome = question, earlier_outcome


class OperationCounts(msgspec.Struct):
    """How many operations a processor has processed."""

    published: int = 0
    refused: int = 0
    meta_events: int = 0


class AcceptedEvent(msgspec.Struct, Generic[S]):
    """An event of a batch that was accepted: its number in the batch, its outcome, and the index of its row."""

    number: int
    event: Event
    outcome: OperationOutcome[S]
    row: int


class PublishBatch(msgspec.Struct, Generic[S]):
    """What became of the events of one publisher that were processed together. Numbers are those of the batch.

    `answered` are the events that were not accepted, in their order: refused with an error, or sealed events that were
    accepted before, with their first receipt. `refused_with_rows` are the outcomes, each with its row index, of those
    that produced meta-events or other rows. `first` is the offset of the first row and `end` that after the last one.
    `pending` is set if a trust answer is needed: the events from `pending_from` on were not processed.
    """

    accepted: list[AcceptedEvent[S]] = []
    answered: list[tuple[int, TidingsError | Receipt]] = []
    refused_with_rows: list[tuple[OperationOutcome[S], int]] = []
    rows: list[journal.Operation] = []
    count: int = 0  # of rows, or what it would be without a journal
    first: int = 0
    end: int = 0
    pending: TrustPendingError | None = None
    pending_from: int = 0


class Processor(Generic[S]):
    """Processes operations one at a time, and owns the engine, the registry and the order of the journal.

    Args:
        settings: The engine's settings; the name of the hub or the broker is among them.
        clock: The source of acceptance times and of entropy.
        trust: Answers whether a party belongs to a trust group.
        ask: Answers the engine's trust questions (party, group, time) with membership and its validity; None if the
            answer will arrive later as a `Trust` operation.
        journal_store: The journal; None to keep the state in memory.
        release: Delivers what operations cause.
        create: Makes the record of a new subscription, with an inbox of the given limit.
        gate: Checks tokens and seals of secure topics.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        ask: Callable[[str, str, int], tuple[bool, int] | None],
        journal_store: JournalStore | None,
        release: Release[S],
        create: Callable[[Subscription, int], S],
        gate: "Gate | None" = None,
    ) -> None:
        self.settings, self.name = settings, settings.name
        self.clock, self.journal_store, self.gate = clock, journal_store, gate
        self.lock = EngineLock()
        self.engine = Engine(settings, gate=gate)
        self.registry = SubscriptionRegistry(create)
        self.counts = OperationCounts()
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.failure: TidingsError | None = None  # every operation raises this: the journal has failed
        self.suspension: TidingsError | None = None  # every operation raises this, until it is cleared
        self.closed = False
        self.load = 0.0
        self._trust, self._ask, self._release = trust, ask, release
        self._id_numbers = itertools.count(clock.now())  # counts up from the current time: unique across restarts
        self._time = 0
        self.next = 0  # the offset that the next row gets; counted here where there is no journal

    def restore(self, extension: JournalExtension | None = None) -> None:
        """Restore the state from the journal, if there is one, and journal from now on what `extension` adds."""
        if self.journal_store is not None:
            self.journal_store.restore(self, extension)
            self.load = self.engine.state.rules.load

    @property
    def history(self) -> JournalHistory | None:
        """Reads the journal; None if there is none."""
        return None if self.journal_store is None else self.journal_store.history

    # Time, offsets and ids

    def now(self) -> int:
        """Return the acceptance time, which rises strictly even if the clock steps back. The lock is held."""
        now = self.clock.now()
        self._time = now if now > self._time else self._time + 1
        return self._time

    def resume_at(self, timestamp: int, offset: int) -> None:
        """Continue after the journal's last timestamp, with `offset` as the next offset."""
        self._time, self.next = max(self._time, timestamp), offset

    def new_id(self, client: str) -> str:
        """Return a new id for a subscription or an advertisement: the client's name and a suffix that sorts by age."""
        return f"{client[:200]}.{next(self._id_numbers):014x}{self.clock.entropy()[:4].hex()}"

    def check_open(self) -> None:
        """Raise if the processor is closed or suspended, or its journal has failed."""
        if self.closed:
            raise ClosedError(f"the hub {self.name} is closed")
        if self.failure is not None:
            raise self.failure
        if self.suspension is not None:
            raise self.suspension

    # Operations other than publications

    def control(
        self,
        operation: Operation,
        row_notes: Mapping[str, Any] | None = None,
        on_full_disk: Callable[[JournalFullError], None] | None = None,
    ) -> OperationOutcome[S]:
        """Process an operation other than a publication: handle it, journal it, and apply it to the registry.

        Nothing is synced. The lock is held.

        Args:
            operation: The operation.
            row_notes: Values that are stored with the operation's row.
            on_full_disk: Called if the disk is full; the operation then holds without its row. By default it is undone.

        Raises:
            JournalError: The operation could not be journaled, and was undone.
            TrustPendingError: The operation must wait for a trust answer.
        """
        self.check_open()
        now = self.now()
        outcome = self.handle(operation, now)
        if self.engine.deferred and not isinstance(operation, Connect | Disconnect):
            self._check_decided(operation, outcome)
        notes = {} if row_notes is None else dict(row_notes)
        if outcome.trust_answers:
            notes[TRUST] = outcome.trust_answers
        if self.load:
            notes[LOAD] = self.load
        try:
            self._append_outcome(operation, outcome, now, notes, sync=True)
        except BaseException as error:
            if on_full_disk is not None and isinstance(error, JournalFullError):
                on_full_disk(error)
            else:
                if outcome.refused is None:
                    self._undo(operation, now, error)
                raise
        if outcome.refused is None:
            self.registry.apply(operation, notes)
        return outcome

    def set_load(self, load: float) -> None:
        """Set the load that policies see. The journal stores it with each later control operation."""
        with self.lock:
            self.check_open()
            self.engine.handle(SetLoad(load), self.now())
            self.load = load

    def acknowledge(self, subscription: RegisteredSubscription, events: Iterable[UUID]) -> int:
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
                self.append([row], self.now())
            inbox.acknowledge(acknowledged)
        return acknowledged.count

    # Publications

    def publish(self, event: Event, now: int, *, sync: bool) -> tuple[OperationOutcome[S], int]:
        """Handle and journal an event that was accepted at `now`; return its outcome and its offset.

        `sync` says whether the publisher waits for the disk. The lock is held.
        """
        operation = Publish(event)
        outcome = self.handle(operation, now)
        try:
            offset = self._append_outcome(operation, outcome, now, {}, sync)
        except BaseException:
            if self.gate is not None and outcome.refused is None:
                self.gate.take_back(event)
            raise
        if outcome.refused is None:
            self.registry.events.record(event.publisher, event.sequence, event.id)
            self.registry.receipts.record(event, offset)
            self.counts.published += 1
        return outcome, offset

    def publish_batch(
        self, publisher: str, events: list[Event], queue: Callable[[PublishBatch[S]], None]
    ) -> PublishBatch[S]:
        """Process events of one publisher in order, each at its own acceptance time, and append all rows at once.

        The events are new: they get their timestamps here, consecutive microseconds, one for each row.

        Args:
            publisher: The client that publishes.
            events: The events, which nobody else has yet.
            queue: Queues what follows from the batch, under the lock; it is not called if no rows were written.

        Returns:
            What became of each event. If the rows cannot be appended, all of them are undone and refused.
        """
        with self.lock:
            base = self.now()
            for number, event in enumerate(events):
                force_setattr(event, "timestamp", base + number)
            if len(events) > 1:
                self.engine.prefetch_matches(events)
            last_sequence = self.registry.events.sequences.get(publisher, 0)
            batch: PublishBatch[S] = PublishBatch()
            self._handle_batch(batch, events, base)
            if batch.accepted or batch.refused_with_rows:
                try:
                    batch.first = self.append_batch(batch.rows, base, batch.count)
                except JournalError as error:
                    self._undo_batch(batch, publisher, last_sequence, error)
                else:
                    batch.end = self.next
                    for accepted in batch.accepted:
                        if accepted.event.signature is not None:
                            self.registry.receipts.record_unhashed(accepted.event, batch.first + accepted.row)
                    queue(batch)
        return batch

    def _handle_batch(self, batch: PublishBatch[S], events: list[Event], base: int) -> None:
        """Have the engine handle each event, and record what becomes of it."""
        registry, is_journaled = self.registry, self.journal_store is not None
        recent_events = registry.events
        for number, event in enumerate(events):
            now = base + batch.count
            try:
                self.check_open()
                if event.signature is not None:
                    receipt = registry.receipts.first_receipt(event)
                    if receipt is not None:
                        batch.answered.append((number, receipt))
                        continue
                self._check_new(event)
                if event.timestamp != now:  # an event before it in the batch was refused
                    event = msgspec.structs.replace(event, timestamp=now)
                operation = Publish(event)
                outcome = self.handle(operation, now)
                if self.engine.deferred:
                    self._check_decided(operation, outcome)
            except TrustPendingError as error:
                batch.pending, batch.pending_from = error, number
                break
            except TidingsError as error:
                batch.answered.append((number, error))
                continue
            refused = outcome.refused
            if refused is None:
                batch.accepted.append(AcceptedEvent(number, event, outcome, batch.count))
                recent_events.record(event.publisher, event.sequence, event.id)
                if event.signature is not None:
                    registry.receipts.record_unhashed(event, -1)  # its offset is not known before the rows are appended
            else:
                keep_only_meta_events(outcome)
                batch.answered.append((number, RefusedError(refused.step, refused.reason)))
                if not needs_rows(outcome):
                    continue
                batch.refused_with_rows.append((outcome, batch.count))
            if is_journaled:
                rows = outcome.rows(None if refused else operation, {})
                batch.rows += rows
                batch.count += len(rows)
            else:
                batch.count += (refused is None) + len(outcome.meta_events) + len(outcome.persisted)

    def _check_new(self, event: Event) -> None:
        """Raise an error if an event was published before, or if its sequence number does not rise."""
        events = self.registry.events
        if events.remembers(event.id):
            raise PublishedBeforeError("admit", f"the event {event.id} was published before")
        sequence, last = event.sequence, events.sequences.get(event.publisher, 0)
        if not last < sequence <= MAX_INTEGER:
            raise RefusedError(
                "admit",
                f"sequence: {sequence} does not come after {last}, the last of {event.publisher}; "
                "is it connected twice?",
            )

    def _undo_batch(self, batch: PublishBatch[S], publisher: str, last_sequence: int, error: JournalError) -> None:
        """Undo and refuse the accepted events of a batch whose rows could not be appended."""
        registry = self.registry
        registry.events.sequences[publisher] = last_sequence
        for accepted in reversed(batch.accepted):
            if self.engine.gate is not None:
                self.engine.gate.take_back(accepted.event)
        for accepted in batch.accepted:
            self.engine.state.seen_events.forget(accepted.event.id)
            registry.events.forget(accepted.event.id)
            registry.receipts.forget(accepted.event.id)
            batch.answered.append((accepted.number, error))
        batch.accepted, batch.refused_with_rows = [], []

    # The engine

    def handle(self, operation: Operation, now: int) -> OperationOutcome[S]:
        """Have the engine handle an operation, answer its trust questions, and sort the effects into an outcome.

        Nothing is journaled. The lock is held.
        """
        engine = self.engine
        outcome: OperationOutcome[S] = OperationOutcome()
        governed = engine.state.rules.on_publications or (
            type(operation) is Publish and operation.event.policy is not None
        )
        started = self.clock.now() if governed else 0
        effects: list[Effect] = engine.handle(operation, now)
        if governed and ask_for_processing_time(effects, self.name):
            effects = with_processing_time(effects, self.name, max(0, self.clock.now() - started))
        subscriptions, deliveries = self.registry.subscriptions, outcome.deliveries
        durable = []
        for effect in effects:  # grows when a trust answer causes more effects
            if type(effect) is Deliver:
                notification = effect.notification
                subscription = subscriptions.get(notification.subscription)
                if subscription is not None:
                    delivery = subscription, notification
                    deliveries.append(delivery)
                    if subscription.subscription.durable is not None:
                        durable.append(delivery)
            elif isinstance(effect, AskTrust):
                answer = self._ask(effect.party, effect.group, now)
                if answer is None:
                    continue  # the answer will arrive later, as an operation
                is_member, until = answer
                outcome.trust_answers += ((effect.party, effect.group, is_member, until),)
                effects.extend(engine.handle(Trust(effect.party, effect.group, is_member, until), now))
            else:
                self._apply_effect(effect, outcome)
        if durable:
            outcome.durable = tuple(durable)
        return outcome

    def _check_decided(self, operation: Operation, outcome: OperationOutcome[S]) -> None:
        """Raise `TrustPendingError` if the operation, which the engine has just handled, waits for a trust answer.

        The engine then does not keep the operation: the client submits it again with the answer, so that the journal
        never holds an operation that may yet be refused.
        """
        question = self.engine.deferred.undo_last(client_of(operation))
        if question is not None:
            if isinstance(operation, Publish) and self.engine.gate is not None:
                self.engine.gate.take_back(operation.event)  # the client submits it again: that is no replay
            raise TrustPendingError(question, outcome)

    def _apply_effect(self, effect: Effect, outcome: OperationOutcome[S]) -> None:
        match effect:
            case Reject():
                outcome.refused = effect
                self.counts.refused += 1
            case MetaEventPublished(event):
                outcome.meta_events += (event,)
            case Persist():
                outcome.persisted += (effect,)
            case SecurityNewsLearnt(operation):
                outcome.caused_operations += (operation,)
            case DecisionPending(redecide):
                outcome.pending_decisions += (redecide,)
            case DecisionMade():
                record_decision(outcome, effect)
            case SubscriptionExpelled(client, id, reason):
                self.log_line(f"the subscription {id} of {client} is removed: {reason}")
                removal = Unsubscribe(client, id)
                outcome.caused_operations += (removal,)
                self.registry.apply(removal, {})
            case PolicyWarning(_, finding):
                outcome.findings += (finding,)
            case LogMessage(line):
                self.log_line(line)
            case _:
                outcome.others.append(effect)

    def trusts(self, party: str, group: str) -> bool:
        """Ask the trust provider whether `party` belongs to `group`, without caching the answer."""
        return ask_provider(self._trust, party, group, 0)[0]

    def log_line(self, line: str) -> None:
        """Log a line: to the processor's own log, and to the logger "tidings"."""
        self.log.append(line)
        _LOG.info("%s: %s", self.name, line)

    # The journal

    def journal_effects(self, outcome: OperationOutcome[S], now: int) -> None:
        """Journal and release what follows from an operation that is not journaled itself. The lock is held."""
        self._append_outcome(None, outcome, now, {}, sync=False)

    def _append_outcome(
        self, operation: Operation | None, outcome: OperationOutcome[S], now: int, row_notes: dict[str, Any], sync: bool
    ) -> int:
        """Append the rows of an outcome and release its deliveries; return the offset of the first row."""
        if outcome.refused is not None:
            operation = None
            keep_only_meta_events(outcome)
        if self.journal_store is not None:
            first = self.append(outcome.rows(operation, row_notes), now)
        else:
            first = self.next
            self.next += (operation is not None) + len(outcome.meta_events) + len(outcome.persisted)
        for persist in outcome.persisted:
            self.registry.stored.append((persist.store, persist.message))
        if outcome.meta_events:
            self.counts.meta_events += len(outcome.meta_events)
            for event in outcome.meta_events:
                self.registry.events.record(event.publisher, event.sequence, event.id)
        if outcome.deliveries or outcome.pending_decisions or outcome.decided:
            end = self.next if sync and self.journal_store is not None else 0
            self._release.queue(outcome, first, first + (operation is not None), end)
        return first

    def append(self, rows: list[journal.Operation], now: int) -> int:
        """Append rows at time `now`; return the offset of the first. The lock is held."""
        if self.journal_store is None or not rows:
            return self.next
        try:
            span = self.journal_store.append(rows, now)
        except JournalFullError:
            raise
        except JournalError as error:
            self.failure = error
            raise
        self._time, self.next = span.timestamp + span.next - span.first - 1, span.next
        return span.first

    def append_batch(self, rows: list[journal.Operation], base: int, count: int) -> int:
        """Append the rows of a batch, and return the offset of the first row. The lock is held.

        `base` is the time of the first row, `count` the number of rows. Without a journal `rows` may be empty: offsets
        and time advance by `count` all the same. Raises a `JournalError` if the rows cannot be appended.
        """
        if not count:
            return self.next
        if self.journal_store is not None:
            return self.append(rows, base)
        first = self.next
        self.next += count
        self._time = base + max(0, count - 1)
        return first

    def _undo(self, operation: Operation, now: int, error: BaseException) -> None:
        """Bring the engine, which accepted an operation that the journal refused, back to the journal's state."""
        if self.failure is not None or self.journal_store is None:
            return
        try:
            if isinstance(operation, SetContext):
                context = self.registry.contexts.get(operation.client, EMPTY_CONTEXT)
                self.engine.handle(SetContext(operation.client, context), now)
            else:
                self.engine = self.journal_store.rebuild_engine()
                self.engine.handle(SetLoad(self.load), now)
        except Exception as failed:
            self.failure = JournalError(f"after '{error}' the hub could not be put back: {failed}; open it again")
            raise self.failure from error

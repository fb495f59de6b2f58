"""The desk: where operations are taken, one at a time, in order; handled, written down, and only then delivered.

Under the lock an operation gets its time, the engine handles it, and its rows are appended to the journal. Outside the
lock the journal is synced, once for all who wait, and the notifications go into the inboxes in the journal's order.
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
from tidings.engine import Engine, sealed
from tidings.engine.operations import (
    Disconnect,
    Heed,
    Learn,
    Lost,
    Operation,
    Publish,
    Revoke,
    SetContext,
    SetLoad,
    Unsubscribe,
)
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.backlog import Backlog
from tidings.hub.callbacks import Callbacks
from tidings.hub.client import Client
from tidings.hub.clock import Clock
from tidings.hub.guard import Guard
from tidings.hub.handling import handled
from tidings.hub.history import Since
from tidings.hub.inbox import Queue
from tidings.hub.inquiry import replayed
from tidings.hub.members import Members, epoch_of
from tidings.hub.outbox import Batch, Outbox
from tidings.hub.outcome import LOAD, TRUST, Outcome
from tidings.hub.roster import NOTHING, Roster
from tidings.hub.stats import Stats
from tidings.hub.subscription import HubSubscription
from tidings.hub.trust import Provider, asked
from tidings.model.durability import Durability
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
from tidings.model.filter import ContextFilter
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_LOG_LINES
from tidings.model.notification import Notification
from tidings.model.receipt import Receipt
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.texts import policy_text

if TYPE_CHECKING:
    from tidings.security.gate import Gate
    from tidings.security.member import Member

_LOG = logging.getLogger("tidings")


class Desk:
    """What is marked as a broker's is for one with links to others, which is a desk too."""

    own_kinds: frozenset[str] = frozenset()  # of rows that a broker writes for itself

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        archive: Archive | None,
        gate: "Gate | None" = None,
    ) -> None:
        self.settings, self.name = settings, settings.name
        self.clock, self.archive, self.gate = clock, archive, gate
        self.guard = Guard()
        self.engine = Engine(settings, gate=gate)
        self.roster = Roster(self)
        self.stats = Stats()
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.failure: TidingsError | None = None
        self.closed = False
        self.trust = trust
        self._ages = itertools.count(clock.now())  # it rises faster than ids are made
        self._clients: dict[str, Client] = {}
        self.members = Members()
        self._callbacks = Callbacks()
        self._outbox = Outbox(self._callbacks)
        self._time = 0
        self._next = 0  # the offset of the next operation, where no journal says it
        self.load = 0.0
        if archive is not None:
            archive.restore(self)
            self.load = self.engine.load

    # Operations

    def publish(
        self,
        publisher: str,
        attributes: Attributes,
        *,
        subscribers: ContextFilter | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: str | None = None,
        id: UUID | None = None,  # noqa: A002
        sync: bool = True,
        must_seal: bool = False,
    ) -> Receipt:
        """Everything given has been checked. With `must_seal`, what would go in the clear is refused."""
        roster = self.roster
        with self.guard:
            self.check_open()
            now = self.now()
            if id is None:
                id = uuid7(now, self.clock.entropy())  # noqa: A001
            elif roster.remembers(id):
                raise PublishedBeforeError("admit", f"the event {id} was published before")
            sequence = roster.sequences.get(publisher, 0) + 1
            event = Event(
                id=id,
                publisher=publisher,
                timestamp=now,
                sequence=sequence,
                attributes=attributes,
                subject=subject,
                payload=payload,
                context=roster.contexts.get(publisher, NOTHING),
                subscribers=subscribers,
                policy=policy,
            )
            made = self.members.sealed(event, now, required=must_seal)
            outcome, offset, end = self._published(made, now, sync)
        self.finish(outcome, end if sync else 0)
        return Receipt(event, offset, epoch_of(made), self._durability(sync))

    def publish_event(self, given: Event, *, sync: bool = True) -> Receipt:
        """An event that was made before, and perhaps sealed: it is accepted now, and is otherwise as it is."""
        roster = self.roster
        with self.guard:
            self.check_open()
            first = roster.receipts.of(given)
            if first is None:
                if roster.remembers(given.id):
                    raise PublishedBeforeError("admit", f"the event {given.id} was published before")
                now = self.now()
                event = msgspec.structs.replace(given, timestamp=now)
                outcome, offset, end = self._published(event, now, sync)
                first = Receipt(event, offset, epoch_of(event), self._durability(sync))
            else:
                first = msgspec.structs.replace(first, safe=self._durability(sync))
                outcome, end = Outcome(), self._next
        self.finish(outcome, end if sync else 0)
        return first

    def _durability(self, sync: bool) -> Durability:
        """Of an event for which the disk was waited for, or not."""
        return "journaled" if sync and self.archive is not None else "accepted"

    def _published(self, event: Event, now: int, sync: bool) -> tuple[Outcome, int, int]:
        """What follows from an event, its offset, and the end of what was written. The lock is held."""
        operation, roster = Publish(event), self.roster
        outcome = handled(self, operation, now)
        try:
            offset = self._written(operation, outcome, now, {}, sync)
        except BaseException:
            if self.gate is not None and outcome.refused is None:
                self.gate.take_back(event)
            raise
        if outcome.refused is None:
            roster.published(event.publisher, event.sequence, event.id)
            roster.receipts.note(event, offset)
            self.stats.published += 1
        return outcome, offset, self._next

    def control(self, operation: Operation, notes: Mapping[str, Any] | None = None, *, sync: bool = True) -> list[str]:
        """Any other operation that the journal keeps; the findings on the policy that it brought."""
        with self.guard:
            findings, end, outcome = self.controlled(operation, notes)
        self.finish(outcome, end if sync else 0)
        return findings

    def controlled(
        self, operation: Operation, notes: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int, Outcome]:
        """The part of `control` that is done under the lock; `finish` must follow."""
        self.check_open()
        now = self.now()
        outcome = self.handle(operation, now)
        notes = dict(notes or {})
        if outcome.trusted:
            notes[TRUST] = outcome.trusted
        if self.load:
            notes[LOAD] = self.load
        try:
            self._written(operation, outcome, now, notes, sync=True)
        except BaseException as error:
            if outcome.refused is None:
                self._undo(operation, now, error)
            raise
        if outcome.refused is None:
            self.roster.book(operation, notes)
        return list(outcome.findings), self._next, outcome

    def set_load(self, load: float) -> None:
        with self.guard:
            self.check_open()
            self.engine.handle(SetLoad(load), self.now())
            self.load = load

    def unsubscribe(self, client: str, id: str, policy: Any = None) -> None:  # noqa: A002
        self.control(Unsubscribe(client, id, policy_text(policy)))

    def acknowledge(self, subscription: HubSubscription, events: Iterable[UUID]) -> int:
        """Written down, not synced: what a crash takes away of it is given once more."""
        inbox = subscription.inbox
        if not isinstance(inbox, Backlog):
            raise InvalidValueError(f"{subscription.id} is not durable: there is nothing to acknowledge")
        with self.guard:
            self.check_open()
            done = inbox.acknowledgement(events)
            if done is None:
                return 0
            if self.archive is not None and not inbox.closed:
                body = {"offset": done.floor, "beyond": done.beyond, "count": done.count}
                row = journal.Operation.control(
                    "acknowledge", client=subscription.subscriber, id=subscription.durable, body=body
                )
                self._append([row], self.now())
            inbox.acknowledge(done)
        self.wake(subscription)
        return done.count

    def callback_failed(self) -> None:
        self._callbacks.count_failure()

    def wake(self, subscription: HubSubscription) -> None:
        """Its callback may have something to do."""
        if subscription.callback is not None:
            self._callbacks.wake(subscription)
            self._callbacks.run()

    def replay(self, ids: list[str], since: Since) -> Iterator[Notification]:
        return self._opened(replayed(self, ids, since))

    def _opened(self, notes: Iterator[Notification]) -> Iterator[Notification]:
        for note in notes:
            held = self.roster.subscriptions.get(note.subscription)
            opened = self.members.opened(note, None if held is None else held.subscription.policy)
            if opened is not None:
                yield opened

    def client(self, name: str, member: "Member | None" = None) -> Client:
        with self.guard:
            self.check_open()
            if member is not None:
                self.members.put(name, member)
            found = self._clients.get(name)
            if found is None:
                found = self._clients[name] = Client(self, name)
                for held in self.roster.of(name):
                    held.attach(None)  # those that are durable, and stayed when the client left
            return found

    def leave(self, client: Client) -> None:
        """The name is free for another one; what the client had goes, unless it is durable."""
        if not self.closed:
            self.control(Disconnect(client.name))
        with self.guard:
            if self._clients.get(client.name) is client:
                del self._clients[client.name]
                self.members.forget(client.name)

    def new_id(self, client: str) -> str:
        """An id for a subscription or an advertisement that has none: the client's name, and what sorts by age."""
        return f"{client[:200]}.{next(self._ages):014x}{self.clock.entropy()[:4].hex()}"

    def counted(self) -> Stats:
        with self.guard:
            held = self.roster.subscriptions.values()
            return msgspec.structs.replace(
                self.stats,
                delivered=self._outbox.delivered,
                lost=self._outbox.lost,
                callback_errors=self._callbacks.failed,
                clients=len(self._clients),
                subscriptions=len(held),
                waiting=sum(one.waiting for one in held),
                offset=self._next,
            )

    def handle(self, operation: Operation, now: int) -> Outcome:
        """What follows from a client's operation."""
        return handled(self, operation, now)

    def ask(self, party: str, group: str, now: int) -> tuple[bool, int] | None:
        """Whether the party belongs to the group, and until when that need not be asked again; None: that is told
        later, with a `Trust`, which only a broker does."""
        return asked(self.trust, party, group, now)

    def trusts(self, party: str, group: str) -> bool:
        """Whether the party belongs to the group, asked now."""
        return asked(self.trust, party, group, 0)[0]

    # What is sealed

    def assure(self, operation: Learn | Heed | Revoke) -> None:
        """Something is said of secure topics: those who could not have anything may now."""
        self.control(operation)
        with self.guard:
            held = list(self.roster.subscriptions.values())
        for one in held:
            if one.resume():
                self.wake(one)

    def check_token(self, subscription: Subscription) -> None:
        """Raises a `SecurityError` if a subscription has a token that is not good any more."""
        if self.gate is not None and subscription.token is not None:
            with self.guard:
                self.gate.check_subscription(subscription.token, subscription.subscriber, self.now())

    def may_have(self, note: Notification) -> bool:
        """Whether what was kept for a subscription may still be handed to its owner."""
        if self.gate is None or note.event.signature is None:
            return True
        with self.guard:
            try:
                sealed.check_notification(self.engine, note, self.now())
            except SecurityError:
                return False
        return True

    # Time, and the end

    def now(self) -> int:
        """Rises strictly, whatever the clock does. The lock is held."""
        now = self.clock.now()
        self._time = now if now > self._time else self._time + 1
        return self._time

    @property
    def next(self) -> int:
        """The offset that the next row will get."""
        return self._next

    def passed(self, timestamp: int, offset: int) -> None:
        """The journal has come to this time, and to this offset."""
        self._time, self._next = max(self._time, timestamp), offset

    def close(self) -> None:
        with self.guard:
            if self.closed:
                return
            self.closed = True
            held = list(self.roster.subscriptions.values())
        try:
            if self.archive is not None:
                with contextlib.suppress(JournalError):
                    self.archive.sync(self._next)
                    self._drain()
                self.archive.close(self)
        finally:
            for subscription in held:
                subscription.end()

    def open(self, subscription: Subscription, limit: int) -> HubSubscription:
        read = None if self.archive is None else self.archive.history.due_to(subscription)
        inbox = Queue(limit) if subscription.durable is None else Backlog(limit, read)
        return HubSubscription(self, subscription, inbox)

    def recall(self, row: journal.Operation) -> None:
        """A broker's: a row of one of its own kinds, when the journal is read again."""

    def recall_given(self, held: HubSubscription, row: journal.Operation) -> None:
        """A broker's: a durable subscription was given the event of a row."""

    def recall_owed(self, row: journal.Operation, offset: int) -> None:
        """A broker's: a publication in the journal, about which somebody may be owed a decision."""

    def needed(self) -> int | None:
        """A broker's: from which offset on its journal may have to be read again, for others or for those that are owed
        a decision. The lock is held."""
        return None

    def more(self) -> bytes:
        """A broker's: what it keeps in a snapshot beside what every desk does."""
        return b""

    def recall_more(self, saved: bytes) -> None:
        """A broker's: the same, read again."""

    def note(self, line: str) -> None:
        self.log.append(line)
        _LOG.info("%s: %s", self.name, line)

    # What the above is made of

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"the hub {self.name} is closed")
        if self.failure is not None:
            raise self.failure

    def _written(
        self, operation: Operation | None, outcome: Outcome, now: int, notes: dict[str, Any], sync: bool
    ) -> int:
        """Appends the rows, and puts the deliveries into the outbox; the offset of the first row."""
        if outcome.refused is not None:
            operation = None
            outcome.keep_only_what_was_told()
        if self.archive is not None:
            first = self._append(outcome.rows(operation, notes), now)
        else:
            first = self._next
            self._next += (operation is not None) + len(outcome.told) + len(outcome.persisted)
        for kept in outcome.persisted:
            self.roster.stored.append((kept.store, kept.message))
        if outcome.told:
            self.stats.told += len(outcome.told)
            for event in outcome.told:
                self.roster.published(event.publisher, event.sequence, event.id)
        if outcome.undecided or outcome.decided:
            self.note_owed(outcome, first, first + (operation is not None))
        if outcome.deliveries:
            self._post(outcome, first, first + (operation is not None), sync)
        return first

    def note_owed(self, outcome: Outcome, first: int, told_from: int) -> None:
        """A broker's: what is undecided, and what is not any more. In a hub, answers come at once."""

    def _post(self, outcome: Outcome, first: int, told_from: int, sync: bool) -> None:
        after = self._next if sync and self.archive is not None else 0
        if not outcome.told and not outcome.durable:
            self._outbox.add(Batch(outcome.deliveries, first, after))
            return
        for batch in outcome.batches(first, told_from, after):
            self._outbox.add(batch)
            for held, _ in batch.deliveries:
                held.inbox.expect(batch.offset)

    def _append(self, rows: list[journal.Operation], now: int) -> int:
        if self.archive is None or not rows:
            return self._next
        try:
            span = self.archive.append(rows, now)
        except JournalFullError:
            raise
        except JournalError as error:
            self.failure = error
            raise
        self._time, self._next = span.timestamp + len(span) - 1, span.next
        return span.first

    def _undo(self, operation: Operation, now: int, error: BaseException) -> None:
        """The engine has accepted what the journal could not take: it goes back to what the journal says."""
        if self.failure is not None or self.archive is None:
            return
        try:
            if isinstance(operation, SetContext):
                before = self.roster.contexts.get(operation.client, NOTHING)
                self.engine.handle(SetContext(operation.client, before), now)
            else:
                self.engine = self.archive.rebuilt(self)
                self.engine.handle(SetLoad(self.load), now)
        except Exception as failed:
            self.failure = JournalError(f"after '{error}' the hub could not be put back: {failed}; open it again")
            raise self.failure from error

    def finish(self, outcome: Outcome, end: int) -> None:
        """Outside of the lock: what was written is synced up to `end`, and delivered."""
        if self.archive is not None and end:
            try:
                self.archive.sync(end)
            except JournalError as error:
                self.failure = error
                raise
        if outcome.deliveries:
            self._drain()
            self._callbacks.run()
        if self.archive is not None and self.archive.is_due:
            self.archive.keep(self)
        if self.engine.is_untidy:
            self.engine.tidy()
        if outcome.refused is not None:
            raise RefusedError(outcome.refused.step, outcome.refused.reason)

    def _drain(self) -> None:
        synced = 0 if self.archive is None else self.archive.synced
        losses = self._outbox.drain(synced)
        told = set()
        for held, note in losses:
            # Told at 1, 2, 4, 8, ... losses: often enough to be noticed, and not a flood of its own.
            if note.event.publisher != self.name and held.lost & (held.lost - 1) == 0 and held.id not in told:
                told.add(held.id)
                self._tell_loss(held)

    def _tell_loss(self, held: HubSubscription) -> None:
        try:
            with self.guard:
                self.check_open()
                now = self.now()
                outcome = handled(self, Lost(held.subscriber, held.id, held.lost), now)
                self._written(None, outcome, now, {}, sync=False)
            self.finish(outcome, 0)
        except TidingsError as error:
            self.note(f"{held.subscriber} has lost {held.lost} notifications of {held.id}, and {error}")

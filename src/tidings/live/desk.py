"""The desk of a broker: a hub's desk that has neighbours, and that never waits.

Everything happens in the loop's one thread. Operations are handled and appended to the journal as they come; what
follows from them, deliveries, receipts, what neighbours are told, goes out in the same order, once the journal is
synced up to there. The sync is done by another thread, for all that has come meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import records
from tidings.engine.debts import State
from tidings.engine.effects import Effect, Reject
from tidings.engine.operations import (
    Carry,
    Disconnect,
    Lost,
    Operation,
    Publish,
    Receive,
    Travelling,
    Unadvertise,
    Unsubscribe,
)
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.clock import Clock
from tidings.hub.desk import Desk as HubDesk
from tidings.hub.handling import handled
from tidings.hub.outcome import Outcome
from tidings.hub.roster import NOTHING
from tidings.hub.subscription import HubSubscription
from tidings.hub.trust import Provider
from tidings.live.given import Given
from tidings.live.inbox import Kept, Wired
from tidings.live.metrics import Metrics
from tidings.live.outgoing import Outgoing
from tidings.live.resending import DEBTS, read_debts
from tidings.model.errors import (
    InvalidValueError,
    JournalError,
    PublishedBeforeError,
    RefusedError,
    TidingsError,
)
from tidings.model.event import Event, checked_bytes, checked_payload, checked_subject
from tidings.model.identity import is_uuid7, uuid_of
from tidings.model.limits import MAX_INTEGER, MAX_SIGNATURE_BYTES, MAX_TOKEN_BYTES
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.protocol.events import read_context_filter
from tidings.protocol.publications import Published, Safety
from tidings.texts import policy_text

Task = tuple[Callable[..., None], tuple[Any, ...]]
Reply = Callable[[list[str] | Reject], None]


class Publisher(Protocol):
    """Who is told what became of a publication."""

    name: str

    def receipt(self, request: int, offset: int, timestamp: int) -> None: ...
    def refuse(self, request: int, error: TidingsError) -> None: ...


class Neighbours(Protocol):
    """Who carries out what concerns other brokers."""

    def bound(self, effects: list[Effect]) -> list[Task]:
        """What is to be done for effects, when it is their turn: what is sent is for the links that there are now."""
        ...

    def published(self, event: Event, offset: int) -> None:
        """An event of a client is in the journal, or would be."""

    def is_waiting(self, offset: int) -> bool:
        """Whether the publication there has not arrived yet wherever it is due."""
        ...

    def flush(self) -> None: ...
    def debts(self) -> State: ...
    def needed(self) -> int | None:
        """From which offset on the journal may have to be read again, for other brokers."""
        ...


class _More(msgspec.Struct, frozen=True):
    """What a snapshot holds of a broker beside what it holds of a hub."""

    debts: State
    given: dict[str, bytes]


class Taken(NamedTuple):
    """A publication that was accepted, and what follows from it; `row` is its place among those of its batch."""

    published: Published
    event: Event
    outcome: Outcome
    row: int
    tasks: list[Task]


class Desk(HubDesk):
    own_kinds = frozenset({DEBTS})

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        archive: Archive | None,
        metrics: Metrics,
        neighbours: Neighbours,
    ) -> None:
        self.metrics = metrics
        self.neighbours = neighbours
        self.outgoing = Outgoing()
        self.sessions: dict[str, int] = {}  # client -> the session in which it was here last
        self._settling: dict[UUID, tuple[Publisher, int, int, int]] = {}  # what is to be told when an event is settled
        self._syncing = False
        self._sync_began = 0
        self._syncer = ThreadPoolExecutor(1, "tidings-sync")
        self.saved_debts: State | None = None
        self._given = Given()
        super().__init__(settings, clock, trust, archive)

    def begin(self) -> None:
        """After the journal was read: nobody is connected, so what is not durable is gone; what the broker itself had
        is put there anew by its configuration."""
        owners = {one.owner for one in self.engine.filed() if one.is_client}
        for client in sorted(owners | set(self.roster.contexts) - {self.name}):
            if client != self.name:
                self.operate(Disconnect(client), safe=False)
        for subscription in self.engine.subscriptions.of(self.name):
            self.operate(Unsubscribe(self.name, subscription.id), safe=False)
        for advertisement in self.engine.advertisements.of(self.name):
            self.operate(Unadvertise(self.name, advertisement.id), safe=False)

    # Publications of clients

    def accept(self, publisher: Publisher, publications: list[tuple[Published, str | None]]) -> None:
        """Publications with their subjects, in order; the publisher is told of each when it is as safe as it wants."""
        with self.guard:
            self._accept(publisher, publications)

    def _accept(self, publisher: Publisher, publications: list[tuple[Published, str | None]]) -> None:
        taken: list[Taken] = []
        last = self.roster.sequences.get(publisher.name, 0)
        rows: list[journal.Operation] = []
        told: list[tuple[Outcome, int]] = []
        base, count = self.now(), 0
        for published, event in self._events(publisher, publications, base):
            try:
                self._check_open()
                self._check_new(event)
                if event.timestamp != base + count:  # one before it was refused
                    event = msgspec.structs.replace(event, timestamp=base + count)
                operation = Publish(event)
                outcome = handled(self, operation, base + count)
            except TidingsError as error:
                self._refuse(publisher, published.request, error)
                continue
            refused = outcome.refused
            if refused is not None:
                outcome.keep_only_what_was_told()
                self._refuse(publisher, published.request, RefusedError(refused.step, refused.reason))
                if not outcome.told and not outcome.persisted:
                    continue
                told.append((outcome, count))
            else:
                taken.append(Taken(published, event, outcome, count, []))
                self.roster.published(publisher.name, published.sequence, event.id)
            if self.archive is not None:
                mine = outcome.rows(None if refused else operation, {})
                rows += mine
                count += len(mine)
            else:
                count += (refused is None) + len(outcome.told) + len(outcome.persisted)
        if not taken and not told:
            return
        try:
            first = self._appended(rows, base, count)
        except JournalError as error:
            self.roster.sequences[publisher.name] = last
            for one in taken:
                self.engine.passages.forget(one.event.id)
                self.roster.forget(one.event.id)
                self._refuse(publisher, one.published.request, error)
            return
        safe = self.archive is not None and any(one.published.safe for one in taken)
        after = self._next if safe else 0
        for outcome, row in told:
            self._note_told(outcome)
            _expect(outcome, first + row, first + row)
            self.outgoing.add(after, self._put_all, outcome, first + row, first + row)
            self._do_later(after, outcome.others)
        for one in taken:
            self.neighbours.published(one.event, first + one.row)
            if one.outcome.others:
                one.tasks.extend(self.neighbours.bound(one.outcome.others))
            if one.outcome.told or one.outcome.persisted:
                self._note_told(one.outcome)
            if one.outcome.durable:
                _expect(one.outcome, first + one.row, first + one.row + 1)
                for held, note in one.outcome.durable:
                    self._given.note(held, note.event.id)
        self.metrics.accepted += len(taken)
        self.outgoing.add(after, self._release, publisher, taken, first)

    def _events(
        self, publisher: Publisher, publications: list[tuple[Published, str | None]], now: int
    ) -> list[tuple[Published, Event]]:
        """The events of publications that are well formed; what is not is refused."""
        events: list[tuple[Published, Event]] = []
        name, context = publisher.name, self.roster.contexts.get(publisher.name, NOTHING)
        for published, subject in publications:
            try:
                events.append((published, _event(name, published, subject, context, now + len(events))))
            except TidingsError as error:
                self._refuse(publisher, published.request, error)
        self.engine.foresee([event for _, event in events])
        return events

    def _check_new(self, event: Event) -> None:
        roster = self.roster
        if roster.remembers(event.id):
            raise PublishedBeforeError("admit", f"the event {event.id} was published before")
        sequence, last = event.sequence, roster.sequences.get(event.publisher, 0)
        if not last < sequence <= MAX_INTEGER:
            raise RefusedError(
                "admit",
                f"sequence: {sequence} does not come after {last}, the last of {event.publisher}; "
                "is it connected twice?",
            )

    def _appended(self, rows: list[journal.Operation], base: int, count: int) -> int:
        """Where the rows of a batch stand, of which the first has the time `base`."""
        if not count:
            return self._next
        if self.archive is not None:
            return self._append(rows, base)
        first = self._next
        self._next += count
        self._time = base + max(0, count - 1)
        return first

    def _release(self, publisher: Publisher, taken: list[Taken], first: int) -> None:
        delivered = 0
        for published, event, outcome, row, tasks in taken:
            offset = first + row
            if outcome.durable or outcome.told:
                self._put_all(outcome, offset, offset + 1)
            else:
                for held, note in outcome.deliveries:
                    held.inbox.put(note, offset)
            delivered += len(outcome.deliveries)
            for act, about in tasks:
                act(*about)
            if published.safe < Safety.SETTLED or not self.neighbours.is_waiting(offset):
                publisher.receipt(published.request, offset, event.timestamp)
            else:
                self._settling[event.id] = publisher, published.request, offset, event.timestamp
        self.metrics.delivered += delivered
        if delivered:
            took = self.clock.now() - taken[0].event.timestamp
            self.metrics.delivered_after.note(took / 1_000_000, delivered)

    def settled(self, event: UUID) -> None:
        """An event has arrived wherever it is due."""
        waiting = self._settling.pop(event, None)
        if waiting is not None:
            publisher, request, offset, timestamp = waiting
            publisher.receipt(request, offset, timestamp)

    def _refuse(self, publisher: Publisher, request: int, error: TidingsError) -> None:
        """Told in the order of things: what was published before may still be on its way to the disk."""
        after = 0
        if isinstance(error, PublishedBeforeError):
            self.metrics.repeated += 1
            after = self._next if self.archive is not None else 0
        else:
            self.metrics.refuse(error)
        self.outgoing.add(after, self._tell_refused, publisher, request, error)

    @staticmethod
    def _tell_refused(publisher: Publisher, request: int, error: TidingsError) -> None:
        publisher.refuse(request, error)

    # All other operations

    def operate(
        self, operation: Operation, reply: Reply | None = None, notes: Mapping[str, Any] | None = None, *, safe: bool
    ) -> Outcome:
        """An operation of a client or of the broker itself; the reply comes in the order of things. `safe`: not before
        it is on the disk."""
        findings, end, outcome = self.controlled(operation, notes)
        after = end if safe and self.archive is not None else 0
        self._do_later(after, outcome.others)
        if outcome.refused is not None:
            self.metrics.refused[outcome.refused.step] += 1
        if reply is not None:
            self.outgoing.add(after, self._answer, reply, findings if outcome.refused is None else outcome.refused)
        return outcome

    @staticmethod
    def _answer(reply: Reply, result: list[str] | Reject) -> None:
        reply(result)

    def receive(self, neighbour: str, operation: Travelling) -> None:
        """An operation of a neighbour. Of an event, what durable subscriptions here wait for is kept."""
        if isinstance(operation, Carry) and operation.to == self.name and not self._has_all(operation):
            return  # its client has not said yet what it wants: it is sent again
        self.drive(Receive(neighbour, operation))

    def _has_all(self, carried: Carry) -> bool:
        return all(note.subscription in self.roster.subscriptions for note, _ in carried.notifications)

    def drive(self, operation: Operation) -> Outcome:
        """An operation that is not kept as such: of neighbours, of time, of links. Without a journal that can be relied
        on, nothing follows from it."""
        if self.failure is not None:
            return Outcome()
        with self.guard:
            self._check_open()
            now = self.now()
            outcome = handled(self, operation, now)
            if outcome.durable:
                outcome.keep_only(lambda held, note: self._given.note(held, note.event.id))
            if outcome.deliveries or outcome.told or outcome.persisted:
                is_kept = bool(outcome.durable or outcome.told or outcome.persisted)
                rows = outcome.rows(None, {}) if is_kept else []
                first = self._appended(rows, now, len(rows))
                self._note_told(outcome)
                after = self._next if rows and self.archive is not None else 0
                _expect(outcome, first, first)
                self.outgoing.add(after, self._put_all, outcome, first, first)
                self.metrics.delivered += len(outcome.deliveries)
        after = self._next if self.archive is not None and outcome.durable else 0
        self._do_later(after, outcome.others)
        return outcome

    def controlled(
        self, operation: Operation, notes: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int, Outcome]:
        with self.guard:
            return super().controlled(operation, notes)

    def forget(self, operation: Unsubscribe) -> None:
        """A subscription that the engine has given up, since its owner is elsewhere, is not kept here either."""
        with self.guard:
            self._check_open()
            if self.archive is not None:
                self._append([records.row(operation)], self.now())
            self.roster.book(operation, {})

    # What a journal keeps for a broker

    def write(self, row: journal.Operation) -> None:
        """A row of one of its own kinds."""
        with self.guard:
            if self.failure is None and not self.closed:
                self._append([row], self.now())

    def recall_given(self, held: HubSubscription, row: journal.Operation) -> None:
        if row.id is not None:
            self._given.note(held, UUID(row.id))

    def recall(self, row: journal.Operation) -> None:
        self.saved_debts = read_debts(row)

    def needed(self) -> int | None:
        return self.neighbours.needed()

    def more(self) -> bytes:
        return msgspec.msgpack.encode(
            _More(self.neighbours.debts(), self._given.state(self.roster.subscriptions.values()))
        )

    def recall_more(self, saved: bytes) -> None:
        if saved:
            more = msgspec.msgpack.decode(saved, type=_More)
            self.saved_debts = more.debts
            self._given.recall(more.given, self.roster.subscriptions)

    # What goes out

    def flush(self) -> None:
        """At the end of a turn: what may go out goes, and what waits for the disk has it synced."""
        archive = self.archive
        if archive is None:
            self.outgoing.drain(0)
            return
        self.outgoing.drain(archive.synced)
        if self.outgoing and not self._syncing and self.failure is None:
            self._syncing = True
            self._sync_began = self.clock.now()
            done = asyncio.get_running_loop().run_in_executor(self._syncer, archive.sync, self._next)
            done.add_done_callback(self._synced)

    @property
    def is_settled(self) -> bool:
        return self.engine.is_settled and not self.outgoing and not self._syncing

    def _synced(self, done: "asyncio.Future[None]") -> None:
        self._syncing = False
        self.metrics.commits.note((self.clock.now() - self._sync_began) / 1_000_000)
        error = done.exception()
        if isinstance(error, JournalError):
            self._fail(error)
            return
        if error is not None:
            raise error
        self.neighbours.flush()
        if self.archive is not None and self.archive.is_due and not self.closed:
            self.archive.keep(self)

    def _fail(self, error: JournalError) -> None:
        """Nobody knows what is on the disk: who waits for it is told so, and nothing of it goes out."""
        self.failure = error
        self.note(f"the journal has failed: {error}")
        for after, act, about in self.outgoing.given_up():
            if self.archive is not None and after <= self.archive.synced:
                act(*about)
            elif act == self._release:
                publisher, taken, _ = about
                for one in taken:
                    publisher.refuse(one.published.request, error)
            elif act == self._tell_refused:
                publisher, request, _ = about
                publisher.refuse(request, error)
            elif act == self._answer:
                reply, _ = about
                reply(Reject("journal", str(error)))
        self.neighbours.flush()

    def _post(self, outcome: Outcome, first: int, told_from: int, sync: bool) -> None:
        after = self._next if self.archive is not None and outcome.durable else 0
        _expect(outcome, first, told_from)
        self.outgoing.add(after, self._put_all, outcome, first, told_from)
        self.metrics.delivered += len(outcome.deliveries)

    def _put_all(self, outcome: Outcome, first: int, told_from: int) -> None:
        for batch in outcome.batches(first, told_from, 0):
            for held, note in batch.deliveries:
                held.inbox.put(note, batch.offset)

    def _do_later(self, after: int, effects: list[Effect]) -> None:
        for act, about in self.neighbours.bound(effects) if effects else ():
            self.outgoing.add(after, act, *about)

    def _note_told(self, outcome: Outcome) -> None:
        for kept in outcome.persisted:
            self.roster.stored.append((kept.store, kept.message))
        self.metrics.told += len(outcome.told)
        for event in outcome.told:
            self.roster.published(event.publisher, event.sequence, event.id)
        for _, note in outcome.durable:
            if not self.roster.remembers(note.event.id):
                self.roster.remember(note.event.id.int)

    def open(self, subscription: Subscription, limit: int) -> HubSubscription:
        if subscription.durable is None:
            return HubSubscription(self, subscription, Wired(limit, subscription.id))
        read = None if self.archive is None else self.archive.history.due_to(subscription)
        return HubSubscription(self, subscription, Kept(limit, read))

    def tell_lost(self, client: str, subscription: str, count: int) -> None:
        """Told at 1, 2, 4, 8, ... losses: often enough to be noticed, and not a flood of its own."""
        try:
            self.drive(Lost(client, subscription, count))
        except JournalError as error:
            self.note(f"{client} has lost {count} notifications of {subscription}, and {error}")

    def stop(self) -> None:
        """Everything is synced and goes out; the journal is closed."""
        if self.archive is not None and self.failure is None:
            self.archive.sync(self._next)
            self.outgoing.drain(self.archive.synced)
        self._syncer.shutdown()
        self.close()


def _event(publisher: str, published: Published, subject: str | None, context: Context, now: int) -> Event:
    """The event of a publication; `context` is its publisher's, unless it says another one."""
    id = uuid_of(published.id)  # noqa: A001
    if not is_uuid7(id):
        raise InvalidValueError("id: an event is named by a UUIDv7")
    if not Safety.ACCEPTED <= published.safe <= Safety.SETTLED:
        raise InvalidValueError(f"safe: must be one of 0, 1 and 2, not {published.safe}")
    return Event(
        id=id,
        publisher=publisher,
        timestamp=now,
        sequence=published.sequence,
        attributes=Attributes(published.attributes),
        subject=None if subject is None else checked_subject(subject),
        payload=None if published.payload is None else checked_payload(published.payload),
        context=context if published.context is None else Context(published.context) if published.context else NOTHING,
        subscribers=None if published.subscribers is None else read_context_filter(published.subscribers),
        policy=None if published.policy is None else policy_text(published.policy),
        token=checked_bytes(published.token, "token", "MAX_TOKEN_BYTES", MAX_TOKEN_BYTES),
        signature=checked_bytes(published.signature, "signature", "MAX_SIGNATURE_BYTES", MAX_SIGNATURE_BYTES),
    )


def _expect(outcome: Outcome, first: int, told_from: int) -> None:
    """Durable inboxes hear of what will come before it may."""
    for batch in outcome.batches(first, told_from, 0):
        for held, _ in batch.deliveries:
            held.inbox.expect(batch.offset)

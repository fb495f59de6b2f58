"""The desk of a broker: a hub's desk that has neighbours, and that never waits.

Everything happens in the loop's one thread. Operations are handled and appended to the journal as they come; what
follows from them, deliveries, receipts, what neighbours are told, goes out in the same order, once the journal is
synced up to there. The sync is done by another thread, for all that has come meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import records
from tidings.engine.debts import State
from tidings.engine.effects import Decided, Effect, Reject
from tidings.engine.operations import (
    Carry,
    Connect,
    Disconnect,
    Lost,
    Operation,
    Publish,
    Receive,
    Travelling,
    Trust,
    Unadvertise,
    Unsubscribe,
    client_of,
)
from tidings.engine.settings import Settings
from tidings.hub.archive import Archive
from tidings.hub.clock import Clock
from tidings.hub.desk import Desk as HubDesk
from tidings.hub.handling import handled
from tidings.hub.outcome import Outcome
from tidings.hub.owing import DECIDED, decided_by, owed_by
from tidings.hub.subscription import HubSubscription
from tidings.hub.trust import Provider
from tidings.live.acceptance import Acceptance
from tidings.live.awaited import AwaitedError
from tidings.live.given import Given
from tidings.live.inbox import Kept, Served
from tidings.live.logs import Log
from tidings.live.metrics import Metrics
from tidings.live.neighbours import Neighbours
from tidings.live.outgoing import Outgoing
from tidings.live.resending import DEBTS, debts_row, read_debts
from tidings.live.undecided import Undecided
from tidings.model.errors import JournalError, JournalFullError, SecurityError
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.security.gate import Gate

Reply = Callable[[list[str] | Reject], None]
_LOG = Log("tidings.live")


class _More(msgspec.Struct, frozen=True):
    """What a snapshot holds of a broker beside what it holds of a hub."""

    debts: State
    given: dict[str, bytes]
    owed: list[tuple[int, str]] = []  # offsets of publications, and clients that are owed a decision about them


class Desk(HubDesk):
    own_kinds = frozenset({DEBTS, DECIDED})

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        trust: Provider | None,
        archive: Archive | None,
        metrics: Metrics,
        neighbours: Neighbours,
        gate: Gate | None = None,
    ) -> None:
        self.metrics = metrics
        self.neighbours = neighbours
        self.outgoing = Outgoing()
        self.acceptance = Acceptance(self)
        self._syncing = False
        self._sync_began = 0
        self._syncer = ThreadPoolExecutor(1, "tidings-sync")
        self.saved_debts: State | None = None
        self.given = Given()
        self.undecided = Undecided()
        self._departed: dict[str, None] = {}  # clients that have left, which there was no room to write down
        self._is_full = False  # whether the last publication did not fit
        self._was_full = False  # so that the engine had to go back; whether there is room again is not known yet
        self._anew: JournalError | None = None  # why links are made anew: nothing is taken before that
        super().__init__(settings, clock, trust, archive, gate)

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

    def appended(self, rows: list[journal.Operation], base: int, count: int) -> int:
        """Where the rows of a batch stand, of which the first has the time `base`."""
        if not count:
            return self._next
        if self.archive is not None:
            return self._append(rows, base)
        first = self._next
        self._next += count
        self._time = base + max(0, count - 1)
        return first

    # Operations

    def operate(
        self, operation: Operation, reply: Reply | None = None, notes: Mapping[str, Any] | None = None, *, safe: bool
    ) -> Outcome:
        """An operation of a client or of the broker itself; the reply comes in the order of things. `safe`: not before
        it is on the disk."""
        findings, end, outcome = self.controlled(operation, notes)
        after = end if safe and self.archive is not None else 0
        self.do_later(after, outcome.others)
        if outcome.refused is not None:
            self.metrics.refused[outcome.refused.step] += 1
        if reply is not None:
            self.outgoing.add(after, self._answer, reply, findings if outcome.refused is None else outcome.refused)
        return outcome

    @staticmethod
    def _answer(reply: Reply, result: list[str] | Reject) -> None:
        reply(result)

    def ask(self, party: str, group: str, now: int) -> tuple[bool, int] | None:
        return self.neighbours.asked(party, group)

    def handle(self, operation: Operation, now: int) -> Outcome:
        """An operation that has to wait for an answer is not kept: its client's session tries again with the answer, so
        that nothing is in the journal that may yet be refused."""
        outcome = handled(self, operation, now)
        if self.engine.held and not isinstance(operation, Connect | Disconnect):
            question = self.engine.held.take_back(client_of(operation))
            if question is not None:
                if isinstance(operation, Publish) and self.engine.gate is not None:
                    self.engine.gate.take_back(operation.event)  # it comes again, and is no replay of itself
                raise AwaitedError(question, outcome)
        return outcome

    def answered(self, answer: Trust, *, kept: bool) -> None:
        """An answer to what was asked; `kept`: it counts when the journal is read again."""
        if kept and self.archive is not None:
            try:
                self.write(records.row(answer))
            except JournalError as error:
                self.note(f"that {answer.party} was asked whether it belongs to {answer.group} is not kept: {error}")
        self.drive(answer)

    def came(self, client: str) -> None:
        """Over a new connection: what it is owed a decision about is judged again, before anything new."""
        self.undecided.left(client)
        self.judge(client)

    def judge(self, client: str) -> None:
        """What it is owed, as far as its subscriptions are here; those of one that comes back from another broker are
        not until it has said so."""
        for judge in self.undecided.of(client):
            is_here = any(self.engine.subscriptions.get(one) is not None for one in judge.subscriptions)
            if is_here or not any(one in self.roster.subscriptions for one in judge.subscriptions):
                self.drive(judge)

    def decide(self, decided: Decided) -> None:
        """Somebody else owes it now, or nobody any more."""
        outcome = Outcome()
        outcome.decide(decided)
        self.follow(outcome)

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
            self.check_open()
            now = self.now()
            outcome = handled(self, operation, now)
            self._keep(outcome, now)
        self._go_on(outcome)
        return outcome

    def follow(self, ahead: Outcome) -> None:
        """Carries out what was to be done before an operation that waits."""
        with self.guard:
            self._keep(ahead, self.now())
        self._go_on(ahead)

    def _keep(self, outcome: Outcome, now: int) -> None:
        """What follows from what is not kept as such."""
        if outcome.durable:
            outcome.keep_only(lambda held, note: self.given.note(held, note.event.id))
        if outcome.undecided or outcome.decided:
            self._only_news(outcome)
        if outcome.deliveries or outcome.is_kept:
            is_kept = bool(outcome.durable or outcome.is_kept)
            rows = outcome.rows(None, {}, self.engine.passages.judged) if is_kept else []
            try:
                first = self.appended(rows, now, len(rows))
            except JournalError:
                for held, note in outcome.durable:
                    self.given.forget(held, note.event.id)
                raise
            self.note_told(outcome)
            self.note_owed(outcome, first, first)
            after = self._next if rows and self.archive is not None else 0
            outcome.expect(first, first)
            self.outgoing.add(after, self.put_all, outcome, first, first)
            self.metrics.delivered += len(outcome.deliveries)

    def _go_on(self, outcome: Outcome) -> None:
        is_kept = outcome.durable or outcome.undecided
        after = self._next if self.archive is not None and is_kept else 0
        self.do_later(after, outcome.others)

    def _only_news(self, outcome: Outcome) -> None:
        """What waits again is written down already; and what was never written down as open need not be closed."""
        knows = self.undecided.knows
        for one in outcome.undecided:
            self.undecided.asked(one.event.id, one.client)
        outcome.undecided = tuple(one for one in outcome.undecided if not knows(one.event.id, one.client))
        outcome.decided = tuple(one for one in outcome.decided if knows(one.event, one.client))

    def note_owed(self, outcome: Outcome, first: int, told_from: int) -> None:
        for judge, offset in outcome.owed(first, told_from):
            self.undecided.note(judge, offset)
            self.undecided.asked(judge.event.id, judge.client)
        for one in outcome.decided:
            self.undecided.decided(one.event, one.client)

    def controlled(
        self, operation: Operation, notes: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int, Outcome]:
        try:
            with self.guard:
                if not isinstance(operation, Disconnect):
                    self._write_what_is_missing()
                return super().controlled(operation, notes)
        except AwaitedError as waiting:
            self.follow(waiting.ahead)
            raise

    # A disk that is full

    def _append(self, rows: list[journal.Operation], now: int) -> int:
        """Whoever looks after the disk reads once that it is full, and once that it is not: what is published shows it,
        since there is room for the rest in any case."""
        try:
            first = super()._append(rows, now)
        except JournalFullError as error:
            if not self._is_full:
                self._is_full = True
                _LOG.error("the disk is full, and publications are refused", reason=error)
            raise
        except JournalError as error:
            _tell_failed(error)
            raise
        if self._is_full and any(row.kind == journal.PUBLISH for row in rows):
            self._is_full = False
            _LOG.info("the disk has room again")
        return first

    def check_open(self) -> None:
        super().check_open()
        if self._anew is not None:
            raise self._anew

    def go_on_anew(self) -> None:
        self._anew = None

    def _written(
        self, operation: Operation | None, outcome: Outcome, now: int, notes: dict[str, Any], sync: bool
    ) -> int:
        """That a client has left counts though there is no room to say so: else its subscriptions would stay for ever.
        Should the journal be read again before there is, nobody is connected then."""
        try:
            return super()._written(operation, outcome, now, notes, sync)
        except JournalFullError as error:
            if not isinstance(operation, Disconnect):
                raise
            self._departed[operation.client] = None
            self.note(f"{operation.client} has left, and {error}")
            return self._next

    def _write_what_is_missing(self) -> None:
        """Before anything else is: who has left, and after a full disk what shows that it is so no more. What would not
        be taken is refused before the engine has seen it, since to take it back there is costly."""
        if self.archive is None or self.failure is not None or not (self._departed or self._was_full):
            return
        rows = [records.row(Disconnect(client)) for client in self._departed]
        self._append(rows or [debts_row(self.neighbours.debts())], self.now())
        self._departed.clear()
        self._was_full = False

    def _undo(self, operation: Operation, now: int, error: BaseException) -> None:
        """An engine that is made from the journal knows of no neighbours: they say everything again over new links."""
        before = self.engine
        super()._undo(operation, now, error)
        if self.engine is before:
            return
        self._was_full = True
        self._anew = error if isinstance(error, JournalError) else None
        self.engine.subjects.number_as(before.subjects)
        for client in self._departed:
            self.engine.handle(Disconnect(client), now)
        self.neighbours.begin_anew()

    def forget(self, operation: Unsubscribe) -> None:
        """A subscription that the engine has given up, since its owner is elsewhere, is not kept here either."""
        with self.guard:
            self.check_open()
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
            self.given.note(held, UUID(row.id))

    def recall_owed(self, row: journal.Operation, offset: int) -> None:
        for judge in owed_by(row):
            self.undecided.note(judge, offset)

    def recall(self, row: journal.Operation) -> None:
        if row.kind == DECIDED:
            self.undecided.decided(*decided_by(row))
            return
        self.saved_debts = read_debts(row, self.saved_debts)

    def needed(self) -> int | None:
        floors = self.neighbours.needed(), self.undecided.floor(self.roster.subscriptions)
        return min((one for one in floors if one is not None), default=None)

    def more(self) -> bytes:
        given = self.given.state(self.roster.subscriptions.values())
        return msgspec.msgpack.encode(_More(self.neighbours.debts(), given, self.undecided.state()))

    def recall_more(self, saved: bytes) -> None:
        if saved:
            more = msgspec.msgpack.decode(saved, type=_More)
            self.saved_debts = more.debts
            self.given.recall(more.given, self.roster.subscriptions)
            self._recall_undecided(more.owed)

    def _recall_undecided(self, saved: list[tuple[int, str]]) -> None:
        """Of publications before the snapshot, whose rows say the rest."""
        if self.archive is None:
            return
        for offset, client in saved:
            for record in self.archive.journal.read(offset, offset + 1):
                for judge in owed_by(record.operation):
                    if judge.client == client:
                        self.undecided.note(judge, offset)

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
            self.neighbours.committing()
            self._sync_began = self.clock.now()
            done = asyncio.get_running_loop().run_in_executor(self._syncer, archive.sync, self._next)
            done.add_done_callback(self._synced)

    def settle_receipts(self) -> None:
        """After what follows from them has gone out."""
        with self.guard:
            self.roster.receipts.settle()

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
        _tell_failed(error)
        for after, act, about in self.outgoing.given_up():
            if self.archive is not None and after <= self.archive.synced:
                act(*about)
            elif act == self._answer:
                reply, _ = about
                reply(Reject("journal", str(error)))
            else:
                self.acceptance.give_up(act, about, error)
        self.neighbours.flush()

    def _post(self, outcome: Outcome, first: int, told_from: int, sync: bool) -> None:
        after = self._next if self.archive is not None and outcome.durable else 0
        outcome.expect(first, told_from)
        self.outgoing.add(after, self.put_all, outcome, first, told_from)
        self.metrics.delivered += len(outcome.deliveries)

    def put_all(self, outcome: Outcome, first: int, told_from: int) -> None:
        for batch in outcome.batches(first, told_from, 0):
            for held, note in batch.deliveries:
                held.inbox.put(note, batch.offset)

    def do_later(self, after: int, effects: list[Effect]) -> None:
        for act, about in self.neighbours.bound(effects) if effects else ():
            self.outgoing.add(after, act, *about)

    def note_told(self, outcome: Outcome) -> None:
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
            return Served(self, subscription)
        read = None if self.archive is None else self.archive.history.due_to(subscription)
        return HubSubscription(self, subscription, Kept(limit, read))

    def may_have(self, note: Notification) -> bool:
        """Whether what was kept is worth to be handed out, now or when its subscriber has a fresh token."""
        if self.gate is None or note.event.signature is None:
            return True
        with self.guard:
            try:
                self.gate.check_stored(note.event, note.event.timestamp)
            except SecurityError:
                return False
        return True

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

    def abort(self) -> None:
        """Closes the journal without a snapshot; what waits to go out is dropped."""
        self._syncer.shutdown()
        self.closed = True
        if self.archive is not None:
            self.archive.history.close()
            self.archive.journal.close()


def _tell_failed(error: JournalError) -> None:
    _LOG.error("the journal has failed, and everything is refused until the broker is started again", reason=error)

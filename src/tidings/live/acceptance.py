"""Acceptance: publications of clients are taken together, as they come; each is told of when it is as safe as asked."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import plain
from tidings.engine.operations import Publish
from tidings.hub.handling import published as published_plainly
from tidings.hub.outcome import Outcome
from tidings.hub.roster import NOTHING
from tidings.live.awaited import AwaitedError
from tidings.live.neighbours import Task
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
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes, Context
from tidings.protocol.events import read_context_filter
from tidings.protocol.publications import Published, Safety
from tidings.texts import policy_text

if TYPE_CHECKING:
    from tidings.live.desk import Desk


class Publisher(Protocol):
    """Who is told what became of a publication."""

    name: str

    def receipt(self, request: int, offset: int, timestamp: int) -> None: ...
    def refuse(self, request: int, error: TidingsError) -> None: ...


class Taken(msgspec.Struct):
    """A publication that was accepted, and what follows from it; `row` is its place among those of its batch."""

    published: Published
    event: Event
    outcome: Outcome
    row: int
    tasks: list[Task] | tuple[()] = ()


class Waiting(NamedTuple):
    """Publications that were not taken, since the first of them waits for an answer."""

    question: tuple[str, str]
    ahead: Outcome  # what was to be done before it
    publications: list[tuple[Published, str | None]]


class Chunk:
    """Publications of one publisher that came together: those that were accepted, what is told of others, and the rows
    of them all for the journal, or how many there would be."""

    __slots__ = ("count", "rows", "taken", "told", "waiting")

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.told: list[tuple[Outcome, int]] = []
        self.rows: list[journal.Operation] = []
        self.count = 0
        self.waiting: Waiting | None = None


class Acceptance:
    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._settling: dict[UUID, tuple[Publisher, int, int, int]] = {}  # what is to be told when an event is settled

    def accept(self, publisher: Publisher, publications: list[tuple[Published, str | None]]) -> "Waiting | None":
        """Publications with their subjects, in order; the publisher is told of each when it is as safe as it wants.

        If one has to wait for an answer on trust, it and those behind it are to be given here again."""
        with self._desk.guard:
            waiting = self._accept(publisher, publications)
        if waiting is not None:
            self._desk.follow(waiting.ahead)
        return waiting

    def _accept(self, publisher: Publisher, publications: list[tuple[Published, str | None]]) -> "Waiting | None":
        last, base = self._desk.roster.sequences.get(publisher.name, 0), self._desk.now()
        chunk = self._handled(publisher, publications, base)
        if not chunk.taken and not chunk.told:
            return chunk.waiting
        try:
            first = self._desk.appended(chunk.rows, base, chunk.count)
        except JournalError as error:
            self._desk.roster.sequences[publisher.name] = last
            for one in reversed(chunk.taken):
                if self._desk.engine.gate is not None:
                    self._desk.engine.gate.take_back(one.event)
            for one in chunk.taken:
                self._desk.engine.passages.forget(one.event.id)
                self._desk.roster.forget(one.event.id)
                self._refuse(publisher, one.published.request, error)
            return chunk.waiting
        self._enter(publisher, chunk, first)
        return chunk.waiting

    def _handled(self, publisher: Publisher, publications: list[tuple[Published, str | None]], base: int) -> Chunk:
        """What the engine says to each of them; what it refuses is told."""
        chunk, desk, roster = Chunk(), self._desk, self._desk.roster
        events = self._events(publisher, publications, base)
        is_short = plain.is_open(desk.engine, publisher.name)
        for place, (published, event) in enumerate(events):
            now = base + chunk.count
            try:
                desk.check_open()
                if event.signature is not None:
                    known = roster.receipts.of(event)
                    if known is not None:
                        self._repeat(publisher, published, known)
                        continue
                self._check_new(event)
                if event.timestamp != now:  # one before it was refused
                    event = msgspec.structs.replace(event, timestamp=now)
                operation = Publish(event)
                short = published_plainly(desk, event, now) if is_short else None
                if short is None:
                    outcome = desk.handle(operation, now)
                    is_short = plain.is_open(desk.engine, publisher.name)  # it may have changed that
                else:
                    outcome = short
            except AwaitedError as error:
                rest = [(published, event.subject) for published, event in events[place:]]
                chunk.waiting = Waiting(error.question, error.ahead, rest)
                break
            except TidingsError as error:
                self._refuse(publisher, published.request, error)
                continue
            refused = outcome.refused
            if refused is None:
                chunk.taken.append(Taken(published, event, outcome, chunk.count))
                roster.published(publisher.name, published.sequence, event.id)
                if event.signature is not None:
                    roster.receipts.note_soon(event, -1)  # where it stands is not known yet
            else:
                outcome.keep_only_what_was_told()
                self._refuse(publisher, published.request, RefusedError(refused.step, refused.reason))
                if not outcome.is_kept:
                    continue
                chunk.told.append((outcome, chunk.count))
            if desk.archive is not None:
                mine = outcome.rows(None if refused else operation, {})
                chunk.rows += mine
                chunk.count += len(mine)
            else:
                chunk.count += (refused is None) + len(outcome.told) + len(outcome.persisted)
        return chunk

    def _enter(self, publisher: Publisher, chunk: Chunk, first: int) -> None:
        """They are in the journal from that offset on: what follows goes out once they are safe."""
        safe = self._desk.archive is not None and any(one.published.safe for one in chunk.taken)
        after = self._desk.next if safe else 0
        for outcome, row in chunk.told:
            self._desk.note_told(outcome)
            outcome.expect(first + row, first + row)
            self._desk.outgoing.add(after, self._desk.put_all, outcome, first + row, first + row)
            self._desk.do_later(after, outcome.others)
        for one in chunk.taken:
            event, outcome, row = one.event, one.outcome, one.row
            self._desk.neighbours.published(event, first + row)
            if event.signature is not None:
                self._desk.roster.receipts.note_soon(event, first + row)
            if outcome.others:
                one.tasks = self._desk.neighbours.bound(outcome.others)
            if outcome.told or outcome.persisted:
                self._desk.note_told(outcome)
            if outcome.undecided:
                self._desk.note_owed(outcome, first + row, first + row + 1)
            if outcome.durable:
                outcome.expect(first + row, first + row + 1)
                for held, note in outcome.durable:
                    self._desk.given.note(held, note.event.id)
        self._desk.metrics.accepted += len(chunk.taken)
        self._desk.outgoing.add(after, self._release, publisher, chunk.taken, first)

    def _events(
        self, publisher: Publisher, publications: list[tuple[Published, str | None]], now: int
    ) -> list[tuple[Published, Event]]:
        """The events of publications that are well formed; what is not is refused."""
        events: list[tuple[Published, Event]] = []
        name, context = publisher.name, self._desk.roster.contexts.get(publisher.name, NOTHING)
        for published, subject in publications:
            try:
                events.append((published, _event(name, published, subject, context, now + len(events))))
            except TidingsError as error:
                self._refuse(publisher, published.request, error)
        self._desk.engine.foresee([event for _, event in events])
        return events

    def _check_new(self, event: Event) -> None:
        roster = self._desk.roster
        if roster.remembers(event.id):
            raise PublishedBeforeError("admit", f"the event {event.id} was published before")
        sequence, last = event.sequence, roster.sequences.get(event.publisher, 0)
        if not last < sequence <= MAX_INTEGER:
            raise RefusedError(
                "admit",
                f"sequence: {sequence} does not come after {last}, the last of {event.publisher}; "
                "is it connected twice?",
            )

    def _release(self, publisher: Publisher, taken: list[Taken], first: int) -> None:
        delivered = 0
        for one in taken:
            outcome, offset = one.outcome, first + one.row
            if outcome.durable or outcome.told:
                self._desk.put_all(outcome, offset, offset + 1)
            else:
                for held, note in outcome.deliveries:
                    held.inbox.put(note, offset)
            delivered += len(outcome.deliveries)
            for act, about in one.tasks:
                act(*about)
            self._tell_safe(publisher, one.published, one.event, offset)
        self._desk.metrics.delivered += delivered
        if delivered:
            took = self._desk.clock.now() - taken[0].event.timestamp
            self._desk.metrics.delivered_after.note(took / 1_000_000, delivered)

    def _tell_safe(self, publisher: Publisher, published: Published, event: Event, offset: int) -> None:
        """Now, or when it is settled, if that is asked for."""
        if published.safe < Safety.SETTLED or not self._desk.neighbours.is_waiting(offset):
            publisher.receipt(published.request, offset, event.timestamp)
        else:
            self._settling[event.id] = publisher, published.request, offset, event.timestamp

    def _repeat(self, publisher: Publisher, published: Published, known: Receipt) -> None:
        """A sealed event that came before gets its first receipt once more, and is not routed again."""
        self._desk.metrics.repeated += 1
        after = self._desk.next if self._desk.archive is not None else 0
        self._desk.outgoing.add(after, self._tell_safe, publisher, published, known.event, known.offset)

    def settled(self, event: UUID) -> None:
        """An event has arrived wherever it is due."""
        waiting = self._settling.pop(event, None)
        if waiting is not None:
            publisher, request, offset, timestamp = waiting
            publisher.receipt(request, offset, timestamp)

    def give_up(self, act: Callable[..., None], about: tuple[Any, ...], error: TidingsError) -> None:
        """What was to go out will not: if it was for publishers, they are told why."""
        if act == self._release:
            publisher, taken, _ = about
            for one in taken:
                publisher.refuse(one.published.request, error)
        elif act == self._tell_refused:
            publisher, request, _ = about
            publisher.refuse(request, error)
        elif act == self._tell_safe:
            publisher, published, _, _ = about
            publisher.refuse(published.request, error)

    def _refuse(self, publisher: Publisher, request: int, error: TidingsError) -> None:
        """Told in the order of things: what was published before may still be on its way to the disk."""
        after = 0
        if isinstance(error, PublishedBeforeError):
            self._desk.metrics.repeated += 1
            after = self._desk.next if self._desk.archive is not None else 0
        else:
            self._desk.metrics.refuse(error)
        self._desk.outgoing.add(after, self._tell_refused, publisher, request, error)

    @staticmethod
    def _tell_refused(publisher: Publisher, request: int, error: TidingsError) -> None:
        publisher.refuse(request, error)


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
        token=None if published.token is None else _checked_token(published.token),
        signature=None if published.signature is None else _checked_signature(published.signature),
    )


def _checked_token(token: bytes) -> bytes | None:
    return checked_bytes(token, "token", "MAX_TOKEN_BYTES", MAX_TOKEN_BYTES)


def _checked_signature(signature: bytes) -> bytes | None:
    return checked_bytes(signature, "signature", "MAX_SIGNATURE_BYTES", MAX_SIGNATURE_BYTES)

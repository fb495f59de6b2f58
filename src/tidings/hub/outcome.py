"""The outcome of an operation: what its effects come to, and how it is written down."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidings import journal
from tidings.engine import records
from tidings.engine.effects import Decided, Effect, Persist, Reject
from tidings.engine.journey import Journey
from tidings.engine.operations import Judge, Operation, Publish, Unsubscribe
from tidings.hub import due, owing
from tidings.hub.outbox import Batch
from tidings.hub.subscription import HubSubscription
from tidings.model.event import Event
from tidings.model.notification import Notification

TRUST = "$trust"  # with a row: what was answered to the engine's questions
LOAD = "$load"  # with a row: the load, where there was any
JUDGED = "$judged"  # with an event of another broker: when it was found out whom of all clients here it is for
_META = Journey(meta=True)


class Outcome:
    __slots__ = (
        *("decided", "deliveries", "durable", "findings", "followed", "others", "persisted", "refused", "told"),
        *("trusted", "undecided"),
    )

    def __init__(self) -> None:
        self.deliveries: list[tuple[HubSubscription, Notification]] = []
        # Most operations have nothing of these, and a tuple costs nothing.
        self.durable: tuple[tuple[HubSubscription, Notification], ...] = ()  # of the deliveries, those to be kept
        self.told: tuple[Event, ...] = ()
        self.persisted: tuple[Persist, ...] = ()
        self.findings: tuple[str, ...] = ()
        self.followed: tuple[Operation, ...] = ()  # operations that it has led to, which the engine has handled
        self.trusted: tuple[tuple[str, str, bool, int], ...] = ()  # party, group, whether it belongs, until when
        self.undecided: tuple[Judge, ...] = ()  # what waits for an answer, and is owed a decision
        self.decided: tuple[Decided, ...] = ()  # what has waited before, and does no more
        self.refused: Reject | None = None
        self.others: list[Effect] = []  # for whoever has links to other brokers

    def keep_only_what_was_told(self) -> None:
        """Of an operation that was refused, meta-events are delivered, and nothing else."""
        told = {event.id for event in self.told}
        self.deliveries = [one for one in self.deliveries if one[1].event.id in told]
        self.durable = tuple(one for one in self.durable if one[1].event.id in told)

    @property
    def is_kept(self) -> bool:
        """Whether there is something to be written down, whatever becomes of the operation itself."""
        return bool(self.told or self.persisted or self.followed or self.undecided or self.decided)

    def decide(self, decided: Decided) -> None:
        """What was open a moment ago is not worth a word."""
        left = tuple(one for one in self.undecided if (one.event.id, one.client) != (decided.event, decided.client))
        if len(left) == len(self.undecided):
            self.decided += (decided,)
        self.undecided = left

    def keep_only(self, wanted: Callable[[HubSubscription, Notification], bool]) -> None:
        """Of what is for durable subscriptions, only what is wanted."""
        unwanted = {(held.id, note.event.id) for held, note in self.durable if not wanted(held, note)}
        if unwanted:
            self.deliveries = [one for one in self.deliveries if (one[0].id, one[1].event.id) not in unwanted]
            self.durable = tuple(one for one in self.durable if (one[0].id, one[1].event.id) not in unwanted)

    def rows(
        self, operation: Operation | None, notes: dict[str, Any], judged: Callable[[UUID], int] = lambda _: 0
    ) -> list[journal.Operation]:
        """The operation, if it is to be kept; then the meta-events that it caused, the events of other brokers that it
        brought to durable subscriptions, or owes them a decision about, what rules persist, operations that it has led
        to, and what is decided. `judged`: when it was found out whom of all clients here an event of another broker is
        for."""
        if type(operation) is Publish and not (self.durable or self.is_kept or self.trusted):
            return [records.row(operation)]  # most are so
        events = {event.id: event for event in self.told}
        if isinstance(operation, Publish):
            events[operation.event.id] = operation.event
        passed: dict[UUID, Event] = {}
        owed: dict[UUID, list[str | due.Changed]] = {}
        for _, note in self.durable:
            id = note.event.id  # noqa: A001
            if id not in events:
                passed[id] = events[id] = note.event
            owed.setdefault(id, []).append(due.written(note, events[id]))
        for one in self.undecided:
            if one.event.id not in events:
                passed[one.event.id] = events[one.event.id] = one.event
        rows = []
        if isinstance(operation, Publish):
            rows.append(records.row(operation, {**self._lasting(operation.event), **self._owed(operation.event, owed)}))
        elif operation is not None:
            rows.append(records.row(operation, notes))
        for event in self.told:
            rows.append(records.row(Publish(event, _META), self._owed(event, owed)))
        for event in passed.values():
            when = judged(event.id)
            rows.append(records.passed(event, {**self._owed(event, owed), **({JUDGED: when} if when else {})}))
        for kept in self.persisted:
            rows.append(journal.Operation.control("persist", id=kept.store, body={"message": kept.message}))
        for other in self.followed:
            rows.append(records.row(other, {records.EXPELLED: True} if isinstance(other, Unsubscribe) else None))
        return rows + [owing.decision(one) for one in self.decided]

    def batches(self, first: int, told_from: int, after: int) -> list[Batch]:
        """The deliveries by their publications: the operation's own at offset `first`, meta-events from `told_from`,
        and the events of other brokers after them."""
        offsets = self._offsets(first, told_from)
        batches: list[Batch] = []
        for delivery in self.deliveries:
            offset = offsets.get(delivery[1].event.id, first)
            if not batches or batches[-1].offset != offset:
                batches.append(Batch([], offset, after))
            batches[-1].deliveries.append(delivery)
        return sorted(batches, key=lambda batch: batch.offset)

    def owed(self, first: int, told_from: int) -> list[tuple[Judge, int]]:
        """What is undecided, with the offsets of the publications."""
        offsets = self._offsets(first, told_from)
        return [(one, offsets.get(one.event.id, first)) for one in self.undecided]

    def _offsets(self, first: int, told_from: int) -> dict[UUID, int]:
        """Of publications that are not the operation's own."""
        offsets = {event.id: told_from + number for number, event in enumerate(self.told)}
        if first == told_from:
            for event in (*(note.event for _, note in self.durable), *(one.event for one in self.undecided)):
                offsets.setdefault(event.id, told_from + len(offsets))
        return offsets

    def expect(self, first: int, told_from: int) -> None:
        """Durable inboxes hear of what will come before it may."""
        for batch in self.batches(first, told_from, 0):
            for held, _ in batch.deliveries:
                held.inbox.expect(batch.offset)

    def _lasting(self, event: Event) -> dict[str, Any]:
        """Answers that the engine remembers, for the operations after this one."""
        lasting = [one for one in self.trusted if one[3] > event.timestamp]
        return {TRUST: lasting} if lasting else {}

    def _owed(self, event: Event, owed: dict[UUID, list[str | due.Changed]]) -> dict[str, Any]:
        """What is due to whom, and to whom a decision about it is owed."""
        given = {due.DUE: owed[event.id]} if event.id in owed else {}
        open_to = [owing.written(one) for one in self.undecided if one.event.id == event.id]
        return {**given, owing.OWED: open_to} if open_to else given

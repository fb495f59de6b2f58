"""The outcome of an operation: collects the engine's effects into deliveries, and writes their journal rows."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple
from uuid import UUID

import msgspec

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.effects import DecisionMade, Effect, Persist, Reject
from tidings.engine.headers import ForwardingHeader
from tidings.engine.operations import Operation, Publish, Redecide, Unsubscribe
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.runtime import delivery_record
from tidings.runtime.durable_inbox import DurableInbox
from tidings.runtime.subscription_registry import S

TRUST = "$trust"  # journal note: the answers of the trust provider while the operation was handled
LOAD = "$load"  # journal note: the load when the operation was handled, if not 0
MATCHED_AT = "$judged"  # journal note on another broker's event: when this broker matched it for all its clients
_META = ForwardingHeader(meta=True)


class OperationOutcome(msgspec.Struct, Generic[S], eq=False):
    """The deliveries, journal rows and reports that result from an operation, collected from the engine's effects."""

    deliveries: list[tuple[S, Notification]] = []
    # Most operations have none of the following, and an empty tuple costs no allocation.
    durable: tuple[tuple[S, Notification], ...] = ()  # the deliveries to durable subscriptions
    meta_events: tuple[Event, ...] = ()  # meta-events that the engine published
    persisted: tuple[Persist, ...] = ()
    findings: tuple[str, ...] = ()
    caused_operations: tuple[Operation, ...] = ()  # operations that this one caused, already handled
    # Party, group, whether the party is a member, and until when the answer is valid.
    trust_answers: tuple[tuple[str, str, bool, int], ...] = ()
    pending_decisions: tuple[Redecide, ...] = ()  # publications whose decision waits for a trust answer
    decided: tuple[DecisionMade, ...] = ()  # decisions that were pending before, and are made now
    refused: Reject | None = None
    others: list[Effect] = []  # effects that only a broker carries out

    def rows(
        self, operation: Operation | None, row_notes: dict[str, Any], matched_at: Callable[[UUID], int] = lambda _: 0
    ) -> list[journal.Operation]:
        """Return the journal rows of the outcome, in the order in which they are written.

        First the operation itself (unless it is None), then meta-events, events of other brokers that are due to
        durable subscriptions or pending, persisted messages, operations that this one caused, and decisions that are
        made.

        Args:
            operation: The operation to journal, or None if it is not journaled.
            row_notes: Notes to store with the operation's row.
            matched_at: Returns when this broker matched another broker's event for all its clients; 0 if it did not.
        """
        if type(operation) is Publish and not (self.durable or needs_rows(self) or self.trust_answers):
            return [journal_codec.row(operation)]  # the usual case
        events = {event.id: event for event in self.meta_events}
        if isinstance(operation, Publish):
            events[operation.event.id] = operation.event
        remote_events: dict[UUID, Event] = {}
        due: dict[UUID, list[str | delivery_record.NotificationChanges]] = {}
        for _, notification in self.durable:
            id = notification.event.id  # noqa: A001
            if id not in events:
                remote_events[id] = events[id] = notification.event
            due.setdefault(id, []).append(delivery_record.encode(notification, events[id]))
        for decision in self.pending_decisions:
            if decision.event.id not in events:
                remote_events[decision.event.id] = events[decision.event.id] = decision.event
        rows = []
        if isinstance(operation, Publish):
            rows.append(
                journal_codec.row(
                    operation, {**_trust_note(self, operation.event), **_due_notes(self, operation.event, due)}
                )
            )
        elif operation is not None:
            rows.append(journal_codec.row(operation, row_notes))
        for event in self.meta_events:
            rows.append(journal_codec.row(Publish(event, _META), _due_notes(self, event, due)))
        for event in remote_events.values():
            when = matched_at(event.id)
            rows.append(
                journal_codec.passed_row(
                    event, {**_due_notes(self, event, due), **({MATCHED_AT: when} if when else {})}
                )
            )
        for persist in self.persisted:
            rows.append(journal.Operation.control("persist", id=persist.store, body={"message": persist.message}))
        for caused in self.caused_operations:
            rows.append(
                journal_codec.row(caused, {journal_codec.EXPELLED: True} if isinstance(caused, Unsubscribe) else None)
            )
        return rows + [delivery_record.decision(decision) for decision in self.decided]


class ReleaseBatch(NamedTuple, Generic[S]):
    """The deliveries of one publication, with the offset of its row in the journal."""

    deliveries: list[tuple[S, Notification]]
    offset: int


def needs_rows(outcome: OperationOutcome[S]) -> bool:
    """Return whether an outcome needs journal rows besides the operation's own and its deliveries."""
    return bool(
        outcome.meta_events
        or outcome.persisted
        or outcome.caused_operations
        or outcome.pending_decisions
        or outcome.decided
    )


def keep_only_meta_events(outcome: OperationOutcome[S]) -> None:
    """Drop all deliveries except those of meta-events, since the operation was refused."""
    ids = {event.id for event in outcome.meta_events}
    outcome.deliveries = [delivery for delivery in outcome.deliveries if delivery[1].event.id in ids]
    outcome.durable = tuple(delivery for delivery in outcome.durable if delivery[1].event.id in ids)


def keep_only(outcome: OperationOutcome[S], is_wanted: Callable[[S, Notification], bool]) -> None:
    """Drop the deliveries to durable subscriptions for which `is_wanted` is false.

    Deliveries are compared by identity: the same event may be in the list twice and wanted once.
    """
    dropped = {id(delivery) for delivery in outcome.durable if not is_wanted(*delivery)}
    if dropped:
        outcome.deliveries = [delivery for delivery in outcome.deliveries if id(delivery) not in dropped]
        outcome.durable = tuple(delivery for delivery in outcome.durable if id(delivery) not in dropped)


def record_decision(outcome: OperationOutcome[S], decision: DecisionMade) -> None:
    """Record that a decision is made; one that became pending within this outcome just stops being pending."""
    pending = tuple(
        redecide
        for redecide in outcome.pending_decisions
        if (redecide.event.id, redecide.client) != (decision.event, decision.client)
    )
    if len(pending) == len(outcome.pending_decisions):
        outcome.decided += (decision,)
    outcome.pending_decisions = pending


def batches(outcome: OperationOutcome[S], first: int, meta_events_offset: int) -> list[ReleaseBatch[S]]:
    """Return the deliveries grouped by publication, in the order of the publications' offsets.

    Args:
        outcome: The outcome of an operation.
        first: The offset of the operation's own row.
        meta_events_offset: The offset of the first meta-event's row; the rows of other brokers' events follow.
    """
    offsets = _offsets(outcome, first, meta_events_offset)
    grouped: list[ReleaseBatch[S]] = []
    for delivery in outcome.deliveries:
        offset = offsets.get(delivery[1].event.id, first)
        if not grouped or grouped[-1].offset != offset:
            grouped.append(ReleaseBatch([], offset))
        grouped[-1].deliveries.append(delivery)
    return sorted(grouped, key=lambda batch: batch.offset)


def pending_decisions_with_offsets(
    outcome: OperationOutcome[S], first: int, meta_events_offset: int
) -> list[tuple[Redecide, int]]:
    """Return the pending decisions of an outcome with the offsets of their publications."""
    offsets = _offsets(outcome, first, meta_events_offset)
    return [(redecide, offsets.get(redecide.event.id, first)) for redecide in outcome.pending_decisions]


def expect(outcome: OperationOutcome[S], first: int, meta_events_offset: int) -> None:
    """Announce the deliveries' offsets to durable inboxes before the deliveries come."""
    if outcome.durable:
        for batch in batches(outcome, first, meta_events_offset):
            expect_batch(batch)


def expect_batch(batch: ReleaseBatch[S]) -> None:
    """Announce the offset of a publication to the durable inboxes to which it is due."""
    for subscription, _ in batch.deliveries:
        inbox = subscription.inbox
        if isinstance(inbox, DurableInbox):
            inbox.expect(batch.offset)


def _offsets(outcome: OperationOutcome[S], first: int, meta_events_offset: int) -> dict[UUID, int]:
    """Return the offsets of publications other than the operation's own, by event id."""
    offsets = {event.id: meta_events_offset + number for number, event in enumerate(outcome.meta_events)}
    if first == meta_events_offset:
        for event in (
            *(notification.event for _, notification in outcome.durable),
            *(redecide.event for redecide in outcome.pending_decisions),
        ):
            offsets.setdefault(event.id, meta_events_offset + len(offsets))
    return offsets


def _trust_note(outcome: OperationOutcome[S], event: Event) -> dict[str, Any]:
    """Return, as a journal note, the trust answers that the engine caches beyond this operation."""
    answers = [answer for answer in outcome.trust_answers if answer[3] > event.timestamp]
    return {TRUST: answers} if answers else {}


def _due_notes(
    outcome: OperationOutcome[S], event: Event, due: dict[UUID, list[str | delivery_record.NotificationChanges]]
) -> dict[str, Any]:
    """Return the part of an event's journal row that lists the due notifications and the pending decisions."""
    row_notes = {delivery_record.DUE: due[event.id]} if event.id in due else {}
    pending = [
        delivery_record.pending_decision(redecide)
        for redecide in outcome.pending_decisions
        if redecide.event.id == event.id
    ]
    return {**row_notes, delivery_record.PENDING: pending} if pending else row_notes

"""The outcome of an operation: collects the engine's effects into deliveries, and writes their journal rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidings import journal
from tidings.engine import journal_codec
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
    with_processing_time,
)
from tidings.engine.headers import ForwardingHeader
from tidings.engine.operations import Operation, Publish, Redecide, Trust, Unsubscribe
from tidings.hub.delivery_queue import ReleaseBatch
from tidings.hub.subscription import HubSubscription
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.runtime import delivery_record

if TYPE_CHECKING:
    from tidings.hub.processor import Processor

TRUST = "$trust"  # journal note: the answers of the trust provider while the operation was handled
LOAD = "$load"  # journal note: the load when the operation was handled, if not 0
MATCHED_AT = "$judged"  # journal note on another broker's event: when this broker matched it for all its clients
_META = ForwardingHeader(meta=True)


class OperationOutcome:
    """The deliveries, journal rows and reports that result from an operation, collected from the engine's effects."""

    __slots__ = (
        *(
            "decided",
            "deliveries",
            "durable",
            "findings",
            "caused_operations",
            "others",
            "persisted",
            "refused",
            "meta_events",
        ),
        *("trust_answers", "pending_decisions"),
    )

    def __init__(self) -> None:
        self.deliveries: list[tuple[HubSubscription, Notification]] = []
        # Most operations have none of the following, and an empty tuple costs no allocation.
        self.durable: tuple[tuple[HubSubscription, Notification], ...] = ()  # the deliveries to durable subscriptions
        self.meta_events: tuple[Event, ...] = ()  # meta-events that the engine published
        self.persisted: tuple[Persist, ...] = ()
        self.findings: tuple[str, ...] = ()
        self.caused_operations: tuple[Operation, ...] = ()  # operations that this one caused, already handled
        # Party, group, whether the party is a member, and until when the answer is valid.
        self.trust_answers: tuple[tuple[str, str, bool, int], ...] = ()
        self.pending_decisions: tuple[Redecide, ...] = ()  # publications whose decision waits for a trust answer
        self.decided: tuple[DecisionMade, ...] = ()  # decisions that were pending before, and are made now
        self.refused: Reject | None = None
        self.others: list[Effect] = []  # effects that only a broker carries out

    def keep_only_meta_events(self) -> None:
        """Drop all deliveries except those of meta-events, since the operation was refused."""
        ids = {event.id for event in self.meta_events}
        self.deliveries = [delivery for delivery in self.deliveries if delivery[1].event.id in ids]
        self.durable = tuple(delivery for delivery in self.durable if delivery[1].event.id in ids)

    @property
    def needs_rows(self) -> bool:
        """Whether the outcome needs journal rows besides the operation's own and its deliveries."""
        return bool(
            self.meta_events or self.persisted or self.caused_operations or self.pending_decisions or self.decided
        )

    def decide(self, decision: DecisionMade) -> None:
        """Record that a decision is made; one that became pending within this outcome just stops being pending."""
        pending = tuple(
            redecide
            for redecide in self.pending_decisions
            if (redecide.event.id, redecide.client) != (decision.event, decision.client)
        )
        if len(pending) == len(self.pending_decisions):
            self.decided += (decision,)
        self.pending_decisions = pending

    def keep_only(self, is_wanted: Callable[[HubSubscription, Notification], bool]) -> None:
        """Drop the deliveries to durable subscriptions for which `is_wanted` is false.

        Deliveries are compared by identity: the same event may be in the list twice and wanted once.
        """
        dropped = {id(delivery) for delivery in self.durable if not is_wanted(*delivery)}
        if dropped:
            self.deliveries = [delivery for delivery in self.deliveries if id(delivery) not in dropped]
            self.durable = tuple(delivery for delivery in self.durable if id(delivery) not in dropped)

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
        if type(operation) is Publish and not (self.durable or self.needs_rows or self.trust_answers):
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
                    operation, {**self._trust_note(operation.event), **self._due_notes(operation.event, due)}
                )
            )
        elif operation is not None:
            rows.append(journal_codec.row(operation, row_notes))
        for event in self.meta_events:
            rows.append(journal_codec.row(Publish(event, _META), self._due_notes(event, due)))
        for event in remote_events.values():
            when = matched_at(event.id)
            rows.append(
                journal_codec.passed_row(event, {**self._due_notes(event, due), **({MATCHED_AT: when} if when else {})})
            )
        for persist in self.persisted:
            rows.append(journal.Operation.control("persist", id=persist.store, body={"message": persist.message}))
        for caused in self.caused_operations:
            rows.append(
                journal_codec.row(caused, {journal_codec.EXPELLED: True} if isinstance(caused, Unsubscribe) else None)
            )
        return rows + [delivery_record.decision(decision) for decision in self.decided]

    def batches(self, first: int, meta_events_offset: int, after: int) -> list[ReleaseBatch]:
        """Return the deliveries grouped by publication, in the order of the publications' offsets.

        Args:
            first: The offset of the operation's own row.
            meta_events_offset: The offset of the first meta-event's row; the rows of other brokers' events follow.
            after: The offset up to which the journal must be synced before the delivery.
        """
        offsets = self._offsets(first, meta_events_offset)
        batches: list[ReleaseBatch] = []
        for delivery in self.deliveries:
            offset = offsets.get(delivery[1].event.id, first)
            if not batches or batches[-1].offset != offset:
                batches.append(ReleaseBatch([], offset, after))
            batches[-1].deliveries.append(delivery)
        return sorted(batches, key=lambda batch: batch.offset)

    def pending_decisions_with_offsets(self, first: int, meta_events_offset: int) -> list[tuple[Redecide, int]]:
        """Return the pending decisions with the offsets of their publications."""
        offsets = self._offsets(first, meta_events_offset)
        return [(redecide, offsets.get(redecide.event.id, first)) for redecide in self.pending_decisions]

    def _offsets(self, first: int, meta_events_offset: int) -> dict[UUID, int]:
        """Return the offsets of publications other than the operation's own, by event id."""
        offsets = {event.id: meta_events_offset + number for number, event in enumerate(self.meta_events)}
        if first == meta_events_offset:
            for event in (
                *(notification.event for _, notification in self.durable),
                *(redecide.event for redecide in self.pending_decisions),
            ):
                offsets.setdefault(event.id, meta_events_offset + len(offsets))
        return offsets

    def expect(self, first: int, meta_events_offset: int) -> None:
        """Announce the deliveries' offsets to durable inboxes before the deliveries come."""
        for batch in self.batches(first, meta_events_offset, 0):
            for subscription, _ in batch.deliveries:
                subscription.inbox.expect(batch.offset)

    def _trust_note(self, event: Event) -> dict[str, Any]:
        """Return, as a journal note, the trust answers that the engine caches beyond this operation."""
        answers = [answer for answer in self.trust_answers if answer[3] > event.timestamp]
        return {TRUST: answers} if answers else {}

    def _due_notes(
        self, event: Event, due: dict[UUID, list[str | delivery_record.NotificationChanges]]
    ) -> dict[str, Any]:
        """Return, as journal notes, the notifications due of the event and the pending decisions about it."""
        row_notes = {delivery_record.DUE: due[event.id]} if event.id in due else {}
        pending = [
            delivery_record.pending_decision(redecide)
            for redecide in self.pending_decisions
            if redecide.event.id == event.id
        ]
        return {**row_notes, delivery_record.PENDING: pending} if pending else row_notes


def handle_operation(processor: "Processor", operation: Operation, now: int) -> OperationOutcome:
    """Have the engine handle an operation, answer its trust questions, and sort the effects into an outcome.

    The hub's lock is held.
    """
    outcome, engine = OperationOutcome(), processor.engine
    governed = engine.state.rules.on_publications or (type(operation) is Publish and operation.event.policy is not None)
    started = processor.clock.now() if governed else 0
    effects: list[Effect] = engine.handle(operation, now)
    if governed:
        effects = _timed(processor, effects, started)
    subscriptions, deliveries = processor.registry.subscriptions, outcome.deliveries
    durable = []
    for effect in effects:  # grows when a trust answer causes more effects
        if type(effect) is Deliver:
            notification = effect.notification
            subscription = subscriptions.get(notification.subscription)
            if subscription is not None:
                delivery = subscription, notification
                deliveries.append(delivery)
                if subscription.durable is not None:
                    durable.append(delivery)
        elif isinstance(effect, AskTrust):
            answer = processor.ask(effect.party, effect.group, now)
            if answer is None:
                continue  # the answer will arrive later, as an operation
            is_member, until = answer
            outcome.trust_answers += ((effect.party, effect.group, is_member, until),)
            effects.extend(engine.handle(Trust(effect.party, effect.group, is_member, until), now))
        else:
            _apply_effect(processor, effect, outcome)
    if durable:
        outcome.durable = tuple(durable)
    return outcome


def publish_fast(processor: "Processor", event: Event, now: int) -> OperationOutcome | None:
    """Publish an event by the engine's fast path; None if the event needs the full path, by `handle_operation`.

    The caller has checked `Engine.can_take_fast_path`.
    """
    effects = processor.engine.publish_fast(event, now)
    if effects is None:
        return None
    outcome, subscriptions = OperationOutcome(), processor.registry.subscriptions
    durable = []
    for effect in effects:
        notification = effect.notification
        subscription = subscriptions.get(notification.subscription)
        if subscription is not None:
            delivery = subscription, notification
            outcome.deliveries.append(delivery)
            if effect.durable is not None:
                durable.append(delivery)
    if durable:
        outcome.durable = tuple(durable)
    return outcome


def _timed(processor: "Processor", effects: list[Effect], started: int) -> list[Effect]:
    """Fill in the processing time where a rule asked for it."""
    attribute = f"$trace.{processor.name}.microseconds"
    for effect in effects:
        if isinstance(effect, Deliver) and (effect.notification.trace or attribute in effect.notification.attributes):
            return with_processing_time(effects, processor.name, max(0, processor.clock.now() - started))
    return effects


def _apply_effect(processor: "Processor", effect: Effect, outcome: OperationOutcome) -> None:
    match effect:
        case Reject():
            outcome.refused = effect
            processor.stats.refused += 1
        case MetaEventPublished(event):
            outcome.meta_events += (event,)
        case Persist():
            outcome.persisted += (effect,)
        case SecurityNewsLearnt(operation):
            outcome.caused_operations += (operation,)
        case DecisionPending(redecide):
            outcome.pending_decisions += (redecide,)
        case DecisionMade():
            outcome.decide(effect)
        case SubscriptionExpelled(client, id, reason):
            processor.log_line(f"the subscription {id} of {client} is removed: {reason}")
            removal = Unsubscribe(client, id)
            outcome.caused_operations += (removal,)
            processor.registry.apply(removal, {})
        case PolicyWarning(_, finding):
            outcome.findings += (finding,)
        case LogMessage(line):
            processor.log_line(line)
        case _:
            outcome.others.append(effect)

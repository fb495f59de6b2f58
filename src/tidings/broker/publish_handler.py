"""Accept publications of clients in batches, and send each publisher a receipt or a refusal.

The rules of a batch:

- The engine handles its publications in order, each at its own acceptance time; the times of a batch are consecutive
  microseconds, one for each row of the journal.
- All rows of the batch are appended to the journal at once. If that fails, every publication of the batch is undone and
  refused with the journal's error.
- Deliveries and receipts go through the node's release queue, so they come in order. If any publication of the batch
  asks for durability, the whole batch waits for the sync of the journal.
- A publication that needs a trust answer ends the batch. It and those behind it are returned to the session, which
  submits them again once the answer is known.
- A receipt for `settled` waits until every broker with a matching durable subscription has the event on disk.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from tidings import journal
from tidings.broker.pending_decisions import TrustPendingError
from tidings.broker.ports import Task
from tidings.coerce import policy_text
from tidings.engine.operations import Publish
from tidings.hub.outcome import OperationOutcome, publish_fast
from tidings.hub.subscription_registry import EMPTY_CONTEXT
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
from tidings.protocol.publications import Safety, WirePublication

if TYPE_CHECKING:
    from tidings.broker.node import Node


class Publisher(Protocol):
    """The session of a publishing client: it gets a receipt or a refusal for each publication, by request number."""

    name: str

    def receipt(self, request: int, offset: int, timestamp: int) -> None:
        """Send the receipt of a publication: its offset in the journal, and its acceptance time."""
        ...

    def refuse(self, request: int, error: TidingsError) -> None:
        """Send the refusal of a publication."""
        ...


class AcceptedPublication(msgspec.Struct):
    """A publication that was accepted, with its event and outcome.

    `row` is the index of its row in the batch; `tasks` send its effects to other brokers.
    """

    published: WirePublication
    event: Event
    outcome: OperationOutcome
    row: int
    tasks: list[Task] | tuple[()] = ()


class DeferredPublications(NamedTuple):
    """Publications of a batch that were not accepted, since the first of them waits for a trust answer.

    `question` is the party and the trust group that the answer is about.
    """

    question: tuple[str, str]
    earlier_outcome: OperationOutcome  # effects that the engine produced before the first of them
    publications: list[tuple[WirePublication, str | None]]


class PublishBatch:
    """Publications of one publisher that are accepted together.

    `accepted` are the accepted publications; `refused_with_rows` the outcomes, each with its row index, of refused
    publications that produced meta-events or other rows; `rows` are the journal rows of them all, `count` is how many
    there are, or would be without a journal; `deferred` are the publications that wait for a trust answer.
    """

    __slots__ = ("accepted", "count", "deferred", "refused_with_rows", "rows")

    def __init__(self) -> None:
        self.accepted: list[AcceptedPublication] = []
        self.refused_with_rows: list[tuple[OperationOutcome, int]] = []
        self.rows: list[journal.Operation] = []
        self.count = 0
        self.deferred: DeferredPublications | None = None


class PublishHandler:
    """Accepts the publications of a broker's clients: checks, handles, journals and releases them."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._unsettled_receipts: dict[
            UUID, tuple[Publisher, int, int, int]
        ] = {}  # receipts that wait until their events are settled

    def accept(
        self, publisher: Publisher, publications: list[tuple[WirePublication, str | None]]
    ) -> "DeferredPublications | None":
        """Accept publications, each with its subject, in order.

        `publisher` later gets a receipt for each publication, when it has the durability that it asks for, or a
        refusal. Returns None, or the publications that wait for a trust answer: the caller submits these again once the
        answer is known.
        """
        with self._node.lock:
            deferred = self._accept(publisher, publications)
        if deferred is not None:
            self._node.queue_outcome(deferred.earlier_outcome)
        return deferred

    def _accept(
        self, publisher: Publisher, publications: list[tuple[WirePublication, str | None]]
    ) -> "DeferredPublications | None":
        """Accept a batch under the node's lock: handle it, append its rows, and queue what follows."""
        last_sequence, base = self._node.registry.sequences.get(publisher.name, 0), self._node.now()
        batch = self._handle_each(publisher, publications, base)
        if not batch.accepted and not batch.refused_with_rows:
            return batch.deferred
        try:
            first = self._node.append_batch(batch.rows, base, batch.count)
        except JournalError as error:
            self._node.registry.sequences[publisher.name] = last_sequence
            for accepted in reversed(batch.accepted):
                if self._node.engine.gate is not None:
                    self._node.engine.gate.take_back(accepted.event)
            for accepted in batch.accepted:
                self._node.engine.state.seen_events.forget(accepted.event.id)
                self._node.registry.forget(accepted.event.id)
                self._refuse(publisher, accepted.published.request, error)
            return batch.deferred
        self._queue_batch(publisher, batch, first)
        return batch.deferred

    def _handle_each(
        self, publisher: Publisher, publications: list[tuple[WirePublication, str | None]], base: int
    ) -> PublishBatch:
        """Have the engine handle each publication; queue a refusal for each that is not accepted."""
        batch, node, registry = PublishBatch(), self._node, self._node.registry
        events = self._build_events(publisher, publications, base)
        is_fast = node.engine.can_take_fast_path(publisher.name)
        for position, (publication, event) in enumerate(events):
            now = base + batch.count
            try:
                node.check_open()
                if event.signature is not None:
                    receipt = registry.receipts.first_receipt(event)
                    if receipt is not None:
                        self._repeat_receipt(publisher, publication, receipt)
                        continue
                self._check_new(event)
                if event.timestamp != now:  # a publication before it in the batch was refused
                    event = msgspec.structs.replace(event, timestamp=now)
                operation = Publish(event)
                fast_outcome = publish_fast(node, event, now) if is_fast else None
                if fast_outcome is None:
                    outcome = node.handle(operation, now)
                    is_fast = node.engine.can_take_fast_path(publisher.name)  # may be closed now
                else:
                    outcome = fast_outcome
            except TrustPendingError as error:
                remaining = [(publication, event.subject) for publication, event in events[position:]]
                batch.deferred = DeferredPublications(error.question, error.earlier_outcome, remaining)
                break
            except TidingsError as error:
                self._refuse(publisher, publication.request, error)
                continue
            refused = outcome.refused
            if refused is None:
                batch.accepted.append(AcceptedPublication(publication, event, outcome, batch.count))
                registry.record_event(publisher.name, publication.sequence, event.id)
                if event.signature is not None:
                    registry.receipts.record_unhashed(event, -1)  # its offset is not known before the rows are appended
            else:
                outcome.keep_only_meta_events()
                self._refuse(publisher, publication.request, RefusedError(refused.step, refused.reason))
                if not outcome.needs_rows:
                    continue
                batch.refused_with_rows.append((outcome, batch.count))
            if node.journal_store is not None:
                rows = outcome.rows(None if refused else operation, {})
                batch.rows += rows
                batch.count += len(rows)
            else:
                batch.count += (refused is None) + len(outcome.meta_events) + len(outcome.persisted)
        return batch

    def _queue_batch(self, publisher: Publisher, batch: PublishBatch, first: int) -> None:
        """Queue the deliveries, receipts and effects of a batch whose rows begin at offset `first` of the journal."""
        must_sync = self._node.journal_store is not None and any(accepted.published.safe for accepted in batch.accepted)
        sync_offset = self._node.next if must_sync else 0
        for outcome, row in batch.refused_with_rows:
            self._node.record_effects(outcome)
            outcome.expect(first + row, first + row)
            self._node.release_queue.add(sync_offset, self._node.deliver, outcome, first + row, first + row)
            self._node.queue_remote_effects(sync_offset, outcome.others)
        for accepted in batch.accepted:
            event, outcome, row = accepted.event, accepted.outcome, accepted.row
            self._node.neighbours.on_published(event, first + row)
            if event.signature is not None:
                self._node.registry.receipts.record_unhashed(event, first + row)
            if outcome.others:
                accepted.tasks = self._node.neighbours.tasks_for(outcome.others)
            if outcome.meta_events or outcome.persisted:
                self._node.record_effects(outcome)
            if outcome.pending_decisions:
                self._node.record_pending_decisions(outcome, first + row, first + row + 1)
            if outcome.durable:
                outcome.expect(first + row, first + row + 1)
                for subscription, notification in outcome.durable:
                    self._node.recent_deliveries.record(subscription, notification.event.id)
        self._node.metrics.accepted += len(batch.accepted)
        self._node.release_queue.add(sync_offset, self._release, publisher, batch.accepted, first)

    def _build_events(
        self, publisher: Publisher, publications: list[tuple[WirePublication, str | None]], now: int
    ) -> list[tuple[WirePublication, Event]]:
        """Return the events of the well-formed publications; queue a refusal for every other one."""
        events: list[tuple[WirePublication, Event]] = []
        name, context = publisher.name, self._node.registry.contexts.get(publisher.name, EMPTY_CONTEXT)
        for publication, subject in publications:
            try:
                events.append((publication, _build_event(name, publication, subject, context, now + len(events))))
            except TidingsError as error:
                self._refuse(publisher, publication.request, error)
        self._node.engine.prefetch_matches([event for _, event in events])
        return events

    def _check_new(self, event: Event) -> None:
        """Raise an error if an event was published before, or if its sequence number does not rise."""
        registry = self._node.registry
        if registry.remembers(event.id):
            raise PublishedBeforeError("admit", f"the event {event.id} was published before")
        sequence, last = event.sequence, registry.sequences.get(event.publisher, 0)
        if not last < sequence <= MAX_INTEGER:
            raise RefusedError(
                "admit",
                f"sequence: {sequence} does not come after {last}, the last of {event.publisher}; "
                "is it connected twice?",
            )

    def _release(self, publisher: Publisher, publications: list[AcceptedPublication], first: int) -> None:
        """Deliver accepted publications, send their effects to other brokers, and send their receipts."""
        delivered = 0
        for accepted in publications:
            outcome, offset = accepted.outcome, first + accepted.row
            if outcome.durable or outcome.meta_events:
                self._node.deliver(outcome, offset, offset + 1)
            else:
                for subscription, notification in outcome.deliveries:
                    subscription.inbox.put(notification, offset)
            delivered += len(outcome.deliveries)
            for task, arguments in accepted.tasks:
                task(*arguments)
            self._send_receipt(publisher, accepted.published, accepted.event, offset)
        self._node.metrics.delivered += delivered
        if delivered:
            microseconds = self._node.clock.now() - publications[0].event.timestamp
            self._node.metrics.delivered_after.record(microseconds / 1_000_000, delivered)

    def _send_receipt(self, publisher: Publisher, publication: WirePublication, event: Event, offset: int) -> None:
        """Send the receipt of an accepted event now or, if the publisher asks for `settled`, once that is so."""
        if publication.safe < Safety.SETTLED or not self._node.neighbours.is_unsettled(offset):
            publisher.receipt(publication.request, offset, event.timestamp)
        else:
            self._unsettled_receipts[event.id] = publisher, publication.request, offset, event.timestamp

    def _repeat_receipt(self, publisher: Publisher, publication: WirePublication, receipt: Receipt) -> None:
        """Send the first receipt again for a sealed event that was accepted before; the event is not routed again."""
        self._node.metrics.repeated += 1
        sync_offset = self._node.next if self._node.journal_store is not None else 0
        self._node.release_queue.add(
            sync_offset, self._send_receipt, publisher, publication, receipt.event, receipt.offset
        )

    def send_settled_receipt(self, event: UUID) -> None:
        """Send the receipt that waited for `event` to be settled, if there is one.

        Settled means that every broker with a matching durable subscription has the event on disk.
        """
        pending = self._unsettled_receipts.pop(event, None)
        if pending is not None:
            publisher, request, offset, timestamp = pending
            publisher.receipt(request, offset, timestamp)

    def refuse_queued(self, call: Callable[..., None], arguments: tuple[Any, ...], error: TidingsError) -> None:
        """Refuse the publications of a queued call that will not be made, since the journal has failed.

        `call` and `arguments` are the queued function and its arguments; other functions than this handler's are
        ignored. `error` is what the publishers are sent.
        """
        if call == self._release:
            publisher, publications, _ = arguments
            for accepted in publications:
                publisher.refuse(accepted.published.request, error)
        elif call == self._send_refusal:
            publisher, request, _ = arguments
            publisher.refuse(request, error)
        elif call == self._send_receipt:
            publisher, publication, _, _ = arguments
            publisher.refuse(publication.request, error)

    def _refuse(self, publisher: Publisher, request: int, error: TidingsError) -> None:
        """Count a refusal, and queue it behind what was accepted before.

        For an event that was published before, the refusal waits until the first publication is on disk.
        """
        sync_offset = 0
        if isinstance(error, PublishedBeforeError):
            self._node.metrics.repeated += 1
            sync_offset = self._node.next if self._node.journal_store is not None else 0
        else:
            self._node.metrics.refuse(error)
        self._node.release_queue.add(sync_offset, self._send_refusal, publisher, request, error)

    @staticmethod
    def _send_refusal(publisher: Publisher, request: int, error: TidingsError) -> None:
        publisher.refuse(request, error)


def _build_event(
    publisher: str, publication: WirePublication, subject: str | None, context: Context, now: int
) -> Event:
    """Build the event of a publication, accepted at `now`; raise an error if the publication is not well formed.

    `context` is the publisher's context here; a context in the publication takes precedence.
    """
    id = uuid_of(publication.id)  # noqa: A001
    if not is_uuid7(id):
        raise InvalidValueError("id: an event is named by a UUIDv7")
    if not Safety.ACCEPTED <= publication.safe <= Safety.SETTLED:
        raise InvalidValueError(f"safe: must be one of 0, 1 and 2, not {publication.safe}")
    return Event(
        id=id,
        publisher=publisher,
        timestamp=now,
        sequence=publication.sequence,
        attributes=Attributes(publication.attributes),
        subject=None if subject is None else checked_subject(subject),
        payload=None if publication.payload is None else checked_payload(publication.payload),
        context=context
        if publication.context is None
        else Context(publication.context)
        if publication.context
        else EMPTY_CONTEXT,
        subscribers=None if publication.subscribers is None else read_context_filter(publication.subscribers),
        policy=None if publication.policy is None else policy_text(publication.policy),
        token=None if publication.token is None else _checked_token(publication.token),
        signature=None if publication.signature is None else _checked_signature(publication.signature),
    )


def _checked_token(token: bytes) -> bytes | None:
    return checked_bytes(token, "token", "MAX_TOKEN_BYTES", MAX_TOKEN_BYTES)


def _checked_signature(signature: bytes) -> bytes | None:
    return checked_bytes(signature, "signature", "MAX_SIGNATURE_BYTES", MAX_SIGNATURE_BYTES)

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
from time import time_ns
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tidings.broker.journal_extension import RecentDeliveries
from tidings.broker.metrics import OperationMetrics
from tidings.broker.pending_decisions import PendingDecisions
from tidings.broker.release_queue import LinksPort, ReleaseQueue, Task, deliver
from tidings.coerce import policy_text
from tidings.model.errors import InvalidValueError, PublishedBeforeError, TidingsError
from tidings.model.event import Event, checked_bytes, checked_payload, checked_subject
from tidings.model.identity import is_uuid7, uuid_of
from tidings.model.limits import MAX_SIGNATURE_BYTES, MAX_TOKEN_BYTES
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes, Context
from tidings.protocol.events import read_context_filter
from tidings.protocol.publications import Safety, WirePublication
from tidings.runtime.outcome import OperationOutcome, expect
from tidings.runtime.processor import AcceptedEvent, Processor, PublishBatch
from tidings.runtime.subscription_registry import EMPTY_CONTEXT, RegisteredSubscription

Accepted = AcceptedEvent[RegisteredSubscription]
Batch = PublishBatch[RegisteredSubscription]


class Publisher(Protocol):
    """The session of a publishing client: it gets a receipt or a refusal for each publication, by request number."""

    name: str

    def receipt(self, request: int, offset: int, timestamp: int) -> None:
        """Send the receipt of a publication: its offset in the journal, and its acceptance time."""
        ...

    def refuse(self, request: int, error: TidingsError) -> None:
        """Send the refusal of a publication."""
        ...


class PublishPort(Protocol):
    """What the handler needs of the broker's `Node`."""

    processor: Processor[RegisteredSubscription]
    release_queue: ReleaseQueue
    pending_decisions: PendingDecisions
    recent_deliveries: RecentDeliveries
    metrics: OperationMetrics
    neighbours: LinksPort

    def queue_outcome(self, outcome: OperationOutcome[RegisteredSubscription]) -> None:
        """Journal and queue what follows from effects that precede an operation which waits for an answer."""

    def record_effects(self, outcome: OperationOutcome[RegisteredSubscription]) -> None:
        """Record an outcome's meta-events, persisted messages and durable events."""


class DeferredPublications(NamedTuple):
    """Publications of a batch that were not accepted, since the first of them waits for a trust answer.

    `question` is the party and the trust group that the answer is about.
    """

    question: tuple[str, str]
    publications: list[tuple[WirePublication, str | None]]


class AcceptedPublications(NamedTuple):
    """Publications of one publisher that were accepted together."""

    publisher: Publisher
    publications: list[WirePublication]  # of the whole batch; the numbers of `accepted` are indexes into it
    accepted: list[Accepted]
    first: int  # the offset of the batch's first row
    tasks: dict[int, list[Task]]  # by number: what sends the effects of a publication to other brokers


class PublishHandler:
    """Accepts the publications of a broker's clients: has them processed in batches, and releases what follows."""

    def __init__(self, node: PublishPort) -> None:
        self._node, self._processor = node, node.processor
        self._release_queue = node.release_queue
        # Receipts that wait until their events are settled.
        self._unsettled_receipts: dict[UUID, tuple[Publisher, int, int, int]] = {}

    def accept(
        self, publisher: Publisher, publications: list[tuple[WirePublication, str | None]]
    ) -> DeferredPublications | None:
        """Accept publications, each with its subject, in order.

        `publisher` later gets a receipt for each publication, when it has the durability that it asks for, or a
        refusal. Returns None, or the publications that wait for a trust answer: the caller submits these again once the
        answer is known.
        """
        name, processor = publisher.name, self._processor
        context = processor.registry.contexts.get(name, EMPTY_CONTEXT)
        events: list[Event] = []
        well_formed: list[WirePublication] = []
        for publication, subject in publications:
            try:
                events.append(_build_event(name, publication, subject, context))
                well_formed.append(publication)
            except TidingsError as error:
                self._refuse(publisher, publication.request, error, 0)
        start = 0 if processor.journal_store is None else processor.next

        def queue(batch: Batch) -> None:
            self._answer(publisher, well_formed, batch, start)
            self._queue_batch(publisher, well_formed, batch)

        batch = processor.publish_batch(name, events, queue)
        if not batch.accepted and not batch.refused_with_rows:
            self._answer(publisher, well_formed, batch, start)
        if batch.pending is None:
            return None
        self._node.queue_outcome(batch.pending.earlier_outcome)
        remaining = zip(well_formed[batch.pending_from :], events[batch.pending_from :], strict=True)
        return DeferredPublications(
            batch.pending.question, [(publication, event.subject) for publication, event in remaining]
        )

    def _answer(self, publisher: Publisher, publications: list[WirePublication], batch: Batch, start: int) -> None:
        """Queue refusals and repeated receipts of events that were not accepted.

        `start` is the offset below which the journal must be synced for all rows before the batch to be on disk.
        """
        for number, answer in batch.answered:
            publication = publications[number]
            if isinstance(answer, Receipt):  # the event is not routed again
                self._node.metrics.repeated += 1
                self._release_queue.add(start, self._send_receipt, publisher, publication, answer.event, answer.offset)
            else:
                self._refuse(publisher, publication.request, answer, start)

    def _queue_batch(self, publisher: Publisher, publications: list[WirePublication], batch: Batch) -> None:
        """Queue the deliveries, receipts and effects of a batch, whose rows were appended."""
        node, first, on_published = self._node, batch.first, self._node.neighbours.on_published
        must_sync = False
        for accepted in batch.accepted:
            if publications[accepted.number].safe:
                must_sync = True
                break
        sync_offset = batch.end if must_sync and self._processor.journal_store is not None else 0
        for outcome, row in batch.refused_with_rows:
            node.record_effects(outcome)
            expect(outcome, first + row, first + row)
            self._release_queue.add(sync_offset, deliver, outcome, first + row, first + row)
            self._release_queue.add_tasks(sync_offset, node.neighbours.tasks_for(outcome.others))
        tasks: dict[int, list[Task]] = {}
        for accepted in batch.accepted:
            outcome, offset = accepted.outcome, first + accepted.row
            on_published(accepted.event, offset)
            if outcome.others:
                tasks[accepted.number] = node.neighbours.tasks_for(outcome.others)
            if outcome.meta_events or outcome.persisted:
                node.record_effects(outcome)
            if outcome.pending_decisions:
                node.pending_decisions.record(outcome, offset, offset + 1)
            if outcome.durable:
                expect(outcome, offset, offset + 1)
                for subscription, notification in outcome.durable:
                    node.recent_deliveries.record(subscription, notification.event.id)
        node.metrics.accepted += len(batch.accepted)
        self._release_queue.add(
            sync_offset,
            self._release,
            AcceptedPublications(publisher, publications, batch.accepted, first, tasks),
        )

    def _release(self, batch: AcceptedPublications) -> None:
        """Deliver accepted publications, send their effects to other brokers, and send their receipts."""
        delivered = 0
        publisher, publications, first, tasks = batch.publisher, batch.publications, batch.first, batch.tasks
        for accepted in batch.accepted:
            outcome, offset = accepted.outcome, first + accepted.row
            if outcome.durable or outcome.meta_events:
                deliver(outcome, offset, offset + 1)
            else:
                for subscription, notification in outcome.deliveries:
                    subscription.inbox.put(notification, offset)
            delivered += len(outcome.deliveries)
            if tasks:
                for task, arguments in tasks.get(accepted.number, ()):
                    task(*arguments)
            self._send_receipt(publisher, publications[accepted.number], accepted.event, offset)
        self._node.metrics.delivered += delivered
        if delivered:
            microseconds = time_ns() // 1000 - batch.accepted[0].event.timestamp
            self._node.metrics.delivered_after.record(microseconds / 1_000_000, delivered)

    def _send_receipt(self, publisher: Publisher, publication: WirePublication, event: Event, offset: int) -> None:
        """Send the receipt of an accepted event now or, if the publisher asks for `settled`, once that is so."""
        if publication.safe < Safety.SETTLED or not self._node.neighbours.is_unsettled(offset):
            publisher.receipt(publication.request, offset, event.timestamp)
        else:
            self._unsettled_receipts[event.id] = publisher, publication.request, offset, event.timestamp

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
            (batch,) = arguments
            for accepted in batch.accepted:
                batch.publisher.refuse(batch.publications[accepted.number].request, error)
        elif call == self._send_refusal:
            publisher, request, _ = arguments
            publisher.refuse(request, error)
        elif call == self._send_receipt:
            publisher, publication, _, _ = arguments
            publisher.refuse(publication.request, error)

    def _refuse(self, publisher: Publisher, request: int, error: TidingsError, start: int) -> None:
        """Count a refusal, and queue it behind what was accepted before.

        For an event that was published before, the refusal waits until the first publication is on disk: until the
        journal is synced up to `start`.
        """
        sync_offset = 0
        if isinstance(error, PublishedBeforeError):
            self._node.metrics.repeated += 1
            sync_offset = start
        else:
            self._node.metrics.refuse(error)
        self._release_queue.add(sync_offset, self._send_refusal, publisher, request, error)

    @staticmethod
    def _send_refusal(publisher: Publisher, request: int, error: TidingsError) -> None:
        publisher.refuse(request, error)


def _build_event(publisher: str, publication: WirePublication, subject: str | None, context: Context) -> Event:
    """Build the event of a publication, without its timestamp; raise an error if the publication is not well formed.

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
        timestamp=0,
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

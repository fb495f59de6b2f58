"""Requests and publications in flight: sent, not answered yet, and sent again after a reconnection."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.model.errors import PublishedBeforeError, RefusedError, TidingsError
from tidings.model.event import Event
from tidings.model.receipt import Durability, Receipt
from tidings.protocol import answers
from tidings.protocol.frames import FrameKind
from tidings.protocol.publications import Safety

_LOG = logging.getLogger("tidings.client")
_DURABILITIES: tuple[Durability, ...] = ("accepted", "journaled", "settled")  # by their numbers in `Safety`


class PendingRequest(msgspec.Struct):
    """A request that was sent to a broker and is not answered yet.

    `again` means that an earlier connection sent it, too, and the broker may have carried it out.
    """

    kind: FrameKind
    message: msgspec.Struct
    answer: "asyncio.Future[Any]"
    again: bool = False

    def is_done(self, error: TidingsError) -> bool:
        """Return whether the error means that the request, a repeated removal, was carried out before."""
        is_removal = self.kind in (FrameKind.UNSUBSCRIBE, FrameKind.UNADVERTISE)
        return self.again and is_removal and isinstance(error, RefusedError) and error.step == "admit"


class PendingPublication(msgspec.Struct):
    """A publication in flight.

    Attributes:
        event: The event as its publisher sees it.
        safe: The durability to wait for.
        answer: The future of its receipt.
        sent: On how many connections it was sent.
        sealed: The sealed event that is sent instead, on a secure topic.
        is_numbered: Whether its publisher chose its sequence number.
        is_retried: Whether it was refused once and is tried again, since the reason may be gone.
        epoch: The epoch of the key that sealed it.
        must_seal: Whether it must not be sent unsealed.
        has_journal: Whether every broker that it was sent to has a journal.
    """

    event: Event
    safe: Safety
    answer: "asyncio.Future[Receipt]"
    sent: int = 0
    sealed: Event | None = None
    is_numbered: bool = False
    is_retried: bool = False
    epoch: int | None = None
    must_seal: bool = False
    has_journal: bool = True

    def note_sent(self, *, has_journal: bool) -> None:
        """Record that the publication was sent once more, to a broker with or without a journal."""
        self.sent += 1
        self.has_journal = self.has_journal and has_journal

    @property
    def repeated_receipt(self) -> Receipt:
        """The publication's receipt when a broker answers that it had the event before.

        The broker answers so after syncing its journal, but perhaps before the event has settled; and it may have got
        the event through another broker.
        """
        safe = min(self.safe, Safety.JOURNALED)
        return Receipt(self.event, -1, self.epoch, durability_of(safe, has_journal=self.has_journal))


class InFlight:
    """The requests and publications in flight, by request number."""

    def __init__(self) -> None:
        self.requests: dict[int, PendingRequest] = {}
        self.publications: dict[int, PendingPublication] = {}
        self._last = 0
        # Returns whether a refused publication is tried once more; see `SealingQueue.retry_after_refusal`.
        self.retry_after_refusal: Callable[[int, PendingPublication, TidingsError], bool] | None = None

    def __bool__(self) -> bool:
        return bool(self.requests or self.publications)

    def next_number(self) -> int:
        """Return a new request number."""
        self._last += 1
        return self._last

    def in_order(self) -> list[tuple[int, PendingPublication]]:
        """Return the publications by sequence number, the order in which the broker must get them."""
        return sorted(self.publications.items(), key=lambda item: item[1].event.sequence)

    def take_receipts(self, receipts: Iterable[answers.PublicationReceipt], *, has_journal: bool) -> None:
        """Resolve the publications of these receipts, from a broker with or without a journal."""
        for receipt in receipts:
            publication = self.publications.pop(receipt.request, None)
            if publication is not None and not publication.answer.done():
                event = msgspec.structs.replace(publication.event, timestamp=receipt.timestamp)
                safe = durability_of(publication.safe, has_journal=has_journal)
                publication.answer.set_result(Receipt(event, receipt.offset, publication.epoch, safe))

    def take_answer(self, message: answers.RequestDone | answers.QueryAnswer) -> None:
        """Resolve the request that this message answers."""
        pending = self.requests.pop(message.request, None)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(message if isinstance(message, answers.RequestDone) else message.answer)

    def take_refusal(self, refused: answers.RequestRefused) -> None:
        """Handle the broker's refusal of a request or publication.

        Fails the answer, unless the publication is tried again (`retry_after_refusal`), or the refusal shows that a
        repeated request or publication was carried out before.
        """
        error = answers.error_of(refused)
        publication = self.publications.pop(refused.request, None)
        pending = self.requests.pop(refused.request, None)
        if publication is not None:
            if self.retry_after_refusal is not None and self.retry_after_refusal(refused.request, publication, error):
                self.publications[refused.request] = publication
            elif publication.sent > 1 and isinstance(error, PublishedBeforeError):
                if not publication.answer.done():
                    publication.answer.set_result(publication.repeated_receipt)
            else:
                fail(publication.answer, error)
        elif pending is None:
            _LOG.error("the broker refused a request that this client did not send: %s", error)
        elif not pending.is_done(error):
            fail(pending.answer, error)
        elif not pending.answer.done():
            pending.answer.set_result(answers.RequestDone(refused.request))

    def drop_abandoned_requests(self) -> None:
        """Forget requests whose callers no longer wait, so that the next connection does not send them again."""
        self.requests = {number: request for number, request in self.requests.items() if not request.answer.cancelled()}

    def end(self, error: TidingsError) -> None:
        """Fail everything in flight with `error`."""
        for pending in self.requests.values():
            fail(pending.answer, error)
        for publication in self.publications.values():
            fail(publication.answer, error)
        self.requests.clear()
        self.publications.clear()


def durability_of(safe: Safety, *, has_journal: bool) -> Durability:
    """Return the durability reached at a broker with or without a journal that was asked for `safe`."""
    return _DURABILITIES[safe] if has_journal else "accepted"


def fail(answer: "asyncio.Future[Any]", error: TidingsError) -> None:
    """Set the error on the answer, unless it is done."""
    if not answer.done():
        answer.set_exception(error)


class FairGate:
    """Lets tasks through one by one, in the order of their arrival, while `has_room` returns true."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.called = 0  # tasks that were let through and have not resumed yet
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Wait until `has_room` returns true and it is this task's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.call()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was let through, but is cancelled: pass the turn on
                self.called -= 1
                self.call()
            raise
        self.called -= 1
        if self._waiting and not self._is_due:  # this task may not use the room: check again later
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._due)

    def _due(self) -> None:
        self._is_due = False
        self.call()

    def call(self) -> None:
        """Let waiting tasks through while there is room."""
        while self._waiting and self._has_room():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self.called += 1

"""What is under way: requests and publications that are not answered yet, to be said again on another connection."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidings.model.durability import Durability
from tidings.model.errors import PublishedBeforeError, RefusedError, TidingsError
from tidings.model.event import Event
from tidings.model.receipt import Receipt
from tidings.protocol import answers
from tidings.protocol.frames import Kind
from tidings.protocol.publications import Safety

_LOG = logging.getLogger("tidings.client")
_DURABILITIES: tuple[Durability, ...] = ("accepted", "journaled", "settled")  # by their numbers in `Safety`


class Pending(msgspec.Struct):
    """A request that is not answered; `again`: it has been sent on an earlier connection, and may have been done."""

    kind: Kind
    message: msgspec.Struct
    answer: "asyncio.Future[Any]"
    again: bool = False

    def is_done(self, error: TidingsError) -> bool:
        """Whether it is refused since there is nothing left to take back."""
        takes_back = self.kind in (Kind.UNSUBSCRIBE, Kind.UNADVERTISE)
        return self.again and takes_back and isinstance(error, RefusedError) and error.step == "admit"


class Publication(msgspec.Struct):
    """A publication that is not answered; how often it was sent, on one connection each.

    `sealed` is the event as it goes, on a secure topic, under the key of the epoch; with `must_seal` it does not go in
    the clear. `is_numbered`: its publisher has chosen its sequence.
    `is_doubted`: it was refused, and tried once more since the reason might be gone. `has_journal`: every broker that
    it was sent to has one.
    """

    event: Event
    safe: Safety
    answer: "asyncio.Future[Receipt]"
    sent: int = 0
    sealed: Event | None = None
    is_numbered: bool = False
    is_doubted: bool = False
    epoch: int | None = None
    must_seal: bool = False
    has_journal: bool = True

    def note_sent(self, *, has_journal: bool) -> None:
        """It was sent once more, to a broker with or without a journal."""
        self.sent += 1
        self.has_journal = self.has_journal and has_journal

    @property
    def repeated_receipt(self) -> Receipt:
        """The receipt when a broker says that it had the event before. It says so after its journal was synced, but
        perhaps before the event has settled; and the event may have come to it through another broker."""
        safe = min(self.safe, Safety.JOURNALED)
        return Receipt(self.event, -1, self.epoch, durability_of(safe, has_journal=self.has_journal))


class Underway:
    """By the numbers of requests, in their order."""

    def __init__(self) -> None:
        self.requests: dict[int, Pending] = {}
        self.publications: dict[int, Publication] = {}
        self._last = 0
        self.doubt: Callable[[int, Publication, TidingsError], bool] | None = None  # see `Outbox.doubt`

    def __bool__(self) -> bool:
        return bool(self.requests or self.publications)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def in_order(self) -> list[tuple[int, Publication]]:
        """The publications as their broker wants them."""
        return sorted(self.publications.items(), key=lambda one: one[1].event.sequence)

    def take_receipts(self, receipts: Iterable[answers.Receipt], *, has_journal: bool) -> None:
        """Answer the publications of these receipts. `has_journal` says whether the broker that sent them has one."""
        for one in receipts:
            publication = self.publications.pop(one.request, None)
            if publication is not None and not publication.answer.done():
                event = msgspec.structs.replace(publication.event, timestamp=one.timestamp)
                safe = durability_of(publication.safe, has_journal=has_journal)
                publication.answer.set_result(Receipt(event, one.offset, publication.epoch, safe))

    def take_answer(self, message: answers.Done | answers.Answer) -> None:
        pending = self.requests.pop(message.request, None)
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(message if isinstance(message, answers.Done) else message.answer)

    def take_refusal(self, refused: answers.Refused) -> None:
        error = answers.error_of(refused)
        publication = self.publications.pop(refused.request, None)
        pending = self.requests.pop(refused.request, None)
        if publication is not None:
            if self.doubt is not None and self.doubt(refused.request, publication, error):
                self.publications[refused.request] = publication
            elif publication.sent > 1 and isinstance(error, PublishedBeforeError):
                if not publication.answer.done():
                    publication.answer.set_result(publication.repeated_receipt)
            else:
                fail(publication.answer, error)
        elif pending is None:
            _LOG.error("the broker has refused something: %s", error)
        elif not pending.is_done(error):
            fail(pending.answer, error)
        elif not pending.answer.done():
            pending.answer.set_result(answers.Done(refused.request))

    def drop_abandoned_requests(self) -> None:
        """Forget the requests whose callers wait no more, so that the next connection does not send them again."""
        self.requests = {number: one for number, one in self.requests.items() if not one.answer.cancelled()}

    def end(self, error: TidingsError) -> None:
        """No answer will come any more."""
        for pending in self.requests.values():
            fail(pending.answer, error)
        for publication in self.publications.values():
            fail(publication.answer, error)
        self.requests.clear()
        self.publications.clear()


def durability_of(safe: Safety, *, has_journal: bool) -> Durability:
    """The durability of an event that a broker with or without a journal has made as safe as that."""
    return _DURABILITIES[safe] if has_journal else "accepted"


def fail(answer: "asyncio.Future[Any]", error: TidingsError) -> None:
    if not answer.done():
        answer.set_exception(error)

"""Creates events from the arguments of `publish`, and hands them to the session in the order of the calls."""

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tidings.client.request_sender import SessionState
from tidings.coerce import context_filter, policy_text
from tidings.model.errors import ClosedError, InvalidValueError, TidingsError
from tidings.model.event import Event, checked_payload, checked_policy, checked_subject
from tidings.model.filter import ContextFilterValue
from tidings.model.identity import ENTROPY_BYTES, is_uuid7, uuid7
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes
from tidings.protocol.publications import Safety

if TYPE_CHECKING:
    from tidings.client.secure.sealing_queue import SealingQueue
    from tidings.policy.policy import Policy

ReceiptFuture = asyncio.Future[Receipt]
_SAFE = {"accepted": Safety.ACCEPTED, "journaled": Safety.JOURNALED, "settled": Safety.SETTLED}
_IDS_AT_A_TIME = 64  # entropy is read from the system for this many ids at once


class PublicationSession(Protocol):
    """What publishing needs of the client's session."""

    session_state: SessionState
    sealing_queue: "SealingQueue | None"

    @property
    def name(self) -> str: ...
    @property
    def is_full(self) -> bool: ...
    async def wait_for_room(self) -> None: ...
    def next_sequence(self, chosen: int | None = None) -> int: ...
    def publish(
        self, event: Event, safe: Safety, *, is_numbered: bool = False, must_seal: bool = False
    ) -> ReceiptFuture: ...


class EventPublisher:
    """Creates the events of one client, numbers them, and publishes them through the client's session."""

    def __init__(self, session: PublicationSession) -> None:
        self._session = session
        self._entropy = b""

    async def publish_soon(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: str | ContextFilterValue | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,  # noqa: A002
        sequence: int | None = None,
        sealed: bool = False,
    ) -> ReceiptFuture:
        """Hand an event to the session once there is room in flight; return a future of its receipt.

        The arguments are those of `Client.publish`.

        Args:
            attributes: The event's attributes.
            subscribers: Filter over subscribers' contexts.
            payload: The event's payload.
            subject: The event's subject.
            policy: Policy attached to the event.
            safe: The durability to wait for.
            id: The event's UUIDv7; a new one by default.
            sequence: The event's sequence number; counted by default.
            sealed: Whether to refuse an event that would not be sealed.
        """
        if safe not in _SAFE:
            raise InvalidValueError(f"safe: must be one of {', '.join(_SAFE)}, not {safe!r}")
        session = self._session
        if sealed and session.sealing_queue is None:
            raise InvalidValueError(f"sealed: {session.name} has no identity to seal events with; connect with one")
        checked = Attributes.of(attributes)
        if session.is_full and (session.sealing_queue is None or session.sealing_queue.may_wait(checked)):
            await session.wait_for_room()
        now = time.time_ns() // 1000
        subscriber_filter = None if subscribers is None else context_filter(subscribers)
        event = Event(
            id=uuid7(now, self._next_entropy()) if id is None else _event_id(id),
            publisher=session.name,
            timestamp=now,
            sequence=session.next_sequence(sequence),
            attributes=checked,
            subject=None if subject is None else checked_subject(subject),
            payload=None if payload is None else checked_payload(payload),
            context=session.session_state.context,
            subscribers=subscriber_filter,
            policy=None if policy is None else checked_policy(policy_text(policy)),
        )
        return session.publish(event, _SAFE[safe], is_numbered=sequence is not None, must_seal=sealed)

    async def publish_many(self, events: Iterable[Mapping[str, Any]], **arguments: Any) -> list[Receipt]:
        """Publish events without waiting for each.

        Return all receipts, or raise the first error when all are answered.
        """
        answers: list[ReceiptFuture | TidingsError] = []
        try:
            for attributes in events:
                try:
                    answers.append(await self.publish_soon(attributes, **arguments))
                except ClosedError:
                    raise
                except TidingsError as error:
                    answers.append(error)
            return await _await_receipts(answers)
        finally:
            for answer in answers:
                if isinstance(answer, asyncio.Future):
                    answer.cancel()  # no effect on answered futures; the rest are abandoned

    def _next_entropy(self) -> bytes:
        if not self._entropy:
            self._entropy = secrets.token_bytes(_IDS_AT_A_TIME * ENTROPY_BYTES)
        entropy, self._entropy = self._entropy[:ENTROPY_BYTES], self._entropy[ENTROPY_BYTES:]
        return entropy


async def _await_receipts(answers: list[ReceiptFuture | TidingsError]) -> list[Receipt]:
    """Await all answers; return the receipts, or raise the first error."""
    receipts: list[Receipt] = []
    errors: list[TidingsError] = []
    for answer in answers:
        if isinstance(answer, TidingsError):
            errors.append(answer)
            continue
        try:
            receipts.append(await answer)
        except TidingsError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return receipts


def _event_id(id_or_text: UUID | str) -> UUID:
    try:
        id = id_or_text if isinstance(id_or_text, UUID) else UUID(id_or_text)  # noqa: A001
    except (ValueError, AttributeError, TypeError):
        raise InvalidValueError("id: an event is named by a UUIDv7") from None
    if not is_uuid7(id):
        raise InvalidValueError("id: an event is named by a UUIDv7")
    return id

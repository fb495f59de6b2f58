"""Publishing: events are made of what a program says, and handed to the session in the order of the calls."""

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidings.client.session import Session
from tidings.model.errors import ClosedError, InvalidValueError, TidingsError
from tidings.model.event import Event, checked_payload, checked_policy, checked_subject
from tidings.model.filter import ContextFilter
from tidings.model.identity import ENTROPY_BYTES, is_uuid7, uuid7
from tidings.model.receipt import Receipt
from tidings.model.values import Attributes
from tidings.protocol.publications import Safety
from tidings.texts import context_filter, policy_text

if TYPE_CHECKING:
    from tidings.policy.policy import Policy

Answer = asyncio.Future[Receipt]
_SAFE = {"accepted": Safety.ACCEPTED, "journaled": Safety.JOURNALED, "settled": Safety.SETTLED}
_IDS_AT_A_TIME = 64  # the system is asked for so many at once


class Publishing:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._entropy = b""

    async def publish_soon(
        self,
        attributes: Mapping[str, Any] | None = None,
        subscribers: str | ContextFilter | None = None,
        payload: bytes | None = None,
        subject: str | None = None,
        policy: "str | Policy | None" = None,
        safe: str = "journaled",
        id: UUID | str | None = None,  # noqa: A002
        sequence: int | None = None,
        sealed: bool = False,
    ) -> Answer:
        """Returns as soon as there is room for it: it is under way then."""
        if safe not in _SAFE:
            raise InvalidValueError(f"safe: must be one of {', '.join(_SAFE)}, not {safe!r}")
        session = self._session
        if sealed and session.outbox is None:
            raise InvalidValueError(f"sealed: {session.name} has no identity to seal events with; connect with one")
        given = Attributes.of(attributes)
        if session.is_full and (session.outbox is None or session.outbox.may_wait(given)):
            await session.room()
        now = time.time_ns() // 1000
        wanted = None if subscribers is None else context_filter(subscribers)
        event = Event(
            id=uuid7(now, self._chance()) if id is None else _event_id(id),
            publisher=session.name,
            timestamp=now,
            sequence=session.next_sequence(sequence),
            attributes=given,
            subject=None if subject is None else checked_subject(subject),
            payload=None if payload is None else checked_payload(payload),
            context=session.standing.context,
            subscribers=wanted,
            policy=None if policy is None else checked_policy(policy_text(policy)),
        )
        return session.publish(event, _SAFE[safe], is_numbered=sequence is not None, must_seal=sealed)

    async def publish_many(self, events: Iterable[Mapping[str, Any]], **given: Any) -> list[Receipt]:
        """All of them; none has a task of its own, nor is one waited for before the next goes."""
        answers: list[Answer | TidingsError] = []
        try:
            for attributes in events:
                try:
                    answers.append(await self.publish_soon(attributes, **given))
                except ClosedError:
                    raise
                except TidingsError as error:
                    answers.append(error)
            return await _all(answers)
        finally:
            for answer in answers:
                if isinstance(answer, asyncio.Future):
                    answer.cancel()  # nobody waits for it any more

    def _chance(self) -> bytes:
        if not self._entropy:
            self._entropy = secrets.token_bytes(_IDS_AT_A_TIME * ENTROPY_BYTES)
        taken, self._entropy = self._entropy[:ENTROPY_BYTES], self._entropy[ENTROPY_BYTES:]
        return taken


async def _all(answers: list[Answer | TidingsError]) -> list[Receipt]:
    """When all have come; if there are errors, the first is raised."""
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


def _event_id(given: UUID | str) -> UUID:
    try:
        id = given if isinstance(given, UUID) else UUID(given)  # noqa: A001
    except (ValueError, AttributeError, TypeError):
        raise InvalidValueError("id: an event is named by a UUIDv7") from None
    if not is_uuid7(id):
        raise InvalidValueError("id: an event is named by a UUIDv7")
    return id

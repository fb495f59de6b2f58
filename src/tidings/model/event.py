"""An event: one publication, as its publisher described it."""

from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.filter import ContextFilter
from tidings.model.limits import (
    MAX_INTEGER,
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    MAX_POLICY_CHARACTERS,
    MAX_SIGNATURE_BYTES,
    MAX_SUBJECT_CHARACTERS,
    MAX_TOKEN_BYTES,
)
from tidings.model.values import Attributes, Context, check_unicode


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Trusted once made; `Event.of` is the door that checks.

    Nothing in it leads back to it: the search for circles need not look at what there is so much of.
    """

    id: UUID
    publisher: str
    timestamp: int  # microseconds since the Unix epoch, UTC
    sequence: int  # rises by one with each event of a publisher
    attributes: Attributes = Attributes()
    subject: str | None = None
    payload: bytes | None = None
    context: Context = Context()  # the publisher's, when it published
    subscribers: ContextFilter | None = None  # for whom: over the subscriber's context
    policy: str | None = None  # attached: it travels with the event
    token: bytes | None = None
    signature: bytes | None = None

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def of(
        cls,
        attributes: Mapping[str, Any] | None = None,
        *,
        id: UUID,  # noqa: A002 - the field's own name
        publisher: str,
        timestamp: int,
        sequence: int = 0,
        subject: str | None = None,
        payload: bytes | None = None,
        context: Mapping[str, Any] | None = None,
        subscribers: ContextFilter | None = None,
        policy: str | None = None,
        token: bytes | None = None,
        signature: bytes | None = None,
    ) -> Self:
        """A checked event, or an `InvalidValueError` that names what is wrong."""
        if not isinstance(id, UUID) or id.version != 7:
            raise InvalidValueError("id: an event is named by a UUIDv7")
        for name, number in (("timestamp", timestamp), ("sequence", sequence)):
            if type(number) is not int or not 0 <= number <= MAX_INTEGER:
                raise InvalidValueError(f"{name}: must be an int between 0 and 2^63 - 1")
        if subscribers is not None and not isinstance(subscribers, ContextFilter):
            raise InvalidValueError("subscribers: must be a ContextFilter; ContextFilter.parse reads one from text")
        return cls(
            id=id,
            publisher=checked_client(publisher),
            timestamp=timestamp,
            sequence=sequence,
            attributes=Attributes.of(attributes),
            subject=checked_subject(subject),
            payload=checked_payload(payload),
            context=Context.of(context),
            subscribers=subscribers,
            policy=checked_policy(policy),
            token=checked_bytes(token, "token", "MAX_TOKEN_BYTES", MAX_TOKEN_BYTES),
            signature=checked_bytes(signature, "signature", "MAX_SIGNATURE_BYTES", MAX_SIGNATURE_BYTES),
        )


def checked_client(name: Any) -> str:
    """The name of a publisher or a subscriber."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidValueError(
            f"a client's name is a string of 1 to MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS}) characters"
        )
    check_unicode(name, "a client's name")
    return str.__str__(name)


def checked_subject(subject: Any) -> str | None:
    if subject is None:
        return None
    if not isinstance(subject, str) or not subject:
        raise InvalidValueError("subject: must be a string that is not empty, or None")
    if len(subject) > MAX_SUBJECT_CHARACTERS:
        raise InvalidValueError(f"subject: longer than MAX_SUBJECT_CHARACTERS ({MAX_SUBJECT_CHARACTERS:,})")
    check_unicode(subject, "subject")
    return str.__str__(subject)


def checked_policy(policy: Any) -> str | None:
    if policy is None:
        return None
    if not isinstance(policy, str):
        raise InvalidValueError(f"policy: must be a text, not {type(policy).__name__}")
    if len(policy) > MAX_POLICY_CHARACTERS:
        raise InvalidValueError(f"policy: longer than MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})")
    check_unicode(policy, "policy")
    return str.__str__(policy)


def checked_bytes(value: Any, name: str, limit: str, most: int) -> bytes | None:
    if value is None or (type(value) is bytes and len(value) <= most):  # most need no more than a look
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValueError(f"{name}: must be bytes, not {type(value).__name__}")
    if memoryview(value).nbytes > most:
        raise InvalidValueError(f"{name}: larger than {limit} ({most:,})")
    return bytes(value)


def checked_payload(payload: Any) -> bytes | None:
    if isinstance(payload, str):
        raise InvalidValueError("payload: must be bytes; encode text as UTF-8")
    return checked_bytes(payload, "payload", "MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES)

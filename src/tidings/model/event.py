"""The event: one publication with its attributes, payload and metadata; and checks that other values share."""

from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.filter import ContextFilterValue
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
    """One publication as its publisher described it.

    `Event.of` checks every field; the plain constructor checks nothing. An event never refers to itself, so the garbage
    collector does not track it (`gc=False`); there are very many events.
    """

    id: UUID
    publisher: str
    timestamp: int  # microseconds since the Unix epoch, UTC
    sequence: int  # rises by one with each event of a publisher
    attributes: Attributes = Attributes()
    subject: str | None = None
    payload: bytes | None = None
    context: Context = Context()  # the publisher's context when it published
    subscribers: ContextFilterValue | None = None  # over the subscriber's context: who may get the event
    policy: str | None = None  # attached policy: travels with the event
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
        subscribers: ContextFilterValue | None = None,
        policy: str | None = None,
        token: bytes | None = None,
        signature: bytes | None = None,
    ) -> Self:
        """Return a checked event.

        Args:
            attributes: Names and values; nested mappings become dotted names, None values are left out.
            id: The UUIDv7 of the event.
            publisher: The client that publishes.
            timestamp: The time of the event in microseconds since the Unix epoch, UTC.
            sequence: The publisher's own number of the event; it rises by one with each event.
            subject: The event channel, or None.
            payload: Opaque bytes, or None.
            context: The publisher's context at the time of publishing.
            subscribers: A filter over the subscriber's context: only subscribers that match it get the event.
            policy: The text of a policy that travels with the event.
            token: The encoded token that grants the right to publish.
            signature: The publisher's signature over the event.

        Raises:
            InvalidValueError: A field is not acceptable; the message names it.
        """
        if not isinstance(id, UUID) or id.version != 7:
            raise InvalidValueError("id: an event is named by a UUIDv7")
        for name, number in (("timestamp", timestamp), ("sequence", sequence)):
            if type(number) is not int or not 0 <= number <= MAX_INTEGER:
                raise InvalidValueError(f"{name}: must be an int between 0 and 2^63 - 1")
        if subscribers is not None and not isinstance(subscribers, ContextFilterValue):
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
    """Return the checked name of a client, that is, a publisher or a subscriber.

    Raises an `InvalidValueError` unless it is a string of 1 to `MAX_NAME_CHARACTERS` characters without lone
    surrogates.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidValueError(
            f"a client's name is a string of 1 to MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS}) characters"
        )
    check_unicode(name, "a client's name")
    return str.__str__(name)


def checked_subject(subject: Any) -> str | None:
    """Return the checked subject, or None; raise an `InvalidValueError` if it is empty, too long or not a string."""
    if subject is None:
        return None
    if not isinstance(subject, str) or not subject:
        raise InvalidValueError("subject: must be a string that is not empty, or None")
    if len(subject) > MAX_SUBJECT_CHARACTERS:
        raise InvalidValueError(f"subject: longer than MAX_SUBJECT_CHARACTERS ({MAX_SUBJECT_CHARACTERS:,})")
    check_unicode(subject, "subject")
    return str.__str__(subject)


def checked_policy(policy: Any) -> str | None:
    """Return the checked text of a policy, or None. The text is not parsed here."""
    if policy is None:
        return None
    if not isinstance(policy, str):
        raise InvalidValueError(f"policy: must be a text, not {type(policy).__name__}")
    if len(policy) > MAX_POLICY_CHARACTERS:
        raise InvalidValueError(f"policy: longer than MAX_POLICY_CHARACTERS ({MAX_POLICY_CHARACTERS:,})")
    check_unicode(policy, "policy")
    return str.__str__(policy)


def checked_bytes(value: Any, name: str, limit: str, most: int) -> bytes | None:
    """Return `value` as bytes of limited size, or None for None.

    Args:
        value: The bytes, bytearray or memoryview to check.
        name: The name of the field, for the error message.
        limit: The name of the limit, for the error message.
        most: The largest number of bytes that is allowed.

    Raises:
        InvalidValueError: The value is not bytes, or is too large.
    """
    if value is None or (type(value) is bytes and len(value) <= most):  # the common case, without a copy
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValueError(f"{name}: must be bytes, not {type(value).__name__}")
    if memoryview(value).nbytes > most:
        raise InvalidValueError(f"{name}: larger than {limit} ({most:,})")
    return bytes(value)


def checked_payload(payload: Any) -> bytes | None:
    """Return the checked payload of an event, or None; raise an `InvalidValueError` for text or if it is too large."""
    if isinstance(payload, str):
        raise InvalidValueError("payload: must be bytes; encode text as UTF-8")
    return checked_bytes(payload, "payload", "MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES)

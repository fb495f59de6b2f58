"""The records of a journal: operations, each with its offset and timestamp.

The fields of an operation are the columns of the Parquet segments. The journal knows events; of every other operation
it knows only a kind, a client, an id and a body.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from uuid import UUID

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_NAME_CHARACTERS, MAX_RECORD_BYTES
from tidings.model.values import Attributes, Context

PUBLISH = "publish"
PASSED = "passed"  # an event accepted by another broker, stored for durable subscriptions here
EVENTS = (PUBLISH, PASSED)
LOST = "$lost"  # the kind of record that repair puts in place of an unreadable one


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One accepted operation. `publication` and `control` create checked ones."""

    kind: str
    id: str | None = None
    client: str | None = None  # control operations: the client that owns it
    publisher: str | None = None  # publications
    sequence: int | None = None
    published: int | None = None  # microseconds: the timestamp that the publisher gave the event
    subject: str | None = None
    attributes: str | None = None  # JSON text, as are `context` and `body`: it distinguishes 1, 1.0 and true
    payload: bytes | None = None
    context: str | None = None
    subscribers: str | None = None  # the canonical text of the filter
    policy: str | None = None
    token: bytes | None = None
    signature: bytes | None = None
    body: str | None = None  # control operations: the content

    @classmethod
    def publication(cls, event: Event, kind: str = PUBLISH, body: Mapping[str, Any] | None = None) -> Self:
        """Return the operation for an event; `body` is additional data that is stored with it."""
        return cls(
            kind,
            msgspec.to_builtins(event.id),  # several times faster than str()
            None,
            event.publisher,
            event.sequence,
            event.timestamp,
            event.subject,
            _json(event.attributes),
            event.payload,
            _json(event.context),
            None if event.subscribers is None else str(event.subscribers),
            event.policy,
            event.token,
            event.signature,
            _json(body) if body else None,
        )

    @classmethod
    def control(
        cls,
        kind: str,
        *,
        client: str | None = None,
        id: str | None = None,  # noqa: A002 - the column's own name
        body: Mapping[str, Any] | None = None,
        payload: bytes | None = None,
        token: bytes | None = None,
        signature: bytes | None = None,
    ) -> Self:
        """Return an operation that is not a publication.

        Args:
            kind: The kind of operation; not a publication, and not starting with `$`.
            client: The client that owns it.
            id: The id of the subscription, advertisement or other object.
            body: The content; it must survive JSON unchanged.
            payload: Bytes, which JSON cannot contain.
            token: An encoded token.
            signature: A signature.

        Raises:
            InvalidValueError: The kind or the body is not acceptable.
        """
        if not isinstance(kind, str) or not 0 < len(kind) <= MAX_NAME_CHARACTERS or kind.startswith("$"):
            raise InvalidValueError(
                f"kind: a string of 1 to MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS}) characters without '$' in front"
            )
        if kind in EVENTS:
            raise InvalidValueError("kind: a publication is made by Operation.publication")
        text = None if body is None else _exact_json(body)
        return cls(kind, id, client, payload=payload, token=token, signature=signature, body=text)

    def event(self, parse: Callable[[str], ContextFilterValue]) -> Event:
        """Return the event of a publication; `parse` parses the text of its `subscribers` filter.

        Raises an `InvalidValueError` if the operation is not a publication.
        """
        if self.kind not in EVENTS or self.id is None or self.publisher is None:
            raise InvalidValueError(f"an operation of the kind {self.kind!r} holds no event")
        return Event(
            id=UUID(self.id),
            publisher=self.publisher,
            timestamp=self.published or 0,
            sequence=self.sequence or 0,
            attributes=Attributes(_mapping(self.attributes)),
            subject=self.subject,
            payload=self.payload,
            context=Context(_mapping(self.context)),
            subscribers=None if self.subscribers is None else parse(self.subscribers),
            policy=self.policy,
            token=self.token,
            signature=self.signature,
        )

    def content(self) -> dict[str, Any]:
        """Return the decoded body of a control operation."""
        return _mapping(self.body)


class Record(msgspec.Struct, frozen=True):
    """An operation at its place in the journal. Offsets are consecutive; timestamps (microseconds) rise strictly."""

    offset: int
    timestamp: int  # the acceptance time
    operation: Operation


class Span(msgspec.Struct, frozen=True):
    """The place of operations that were appended together: consecutive offsets, timestamps one microsecond apart."""

    first: int
    next: int  # the offset after the last one
    timestamp: int  # of the first operation

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def offsets(self) -> range:
        """The offsets of the operations."""
        return range(self.first, self.next)


def encode_operations(operations: Iterable[Operation]) -> list[bytes]:
    """Return the bytes of operations in a log: for each, a MessagePack array of its fields.

    Raises an `InvalidValueError` for an operation that cannot be encoded or is too large.
    """
    operation_list = list(operations)
    try:
        bodies = list(map(_ENCODER.encode, operation_list))
        if max(map(len, bodies), default=0) <= MAX_RECORD_BYTES:
            return bodies
    except (TypeError, UnicodeEncodeError):
        pass
    return list(map(_encode_checked, operation_list))  # one by one, to name the offending operation


def _encode_checked(operation: Operation) -> bytes:
    try:
        data = _ENCODER.encode(operation)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidValueError(f"the operation {operation.kind!r} cannot be written: {error}") from None
    if len(data) > MAX_RECORD_BYTES:
        raise InvalidValueError(f"an operation of {len(data):,} bytes is over MAX_RECORD_BYTES ({MAX_RECORD_BYTES:,})")
    return data


def decode_operation(data: bytes) -> Operation:
    """Decode an operation; raise a `msgspec.MsgspecError` if the bytes are invalid."""
    return _DECODER.decode(data)


def _json(values: Mapping[str, Any]) -> str:
    return _JSON.encode(values).decode() if values else "{}"


def _mapping(text: str | None) -> dict[str, Any]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, Any])


def _exact_json(body: Mapping[str, Any]) -> str:
    try:
        text = _json(body)
        exact = _mapping(text) == body
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidValueError(f"body: cannot be written as JSON: {error}") from None
    if not exact:
        raise InvalidValueError("body: only mappings, lists, strings, finite numbers, booleans and None")
    return text


_JSON = msgspec.json.Encoder()
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Operation)

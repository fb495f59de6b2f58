"""What stands in a journal: operations, each with its place in the order.

An operation is a row: its fields are the columns of the Parquet segments. The journal does not know what operations
do; it knows events, and for everything else a kind, a client, an id and a body.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from uuid import UUID

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import Event
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_NAME_CHARACTERS, MAX_RECORD_BYTES
from tidings.model.values import Attributes, Context

PUBLISH = "publish"
PASSED = "passed"  # an event that another broker accepted, kept for those here who wait for it
EVENTS = (PUBLISH, PASSED)
LOST = "$lost"  # what repair puts in the place of a record that could not be read


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One accepted operation; made by `publication` and `control`, which check."""

    kind: str
    id: str | None = None
    client: str | None = None  # of a control operation: whose it is
    publisher: str | None = None  # of a publication
    sequence: int | None = None
    published: int | None = None  # microseconds: the event's own timestamp, as its publisher gave it
    subject: str | None = None
    attributes: str | None = None  # JSON text, as are `context` and `body`: it tells 1, 1.0 and true apart
    payload: bytes | None = None
    context: str | None = None
    subscribers: str | None = None  # the canonical text of the filter
    policy: str | None = None
    token: bytes | None = None
    signature: bytes | None = None
    body: str | None = None  # of a control operation: what it says

    @classmethod
    def publication(cls, event: Event, kind: str = PUBLISH, body: Mapping[str, Any] | None = None) -> Self:
        """The body is what is noted with the event, if anything is."""
        return cls(
            kind,
            msgspec.to_builtins(event.id),  # its text, several times as quickly as str() makes it
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
        """Any other operation. The body is what JSON can say exactly; bytes go into `payload`."""
        if not isinstance(kind, str) or not 0 < len(kind) <= MAX_NAME_CHARACTERS or kind.startswith("$"):
            raise InvalidValueError(
                f"kind: a string of 1 to MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS}) characters without '$' in front"
            )
        if kind in EVENTS:
            raise InvalidValueError("kind: a publication is made by Operation.publication")
        text = None if body is None else _exact_json(body)
        return cls(kind, id, client, payload=payload, token=token, signature=signature, body=text)

    def event(self, parse: Callable[[str], ContextFilter]) -> Event:
        """The event of a publication; `parse` reads the text of its `subscribers` filter."""
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
        """The body of a control operation, decoded."""
        return _mapping(self.body)


class Record(msgspec.Struct, frozen=True):
    """An operation in its place. Offsets are consecutive; timestamps (microseconds) rise strictly."""

    offset: int
    timestamp: int  # when it was accepted
    operation: Operation


class Span(msgspec.Struct, frozen=True):
    """Where operations that were appended together stand: one after the other, a microsecond apart."""

    first: int
    next: int  # the offset after the last one
    timestamp: int  # of the first

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def offsets(self) -> range:
        return range(self.first, self.next)


def encoded(operations: Iterable[Operation]) -> list[bytes]:
    """The bytes of operations in a log: of each, a MessagePack array of its fields, in their order."""
    given = list(operations)
    try:
        bodies = list(map(_ENCODER.encode, given))
        if max(map(len, bodies), default=0) <= MAX_RECORD_BYTES:
            return bodies
    except (TypeError, UnicodeEncodeError):
        pass
    return list(map(_checked, given))  # which one it is, is told by looking at each


def _checked(operation: Operation) -> bytes:
    try:
        data = _ENCODER.encode(operation)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidValueError(f"the operation {operation.kind!r} cannot be written: {error}") from None
    if len(data) > MAX_RECORD_BYTES:
        raise InvalidValueError(f"an operation of {len(data):,} bytes is over MAX_RECORD_BYTES ({MAX_RECORD_BYTES:,})")
    return data


def decoded(data: bytes) -> Operation:
    """The operation, or a `msgspec.MsgspecError`."""
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

"""Publications on the wire. In front of everything else stand the number of the subject and the vector of attributes,
so that what does not conform is refused before it is decoded.

After the kind: four bytes with the number that the receiver has bound to the subject, or 0; one byte with the length of
the vector, and the vector, big-endian. What follows is MessagePack.
"""

from enum import IntEnum
from struct import Struct

import msgspec

from tidings.model.errors import SchemaError
from tidings.model.schema import Schema
from tidings.protocol.events import Values
from tidings.protocol.frames import FramingError
from tidings.protocol.requests import request_of

_FRONT = Struct(">IB")
_NOTHING = _FRONT.pack(0, 0)


class Safety(IntEnum):
    """How safe a publication is to be before its publisher is told."""

    ACCEPTED = 0
    JOURNALED = 1
    SETTLED = 2


class Published(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`subject` is here only if no number stands for it. `context` is the publisher's, None: as it was set last."""

    request: int
    id: bytes
    sequence: int
    safe: int
    attributes: Values
    subject: str | None = None
    payload: bytes | None = None
    context: Values | None = None
    subscribers: str | None = None
    policy: str | None = None
    token: bytes | None = None
    signature: bytes | None = None


class Front(msgspec.Struct, frozen=True, gc=False):
    """What stands in front: the subject's number and the vector; and where the rest begins."""

    number: int
    vector: int
    end: int


def front(number: int = 0, vector: int = 0) -> bytes:
    """The bytes in front of a publication of the subject that the receiver has bound to that number."""
    if not number:
        return _NOTHING
    bits = vector.to_bytes((vector.bit_length() + 7) // 8, "big")
    return _FRONT.pack(number, len(bits)) + bits


def read_front(body: bytes) -> Front:
    if body[: _FRONT.size] == _NOTHING:
        return _PLAIN
    if len(body) < _FRONT.size:
        raise FramingError("a publication ends before its vector")
    number, length = _FRONT.unpack_from(body)
    end = _FRONT.size + length
    if len(body) < end:
        raise FramingError("a publication ends within its vector")
    return Front(number, int.from_bytes(body[_FRONT.size : end], "big"), end)


def publication_request_of(body: bytes) -> int:
    """The number by which a publication is answered, read without what follows it; 0 if there is none."""
    try:
        return request_of(body, read_front(body).end)
    except FramingError:
        return 0


def check_front(front: Front, schema: Schema) -> None:
    """Refuses a vector with attributes that the schema does not have; nothing was decoded for that."""
    schema.names(front.vector)


def check_vector(front: Front, schema: Schema, attributes: Values) -> None:
    """Refuses a publication whose vector says other attributes than it has."""
    if schema.bits_of(attributes) != front.vector:
        raise SchemaError(f"{schema.subject}: the vector does not say which attributes the publication has")


_PLAIN = Front(0, 0, _FRONT.size)

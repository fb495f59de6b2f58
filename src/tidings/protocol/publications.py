"""Publications from clients on the wire. A prefix has the subject's number and the vector of attributes, so that a
broker can refuse a publication that does not conform before it decodes it.

After the frame's kind: four bytes with the number that the receiver has bound to the subject, or 0; one byte with the
length of the vector; the vector, big-endian. The rest is MessagePack.
"""

from enum import IntEnum
from struct import Struct

import msgspec

from tidings.model.errors import SchemaError
from tidings.model.schema import Schema
from tidings.protocol.events import Values
from tidings.protocol.frames import FramingError
from tidings.protocol.requests import request_of

_PREFIX_HEAD = Struct(">IB")
_EMPTY_PREFIX_BYTES = _PREFIX_HEAD.pack(0, 0)


class Safety(IntEnum):
    """The durability that a publication must have before the broker sends its receipt."""

    ACCEPTED = 0
    JOURNALED = 1
    SETTLED = 2


class WirePublication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A publication as it is encoded on the wire.

    `subject` is None if the prefix has the subject's number. `context` is the publisher's context; None means
    unchanged.
    """

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


class PublicationPrefix(msgspec.Struct, frozen=True, gc=False):
    """The prefix of a publication: the subject's number, the vector, and the offset at which the rest begins."""

    number: int
    vector: int
    end: int


def encode_prefix(number: int = 0, vector: int = 0) -> bytes:
    """Return the prefix of a publication whose subject the receiver has bound to `number`; 0 means no number."""
    if not number:
        return _EMPTY_PREFIX_BYTES
    bits = vector.to_bytes((vector.bit_length() + 7) // 8, "big")
    return _PREFIX_HEAD.pack(number, len(bits)) + bits


def decode_prefix(body: bytes) -> PublicationPrefix:
    """Decode the prefix of a publication; raise a `FramingError` if the body is too short."""
    if body[: _PREFIX_HEAD.size] == _EMPTY_PREFIX_BYTES:
        return _EMPTY_PREFIX
    if len(body) < _PREFIX_HEAD.size:
        raise FramingError("a publication ends before its vector")
    number, length = _PREFIX_HEAD.unpack_from(body)
    end = _PREFIX_HEAD.size + length
    if len(body) < end:
        raise FramingError("a publication ends within its vector")
    return PublicationPrefix(number, int.from_bytes(body[_PREFIX_HEAD.size : end], "big"), end)


def publication_request_of(body: bytes) -> int:
    """Return the request number of a publication without decoding the rest; 0 if there is none."""
    try:
        return request_of(body, decode_prefix(body).end)
    except FramingError:
        return 0


def check_prefix(prefix: PublicationPrefix, schema: Schema) -> None:
    """Raise a `SchemaError` if the vector has attributes that the schema lacks; needs no decoding of the body."""
    schema.names(prefix.vector)


def check_vector(prefix: PublicationPrefix, schema: Schema, attributes: Values) -> None:
    """Raise a `SchemaError` if the vector differs from the publication's attributes."""
    if schema.bits_of(attributes) != prefix.vector:
        raise SchemaError(f"{schema.subject}: the vector does not say which attributes the publication has")


_EMPTY_PREFIX = PublicationPrefix(0, 0, _PREFIX_HEAD.size)

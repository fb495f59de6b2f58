"""Bytes that are signed: one encoding of every value, and a purpose in front, so that no signature serves two."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from tidings.model.errors import SecurityError

Value = TypeVar("Value")
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
encoded: Callable[[Any], bytes] = _ENCODER.encode  # no function around it: it is called many times for each event


def decoded(data: bytes, type: type[Value], what: str) -> Value:  # noqa: A002 - as msgspec calls it
    """The value, if these are the bytes that it has: another encoding of the same is refused, since caches and
    signatures go by bytes."""
    try:
        value: Value = _decoder(type).decode(data)  # type: ignore[arg-type]  # every type can be hashed
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise SecurityError("form", f"this is no {what}: {error}") from None
    if encoded(value) != data:
        raise SecurityError("form", f"this is no {what}: it is not in canonical form")
    return value


@cache
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: A002 - as msgspec calls it
    return msgspec.msgpack.Decoder(type)


def purpose(name: str, body: bytes) -> bytes:
    """What is signed: never the body alone."""
    return b"tidings/1/" + name.encode() + b"\0" + body


class Signed(msgspec.Struct, frozen=True, array_like=True):
    """A value in its canonical bytes, and a signature over them."""

    body: bytes
    signature: bytes

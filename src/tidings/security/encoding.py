"""Canonical encoding of values that are signed, and the purpose prefix that separates kinds of signatures.

Every value has exactly one encoding (deterministic msgpack). Signatures cover a purpose and the encoding, so that a
signature made for one purpose is never valid for another.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from tidings.model.errors import SecurityError

Value = TypeVar("Value")
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
encode_canonical: Callable[[Any], bytes] = _ENCODER.encode  # not wrapped in a function: it runs many times per event


def decode_canonical(data: bytes, type: type[Value], description: str) -> Value:  # noqa: A002 - as msgspec calls it
    """Decode `data` as a `type`, and require the canonical encoding.

    Raises `SecurityError("form")`, which names `description`, if the bytes cannot be decoded or are a non-canonical
    encoding of the same value: caches and signatures compare bytes.
    """
    try:
        value: Value = _decoder(type).decode(data)  # type: ignore[arg-type]  # every type can be hashed
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise SecurityError("form", f"this is no {description}: {error}") from None
    if encode_canonical(value) != data:
        raise SecurityError("form", f"this is no {description}: it is not in canonical form")
    return value


@cache
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: A002 - as msgspec calls it
    return msgspec.msgpack.Decoder(type)


def signing_input(purpose: str, body: bytes) -> bytes:
    """Return the bytes to sign for `body`: the purpose `purpose` as a prefix, then the body."""
    return b"tidings/1/" + purpose.encode() + b"\0" + body


def set_fields(value: Any, **fields: Any) -> None:
    """Set the decoded fields of a frozen dataclass, in its `__post_init__` only."""
    for name, content in fields.items():
        object.__setattr__(value, name, content)


class SignedValue(msgspec.Struct, frozen=True, array_like=True):
    """The canonical bytes of a value and a signature over them."""

    body: bytes
    signature: bytes

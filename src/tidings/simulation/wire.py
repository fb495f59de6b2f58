"""Operations as they would be on the wire: arrays of their fields in MessagePack, filters as their canonical texts."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from tidings.engine.operations import Travelling
from tidings.model.filter import ContextFilter, Filter
from tidings.model.schema import AttributeFilter, Schema

_ENCODER = msgspec.msgpack.Encoder()
_PLAIN = (str, int, float, bool, bytes, type(None))


def encoded(operation: Travelling) -> bytes:
    return _ENCODER.encode([type(operation).__name__, *_fields(operation)])


def size_of(operation: Travelling) -> int:
    return len(encoded(operation))


def _fields(value: msgspec.Struct) -> list[Any]:
    return [_written(getattr(value, name)) for name in value.__struct_fields__]


def _written(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Filter | ContextFilter):
        return _text(value)
    if isinstance(value, AttributeFilter):
        return [_written(value.schema), sorted(value.names), sorted(value.absent)]
    if isinstance(value, Schema):
        return [value.subject, value.version, {name: kind.__name__ for name, kind in value.attributes.items()}]
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, Mapping):
        return {_written(key): _written(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_written, value))
    return [_written(one) for one in value]


@lru_cache(16_384)
def _text(filter: Filter | ContextFilter) -> str:  # noqa: A002
    return str(filter)

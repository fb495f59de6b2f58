"""The layout of an encoded struct, a line for each field, and a sample value of it.

A line holds what the bytes depend on and nothing else. A struct that is encoded as a map depends on the names of its
fields and on its tag; a struct that is encoded as an array depends on the places of its fields. The name of a field
in an array stands behind ` # ` for the reader, and is not compared. Names of classes appear only where they are tags.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

_WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "anything",
    inspect.BoolType: "boolean",
    inspect.BytesType: "bytes",
    inspect.FloatType: "number",
    inspect.IntType: "integer",
    inspect.NoneType: "null",
    inspect.RawType: "anything",
    inspect.StrType: "text",
    inspect.UUIDType: "uuid",
}
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.FrozenSetType, inspect.SetType)


def layout(path: str, described: Any) -> Iterator[str]:
    """The lines of a type; `path` says where its values stand."""
    yield from _nested(path, inspect.type_info(described))


def _nested(path: str, kind: inspect.Type) -> Iterator[str]:
    """The lines of the structs within a type."""
    match kind:
        case inspect.Metadata():
            yield from _nested(path, kind.type)
        case inspect.StructType():
            yield from _struct(path, kind)
        case inspect.ListType() | inspect.VarTupleType() | inspect.FrozenSetType() | inspect.SetType():
            yield from _nested(f"{path}[*]", kind.item_type)
        case inspect.TupleType():
            for place, item in enumerate(kind.item_types):
                yield from _nested(f"{path}[{place}]", item)
        case inspect.NamedTupleType():
            for place, field in enumerate(kind.fields):
                yield from _field(f"{path}[{place}]", field, is_named=False)
        case inspect.DictType():
            yield from _nested(f"{path}{{*}}", kind.value_type)
        case inspect.UnionType():
            for one in kind.types:
                yield from _nested(path, one)


def _struct(path: str, kind: inspect.StructType) -> Iterator[str]:
    if kind.tag is not None:
        path = f"{path}({kind.tag})"
        yield f"{path} {'first item' if kind.array_like else kind.tag_field} = {kind.tag!r}"
    first = 0 if kind.tag is None else 1
    for place, field in enumerate(kind.fields, first):
        inner = f"{path}[{place}]" if kind.array_like else f"{path}.{field.encode_name}"
        yield from _field(inner, field, is_named=not kind.array_like)


def _field(path: str, field: inspect.Field, *, is_named: bool) -> Iterator[str]:
    comment = "" if is_named else f" # {field.name}"
    yield f"{path} {type_text(field.type)}{default_text(field)}{comment}"
    yield from _nested(path, field.type)


def type_text(kind: inspect.Type) -> str:
    """A type in words; the fields of a struct in it have lines of their own."""
    match kind:
        case inspect.Metadata():
            return type_text(kind.type)
        case inspect.StructType():
            return "array" if kind.array_like else "map"
        case inspect.ListType() | inspect.VarTupleType() | inspect.FrozenSetType() | inspect.SetType():
            return f"list of {type_text(kind.item_type)}"
        case inspect.TupleType():
            return f"[{', '.join(map(type_text, kind.item_types))}]"
        case inspect.NamedTupleType():
            return f"[{', '.join(type_text(one.type) for one in kind.fields)}]"
        case inspect.DictType():
            return f"map of {type_text(kind.key_type)} to {type_text(kind.value_type)}"
        case inspect.UnionType():
            return " | ".join(dict.fromkeys(map(type_text, kind.types)))
        case inspect.LiteralType():
            return " | ".join(repr(one) for one in kind.values)
        case inspect.EnumType():
            return " | ".join(repr(one.value) for one in kind.cls)
        case inspect.CustomType():
            return "map" if issubclass(kind.cls, dict) else "text"
        case inspect.IntType() | inspect.FloatType():
            return _WORDS[type(kind)] + _range(kind)
    return _WORDS[type(kind)]


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    limits = ((">", kind.gt), (">=", kind.ge), ("<", kind.lt), ("<=", kind.le))
    return "".join(f" {sign} {limit}" for sign, limit in limits if limit is not None)


def default_text(field: inspect.Field) -> str:
    """What stands for a field that is left out; `required` where nothing does."""
    if field.required:
        return ", required"
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if default in (msgspec.UNSET, msgspec.NODEFAULT) or isinstance(default, msgspec.Struct):
        return ", optional"
    return f" = {msgspec.json.encode(default, order='deterministic').decode()}"


class Sampler:
    """Makes a value of a type: every field is filled, and no two fields have the same value. The values depend on types
    and places alone, so that another name for a field of an array changes nothing."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def of(self, described: Any) -> Any:
        return self.value(inspect.type_info(described))

    def value(self, kind: inspect.Type) -> Any:
        match kind:
            case inspect.Metadata():
                return self.value(kind.type)
            case inspect.StructType():
                return kind.cls(**{field.name: self.value(field.type) for field in kind.fields})
            case inspect.NamedTupleType():
                return kind.cls(*(self.value(field.type) for field in kind.fields))
            case inspect.ListType():
                return [self.value(kind.item_type)]
            case inspect.VarTupleType():
                return (self.value(kind.item_type),)
            case inspect.FrozenSetType():
                return frozenset({self.value(kind.item_type)})
            case inspect.TupleType():
                return tuple(map(self.value, kind.item_types))
            case inspect.DictType():
                return {self.value(kind.key_type): self.value(kind.value_type)}
            case inspect.UnionType():
                return self.value(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
            case inspect.LiteralType():
                return kind.values[-1]
            case inspect.EnumType():
                return list(kind.cls)[-1]
            case inspect.CustomType():
                return kind.cls({self._text(): next(self._numbers)})
        return self._scalar(kind)

    def _scalar(self, kind: inspect.Type) -> Any:
        match kind:
            case inspect.BoolType():
                return True
            case inspect.BytesType():
                return next(self._numbers).to_bytes(2, "big")
            case inspect.FloatType():
                return next(self._numbers) + 0.5
            case inspect.UUIDType():
                return UUID(int=next(self._numbers))
            case inspect.IntType():
                return min(next(self._numbers), 2**63 if kind.le is None else kind.le)
            case inspect.AnyType() | inspect.StrType():
                return self._text()
        raise TypeError(f"there is no sample of {kind}")

    def _text(self) -> str:
        return f"text {next(self._numbers)}"


def alternatives(described: Any) -> list[type[msgspec.Struct]]:
    """The structs of a union, or the struct itself."""
    kind = inspect.type_info(described)
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return [one.cls for one in kinds if isinstance(one, inspect.StructType)]

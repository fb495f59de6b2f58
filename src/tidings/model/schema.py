"""Schemas and attribute filters: which attributes the events of a subject may have, as bit vectors.

A schema (the paper's super-conformant vector) lists every attribute of its subject, with its type, in a fixed order.
The position of an attribute is its bit and never changes: a new version only appends attributes, so a vector or a
filter of an older version means the same under every newer version.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

from tidings.model.errors import InvalidValueError, SchemaError
from tidings.model.event import checked_subject
from tidings.model.limits import MAX_SCHEMA_ATTRIBUTES
from tidings.model.values import Attributes, checked_name

ValueType = type[bool] | type[int] | type[float] | type[str]
_TYPES: dict[str, ValueType] = {"bool": bool, "int": int, "float": float, "str": str}


class Schema:
    """The attributes of a subject with their types and bit positions; immutable.

    `Schema("Loop", {"li": int, "ts": int})` is version 1; `extend` returns the next version.
    """

    __slots__ = ("_positions", "_subject", "_types", "_versions")

    def __init__(self, subject: str, attributes: Mapping[str, ValueType | str]) -> None:
        if checked_subject(subject) is None:
            raise InvalidValueError("subject: a schema needs the name of its subject")
        self._subject = subject
        self._types: dict[str, ValueType] = {}
        self._positions: dict[str, int] = {}
        self._versions: tuple[int, ...] = ()  # the number of attributes in each version
        self._append(attributes)

    @property
    def subject(self) -> str:
        """The subject that the schema describes."""
        return self._subject

    @property
    def version(self) -> int:
        """The number of this version, counted from 1."""
        return len(self._versions)

    @property
    def attributes(self) -> Mapping[str, ValueType]:
        """Names and types, in the order of their bits."""
        return dict(self._types)

    def extend(self, attributes: Mapping[str, ValueType | str]) -> "Schema":
        """Return the next version: this schema with more attributes at the end.

        Raises a `SchemaError` if `attributes` is empty or redefines an attribute.
        """
        if not attributes:
            raise SchemaError(f"{self.subject}: a new version must add at least one attribute")
        newer = Schema.__new__(Schema)
        newer._subject = self._subject
        newer._types, newer._positions, newer._versions = dict(self._types), dict(self._positions), self._versions
        newer._append(attributes)
        return newer

    def at_version(self, version: int) -> "Schema":
        """Return an earlier version of this schema; raise a `SchemaError` if there is no such version."""
        if not 1 <= version <= self.version:
            raise SchemaError(f"{self.subject}: there is no version {version}; versions 1 to {self.version} exist")
        names = list(self._types)
        older = Schema(self.subject, {name: self._types[name] for name in names[: self._versions[0]]})
        for begin, end in zip(self._versions[: version - 1], self._versions[1:version], strict=True):
            older = older.extend({name: self._types[name] for name in names[begin:end]})
        return older

    def check_successor(self, newer: "Schema") -> None:
        """Raise a `SchemaError` unless `newer` is this schema or a later version of it.

        A later version has the same subject, and the same attributes with the same types, positions and versions.
        """
        if newer.subject != self.subject:
            raise SchemaError(f"{newer.subject}: is not the subject {self.subject}")
        for name, kind in self._types.items():
            if name not in newer._types:
                raise SchemaError(f"{self.subject}: {name} is missing; a new version only appends", name)
            if newer._types[name] is not kind:
                was, now = kind.__name__, newer._types[name].__name__
                raise SchemaError(f"{self.subject}: {name} was {was} and cannot become {now}", name)
            if newer._positions[name] != self._positions[name]:
                raise SchemaError(f"{self.subject}: {name} must keep position {self._positions[name]}", name)
        if newer._versions[: self.version] != self._versions:
            raise SchemaError(f"{self.subject}: version {self.version} is not among the versions of the newer schema")

    def bits(self, names: Iterable[str]) -> int:
        """Return the bit vector of these names; raise a `SchemaError` for a name that the schema lacks."""
        vector = 0
        for name in _names(names):
            vector |= 1 << self._position(name)
        return vector

    def names(self, bits: int | None) -> tuple[str, ...]:
        """Return the names of the attributes in a bit vector, in the order of their bits.

        Raises a `SchemaError` for a negative vector or a bit that the schema lacks.
        """
        if type(bits) is not int:
            raise SchemaError(f"{self.subject}: a bit vector is an int, not {type(bits).__name__}")
        if bits < 0:
            raise SchemaError(f"{self.subject}: a bit vector is not negative")
        if bits >> len(self._types):
            raise SchemaError(
                f"{self.subject}: bit {bits.bit_length() - 1} is beyond its {len(self._types)} attributes"
            )
        return tuple(name for name, position in self._positions.items() if bits >> position & 1)

    def bits_of(self, attributes: Mapping[str, Any]) -> int:
        """Return the bit vector of an event's attributes.

        Raises a `SchemaError` for a name or type that does not conform.
        """
        vector = 0
        for name, value in Attributes.of(attributes).items():
            self.check(name, type(value))
            vector |= 1 << self._positions[name]
        return vector

    def check(self, name: str, kind: type) -> None:
        """Raise a `SchemaError` unless the schema declares `name` with type `kind`; an int conforms to a float."""
        declared = self._types[name] if name in self._types else self._types[self._unknown(name)]
        if kind is not declared and not (declared is float and kind is int):
            raise SchemaError(f"{self.subject}: {name} is {declared.__name__}, not {kind.__name__}", name)

    def check_declared(self, name: str, kind: ValueType) -> None:
        """Raise a `SchemaError` if the schema has `name` with another type; unlike in `check`, int is not float."""
        if self._types.get(name, kind) is not kind:
            raise SchemaError(f"{self.subject}: {name} is {self._types[name].__name__}, not {kind.__name__}", name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        mine = (self.subject, self._versions, list(self._types.items()))
        return mine == (other.subject, other._versions, list(other._types.items()))

    def __hash__(self) -> int:
        return hash((self.subject, self._versions, tuple(self._types)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {kind.__name__}" for name, kind in self._types.items())
        return f"<Schema {self.subject} version {self.version}: {fields}>"

    def _append(self, attributes: Mapping[str, ValueType | str]) -> None:
        for name, kind in _flat_types(attributes, self._subject).items():
            if name in self._types:
                raise SchemaError(f"{self.subject}: {name} is there already, as {self._types[name].__name__}", name)
            if len(self._types) >= MAX_SCHEMA_ATTRIBUTES:
                raise SchemaError(f"{self.subject}: more than MAX_SCHEMA_ATTRIBUTES ({MAX_SCHEMA_ATTRIBUTES:,})", name)
            self._positions[name] = len(self._types)
            self._types[name] = kind
        self._versions = (*self._versions, len(self._types))

    def _position(self, name: str) -> int:
        return self._positions[name] if name in self._positions else self._positions[self._unknown(name)]

    def _unknown(self, name: str) -> str:
        type_names = ", ".join(self._types) or "none at all"
        raise SchemaError(f"{self.subject}: has no attribute {name}; version {self.version} has {type_names}", name)


def conforms(bits: int, to: int) -> bool:
    """Return whether `bits` has every bit of `to`: `<a,b,c>` conforms to `<a,c>`, and all vectors to `<>`."""
    return bits & to == to


class _BySchema:
    """A descriptor for constructors that take a schema first. Called on a filter, it passes the filter's own schema."""

    def __init__(self, make: Callable[..., "AttributeFilter"]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, one: "AttributeFilter | None", owner: type) -> Callable[..., "AttributeFilter"]:
        return self._make if one is None else partial(self._make, one.schema)


@dataclass(frozen=True, slots=True)
class AttributeFilter:
    """A filter on which attributes an event has: all of `names` and none of `absent`.

    `names` may map each name to the type that the schema must declare for it. `AttributeFilter(schema)` passes all
    events.
    """

    schema: Schema
    names: Collection[str] = frozenset()
    absent: Collection[str] = frozenset()
    present_bits: int = field(init=False, repr=False, compare=False)
    absent_bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise SchemaError(f"the schema comes first, as in AttributeFilter(schema, names), not {self.schema!r}")
        if isinstance(self.names, Mapping):
            for name, kind in _flat_types(self.names, self.schema.subject).items():
                self.schema.check_declared(name, kind)
            object.__setattr__(self, "names", _flat_types(self.names, self.schema.subject).keys())
        object.__setattr__(self, "names", _names(self.names))
        object.__setattr__(self, "absent", _names(self.absent))
        present, absent = self.schema.bits(self.names), self.schema.bits(self.absent)
        if present & absent:
            clash = self.schema.names(present & absent)[0]
            raise SchemaError(f"{self.schema.subject}: {clash} cannot be both present and absent", clash)
        object.__setattr__(self, "present_bits", present)
        object.__setattr__(self, "absent_bits", absent)

    @_BySchema
    @staticmethod
    def from_bits(schema: Schema, present: int | None = None, absent: int = 0) -> "AttributeFilter":
        """Return a filter for bit vectors: `AttributeFilter.from_bits(schema, 0b11)`."""
        checked = _checked_schema(schema, "from_bits(schema, 0b11)")
        return AttributeFilter(checked, checked.names(present), checked.names(absent))

    @_BySchema
    @staticmethod
    def from_class(schema: Schema, described: type | None = None, absent: Collection[str] = ()) -> "AttributeFilter":
        """Return a filter that requires the fields of a dataclass, msgspec Struct or annotated class.

        Raises a `SchemaError` if a field or its type differs from the schema.
        """
        return AttributeFilter(_checked_schema(schema, "from_class(schema, Class)"), fields_of(described), absent)

    def passes_bits(self, bits: int) -> bool:
        """Return whether an event with this bit vector passes; the attributes need not be decoded."""
        return bits & self.present_bits == self.present_bits and bits & self.absent_bits == 0

    def passes(self, attributes: Collection[str] | Mapping[str, Any]) -> bool:
        """Return whether an event with these attributes passes; for events without a bit vector."""
        if isinstance(attributes, Mapping):
            attributes = Attributes.of(attributes)
        return all(name in attributes for name in self.names) and not any(name in attributes for name in self.absent)

    def covers(self, other: "AttributeFilter") -> bool:
        """Return whether this filter passes every event that `other` passes. Both must have the same subject."""
        return (
            self.schema.subject == other.schema.subject
            and conforms(other.present_bits, self.present_bits)
            and conforms(other.absent_bits, self.absent_bits)
        )


def fields_of(described: type | None) -> dict[str, ValueType]:
    """Return the field names and value types of a class; `int | None` counts as `int`, nested classes as dotted names.

    Raises a `SchemaError` if the class has no fields, or a field with another type.
    """
    if not inspect.isclass(described):
        raise SchemaError(f"a class is needed, such as a dataclass, not {described!r}")
    try:
        hints = typing.get_type_hints(described)
    except (NameError, TypeError) as error:
        raise SchemaError(f"{described.__name__}: the types of its fields cannot be read: {error}") from None
    if is_dataclass(described):
        names = [field.name for field in fields(described)]
    elif issubclass(described, msgspec.Struct):
        names = list(described.__struct_fields__)
    else:
        names = [name for name, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar]
    if not names:
        raise SchemaError(f"{described.__name__} has no fields; AttributeFilter(schema) passes everything")
    return _flat_types({name: _nested(_without_none(hints[name])) for name in names}, described.__name__)


def _nested(hint: Any) -> Any:
    """Return the fields of a dataclass or Struct, so that they get dotted names; return any other type unchanged."""
    structured = is_dataclass(hint) or (inspect.isclass(hint) and issubclass(hint, msgspec.Struct))
    return fields_of(hint) if structured else hint


def _flat_types(types: Any, where: str, prefix: str = "") -> dict[str, ValueType]:
    """Return checked names and types; a nested mapping becomes dotted names, as in events."""
    if not isinstance(types, Mapping):
        raise SchemaError(f"{where}: attributes are a mapping of names to types, not {type(types).__name__}")
    flat: dict[str, ValueType] = {}
    for key, kind in types.items():
        name = checked_name(prefix + checked_name(key))
        if isinstance(kind, Mapping):
            flat.update(_flat_types(kind, where, f"{name}."))
        else:
            flat[name] = _value_type(kind, f"{where}: {name}")
    return flat


def _names(names: Any) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise SchemaError(f"a collection of names is needed, not {names!r}")
    return frozenset(checked_name(name) for name in names)


def _checked_schema(schema: Any, example: str) -> Schema:
    if not isinstance(schema, Schema):
        raise SchemaError(f"the schema comes first: AttributeFilter.{example}")
    return schema


def _without_none(hint: Any) -> Any:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    return options[0] if len(options) == 1 and type(None) in typing.get_args(hint) else hint


def _value_type(kind: Any, where: str) -> ValueType:
    value_type = _TYPES.get(kind) if isinstance(kind, str) else kind
    if value_type not in _TYPES.values():
        shown = getattr(kind, "__name__", repr(kind))
        raise SchemaError(f"{where}: a type is bool, int, float or str, not {shown}", where.rsplit(": ", 1)[-1])
    return typing.cast("ValueType", value_type)


class _Structure(msgspec.Struct, frozen=True):
    """The JSON form of an attribute filter and its schema."""

    subject: str
    versions: Annotated[list[dict[str, str]], msgspec.Meta(min_length=1)]
    names: list[str] = []
    absent: list[str] = []


def versions_of(schema: Schema) -> list[dict[str, str]]:
    """Return what each version of a schema added, as names and names of types; `schema_of` reads it."""
    names = list(schema.attributes.items())
    ends = [len(schema.at_version(version).attributes) for version in range(1, schema.version + 1)]
    return [
        {name: kind.__name__ for name, kind in names[begin:end]}
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def schema_of(subject: str, versions: list[dict[str, str]]) -> Schema:
    """Return the schema of a subject from the attributes that each version added, as `versions_of` returns them."""
    if not versions:
        raise SchemaError(f"{subject}: a schema has at least one version")
    first, *others = versions
    schema = Schema(subject, first)
    for added in others:
        schema = schema.extend(added)
    return schema


def structure_text(structure: AttributeFilter) -> str:
    """Return an attribute filter and its schema as JSON text; `structure_of` reads it."""
    schema = structure.schema
    description = _Structure(schema.subject, versions_of(schema), sorted(structure.names), sorted(structure.absent))
    return msgspec.json.encode(description).decode()


def structure_of(text: str) -> AttributeFilter:
    """Return the attribute filter in a JSON text of `structure_text`; raise a `SchemaError` if the text is invalid."""
    try:
        description = msgspec.json.decode(text, type=_Structure)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SchemaError(f"structure: {error}") from None
    return AttributeFilter(schema_of(description.subject, description.versions), description.names, description.absent)

"""Values, and `Attributes` and `Context`: the immutable mappings of names to values in events and contexts.

A value is a `bool`, an `int` of 64 bits, a finite `float` or a `str`. `Attributes.of` checks and copies what a user
passes in; after that an `Attributes` is trusted and never changes.
"""

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, NoReturn, Self

from tidings.model.errors import InvalidValueError
from tidings.model.limits import (
    MAX_ATTRIBUTE_NESTING,
    MAX_ATTRIBUTES,
    MAX_INTEGER,
    MAX_NAME_CHARACTERS,
    MAX_STRING_CHARACTERS,
    MIN_INTEGER,
)

Value = bool | int | float | str
BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def checked_value(value: Any, name: str = "value") -> Value:
    """Return `value` as one of the four plain types; raise an `InvalidValueError` that says why it is none.

    Subclasses and similar types (an `IntEnum`, NumPy's scalars) become the plain type.
    """
    kind = type(value)
    if kind is str:
        return _checked_string(value, name)
    if kind is bool:
        return bool(value)
    if kind is int:
        if MIN_INTEGER <= value <= MAX_INTEGER:
            return int(value)
        raise InvalidValueError(
            f"{name}: an integer of {value.bit_length()} bits and a sign does not fit into 64 bits; "
            "send it as a string or a float"
        )
    if kind is float:
        if math.isfinite(value):
            return float(value)
        raise InvalidValueError(f"{name}: {value!r} is not a finite number; leave the attribute out instead")
    return _checked_kin(value, name)


def check_unicode(value: str, name: str) -> None:
    """Raise an `InvalidValueError` if the string contains a lone surrogate, which UTF-8 cannot encode."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(f"{name}: half of a surrogate pair at character {error.start}") from None


def checked_name(name: Any) -> str:
    """Return the checked name of an attribute or a context value. Names that start with `$` are reserved for the
    system.
    """
    if not isinstance(name, str):
        raise InvalidValueError(f"a name must be a string, not {type(name).__name__}")
    if not name:
        raise InvalidValueError("a name must not be empty")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidValueError(f"the name {_shown(name)} is longer than MAX_NAME_CHARACTERS ({MAX_NAME_CHARACTERS})")
    if name.startswith("$"):
        raise InvalidValueError(f"the name {_shown(name)} starts with '$': such names are the system's")
    check_unicode(name, "name")
    return str(name)


class Attributes(dict[str, Value]):
    """An immutable mapping of names to values: the attributes of an event or the values of a context."""

    __slots__ = ("_hash",)
    _hash: int

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """Check and copy `values`. None values are left out; a nested mapping becomes dotted names (`engine.temp`)."""
        if self:
            self._refuse()
        checked: dict[str, Value] = {}
        _gather({} if values is None else values, "", 0, checked)
        super().__init__(checked)

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None) -> Self:
        """Return checked attributes; an object of this class is returned as it is."""
        return values if type(values) is cls else cls(values)

    @classmethod
    def trusted(cls, values: Mapping[str, Value]) -> Self:
        """Copy without checks: for values that were checked before, and for the system's own names."""
        made = cls.__new__(cls)
        dict.update(made, values)
        return made

    @classmethod
    def trusted_columns(cls, columns: Mapping[str, Iterable[Value | None]], rows: int) -> list[Self]:
        """Return the attributes of each row of a table, without checks.

        `columns` has one iterable for each name; None in it means that the row lacks the attribute.
        """
        made = list(map(cls.__new__, repeat(cls, rows)))
        for name, values in columns.items():
            for attributes, value in zip(made, values, strict=True):
                if value is not None:
                    dict.__setitem__(attributes, name, value)
        return made

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal in Python but different values here.
        return dict.__eq__(self, other) is True and all(type(other[k]) is type(v) for k, v in self.items())  # type: ignore[index]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Value]]]:
        return type(self), (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} never change; make new ones with {type(self).__name__}.of(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class Context(Attributes):
    """The context of a client, such as its position, battery level and role."""

    __slots__ = ()

    def merged(self, changes: Mapping[str, Any] | None) -> "Context":
        """Return this context with `changes` applied by name; None removes a value and everything nested in it."""
        changed = Context.of(changes)
        gone = _taken_away({} if changes is None else changes, "")
        others = {name: value for name, value in self.items() if not any(_is_below(name, removed) for removed in gone)}
        return Context({**others, **changed})


def _taken_away(changes: Mapping[str, Any], prefix: str) -> list[str]:
    names: list[str] = []
    for name, value in changes.items():
        if value is None:
            names.append(prefix + name)
        elif isinstance(value, Mapping):
            names.extend(_taken_away(value, f"{prefix}{name}."))
    return names


def _is_below(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


_PLAIN = frozenset({bool, int, float, str})
_GOOD_NAMES: set[str] = set()  # checked before; most events have the same names as the event before
_MANY_NAMES = 4_096


def _noted_name(key: Any) -> str:
    name = checked_name(key)
    if len(_GOOD_NAMES) >= _MANY_NAMES:
        _GOOD_NAMES.clear()
    _GOOD_NAMES.add(name)
    return name


def _gather(values: Any, prefix: str, depth: int, into: dict[str, Value]) -> None:
    if type(values) is not dict and not isinstance(values, Mapping):  # isinstance is much slower
        raise InvalidValueError(f"attributes must be a mapping of names to values, not {type(values).__name__}")
    if depth > MAX_ATTRIBUTE_NESTING:
        raise InvalidValueError(f"{prefix}: nested deeper than MAX_ATTRIBUTE_NESTING ({MAX_ATTRIBUTE_NESTING})")
    for key, value in values.items():
        if not prefix and type(key) is str and key in _GOOD_NAMES and key not in into and len(into) < MAX_ATTRIBUTES:
            kind = type(value)  # the fast path for most values
            if (
                (kind is str and len(value) <= MAX_STRING_CHARACTERS and value.isascii())
                or (kind is int and MIN_INTEGER <= value <= MAX_INTEGER)
                or (kind is float and value - value == 0.0)  # finite
                or kind is bool
            ):
                into[key] = value
                continue
        name = key if type(key) is str and key in _GOOD_NAMES else _noted_name(key)
        if value is None:
            continue
        if prefix:
            name = checked_name(f"{prefix}.{name}")
        if type(value) not in _PLAIN and isinstance(value, Mapping):
            _gather(value, name, depth + 1, into)
            continue
        if name in into:
            raise InvalidValueError(f"{name}: given twice, once as a dotted name and once nested")
        if len(into) >= MAX_ATTRIBUTES:
            raise InvalidValueError(f"more than MAX_ATTRIBUTES ({MAX_ATTRIBUTES:,}) values")
        into[name] = checked_value(value, name)


def _checked_kin(value: Any, name: str) -> Value:
    """Convert values of other classes, such as subclasses and NumPy's scalars, to one of the four plain types."""
    if isinstance(value, str):
        return _checked_string(str.__str__(value), name)
    if isinstance(value, numbers.Integral):
        return checked_value(int(value), name)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return checked_value(float(value), name)
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return bool(value)
    raise InvalidValueError(
        f"{name}: a value is a bool, int, float or str, not {type(value).__name__}; "
        "bytes and documents go into the payload"
    )


def _checked_string(value: str, name: str) -> str:
    if len(value) > MAX_STRING_CHARACTERS:
        raise InvalidValueError(
            f"{name}: a string of {len(value):,} characters is over MAX_STRING_CHARACTERS ({MAX_STRING_CHARACTERS:,}); "
            "put long texts into the payload"
        )
    check_unicode(value, name)
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."

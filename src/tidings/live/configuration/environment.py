"""Environment variables over a broker's file: `TIDINGS_`, a table and a key, as in TIDINGS_BROKER_NAME."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.live.configuration.kinds import Key, Table, keys_of
from tidings.model.errors import InvalidValueError

PREFIX = "TIDINGS_"


def variable(table: str, key: str) -> str:
    return f"{PREFIX}{table}_{key}".upper()


def values_of(environment: Mapping[str, str], tables: Mapping[str, type[Table]]) -> dict[tuple[str, str], Any]:
    """What variables say, by table and key. A variable that begins like those of a table and is none is a mistake."""
    known = {variable(name, key.name): (name, key) for name, table in tables.items() for key in keys_of(table)}
    found: dict[tuple[str, str], Any] = {}
    for name, text in sorted(environment.items()):
        if name in known:
            table, key = known[name]
            found[table, key.name] = _value(name, text, key)
        elif name.startswith(tuple(variable(table, "") for table in tables)):
            raise InvalidValueError(f"{name}: there is no such key; `tidings config reference` lists them")
    return found


def _value(name: str, text: str, key: Key) -> Any:
    kinds = key.type.types if isinstance(key.type, msgspec.inspect.UnionType) else (key.type,)
    if any(isinstance(one, msgspec.inspect.StrType) for one in kinds):
        return text
    if any(isinstance(one, msgspec.inspect.VarTupleType) for one in kinds):
        return [one.strip() for one in text.split(",") if one.strip()]
    if not text and any(isinstance(one, msgspec.inspect.NoneType) for one in kinds):
        return None
    for kind, type_ in ((msgspec.inspect.BoolType, bool), (msgspec.inspect.IntType, int)):
        if any(isinstance(one, kind) for one in kinds):
            return _converted(name, text, type_)
    return _converted(name, text, float)


def _converted(name: str, text: str, kind: type[bool | int | float]) -> bool | int | float:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise InvalidValueError(f"{name}: must be {wanted}, not '{text}'") from None

"""What the tables of a broker's file are made of: each key with its explanation, for programs to read."""

from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidings.configuration.checks import readable
from tidings.model.event import checked_client


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


Names = tuple[str, ...]
Positive = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Rate = Annotated[float, Meta(gt=0, le=1e12)]


def said(description: str, *, reloaded: bool = False, is_path: bool = False) -> Meta:
    """What a key means, whether a running broker takes over another value, and whether it names a file or folder."""
    return Meta(description=description, extra={"reloaded": reloaded, "is_path": is_path})


class Key(msgspec.Struct, frozen=True):
    """A key of a table, as its annotations describe it."""

    name: str
    description: str
    is_reloaded: bool
    is_path: bool
    type: msgspec.inspect.Type
    default: Any  # NODEFAULT: it must be given

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT


@lru_cache(64)
def keys_of(table: type[Table]) -> tuple[Key, ...]:
    """The keys of a table, in order."""
    info = msgspec.inspect.type_info(table)
    if not isinstance(info, msgspec.inspect.StructType):
        raise TypeError(f"{table.__name__} is no table")
    return tuple(_key(field) for field in info.fields)


def _key(field: msgspec.inspect.Field) -> Key:
    kind = field.type
    if not isinstance(kind, msgspec.inspect.Metadata) or kind.extra is None:
        raise TypeError(f"the key {field.name} is not explained")
    made = field.default_factory
    return Key(
        name=field.name,
        description=(kind.extra_json_schema or {})["description"],
        is_reloaded=kind.extra["reloaded"],
        is_path=kind.extra["is_path"],
        type=kind.type,
        default=field.default if made is msgspec.NODEFAULT else made(),
    )


def check_names(key: str, names: Names) -> None:
    """Of clients and brokers."""
    for name in names:
        readable(key, checked_client, name)

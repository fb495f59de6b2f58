"""The building blocks of configuration tables: a base class, value types, and keys with descriptions."""

import ipaddress
import re
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from tidings.configuration import check_parses
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client


class ConfigTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file. Its class docstring and key descriptions appear on the reference page."""


Names = tuple[str, ...]
Positive = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Rate = Annotated[float, Meta(gt=0, le=1e12)]


def config_key(description: str, *, reloaded: bool = False, is_path: bool = False) -> Meta:
    """Return a key's annotation: its description, whether a reload takes over changes, whether it names files."""
    return Meta(description=description, extra={"reloaded": reloaded, "is_path": is_path})


class ConfigKey(msgspec.Struct, frozen=True):
    """A key of a table, as its annotations describe it."""

    name: str
    description: str
    is_reloaded: bool
    is_path: bool
    type: msgspec.inspect.Type
    default: Any  # NODEFAULT: the key must be set

    @property
    def is_required(self) -> bool:
        """Whether the key has no default."""
        return self.default is msgspec.NODEFAULT


@lru_cache(64)
def keys_of(table: type[ConfigTable]) -> tuple[ConfigKey, ...]:
    """Return the keys of a table, in order."""
    info = msgspec.inspect.type_info(table)
    if not isinstance(info, msgspec.inspect.StructType):
        raise TypeError(f"{table.__name__} is no table")
    return tuple(_key(field) for field in info.fields)


def _key(field: msgspec.inspect.Field) -> ConfigKey:
    metadata = field.type
    if not isinstance(metadata, msgspec.inspect.Metadata) or metadata.extra is None:
        raise TypeError(f"the key {field.name} is not explained")
    factory = field.default_factory
    return ConfigKey(
        name=field.name,
        description=(metadata.extra_json_schema or {})["description"],
        is_reloaded=metadata.extra["reloaded"],
        is_path=metadata.extra["is_path"],
        type=metadata.type,
        default=field.default if factory is msgspec.NODEFAULT else factory(),
    )


def check_names(key: str, names: Names) -> None:
    """Raise an `InvalidValueError` for `key` unless all names may be those of clients and brokers."""
    for name in names:
        check_parses(key, checked_client, name)


_TEXT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host and a port. Port 0 stands for any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read an address such as `127.0.0.1:7450` or `[::1]:7450`; raise an `InvalidValueError` if it is none."""
        match = _TEXT.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise InvalidValueError(f"'{text}' is no address; write a host and a port, as in 127.0.0.1:7450")
        return cls(match["six"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to the address; false for host names other than localhost."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

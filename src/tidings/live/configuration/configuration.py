"""The configuration of a broker: its file, with environment variables over it, and where each value is from."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

from tidings.configuration.toml import Steps, TomlFile, dotted, understood
from tidings.live.configuration.environment import values_of, variable
from tidings.live.configuration.kinds import Table, keys_of
from tidings.live.configuration.layout import ONCE, SEVERAL, TABLES, Layout
from tidings.live.configuration.own import Ruled
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.policy.file import read_policy

DEFAULT = "default"


class Origin(NamedTuple):
    """A place in a file, which is looked for only when somebody asks: that is slow."""

    file: TomlFile
    steps: Steps

    def __str__(self) -> str:
        return f"{self.file.path}:{self.file.line(self.steps)}"


class InForce(NamedTuple):
    """A key such as `limits.connections` or `links[0].cost`, its value, and where that is from."""

    key: str
    value: Any
    origin: str


class Change(NamedTuple):
    """The keys that another configuration gives other values; of links and the like, the table as a whole."""

    taken_over: tuple[str, ...]
    restart: tuple[str, ...]


class Configuration(Layout, frozen=True, kw_only=True):
    """What is in force. `origins` says of each key that was given where it is from."""

    path: Path | None = None
    origins: dict[str, Origin | str] = msgspec.field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path, environment: Mapping[str, str] | None = None) -> Self:
        """The file, with variables over it: those of the process, unless others are given. Mistakes are named by line.

        Names of files and folders in it are relative to its own folder, those in variables to the current one.
        """
        file = TomlFile(path)
        return cls._read(file.values, os.environ if environment is None else environment, file)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        """The same from a mapping of tables; variables count only if they are given."""
        return cls._read(values, environment or {}, None)

    @classmethod
    def _read(cls, values: Mapping[str, Any], environment: Mapping[str, str], file: TomlFile | None) -> Self:
        over = values_of(environment, ONCE)
        merged = dict(values)
        for (table, key), value in over.items():
            if isinstance(merged.get(table, {}), Mapping):  # what is no table is refused below
                merged[table] = {**merged.get(table, {}), key: value}

        def refuse(steps: Steps, told: str) -> NoReturn:
            if steps in over:
                raise InvalidValueError(f"{variable(*map(str, steps))}: {told}")
            if file is not None:
                file.refuse(steps, told)
            raise InvalidValueError(f"{dotted(steps)}: {told}")

        try:
            layout = msgspec.convert(merged, Layout)
        except msgspec.ValidationError as error:
            refuse(*understood(str(error)))
        for steps, told in layout.mistakes():
            refuse(steps, told)
        base = Path() if file is None else file.path.absolute().parent
        tables: dict[str, Any] = {
            name: _with_paths(getattr(layout, name), base, {key for table, key in over if table == name})
            for name in ONCE
        }
        for name in SEVERAL:
            tables[name] = ()
            for number, one in enumerate(getattr(layout, name)):
                try:
                    tables[name] += (_with_policy(one, base),)
                except TidingsError as error:
                    refuse((name, number, "policy_file"), str(error))
        origins: dict[str, Origin | str] = {}
        if file is not None:
            origins = {dotted(steps): Origin(file, steps) for steps in _given(file.values)}
        origins.update((f"{table}.{key}", variable(table, key)) for table, key in over)
        transport = tables["security"].of_transport(tables["tls"])
        if transport != tables["tls"]:
            tables["tls"] = transport
            origins.update((f"tls.{key}", "security.identity") for key in ("certificate", "key", "authority"))
        return cls(**tables, path=None if file is None else file.path, origins=origins)

    def in_force(self) -> list[InForce]:
        """Every key, in the order of the reference."""
        found: list[InForce] = []
        for name in TABLES:
            given = getattr(self, name)
            for place, one in enumerate(given) if name in SEVERAL else [(None, given)]:
                before = name if place is None else f"{name}[{place}]"
                for key in keys_of(TABLES[name]):
                    origin = self.origins.get(f"{before}.{key.name}", DEFAULT)
                    if origin == DEFAULT and key.name == "policy" and one.policy is not None:
                        origin = one.policy_file or DEFAULT
                    found.append(InForce(f"{before}.{key.name}", getattr(one, key.name), str(origin)))
        return found

    def changes(self, other: "Configuration") -> Change:
        """What the other says differently: what a running broker takes over, and what it must be started anew for."""
        differing = [one for one in _units() if _value(self, one) != _value(other, one)]
        return Change(
            tuple(one.key for one in differing if one.is_reloaded),
            tuple(one.key for one in differing if not one.is_reloaded),
        )

    def taking_over(self, other: "Configuration") -> "Configuration":
        """This one, with all of the other that needs no restart."""
        values: dict[str, Any] = {name: getattr(self, name) for name in TABLES}
        origins = self.origins
        for one in _units():
            if not one.is_reloaded:
                continue
            value = _value(other, one)
            values[one.table] = (
                value if one.name is None else msgspec.structs.replace(values[one.table], **{one.name: value})
            )
            origins = {key: origin for key, origin in origins.items() if not one.holds(key)}
            origins.update((key, origin) for key, origin in other.origins.items() if one.holds(key))
        return Configuration(**values, path=self.path, origins=origins)


class _Unit(NamedTuple):
    """What is taken over as a whole, or not: a key, or all tables of a name that may stand there several times."""

    table: str
    name: str | None
    is_reloaded: bool

    @property
    def key(self) -> str:
        return self.table if self.name is None else f"{self.table}.{self.name}"

    def holds(self, key: str) -> bool:
        return key.startswith(f"{self.table}[") if self.name is None else key == self.key


def _units() -> Iterator[_Unit]:
    for name, table in TABLES.items():
        if name in SEVERAL:
            yield _Unit(name, None, all(key.is_reloaded for key in keys_of(table)))
        else:
            yield from (_Unit(name, key.name, key.is_reloaded) for key in keys_of(table))


def _value(configuration: Configuration, unit: _Unit) -> Any:
    table = getattr(configuration, unit.table)
    return table if unit.name is None else getattr(table, unit.name)


def _with_paths(table: Table, base: Path, elsewhere: set[str]) -> Table:
    """The table with the names of its files as seen from here; those of `elsewhere` are that already."""
    names = [key.name for key in keys_of(type(table)) if key.is_path and key.name not in elsewhere]
    given = {name: getattr(table, name) for name in names}
    return msgspec.structs.replace(table, **{name: _seen_from(base, paths) for name, paths in given.items() if paths})


def _seen_from(base: Path, paths: str | tuple[str, ...]) -> str | tuple[str, ...]:
    return str(base / paths) if isinstance(paths, str) else tuple(str(base / path) for path in paths)


def _with_policy(table: Table, base: Path) -> Table:
    if not isinstance(table, Ruled) or table.policy_file is None:
        return table
    path = base / table.policy_file
    return msgspec.structs.replace(table, policy=str(read_policy(path)), policy_file=str(path))


def _given(values: Mapping[str, Any]) -> Iterator[Steps]:
    """The ways to all keys of a file."""
    for name, given in values.items():
        for place, table in enumerate(given) if name in SEVERAL else [(None, given)]:
            yield from ((name, key) if place is None else (name, place, key) for key in table)

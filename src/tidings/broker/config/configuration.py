"""Read the configuration of a broker from its file and the environment, and remember where each value comes from."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

from tidings.broker.config.layout import ARRAY_TABLES, SINGLE_TABLES, TABLES, Layout
from tidings.broker.config.table_arrays import ConfiguredFilter
from tidings.broker.config.table_types import ConfigKey, ConfigTable, keys_of
from tidings.configuration import Steps, TomlFile, dotted, parse_error
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.policy.policy import read_policy

DEFAULT = "default"


class Origin(NamedTuple):
    """A place in a configuration file. Its line is searched only when it is printed, since that is slow."""

    file: TomlFile
    steps: Steps

    def __str__(self) -> str:
        return f"{self.file.path}:{self.file.line(self.steps)}"


class EffectiveValue(NamedTuple):
    """A key such as `limits.connections` or `links[0].cost`, with its value and where the value comes from."""

    key: str
    value: Any
    origin: str


class ConfigurationChange(NamedTuple):
    """The keys whose values another configuration changes: those a running broker takes over, and those it does not.

    Of tables that may occur several times, the name of the table stands for all of them.
    """

    taken_over: tuple[str, ...]
    restart: tuple[str, ...]


class BrokerConfiguration(Layout, frozen=True, kw_only=True):
    """The configuration in force: every table, with file names made absolute and policies read.

    `origins` has the origin of every key that was set.
    """

    path: Path | None = None
    origins: dict[str, Origin | str] = msgspec.field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path, environment: Mapping[str, str] | None = None) -> Self:
        """Read a configuration file, with environment variables taking precedence over it.

        `environment` replaces the variables of the process, if given. Names of files and folders in the file are
        relative to the file's folder, those in variables to the current folder. Raises an `InvalidValueError` that
        names the line.
        """
        file = TomlFile(path)
        return cls._read(file.values, os.environ if environment is None else environment, file)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        """Read a configuration from a mapping of tables. Environment variables count only if they are passed."""
        return cls._read(values, environment or {}, None)

    @classmethod
    def _read(cls, values: Mapping[str, Any], environment: Mapping[str, str], file: TomlFile | None) -> Self:
        overrides = values_of(environment, SINGLE_TABLES)
        merged = dict(values)
        for (table, key), value in overrides.items():
            if isinstance(merged.get(table, {}), Mapping):  # anything but a table is refused below
                merged[table] = {**merged.get(table, {}), key: value}

        def refuse(steps: Steps, message: str) -> NoReturn:
            if steps in overrides:
                raise InvalidValueError(f"{variable(*map(str, steps))}: {message}")
            if file is not None:
                file.refuse(steps, message)
            raise InvalidValueError(f"{dotted(steps)}: {message}")

        try:
            layout = msgspec.convert(merged, Layout)
        except msgspec.ValidationError as error:
            refuse(*parse_error(str(error)))
        for steps, message in layout.violations():
            refuse(steps, message)
        folder = Path() if file is None else file.path.absolute().parent
        tables: dict[str, Any] = {
            name: _with_paths(getattr(layout, name), folder, {key for table, key in overrides if table == name})
            for name in SINGLE_TABLES
        }
        for name in ARRAY_TABLES:
            tables[name] = ()
            for number, entry in enumerate(getattr(layout, name)):
                try:
                    tables[name] += (_with_policy(entry, folder),)
                except TidingsError as error:
                    refuse((name, number, "policy_file"), str(error))
        origins: dict[str, Origin | str] = {}
        if file is not None:
            origins = {dotted(steps): Origin(file, steps) for steps in _paths_set(file.values)}
        origins.update((f"{table}.{key}", variable(table, key)) for table, key in overrides)
        transport = tables["security"].of_transport(tables["tls"])
        if transport != tables["tls"]:
            tables["tls"] = transport
            origins.update((f"tls.{key}", "security.identity") for key in ("certificate", "key", "authority"))
        return cls(**tables, path=None if file is None else file.path, origins=origins)

    def in_force(self) -> list[EffectiveValue]:
        """Return every key with its value and origin, in the order of the reference page."""
        values: list[EffectiveValue] = []
        for name in TABLES:
            tables = getattr(self, name)
            for index, entry in enumerate(tables) if name in ARRAY_TABLES else [(None, tables)]:
                prefix = name if index is None else f"{name}[{index}]"
                for key in keys_of(TABLES[name]):
                    origin = self.origins.get(f"{prefix}.{key.name}", DEFAULT)
                    if origin == DEFAULT and key.name == "policy" and entry.policy is not None:
                        origin = entry.policy_file or DEFAULT
                    values.append(EffectiveValue(f"{prefix}.{key.name}", getattr(entry, key.name), str(origin)))
        return values

    def changes(self, other: "BrokerConfiguration") -> ConfigurationChange:
        """Return the keys to which `other` gives other values: those a running broker takes over, and those it does
        not."""
        changed_units = [unit for unit in _units() if _value(self, unit) != _value(other, unit)]
        return ConfigurationChange(
            tuple(unit.key for unit in changed_units if unit.is_reloaded),
            tuple(unit.key for unit in changed_units if not unit.is_reloaded),
        )

    def with_reloadable(self, other: "BrokerConfiguration") -> "BrokerConfiguration":
        """Return this configuration with all values of `other` that need no restart."""
        values: dict[str, Any] = {name: getattr(self, name) for name in TABLES}
        origins = self.origins
        for unit in _units():
            if not unit.is_reloaded:
                continue
            value = _value(other, unit)
            values[unit.table] = (
                value if unit.name is None else msgspec.structs.replace(values[unit.table], **{unit.name: value})
            )
            origins = {key: origin for key, origin in origins.items() if not unit.contains(key)}
            origins.update((key, origin) for key, origin in other.origins.items() if unit.contains(key))
        return BrokerConfiguration(**values, path=self.path, origins=origins)


class ActiveConfiguration:
    """Holds the configuration of a running broker. Its parts read `current` at each use, since a reload replaces it."""

    def __init__(self, configuration: BrokerConfiguration) -> None:
        self.current = configuration


class _Unit(NamedTuple):
    """A part of the configuration that is taken over as a whole: a key, or all tables of a name that may occur several
    times."""

    table: str
    name: str | None
    is_reloaded: bool

    @property
    def key(self) -> str:
        """The key as error messages and log lines name it, such as `limits.clients`."""
        return self.table if self.name is None else f"{self.table}.{self.name}"

    def contains(self, key: str) -> bool:
        """Return whether a full key such as `links[0].cost` belongs to this unit."""
        return key.startswith(f"{self.table}[") if self.name is None else key == self.key


def _units() -> Iterator[_Unit]:
    """Yield all units of the configuration."""
    for name, table in TABLES.items():
        if name in ARRAY_TABLES:
            yield _Unit(name, None, all(key.is_reloaded for key in keys_of(table)))
        else:
            yield from (_Unit(name, key.name, key.is_reloaded) for key in keys_of(table))


def _value(configuration: BrokerConfiguration, unit: _Unit) -> Any:
    table = getattr(configuration, unit.table)
    return table if unit.name is None else getattr(table, unit.name)


def _with_paths(table: ConfigTable, folder: Path, exempt: set[str]) -> ConfigTable:
    """Return the table with its relative file names resolved against `folder`, except those of the keys in `exempt`."""
    names = [key.name for key in keys_of(type(table)) if key.is_path and key.name not in exempt]
    values = {name: getattr(table, name) for name in names}
    return msgspec.structs.replace(table, **{name: _resolve(folder, paths) for name, paths in values.items() if paths})


def _resolve(folder: Path, paths: str | tuple[str, ...]) -> str | tuple[str, ...]:
    return str(folder / paths) if isinstance(paths, str) else tuple(str(folder / path) for path in paths)


def _with_policy(table: ConfigTable, folder: Path) -> ConfigTable:
    """Return the table with the policy of its `policy_file` read."""
    if not isinstance(table, ConfiguredFilter) or table.policy_file is None:
        return table
    path = folder / table.policy_file
    return msgspec.structs.replace(table, policy=str(read_policy(path)), policy_file=str(path))


def _paths_set(values: Mapping[str, Any]) -> Iterator[Steps]:
    """Yield the paths of all keys that a file sets."""
    for name, tables in values.items():
        for index, table in enumerate(tables) if name in ARRAY_TABLES else [(None, tables)]:
            yield from ((name, key) if index is None else (name, index, key) for key in table)


PREFIX = "TIDINGS_"


def variable(table: str, key: str) -> str:
    """Return the name of the environment variable for a key."""
    return f"{PREFIX}{table}_{key}".upper()


def values_of(environment: Mapping[str, str], tables: Mapping[str, type[ConfigTable]]) -> dict[tuple[str, str], Any]:
    """Return the values that environment variables set, by table and key.

    Raises an `InvalidValueError` for a variable with the prefix of a table that names no key of it, or has an invalid
    value.
    """
    keys = {variable(name, key.name): (name, key) for name, table in tables.items() for key in keys_of(table)}
    found_values: dict[tuple[str, str], Any] = {}
    for name, text in sorted(environment.items()):
        if name in keys:
            table, key = keys[name]
            found_values[table, key.name] = _parsed_value(name, text, key)
        elif name.startswith(tuple(variable(table, "") for table in tables)):
            raise InvalidValueError(f"{name}: there is no such key; `tidings config reference` lists them")
    return found_values


def _parsed_value(name: str, text: str, key: ConfigKey) -> Any:
    """Return the value of a variable, converted to the type of its key."""
    kinds = key.type.types if isinstance(key.type, msgspec.inspect.UnionType) else (key.type,)
    if any(isinstance(type_info, msgspec.inspect.StrType) for type_info in kinds):
        return text
    if any(isinstance(type_info, msgspec.inspect.VarTupleType) for type_info in kinds):
        return [type_info.strip() for type_info in text.split(",") if type_info.strip()]
    if not text and any(isinstance(type_info, msgspec.inspect.NoneType) for type_info in kinds):
        return None
    for kind, type_ in ((msgspec.inspect.BoolType, bool), (msgspec.inspect.IntType, int)):
        if any(isinstance(type_info, kind) for type_info in kinds):
            return _converted(name, text, type_)
    return _converted(name, text, float)


def _converted(name: str, text: str, kind: type[bool | int | float]) -> bool | int | float:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise InvalidValueError(f"{name}: must be {expected}, not '{text}'") from None

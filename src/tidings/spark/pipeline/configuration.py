"""The tables of a pipeline's TOML file, and their validation. `sources` turns them into DataFrames.

Nothing here imports PySpark.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.client.connection import read_addresses
from tidings.configuration import TomlFile, at_least_one, check_parses, one_of
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.spark.pipeline.sinks import Console, Folder, HubFolder, IntoBroker, Sink
from tidings.spark.sinks.broker_sink import BrokerClients

INFER = "infer"
AVAILABLE_NOW = "available-now"
_RESULTS = ("matches", "notifications", "rejected", "meta_events")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SourceTable(_Table, frozen=True, kw_only=True):
    """A source of files in one format below a folder: `[events]`, `[subscriptions]` and the other tables."""

    path: str | None = None
    format: str = "json"
    schema: str | None = None  # in Spark's DDL, or `infer`
    columns: dict[str, str] = {}  # column name -> SQL expression
    drop: list[str] = []
    max_files_per_batch: int | None = None
    options: dict[str, str | int | float | bool] = {}  # passed to Spark's reader

    def __post_init__(self) -> None:
        one_of("format", self.format, self.formats())
        if self.path is None and "path" not in self.without_path():
            raise InvalidValueError("path: is missing")
        if self.path is not None and self.format == "rate":
            raise InvalidValueError("path: the rate source has none")
        if self.schema is not None and self.format == "rate":
            raise InvalidValueError("schema: the rate source has its own; `columns` makes others of it")
        at_least_one("max_files_per_batch", self.max_files_per_batch)

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        """Return the values that `format` may have."""
        return "json", "csv", "parquet"

    def without_path(self) -> tuple[str, ...]:
        """Return ("path",) if the source needs no path, else nothing."""
        return ("path",) if self.format == "rate" else ()


class ChangingSourceTable(SourceTable, frozen=True, kw_only=True):
    """A source that may change while the pipeline runs: a stream, unless `follow` is false."""

    follow: bool = True


class SubscriptionsTable(ChangingSourceTable, frozen=True, kw_only=True):
    """`[subscriptions]`; rows may have a `policy` only if `with_policies` is true."""

    with_policies: bool = False


class EventsTable(SourceTable, frozen=True, kw_only=True):
    """`[events]`, which is always a stream; rows may have a `policy` only if `with_policies` is true."""

    with_policies: bool = False
    with_contexts: bool | None = None  # whether rows may have a `context`; None: if there is no [contexts]

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        return "json", "csv", "parquet", "rate"


class JournalSourceTable(_Table, frozen=True, kw_only=True):
    """`[journal]`: the journal of a hub or a broker, with all its events and changes."""

    path: str
    format: str = "journal"
    max_rows_per_batch: int | None = None
    options: dict[str, str | int | float | bool] = {}

    def __post_init__(self) -> None:
        one_of("format", self.format, ("journal",))
        at_least_one("max_rows_per_batch", self.max_rows_per_batch)


class EngineTable(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine]`: the settings of the engines that run on the executors."""

    name: str = "spark"


class PipelineSecurityTable(_Table, frozen=True, kw_only=True):
    """`[security]`: the files with which sealed events are checked.

    They are files of the certificate authority, of topic owners, and of the topics' centres.
    """

    authority: str
    overlay: str = "tidings"
    topics: list[str] = []
    revocations: str | None = None
    notices: list[str] = []

    def files(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        """Yield for each file its key in the table, its kind (see `tidings.spark.shards.trusted_keys`) and its path."""
        yield ("authority",), "authority", self.authority
        yield from ((("topics", place), "record", path) for place, path in enumerate(self.topics))
        if self.revocations is not None:
            yield ("revocations",), "revocations", self.revocations
        yield from ((("notices", place), "notice", path) for place, path in enumerate(self.notices))


class SinkTable(_Table, frozen=True, kw_only=True):
    """A table of `[[sinks]]`: its format, the results that it reads, and the options of that format."""

    format: str
    what: str = "notifications"
    path: str | None = None
    rows: int | None = None  # how many rows of a batch the console shows
    publisher: str | None = None  # the publisher of the events in a hub
    name: str | None = None  # the sink's client in a hub, or its clients at a broker
    address: str | list[str] | None = None  # of a broker, or of several to try in turn
    safe: str | None = None
    partitions: int | None = None
    patience: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        one_of("format", self.format, ("parquet", "json", "console", "hub", "broker"))
        one_of("what", self.what, ("notifications",) if self.format in ("hub", "broker") else _RESULTS)
        if self.path is None and self.format not in ("console", "broker"):
            raise InvalidValueError("path: is missing")
        if self.address is None and self.format == "broker":
            raise InvalidValueError("address: is missing; tidings://127.0.0.1:7450 is one")
        for key, formats in _FORMATS_OF_KEY.items():
            if getattr(self, key) is not None and self.format not in formats:
                raise InvalidValueError(f"{key}: is for {' and '.join(formats)} alone, not for {self.format}")
        at_least_one("rows", self.rows)
        if self.format == "broker":
            self._clients(Path())

    def sink(self, base: Path) -> Sink:
        """Return the sink that the table describes; paths are relative to the folder `base`."""
        if self.format == "broker":
            return IntoBroker(self._clients(base))
        if self.format == "console":
            return Console(what=self.what, rows=self.rows or Console(what="matches").rows)  # type: ignore[arg-type]
        path = resolved(base, self.path or "")
        if self.format == "hub":
            return HubFolder(path, publisher=self.publisher or "pipeline", name=self.name or "spark-sink")
        return Folder(path=path, what=self.what, format=self.format)  # type: ignore[arg-type]

    def _clients(self, base: Path) -> BrokerClients:
        address = self.address or ""
        addresses = address if isinstance(address, str) else ",".join(address)
        check_parses("address", read_addresses, addresses)
        options = {name: getattr(self, name) for name in ("name", "safe", "partitions")}
        files = {name: getattr(self, name) for name in ("authority", "certificate", "key")}
        if self.patience is not None:
            options["patience"] = microseconds_of(self.patience, "patience") / 1_000_000
        options |= {name: None if path is None else resolved(base, path) for name, path in files.items()}
        return BrokerClients(
            addresses=addresses, **{name: value for name, value in options.items() if value is not None}
        )


_OF_BROKERS = ("address", "safe", "partitions", "patience", "authority", "certificate", "key")
_FORMATS_OF_KEY: dict[str, tuple[str, ...]] = {
    "path": ("parquet", "json", "hub"),
    "rows": ("console",),
    "publisher": ("hub",),
    "name": ("hub", "broker"),
    **dict.fromkeys(_OF_BROKERS, ("broker",)),
}


class PipelineConfiguration(_Table, frozen=True, kw_only=True):
    """The whole TOML file of a pipeline, validated."""

    checkpoint: str
    sinks: list[SinkTable]
    trigger: str = "1 second"
    watermark: str = "0 seconds"
    ahead: str = "1 day"
    shards: int | None = None
    name: str = "tidings"
    events: EventsTable | None = None
    journal: JournalSourceTable | None = None
    subscriptions: SubscriptionsTable | None = None
    contexts: ChangingSourceTable | None = None
    policies: ChangingSourceTable | None = None
    advertisements: SourceTable | None = None
    schemas: SourceTable | None = None
    security: PipelineSecurityTable | None = None
    engine: EngineTable = EngineTable()
    spark: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if (self.events is None) == (self.journal is None):
            raise InvalidValueError("a pipeline has [events] or a [journal]: one of the two, and not both")
        if not self.sinks:
            raise InvalidValueError("sinks: a pipeline without any gives nothing")
        for key in ("watermark", "ahead"):
            microseconds_of(getattr(self, key), key)
        if self.trigger != AVAILABLE_NOW and microseconds_of(self.trigger, "trigger") < 1_000:
            raise InvalidValueError("trigger: must be at least '1 millisecond'")
        at_least_one("shards", self.shards)
        self.spark_settings()

    def sources(self) -> "dict[str, SourceTable | JournalSourceTable]":
        """Return the source tables that the file has, by their names."""
        names = ("events", "journal", "subscriptions", "contexts", "policies", "advertisements", "schemas")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def spark_settings(self) -> dict[str, Any]:
        """Return the table `[spark]` with full setting names; TOML reads `spark.ui.enabled = true` as nested tables.

        Raises an `InvalidValueError` for a key that is neither `master` nor begins with `spark.`.
        """
        settings = dict(_flat(self.spark))
        for key in settings:
            if key != "master" and not key.startswith("spark."):
                raise InvalidValueError(
                    f"spark: '{key}' is neither master nor a setting of Spark, such as 'spark.ui.enabled'"
                )
        return settings


def read(path: str | Path) -> tuple[TomlFile, PipelineConfiguration]:
    """Read and validate a pipeline's TOML file. Raises an `InvalidValueError` that names the file and the line."""
    file = TomlFile(path)
    return file, file.read(PipelineConfiguration)


def resolved(base: Path, path: str) -> str:
    """Return `path` relative to the folder `base`, unless it is an absolute path or a URL."""
    return path if is_elsewhere(path) else str(base / path)


def is_elsewhere(path: str) -> bool:
    """Return whether a path is a URL."""
    return "://" in path


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, str | int | float):
            yield f"{before}{key}", value
        else:
            raise InvalidValueError(f"spark: '{before}{key}' is a text, a number, true or false")


_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_DURATION = re.compile(r"(\d{1,9})\s+([a-z]+?)s?")


def microseconds_of(text: str, name: str) -> int:
    """Return the microseconds of a duration such as `10 seconds`; `name` names the setting in the error."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidValueError(f"{name}: a number and a unit, such as '10 seconds' or '1 hour', not {text!r}")
    return int(match[1]) * _UNITS[match[2]]

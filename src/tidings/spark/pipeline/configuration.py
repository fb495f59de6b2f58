"""What a pipeline's file may say. Nothing here knows Spark: `sources` makes DataFrames of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.client.addresses import read_addresses
from tidings.configuration.checks import at_least_one, one_of, readable
from tidings.configuration.toml import TomlFile
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.spark.broker_sink import BrokerClients
from tidings.spark.pipeline.durations import microseconds_of
from tidings.spark.pipeline.sinks import Console, Folder, HubFolder, IntoBroker, Sink

INFER = "infer"
AVAILABLE_NOW = "available-now"
_RESULTS = ("matches", "notifications", "rejected", "meta_events")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Source(_Table, frozen=True, kw_only=True):
    """What `[events]`, `[subscriptions]` and the others have in common: files of one form below a folder."""

    path: str | None = None
    format: str = "json"
    schema: str | None = None  # in Spark's DDL, or `infer`
    columns: dict[str, str] = {}  # name -> SQL expression
    drop: list[str] = []
    max_files_per_batch: int | None = None
    options: dict[str, str | int | float | bool] = {}  # handed to Spark

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
        return "json", "csv", "parquet"

    def without_path(self) -> tuple[str, ...]:
        return ("path",) if self.format == "rate" else ()


class Changing(Source, frozen=True, kw_only=True):
    """What may change while the pipeline runs: streamed, unless `follow` is false."""

    follow: bool = True


class Subscriptions(Changing, frozen=True, kw_only=True):
    with_policies: bool = False


class Events(Source, frozen=True, kw_only=True):
    """Events always stream."""

    with_policies: bool = False
    with_contexts: bool | None = None  # whether they bring their publishers' contexts; None: if there are no others

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        return "json", "csv", "parquet", "rate"


class Journal(_Table, frozen=True, kw_only=True):
    """The journal of a hub or a broker, with everything that happened there."""

    path: str
    format: str = "journal"
    max_rows_per_batch: int | None = None
    options: dict[str, str | int | float | bool] = {}

    def __post_init__(self) -> None:
        one_of("format", self.format, ("journal",))
        at_least_one("max_rows_per_batch", self.max_rows_per_batch)


class Engine(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = "spark"


class Security(_Table, frozen=True, kw_only=True):
    """What sealed events are checked with: files, as the authority, owners of topics and their centres make them."""

    authority: str
    overlay: str = "tidings"
    topics: list[str] = []
    revocations: str | None = None
    notices: list[str] = []

    def files(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        """Of each the key it stands under, the kind of what it says (see `tidings.spark.trust`), and its path."""
        yield ("authority",), "authority", self.authority
        yield from ((("topics", place), "record", one) for place, one in enumerate(self.topics))
        if self.revocations is not None:
            yield ("revocations",), "revocations", self.revocations
        yield from ((("notices", place), "notice", one) for place, one in enumerate(self.notices))


class Result(_Table, frozen=True, kw_only=True):
    """A table of `[[sinks]]`."""

    format: str
    what: str = "notifications"
    path: str | None = None
    rows: int | None = None  # of a batch that the console shows
    publisher: str | None = None  # of what goes into a hub
    name: str | None = None  # of the sink in a hub, of the clients at a broker
    address: str | list[str] | None = None  # of a broker, or several to try
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
        for key, formats in _THEIRS.items():
            if getattr(self, key) is not None and self.format not in formats:
                raise InvalidValueError(f"{key}: is for {' and '.join(formats)} alone, not for {self.format}")
        at_least_one("rows", self.rows)
        if self.format == "broker":
            self._clients(Path())

    def sink(self, base: Path) -> Sink:
        if self.format == "broker":
            return IntoBroker(self._clients(base))
        if self.format == "console":
            return Console(what=self.what, rows=self.rows or Console(what="matches").rows)  # type: ignore[arg-type]
        path = resolved(base, self.path or "")
        if self.format == "hub":
            return HubFolder(path, publisher=self.publisher or "pipeline", name=self.name or "spark-sink")
        return Folder(path=path, what=self.what, format=self.format)  # type: ignore[arg-type]

    def _clients(self, base: Path) -> BrokerClients:
        given = self.address or ""
        addresses = given if isinstance(given, str) else ",".join(given)
        readable("address", read_addresses, addresses)
        said = {name: getattr(self, name) for name in ("name", "safe", "partitions")}
        files = {name: getattr(self, name) for name in ("authority", "certificate", "key")}
        if self.patience is not None:
            said["patience"] = microseconds_of(self.patience, "patience") / 1_000_000
        said |= {name: None if one is None else resolved(base, one) for name, one in files.items()}
        return BrokerClients(addresses=addresses, **{name: value for name, value in said.items() if value is not None})


_OF_BROKERS = ("address", "safe", "partitions", "patience", "authority", "certificate", "key")
_THEIRS: dict[str, tuple[str, ...]] = {
    "path": ("parquet", "json", "hub"),
    "rows": ("console",),
    "publisher": ("hub",),
    "name": ("hub", "broker"),
    **dict.fromkeys(_OF_BROKERS, ("broker",)),
}


class Configuration(_Table, frozen=True, kw_only=True):
    checkpoint: str
    sinks: list[Result]
    trigger: str = "1 second"
    watermark: str = "0 seconds"
    ahead: str = "1 day"
    shards: int | None = None
    name: str = "tidings"
    events: Events | None = None
    journal: Journal | None = None
    subscriptions: Subscriptions | None = None
    contexts: Changing | None = None
    policies: Changing | None = None
    advertisements: Source | None = None
    schemas: Source | None = None
    security: Security | None = None
    engine: Engine = Engine()
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

    def sources(self) -> "dict[str, Source | Journal]":
        """By the names of their tables."""
        names = ("events", "journal", "subscriptions", "contexts", "policies", "advertisements", "schemas")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def spark_settings(self) -> dict[str, Any]:
        """With their whole names; TOML reads `spark.ui.enabled = true` as tables in tables."""
        found = dict(_flat(self.spark))
        for key in found:
            if key != "master" and not key.startswith("spark."):
                raise InvalidValueError(
                    f"spark: '{key}' is neither master nor a setting of Spark, such as 'spark.ui.enabled'"
                )
        return found


def read(path: str | Path) -> tuple[TomlFile, Configuration]:
    file = TomlFile(path)
    return file, file.read(Configuration)


def resolved(base: Path, path: str) -> str:
    """Relative to the file, unless it is an address or an absolute path."""
    return path if is_elsewhere(path) else str(base / path)


def is_elsewhere(path: str) -> bool:
    return "://" in path


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, str | int | float):
            yield f"{before}{key}", value
        else:
            raise InvalidValueError(f"spark: '{before}{key}' is a text, a number, true or false")

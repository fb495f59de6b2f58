"""What the tables of a pipeline's file describe, as DataFrames.

A row that cannot be read is not lost: it comes with a `$problem`, and workers refuse it with that reason.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.configuration.toml import Steps, TomlFile
from tidings.journal.disk import Disk
from tidings.model.errors import TidingsError
from tidings.spark import trust
from tidings.spark.events import PROBLEM
from tidings.spark.pipeline.configuration import (
    INFER,
    Changing,
    Configuration,
    Events,
    Journal,
    Source,
    is_elsewhere,
    resolved,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LINE, _FILE = "$line", "$file"  # the text that could not be read, and where it stands
# JSON lines as they are exact: a column of text gets what is nested as it is written, so that 1.0 does not become 1.
_EXACT = {
    "events": "id, timestamp, publisher, subject, attributes, payload, context, subscribers, policy",
    "subscriptions": (
        "id, subscriber, content, publishers, format, subject, structure, policy, durable, notify, since, until, token"
    ),
    "contexts": "client, timestamp, context",
    "policies": "id, policy, by, since, until",
    "advertisements": "id, publisher, content, policy",
    "schemas": "subject, versions",
}
_NESTED = {"events": "attributes", "contexts": "context"}  # without it, a line is in another form
_NEEDED = {
    "events": ("id", "timestamp"),
    "subscriptions": ("id", "content"),
    "contexts": ("client", "timestamp"),
    "policies": ("id", "policy"),
    "advertisements": ("id", "publisher", "content"),
    "schemas": ("subject", "versions"),
}
_GLOB = frozenset("*?[{")


class Sources:
    def __init__(self, spark: "SparkSession", file: TomlFile, configuration: Configuration) -> None:
        self._spark, self._file, self._configuration = spark, file, configuration
        self._base = file.path.absolute().parent
        self._schemas = Path(resolved(self._base, configuration.checkpoint)) / "sources"

    def frames(self) -> "dict[str, DataFrame]":
        """By the names of their tables."""
        return {name: self._frame(name, table) for name, table in self._configuration.sources().items()}

    def tokens(self) -> "DataFrame | None":
        """What sealed events are checked with, as `tidings.spark.trust` describes it."""
        given = self._configuration.security
        if given is None:
            return None
        rows = [("overlay", given.overlay.encode())]
        rows += [(kind, self._bytes(("security", *steps), path)) for steps, kind, path in given.files()]
        found = self._spark.createDataFrame(rows, trust.DDL)
        try:
            trust.Trust.of(found)
        except TidingsError as error:
            self._file.refuse(("security",), str(error).removeprefix("tokens: "))
        return found

    def _bytes(self, steps: Steps, path: str) -> bytes:
        try:
            return Path(self._base, path).read_bytes()
        except OSError as error:
            self._file.refuse(steps, f"{path}: {error.strerror or error}")

    def _frame(self, name: str, table: Source | Journal) -> "DataFrame":
        if isinstance(table, Journal):
            reader = self._spark.readStream.format("tidings").options(**_texts(table.options))
            if table.max_rows_per_batch is not None:
                reader = reader.option("maxRowsPerBatch", table.max_rows_per_batch)
            return reader.load(self._path(name, table.path, folder=True))
        streams = isinstance(table, Events) or (isinstance(table, Changing) and table.follow)
        found = self._rate(table) if table.format == "rate" else self._files(name, table, streams=streams)
        return self._fitted(name, table, found, streams=streams)

    def _rate(self, table: Source) -> "DataFrame":
        from pyspark.sql import functions as f

        rows = self._spark.readStream.format("rate").options(**_texts(table.options)).load()
        return rows.withColumn("id", f.col("value").cast("string"))

    def _files(self, name: str, table: Source, *, streams: bool) -> "DataFrame":
        from pyspark.errors import AnalysisException, ParseException

        path = self._path(name, table.path or "", folder=streams)
        reader = (self._spark.readStream if streams else self._spark.read).format(table.format)
        options = _options(table)
        if streams and table.max_files_per_batch is not None:
            options["maxFilesPerTrigger"] = table.max_files_per_batch
        schema = self._schema(name, table, path)
        try:
            rows = reader.options(**options).schema(schema).load(path)
        except (AnalysisException, ParseException) as error:
            self._file.refuse((name, "schema"), first_line(error))
        if table.format == "parquet":
            return rows
        return rows.select("*", "_metadata.file_name").withColumnRenamed("file_name", _FILE)

    def _schema(self, name: str, table: Source, path: str) -> Any:
        """As Spark takes it; lines that do not fit have a column of their own."""
        line = "" if table.format == "parquet" else f", `{_LINE}` string"
        if table.schema is not None and table.schema != INFER:
            return table.schema + line
        if table.format == "json" and table.schema is None:
            return ", ".join(f"{column} string" for column in _exact(name, table)) + line
        found = self._inferred(name, table, path)
        return found if table.format == "parquet" else found.add(_LINE, "string")

    def _inferred(self, name: str, table: Source, path: str) -> Any:
        """From the files that are there at the first start; kept, since a stream goes on with what it began with."""
        import json

        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        kept = self._schemas / f"{name}.json"
        if kept.is_file():
            return StructType.fromJson(json.loads(kept.read_text()))
        try:
            found = self._spark.read.format(table.format).options(**_options(table), inferSchema=True).load(path).schema
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                self._file.refuse((name, "path"), first_line(error))
            found = StructType()
        fields = StructType([one for one in found if one.name != _LINE])
        if not fields.fields:
            told = f"there is no {table.format} file in {path} to tell the columns from"
            self._file.refuse((name, "path"), f"{told}; put one there, or say `schema`")
        kept.parent.mkdir(parents=True, exist_ok=True)
        Disk().create(kept, fields.json().encode())
        return fields

    def _fitted(self, name: str, table: Source, rows: "DataFrame", *, streams: bool) -> "DataFrame":
        """The columns that the file asks for, and what is wrong with a row."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        exact = table.format == "json" and table.schema is None
        problems = _unread() if _LINE in rows.columns else []
        if exact and name in _NESTED:
            problems.append(_missing(_NESTED[name]))
        for column, expression in table.columns.items():
            try:
                rows = rows.withColumn(column, f.expr(expression))
                rows.schema  # noqa: B018 - Connect looks at an expression only now
            except AnalysisException as error:
                self._file.refuse((name, "columns", column), first_line(error))
        for column in self._refused_columns(name, table):
            if column in rows.columns:
                problems.append(_brought(column, name))
        told = f.coalesce(*problems, f.lit(None).cast("string"))
        rows = rows.withColumn(PROBLEM, told) if problems else rows
        rows = rows.drop(_LINE, _FILE, *table.drop, *self._refused_columns(name, table))
        if name == "subscriptions" and exact and not streams:
            rows = _without_empty(rows, "since", "until")
        needed = [*_NEEDED[name], *(["by"] if name == "policies" and streams else [])]
        missing = [column for column in needed if column not in rows.columns]
        if missing:
            there = ", ".join(one for one in rows.columns if one != PROBLEM)
            self._file.refuse((name,), f"there is no column {missing[0]}; there are {there}; `columns` can make one")
        return rows

    def _refused_columns(self, name: str, table: Source) -> list[str]:
        """What a row must not bring, since the pipeline is made without it."""
        found = [] if getattr(table, "with_policies", True) else ["policy"]
        if isinstance(table, Events):
            own = self._configuration.contexts is None if table.with_contexts is None else table.with_contexts
            found += [] if own else ["context"]
        return found

    def _path(self, name: str, path: str, *, folder: bool) -> str:
        found = resolved(self._base, path)
        if is_elsewhere(path) or _GLOB & set(path):
            return found
        if folder and not Path(found).is_dir():
            self._file.refuse((name, "path"), f"there is no folder {found}; what is followed is a folder of files")
        if not Path(found).exists():
            self._file.refuse((name, "path"), f"there is neither a file nor a folder {found}")
        return found


def first_line(error: Exception) -> str:
    """What Spark says, without its plans and its codes."""
    return str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]


def _exact(name: str, table: Source) -> list[str]:
    named = _EXACT[name].split(", ")
    once = isinstance(table, Changing) and not table.follow
    return ["id", "policy"] if name == "policies" and once else named


def _options(table: Source) -> dict[str, Any]:
    """A file of CSV says in its first line what it has, and is refused if it has something else."""
    chosen = {"header": True, "enforceSchema": False} if table.format == "csv" else {}
    lines = {} if table.format == "parquet" else {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _LINE}
    return {**chosen, **_texts(table.options), **lines}


def _texts(options: dict[str, str | int | float | bool]) -> dict[str, Any]:
    return dict(options)


def _unread() -> "list[Column]":
    from pyspark.sql import functions as f

    line = f.col(f"`{_LINE}`")
    text = f.concat(f.lit("a line of "), f.col(f"`{_FILE}`"), f.lit(" cannot be read: "), f.left(line, f.lit(200)))
    return [f.when(line.isNotNull(), text)]


def _missing(column: str) -> "Column":
    from pyspark.sql import functions as f

    told = f"there is no `{column}`; lines with a name beside a name need a `schema` in the pipeline's file"
    return f.when(f.col(column).isNull(), f.lit(told))


def _brought(column: str, name: str) -> "Column":
    from pyspark.sql import functions as f

    key = "with_policies" if column == "policy" else "with_contexts"
    told = f"it brings a {column} of its own, which [{name}] allows with {key} = true alone"
    return f.when(f.col(column).isNotNull(), f.lit(told))


def _without_empty(rows: "DataFrame", *columns: str) -> "DataFrame":
    """Without the columns that no row has: subscriptions that neither begin nor end are matched where events are."""
    from pyspark.sql import functions as f

    counts = rows.agg(*(f.count(f.col(name)).alias(name) for name in columns)).collect()[0]
    return rows.drop(*(name for name in columns if counts[name] == 0))


def opened(path: str | Path, spark: "SparkSession | None", trigger: str | None) -> tuple[TomlFile, dict[str, Any]]:
    """The file, and what `Pipeline` is made of."""
    from tidings.spark.pipeline.configuration import read
    from tidings.spark.session import register, session

    file, configuration = read(path)
    base = file.path.absolute().parent
    settings = configuration.spark_settings()
    if spark is None:
        spark = session(configuration.name, settings.pop("master", None), **settings)
    else:
        register(spark)
    if is_elsewhere(configuration.checkpoint):
        file.refuse(("checkpoint",), "is a folder that this machine and all executors see under this path")
    sources = Sources(spark, file, configuration)
    return file, {
        **sources.frames(),
        "tokens": sources.tokens(),
        "checkpoint": resolved(base, configuration.checkpoint),
        "sinks": [one.sink(base) for one in configuration.sinks],
        "trigger": trigger or configuration.trigger,
        "watermark": configuration.watermark,
        "ahead": configuration.ahead,
        "shards": configuration.shards,
        "settings": configuration.engine,
        "name": configuration.name,
    }

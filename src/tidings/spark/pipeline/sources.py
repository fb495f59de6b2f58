"""Build the DataFrames that the tables of a pipeline's TOML file describe.

A row that cannot be read is not dropped: it carries a reason in `$problem`, and workers reject it with that reason.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidings.configuration import Steps, TomlFile
from tidings.journal.disk import Disk
from tidings.model.errors import TidingsError
from tidings.spark.events import PROBLEM
from tidings.spark.pipeline.configuration import (
    INFER,
    ChangingSourceTable,
    EventsTable,
    JournalSourceTable,
    PipelineConfiguration,
    SourceTable,
    is_elsewhere,
    resolved,
)
from tidings.spark.shards import trusted_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LINE, _FILE = "$line", "$file"  # the text of a line that could not be read, and its file
# Without a `schema`, JSON is read into text columns: nested values keep their exact text, so that 1.0 stays 1.0.
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
_NESTED = {"events": "attributes", "contexts": "context"}  # a row without it is rejected: the JSON has another layout
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
    """The sources of a pipeline's TOML file; every mistake is reported with its file and line."""

    def __init__(self, spark: "SparkSession", file: TomlFile, configuration: PipelineConfiguration) -> None:
        self._spark, self._file, self._configuration = spark, file, configuration
        self._base = file.path.absolute().parent
        self._schemas = Path(resolved(self._base, configuration.checkpoint)) / "sources"

    def frames(self) -> "dict[str, DataFrame]":
        """Return the DataFrame of each source table, by the table's name."""
        return {name: self._frame(name, table) for name, table in self._configuration.sources().items()}

    def tokens(self) -> "DataFrame | None":
        """Return the keys that `[security]` names, as rows for `trusted_keys`; None without that table."""
        security = self._configuration.security
        if security is None:
            return None
        rows = [("overlay", security.overlay.encode())]
        rows += [(kind, self._bytes(("security", *steps), path)) for steps, kind, path in security.files()]
        keys = self._spark.createDataFrame(rows, trusted_keys.DDL)
        try:
            trusted_keys.TrustedKeys.of(keys)
        except TidingsError as error:
            self._file.refuse(("security",), str(error).removeprefix("tokens: "))
        return keys

    def _bytes(self, steps: Steps, path: str) -> bytes:
        try:
            return Path(self._base, path).read_bytes()
        except OSError as error:
            self._file.refuse(steps, f"{path}: {error.strerror or error}")

    def _frame(self, name: str, table: SourceTable | JournalSourceTable) -> "DataFrame":
        if isinstance(table, JournalSourceTable):
            reader = self._spark.readStream.format("tidings").options(**_texts(table.options))
            if table.max_rows_per_batch is not None:
                reader = reader.option("maxRowsPerBatch", table.max_rows_per_batch)
            return reader.load(self._path(name, table.path, folder=True))
        streams = isinstance(table, EventsTable) or (isinstance(table, ChangingSourceTable) and table.follow)
        rows = self._rate(table) if table.format == "rate" else self._files(name, table, streams=streams)
        return self._with_problems(name, table, rows, streams=streams)

    def _rate(self, table: SourceTable) -> "DataFrame":
        from pyspark.sql import functions as f

        rows = self._spark.readStream.format("rate").options(**_texts(table.options)).load()
        return rows.withColumn("id", f.col("value").cast("string"))

    def _files(self, name: str, table: SourceTable, *, streams: bool) -> "DataFrame":
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

    def _schema(self, name: str, table: SourceTable, path: str) -> Any:
        """Return the schema to read with, and a column for lines that do not fit it."""
        line = "" if table.format == "parquet" else f", `{_LINE}` string"
        if table.schema is not None and table.schema != INFER:
            return table.schema + line
        if table.format == "json" and table.schema is None:
            return ", ".join(f"{column} string" for column in _exact_columns(name, table)) + line
        inferred = self._inferred(name, table, path)
        return inferred if table.format == "parquet" else inferred.add(_LINE, "string")

    def _inferred(self, name: str, table: SourceTable, path: str) -> Any:
        """Return the schema inferred from the files at the first start.

        It is stored in the checkpoint, since a stream must keep its schema.
        """
        import json

        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        schema_file = self._schemas / f"{name}.json"
        if schema_file.is_file():
            return StructType.fromJson(json.loads(schema_file.read_text()))
        try:
            inferred = (
                self._spark.read.format(table.format).options(**_options(table), inferSchema=True).load(path).schema
            )
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                self._file.refuse((name, "path"), first_line(error))
            inferred = StructType()
        fields = StructType([field for field in inferred if field.name != _LINE])
        if not fields.fields:
            problem = f"there is no {table.format} file in {path} to tell the columns from"
            self._file.refuse((name, "path"), f"{problem}; put one there, or say `schema`")
        schema_file.parent.mkdir(parents=True, exist_ok=True)
        Disk().create(schema_file, fields.json().encode())
        return fields

    def _with_problems(self, name: str, table: SourceTable, rows: "DataFrame", *, streams: bool) -> "DataFrame":
        """Return the rows with the columns that the file defines, and with `$problem` where a row cannot be used.

        A missing column that the table needs is an error.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        exact = table.format == "json" and table.schema is None
        problems = _unreadable_line() if _LINE in rows.columns else []
        if exact and name in _NESTED:
            problems.append(_missing_column(_NESTED[name]))
        for column, expression in table.columns.items():
            try:
                rows = rows.withColumn(column, f.expr(expression))
                rows.schema  # noqa: B018 - Connect looks at an expression only now
            except AnalysisException as error:
                self._file.refuse((name, "columns", column), first_line(error))
        for column in self._refused_columns(name, table):
            if column in rows.columns:
                problems.append(_forbidden_column(column, name))
        problem = f.coalesce(*problems, f.lit(None).cast("string"))
        rows = rows.withColumn(PROBLEM, problem) if problems else rows
        rows = rows.drop(_LINE, _FILE, *table.drop, *self._refused_columns(name, table))
        if name == "subscriptions" and exact and not streams:
            rows = _without_empty(rows, "since", "until")
        needed = [*_NEEDED[name], *(["by"] if name == "policies" and streams else [])]
        missing = [column for column in needed if column not in rows.columns]
        if missing:
            existing = ", ".join(column for column in rows.columns if column != PROBLEM)
            self._file.refuse((name,), f"there is no column {missing[0]}; there are {existing}; `columns` can make one")
        return rows

    def _refused_columns(self, name: str, table: SourceTable) -> list[str]:
        """Return the columns that a row must leave null, because the file does not allow them."""
        columns = [] if getattr(table, "with_policies", True) else ["policy"]
        if isinstance(table, EventsTable):
            with_contexts = self._configuration.contexts is None if table.with_contexts is None else table.with_contexts
            columns += [] if with_contexts else ["context"]
        return columns

    def _path(self, name: str, path: str, *, folder: bool) -> str:
        resolved_path = resolved(self._base, path)
        if is_elsewhere(path) or _GLOB & set(path):
            return resolved_path
        if folder and not Path(resolved_path).is_dir():
            self._file.refuse(
                (name, "path"), f"there is no folder {resolved_path}; what is followed is a folder of files"
            )
        if not Path(resolved_path).exists():
            self._file.refuse((name, "path"), f"there is neither a file nor a folder {resolved_path}")
        return resolved_path


def first_line(error: Exception) -> str:
    """Return the first line of a Spark error, without its SQLSTATE."""
    return str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]


def _exact_columns(name: str, table: SourceTable) -> list[str]:
    """Return the text columns that a JSON source without a `schema` is read into."""
    named = _EXACT[name].split(", ")
    once = isinstance(table, ChangingSourceTable) and not table.follow
    return ["id", "policy"] if name == "policies" and once else named


def _options(table: SourceTable) -> dict[str, Any]:
    """Return the reader's options. The header line of a CSV file must agree with the schema."""
    chosen = {"header": True, "enforceSchema": False} if table.format == "csv" else {}
    lines = {} if table.format == "parquet" else {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _LINE}
    return {**chosen, **_texts(table.options), **lines}


def _texts(options: dict[str, str | int | float | bool]) -> dict[str, Any]:
    return dict(options)


def _unreadable_line() -> "list[Column]":
    from pyspark.sql import functions as f

    line = f.col(f"`{_LINE}`")
    text = f.concat(f.lit("a line of "), f.col(f"`{_FILE}`"), f.lit(" cannot be read: "), f.left(line, f.lit(200)))
    return [f.when(line.isNotNull(), text)]


def _missing_column(column: str) -> "Column":
    from pyspark.sql import functions as f

    problem = f"there is no `{column}`; lines with a name beside a name need a `schema` in the pipeline's file"
    return f.when(f.col(column).isNull(), f.lit(problem))


def _forbidden_column(column: str, name: str) -> "Column":
    from pyspark.sql import functions as f

    key = "with_policies" if column == "policy" else "with_contexts"
    problem = f"it brings a {column} of its own, which [{name}] allows with {key} = true alone"
    return f.when(f.col(column).isNotNull(), f.lit(problem))


def _without_empty(rows: "DataFrame", *columns: str) -> "DataFrame":
    """Drop those columns that are null in every row.

    Subscriptions without `since` and `until` columns are matched by stateless workers.
    """
    from pyspark.sql import functions as f

    counts = rows.agg(*(f.count(f.col(name)).alias(name) for name in columns)).collect()[0]
    return rows.drop(*(name for name in columns if counts[name] == 0))


def read_pipeline_file(
    path: str | Path, spark: "SparkSession | None", trigger: str | None
) -> tuple[TomlFile, dict[str, Any]]:
    """Read a pipeline's TOML file; return the file and the arguments for `Pipeline`.

    Without `spark` a session is started with the file's settings.
    """
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
        "sinks": [table.sink(base) for table in configuration.sinks],
        "trigger": trigger or configuration.trigger,
        "watermark": configuration.watermark,
        "ahead": configuration.ahead,
        "shards": configuration.shards,
        "settings": configuration.engine,
        "name": configuration.name,
    }

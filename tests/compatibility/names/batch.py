"""What Spark users and pipelines see: columns, options, and the files of a pipeline's state."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.compatibility.names import stored
from tests.compatibility.names.layouts import layout
from tidings.matching.index.positions import SCHEMA as SUBSCRIPTIONS
from tidings.spark import events, source, views
from tidings.spark.pipeline import sources
from tidings.spark.replay import explain_worker
from tidings.spark.shards import output_rows, shard_state, trusted_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lines() -> Iterator[str]:
    """What can be told without Spark."""
    for label, kind in {**stored.SPARK_STATE, **stored.SPARK_STATE_JSON}.items():
        yield from layout(label, kind)
    yield from (f"version changes, column {one.name} {one.type}" for one in shard_state.ROW)
    yield from (f"results, column {one.name} {one.type}" for one in output_rows.SCHEMA)
    yield from (f"explain, column {one.name} {one.type}" for one in explain_worker.SCHEMA)
    yield from (f"events, column {name}" for name in events.SYSTEM)
    yield from (f"subscriptions, column {name}" for name in SUBSCRIPTIONS.names)
    yield from (f"tokens, kind {name}" for name in trusted_keys._KINDS)
    for table, names in sources._EXACT.items():
        yield from (f"pipeline {table}, column {name}" for name in names.split(", "))
        yield from (f"pipeline {table}, column {name} is needed" for name in sources._NEEDED[table])
    yield f"source {source.NAME}"
    yield from (f"source option {name}" for name in source._OPTION_NAMES.values())


def column_lines(spark: "SparkSession") -> Iterator[str]:
    """The DataFrames that `route`, `retrace`, `explain` and a trial give."""
    rows = spark.createDataFrame([], output_rows.DDL)
    results: dict[str, Any] = {
        "matches": views.matches(rows, 1),
        "matches of several shards": views.matches(rows, 2),
        "notifications": views.notifications(rows),
        "rejected": views.rejected(rows),
        "meta_events": views.meta_events(rows),
        "explain": spark.createDataFrame([], explain_worker.DDL),
        "tokens": spark.createDataFrame([], trusted_keys.DDL),
    }
    for name, frame in results.items():
        yield from _columns(name, frame)


def _columns(name: str, frame: "DataFrame") -> Iterator[str]:
    yield from (f"{name}, column {place} {column} {kind}" for place, (column, kind) in enumerate(frame.dtypes))

"""Routing on Spark, Parquet to Parquet: beside a pass through Python that does nothing, and Spark's own join."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, steps, timed, workload
from tidings.spark import route, session, views
from tidings.spark.physical import DDL, SCHEMA

_EVENTS = 200_000
_PREPARED = 10_000  # rows that are emitted at a time
_SAMPLE = 500  # events that Spark's join is asked about


def measure(count: int, events: int = _EVENTS) -> list[Measurement]:
    """Workload W on all cores of this machine; every side writes Parquet."""
    with steps(5) as step, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        step("making the data")
        slots = workload.subscriptions(count)
        _write_events(folder / "events", events)
        pq.write_table(workload.loadable(*slots), folder / "subscriptions.parquet")
        spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": 2})
        try:
            given = spark.read.parquet(str(folder / "events"))
            step("compiling the subscriptions")
            routed: list[Any] = []
            wanted = spark.read.parquet(str(folder / "subscriptions.parquet"))
            compiling = timed(lambda: routed.append(route(given, wanted)))
            step("routing")
            matching = _best(lambda: _written(routed[0].matches, folder / "matches"))
            found = spark.read.parquet(str(folder / "matches")).selectExpr("sum(size(subscriptions))").first()
            pairs = 0 if found is None else int(found[0] or 0)
            step("passing through")
            emitting = given.mapInArrow(Emitting(count, round(pairs / events)), DDL)
            passing = _best(lambda: _written(views.matches(emitting, 1), folder / "passed"))
            step("joining")
            joining = timed(lambda: _written(_joined(given.limit(_SAMPLE), slots, spark), folder / "joined"))
        finally:
            spark.stop()
    rate, through, join = events / matching, events / passing, _SAMPLE / joining
    return [
        Measurement(f"compiling {count:,} subscriptions", compiling, "s"),
        Measurement("matches", rate, "events/s", "", f"{pairs / events:,.3g} matches an event"),
        Measurement("a mapInArrow that only emits the same shape", through, "events/s"),
        Measurement("matches / that", rate / through, "times", "0.6"),
        Measurement("Spark's own join, on a sample", join, "events/s"),
        Measurement("matches / Spark's join", rate / join, "times", "100"),
    ]


def _best(work: Any) -> float:
    """The first run also starts the workers."""
    return min(timed(work) for _ in range(2))


def _written(frame: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    frame.write.parquet(str(folder))


def _write_events(folder: Path, count: int) -> None:
    folder.mkdir()
    table = workload.table(workload.events(count))
    table = table.append_column("id", pa.array([f"e{number}" for number in range(count)]))
    table = table.append_column("timestamp", pa.array(range(count)))
    for part in range(4):
        piece = table.slice(part * count // 4, (part + 1) * count // 4 - part * count // 4)
        pq.write_table(piece, folder / f"part{part}.parquet")


class Emitting:
    """A row an event, of the same shape: as many ids each, of the same length, with nothing found out."""

    def __init__(self, subscriptions: int, each: int) -> None:
        self._subscriptions, self._each = subscriptions, each

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drawn = np.random.default_rng(1).integers(0, self._subscriptions, _PREPARED * self._each)
        names = pa.array([f"s{number}" for number in drawn.tolist()], pa.string())
        for batch in batches:
            for first in range(0, batch.num_rows, _PREPARED):
                yield self._emitted(batch.slice(first, _PREPARED), names)

    def _emitted(self, batch: pa.RecordBatch, names: pa.Array) -> pa.RecordBatch:
        rows = batch.num_rows
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * self._each)
        lists = pa.ListArray.from_arrays(ends, names.slice(0, rows * self._each))
        made = {"event_id": batch.column("id"), "timestamp": batch.column("timestamp"), "subscriptions": lists}
        return pa.record_batch([made.get(one.name, pa.nulls(rows, one.type)) for one in SCHEMA], schema=SCHEMA)


def _joined(events: Any, slots: Any, spark: Any) -> Any:
    """The same question as a join on the class with range conditions, the subscriptions broadcast."""
    attribute, low, high = slots
    columns: dict[str, Any] = {"sid": [f"s{number}" for number in range(len(attribute))]}
    for slot in range(workload.SLOTS):
        columns[f"attribute{slot}"] = attribute[:, slot].astype("int32")
        columns |= {f"low{slot}": low[:, slot], f"high{slot}": high[:, slot]}
    spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("subscriptions")
    values = ", ".join(f"CAST(a{number} AS DOUBLE)" for number in range(workload.ATTRIBUTES))
    events.selectExpr("id", "a0", f"array({values}) AS said").createOrReplaceTempView("events")
    ranges = " AND ".join(
        f"(attribute{slot} < 0 OR get(said, attribute{slot}) BETWEEN low{slot} AND high{slot})"
        for slot in range(1, workload.SLOTS)
    )
    join = f"SELECT /*+ BROADCAST(subscriptions) */ id, sid FROM events JOIN subscriptions ON a0 = low0 AND {ranges}"  # noqa: S608
    return spark.sql(join)

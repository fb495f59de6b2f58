"""Measure routing on Spark, Parquet to Parquet, compared with an empty Python worker and with Spark's own joins."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark import spark_cluster
from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, steps, time_once
from tidings.policy import policies
from tidings.spark import route, session, views
from tidings.spark.events import prepare_events
from tidings.spark.route import RouteResult
from tidings.spark.session import is_running
from tidings.spark.shards.output_rows import DDL, SCHEMA

_EVENTS = 200_000
_PREPARED = 10_000  # rows that the empty worker emits at a time
_SAMPLE = 500  # events in the sample for Spark's join
_SHARE = 10  # one of so many events is used to measure notifications
_GROWTH, _NARROW = 10, 0.088  # with so many times the subscriptions, ranges of this width give the same matches
_FILES = 4


def measure(count: int, events: int = _EVENTS, *, growth: bool = False, cluster: bool = False) -> list[Measurement]:
    """Measure on workload W on all cores of this machine; every variant writes Parquet.

    Args:
        count: The number of subscriptions.
        events: The number of events.
        growth: Also measure ten times the subscriptions.
        cluster: Also measure on local clusters with one and with two executors.
    """
    was_running = is_running()
    with steps(10 + growth + 2 * cluster) as step, tempfile.TemporaryDirectory() as temporary:
        bench = _Bench(Path(temporary), count, events, step)
        try:
            measurements = [*bench.matching(), *bench.notifying(), *bench.trimming(), *bench.parsing()]
            measurements += bench.growing() if growth else []
        finally:
            if not was_running:
                bench.spark.stop()
        if cluster:
            step("a cluster of one")
            single = spark_cluster.measured(bench.folder, "local-cluster[1,1,1024]")
            step("a cluster of two")
            double = spark_cluster.measured(bench.folder, "local-cluster[2,1,1024]")
            measurements += [
                Measurement("two executors with a core each / one", single.seconds / double.seconds, "times", "1.2"),
                Measurement(
                    "processor time of two / of one", double.processor / single.processor, "times", "1.15 at most"
                ),
            ]
    return measurements


class _Bench:
    """The data, the Spark session and the measurements of one run."""

    def __init__(self, folder: Path, count: int, events: int, step: Any) -> None:
        self.folder, self._count, self._events, self._step = folder, count, events, step
        step("making the data")
        self._slots = workload.subscriptions(count)
        _write_events(folder / "events", events)
        _write_events(folder / "some", max(1, events // _SHARE))
        self._subscription_table = workload.loadable(*self._slots)
        pq.write_table(self._subscription_table, folder / "subscriptions")
        self.spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": 2})
        self._event_frame, self._sample_frame = self._read("events"), self._read("some")
        self._matching_seconds = self._notifying_seconds = 0.0
        self._routed: Any = None

    def matching(self) -> list[Measurement]:
        self._step("compiling the subscriptions")
        compiling = time_once(self._compile)
        self._step("routing")
        self._matching_seconds = self._best_seconds(self._routed.matches, "matches")
        pairs = self._count_pairs("matches")
        self._step("passing through")
        emitting = self._event_frame.mapInArrow(EmptyWorker(self._count, round(pairs / self._events)), DDL)
        through = self._events / self._best_seconds(views.matches(emitting, 1), "passed")
        self._step("joining")
        join = _SAMPLE / time_once(lambda: self._write(self._spark_join(), "joined"))
        rate = self._events / self._matching_seconds
        return [
            Measurement(f"compiling {self._count:,} subscriptions", compiling, "s"),
            Measurement("matches", rate, "events/s", "", f"{pairs / self._events:,.3g} matches an event"),
            Measurement("a mapInArrow that only emits the same shape", through, "events/s"),
            Measurement("matches / that", rate / through, "times", "0.6"),
            Measurement("Spark's own join, on a sample", join, "events/s"),
            Measurement("matches / Spark's join", rate / join, "times", "100"),
        ]

    def notifying(self) -> list[Measurement]:
        self._step("notifications")
        some = self._route_again(self._sample_frame)
        self._notifying_seconds = self._best_seconds(some.notifications, "notifications")
        self._step("joining matches with events")
        self._write(some.matches, "some matches")
        each = self._read("some matches").selectExpr("event_id AS id", "explode(subscriptions) AS subscription_id")
        joining = self._best_seconds(each.join(self._sample_frame, "id"), "joined")
        rate, join = (self._sample_frame.count() / seconds for seconds in (self._notifying_seconds, joining))
        return [
            Measurement("notifications", rate, "events/s"),
            Measurement("Spark's join of matches with the events", join, "events/s"),
            Measurement("notifications / that", rate / join, "times", "1"),
        ]

    def trimming(self) -> list[Measurement]:
        self._step("trimming for all")
        policy = pa.repeat(str(policies.trim()), self._count)
        pq.write_table(self._subscription_table.append_column("policy", policy), self.folder / "trimmed")
        trimmed = route(self._event_frame, self._read("trimmed"))
        matching = self._best_seconds(trimmed.matches, "matches of trimmed")
        some = self._route_again(self._sample_frame, trimmed)
        notifying = self._best_seconds(some.notifications, "notifications of trimmed")
        return [
            Measurement(
                "trimming for all: matches", 100 * (matching / self._matching_seconds - 1), "% on top", "30 at most"
            ),
            Measurement("trimming for all: notifications", 100 * (notifying / self._notifying_seconds - 1), "% on top"),
        ]

    def parsing(self) -> list[Measurement]:
        self._step("JSON lines")
        self._event_frame.write.json(str(self.folder / "lines"))
        lines = self.spark.read.schema(self._event_frame.schema).json(str(self.folder / "lines"))
        routing = self._best_seconds(self._route_again(lines).matches, "matches of lines")
        parsing = min(time_once(lambda: lines.write.format("noop").mode("overwrite").save()) for _ in range(2))
        again = self._best_seconds(self._routed.matches, "matches")  # since the load of the machine may have changed
        comparison = f"Parquet {again:.3g} s, parsing alone {parsing:.3g} s"
        return [
            Measurement(
                "from JSON lines, beyond Parquet / parsing",
                (routing - again) / parsing,
                "times",
                "1.2 at most",
                comparison,
            )
        ]

    def growing(self) -> list[Measurement]:
        self._step(f"{_GROWTH} times the subscriptions")
        slots = workload.subscriptions(_GROWTH * self._count, width=_NARROW)
        pq.write_table(workload.loadable(*slots), self.folder / "more")
        grown = route(self._event_frame, self._read("more"))
        seconds = self._best_seconds(grown.matches, "matches of more")
        again = self._best_seconds(self._routed.matches, "matches")
        pairs = self._count_pairs("matches of more") / self._events
        comparison = f"{pairs:,.3g} matches an event"
        return [
            Measurement(
                f"{_GROWTH * self._count:,} subscriptions: time", seconds / again, "times", "3 at most", comparison
            )
        ]

    def _compile(self) -> None:
        self._routed = route(self._event_frame, self._read("subscriptions"), folder=str(self.folder / "registry"))

    def _route_again(self, events: Any, routed: Any = None) -> RouteResult:
        """Return a route of other events to the same subscriptions."""
        base = routed or self._routed
        return RouteResult(prepare_events(events), base.registry, base.worker)

    def _read(self, name: str) -> Any:
        return self.spark.read.parquet(str(self.folder / name))

    def _write(self, frame: Any, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        frame.write.parquet(str(self.folder / name))

    def _best_seconds(self, frame: Any, name: str) -> float:
        """Return the seconds of the better of two runs; the first also starts the Python workers."""
        return min(time_once(lambda: self._write(frame, name)) for _ in range(2))

    def _count_pairs(self, name: str) -> int:
        row = self._read(name).selectExpr("sum(size(subscriptions))").first()
        return 0 if row is None else int(row[0] or 0)

    def _spark_join(self) -> Any:
        """Return the same matches as a Spark join on the class with range conditions, the subscriptions broadcast."""
        attribute, low, high = self._slots
        columns: dict[str, Any] = {"sid": [f"s{number}" for number in range(len(attribute))]}
        for slot in range(workload.SLOTS):
            columns[f"attribute{slot}"] = attribute[:, slot].astype("int32")
            columns |= {f"low{slot}": low[:, slot], f"high{slot}": high[:, slot]}
        self.spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("subscriptions")
        values = ", ".join(f"CAST(a{number} AS DOUBLE)" for number in range(workload.ATTRIBUTES))
        sample = self._event_frame.limit(_SAMPLE).selectExpr("id", "a0", f"array({values}) AS said")
        sample.createOrReplaceTempView("events")
        ranges = " AND ".join(
            f"(attribute{slot} < 0 OR get(said, attribute{slot}) BETWEEN low{slot} AND high{slot})"
            for slot in range(1, workload.SLOTS)
        )
        join = (
            f"SELECT /*+ BROADCAST(subscriptions) */ id, sid FROM events JOIN subscriptions ON a0 = low0 AND {ranges}"  # noqa: S608
        )
        return self.spark.sql(join)


class EmptyWorker:
    """A `mapInArrow` function that matches nothing: it emits a row per event in the shape of matches, with random
    ids."""

    def __init__(self, subscriptions: int, matches_per_event: int) -> None:
        self._subscriptions, self._matches_per_event = subscriptions, matches_per_event

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = np.random.default_rng(1).integers(0, self._subscriptions, _PREPARED * self._matches_per_event)
        names = pa.array([f"s{number}" for number in numbers.tolist()], pa.string())
        for batch in batches:
            for first in range(0, batch.num_rows, _PREPARED):
                yield self._emit(batch.slice(first, _PREPARED), names)

    def _emit(self, batch: pa.RecordBatch, names: pa.Array) -> pa.RecordBatch:
        rows = batch.num_rows
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * self._matches_per_event)
        lists = pa.ListArray.from_arrays(ends, names.slice(0, rows * self._matches_per_event))
        columns = {"event_id": batch.column("id"), "timestamp": batch.column("timestamp"), "subscriptions": lists}
        return pa.record_batch([columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA)


def _write_events(folder: Path, count: int) -> None:
    folder.mkdir()
    table = workload.published(count)
    for part in range(_FILES):
        first, end = part * count // _FILES, (part + 1) * count // _FILES
        pq.write_table(table.slice(first, end - first), folder / f"part{part}.parquet")

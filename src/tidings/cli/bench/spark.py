"""Routing on Spark, Parquet to Parquet: beside a pass through Python that does nothing, and Spark's own joins."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, spark_cluster, steps, timed, workload
from tidings.policy import policies
from tidings.spark import route, session, views
from tidings.spark.events import prepared
from tidings.spark.physical import DDL, SCHEMA
from tidings.spark.route import Routed
from tidings.spark.session import is_running

_EVENTS = 200_000
_PREPARED = 10_000  # rows that are emitted at a time
_SAMPLE = 500  # events that Spark's join is asked about
_SHARE = 10  # of so many events one is made notifications of
_GROWTH, _NARROW = 10, 0.088  # so many times the subscriptions, with ranges so wide, have as many matches
_FILES = 4


def measure(count: int, events: int = _EVENTS, *, growth: bool = False, cluster: bool = False) -> list[Measurement]:
    """Workload W on all cores of this machine; every side writes Parquet."""
    borrowed = is_running()
    with steps(10 + growth + 2 * cluster) as step, tempfile.TemporaryDirectory() as made:
        bench = _Bench(Path(made), count, events, step)
        try:
            found = [*bench.matching(), *bench.notifying(), *bench.trimming(), *bench.parsing()]
            found += bench.growing() if growth else []
        finally:
            if not borrowed:
                bench.spark.stop()
        if cluster:
            step("a cluster of one")
            one = spark_cluster.measured(bench.folder, "local-cluster[1,1,1024]")
            step("a cluster of two")
            two = spark_cluster.measured(bench.folder, "local-cluster[2,1,1024]")
            found += [
                Measurement("two executors with a core each / one", one.seconds / two.seconds, "times", "1.2"),
                Measurement("processor time of two / of one", two.processor / one.processor, "times", "1.15 at most"),
            ]
    return found


class _Bench:
    def __init__(self, folder: Path, count: int, events: int, step: Any) -> None:
        self.folder, self._count, self._events, self._step = folder, count, events, step
        step("making the data")
        self._slots = workload.subscriptions(count)
        _write_events(folder / "events", events)
        _write_events(folder / "some", max(1, events // _SHARE))
        self._wanted = workload.loadable(*self._slots)
        pq.write_table(self._wanted, folder / "subscriptions")
        self.spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": 2})
        self._given, self._some = self._read("events"), self._read("some")
        self._seconds = self._notifying = 0.0
        self._routed: Any = None

    def matching(self) -> list[Measurement]:
        self._step("compiling the subscriptions")
        compiling = timed(self._compile)
        self._step("routing")
        self._seconds = self._best(self._routed.matches, "matches")
        pairs = self._pairs("matches")
        self._step("passing through")
        emitting = self._given.mapInArrow(Emitting(self._count, round(pairs / self._events)), DDL)
        through = self._events / self._best(views.matches(emitting, 1), "passed")
        self._step("joining")
        join = _SAMPLE / timed(lambda: self._write(self._joined(), "joined"))
        rate = self._events / self._seconds
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
        some = self._over(self._some)
        self._notifying = self._best(some.notifications, "notifications")
        self._step("joining matches with events")
        self._write(some.matches, "some matches")
        each = self._read("some matches").selectExpr("event_id AS id", "explode(subscriptions) AS subscription_id")
        joining = self._best(each.join(self._some, "id"), "joined")
        rate, join = (self._some.count() / one for one in (self._notifying, joining))
        return [
            Measurement("notifications", rate, "events/s"),
            Measurement("Spark's join of matches with the events", join, "events/s"),
            Measurement("notifications / that", rate / join, "times", "1"),
        ]

    def trimming(self) -> list[Measurement]:
        self._step("trimming for all")
        policy = pa.repeat(str(policies.trim()), self._count)
        pq.write_table(self._wanted.append_column("policy", policy), self.folder / "trimmed")
        trimmed = route(self._given, self._read("trimmed"))
        matching = self._best(trimmed.matches, "matches of trimmed")
        some = self._over(self._some, trimmed)
        notifying = self._best(some.notifications, "notifications of trimmed")
        return [
            Measurement("trimming for all: matches", 100 * (matching / self._seconds - 1), "% on top", "30 at most"),
            Measurement("trimming for all: notifications", 100 * (notifying / self._notifying - 1), "% on top"),
        ]

    def parsing(self) -> list[Measurement]:
        self._step("JSON lines")
        self._given.write.json(str(self.folder / "lines"))
        lines = self.spark.read.schema(self._given.schema).json(str(self.folder / "lines"))
        routing = self._best(self._over(lines).matches, "matches of lines")
        parsing = min(timed(lambda: lines.write.format("noop").mode("overwrite").save()) for _ in range(2))
        again = self._best(self._routed.matches, "matches")  # what the machine does meanwhile changes
        beside = f"Parquet {again:.3g} s, parsing alone {parsing:.3g} s"
        return [
            Measurement(
                "from JSON lines, beyond Parquet / parsing", (routing - again) / parsing, "times", "1.2 at most", beside
            )
        ]

    def growing(self) -> list[Measurement]:
        self._step(f"{_GROWTH} times the subscriptions")
        slots = workload.subscriptions(_GROWTH * self._count, width=_NARROW)
        pq.write_table(workload.loadable(*slots), self.folder / "more")
        grown = route(self._given, self._read("more"))
        seconds = self._best(grown.matches, "matches of more")
        again = self._best(self._routed.matches, "matches")
        pairs = self._pairs("matches of more") / self._events
        beside = f"{pairs:,.3g} matches an event"
        return [
            Measurement(f"{_GROWTH * self._count:,} subscriptions: time", seconds / again, "times", "3 at most", beside)
        ]

    def _compile(self) -> None:
        self._routed = route(self._given, self._read("subscriptions"), folder=str(self.folder / "registry"))

    def _over(self, events: Any, routed: Any = None) -> Routed:
        """The same subscriptions on other events."""
        known = routed or self._routed
        return Routed(prepared(events), known.registry, known.worker)

    def _read(self, name: str) -> Any:
        return self.spark.read.parquet(str(self.folder / name))

    def _write(self, frame: Any, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        frame.write.parquet(str(self.folder / name))

    def _best(self, frame: Any, name: str) -> float:
        """The first run also starts the workers."""
        return min(timed(lambda: self._write(frame, name)) for _ in range(2))

    def _pairs(self, name: str) -> int:
        found = self._read(name).selectExpr("sum(size(subscriptions))").first()
        return 0 if found is None else int(found[0] or 0)

    def _joined(self) -> Any:
        """The same question as a join on the class with range conditions, the subscriptions broadcast."""
        attribute, low, high = self._slots
        columns: dict[str, Any] = {"sid": [f"s{number}" for number in range(len(attribute))]}
        for slot in range(workload.SLOTS):
            columns[f"attribute{slot}"] = attribute[:, slot].astype("int32")
            columns |= {f"low{slot}": low[:, slot], f"high{slot}": high[:, slot]}
        self.spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("subscriptions")
        values = ", ".join(f"CAST(a{number} AS DOUBLE)" for number in range(workload.ATTRIBUTES))
        said = self._given.limit(_SAMPLE).selectExpr("id", "a0", f"array({values}) AS said")
        said.createOrReplaceTempView("events")
        ranges = " AND ".join(
            f"(attribute{slot} < 0 OR get(said, attribute{slot}) BETWEEN low{slot} AND high{slot})"
            for slot in range(1, workload.SLOTS)
        )
        join = (
            f"SELECT /*+ BROADCAST(subscriptions) */ id, sid FROM events JOIN subscriptions ON a0 = low0 AND {ranges}"  # noqa: S608
        )
        return self.spark.sql(join)


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


def _write_events(folder: Path, count: int) -> None:
    folder.mkdir()
    table = workload.published(count)
    for part in range(_FILES):
        first, end = part * count // _FILES, (part + 1) * count // _FILES
        pq.write_table(table.slice(first, end - first), folder / f"part{part}.parquet")

"""Measure a stream at a steady rate: whether a pipeline keeps up, and the latency from an event's creation to its
file."""

import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import workload
from benchmarks.workloads.workload import ATTRIBUTES, CATEGORICAL, CLASSES, DOMAIN, VALUES
from tidings.cli.measurement import Measurement, median, steps
from tidings.spark import session
from tidings.spark.pipeline import Folder, Pipeline

_MILLION = 1_000_000


def measure(count: int, rate: int, seconds: int) -> list[Measurement]:
    """Stream Spark's `rate` source, with attributes of workload W, for some seconds, and write matches as Parquet."""
    with steps(3) as step, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        step("making the data")
        pq.write_table(workload.loadable(*workload.subscriptions(count)), folder / "subscriptions")
        spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": 2})
        try:
            step("compiling the subscriptions")
            events = spark.readStream.format("rate").option("rowsPerSecond", rate).load().selectExpr(*_attributes())
            pipeline = Pipeline(
                events,
                spark.read.parquet(str(folder / "subscriptions")),
                checkpoint=folder / "checkpoint",
                sinks=[Folder(path=str(folder / "matches"), what="matches")],
                trigger="0 seconds",
            ).start()
            step(f"streaming for {seconds} s")
            try:
                time.sleep(seconds)
            finally:
                pipeline.stop()
            entries = [entry for entry in map(pipeline.ledger.read, pipeline.ledger.batches()) if entry is not None]
            batches = [entry for entry in entries if entry.counts.events]
            latencies = _latencies(folder / "matches")
        finally:
            spark.stop()
    half = len(batches) // 2
    durations = [entry.ended - entry.started for entry in batches]
    routed = sum(entry.counts.events for entry in batches)
    span = batches[-1].ended - batches[0].started
    first, last = median(latencies[: len(latencies) // 2]), median(latencies[len(latencies) // 2 :])
    return [
        Measurement("offered", rate, "events/s", "5,000"),
        Measurement("routed", routed / span, "events/s", "", f"{len(batches)} batches"),
        Measurement("a batch, median", median(durations), "s", "", f"first half {median(durations[:half]):.2f}"),
        Measurement(
            "from creation to the files, median", median(latencies), "s", "2.5", f"slowest {max(latencies):.2f}"
        ),
        Measurement("the same, second half / first", last / first, "times", "", "about 1: nothing piles up"),
    ]


def _attributes() -> list[str]:
    """Return the columns of a row, drawn by hashing its number."""
    zipf = f"CAST(floor(pow({CLASSES}, hash(value, 0) % 1000 / 2000.0 + 0.5)) - 1 AS DOUBLE) AS a0"
    some = [f"CAST(pmod(hash(value, {i}), {VALUES}) AS DOUBLE) AS a{i}" for i in range(1, 1 + CATEGORICAL)]
    others = [
        f"IF(pmod(hash(value, {i}), 4) = 0, NULL, pmod(hash({i}, value), 1000000) / 1e6 * {DOMAIN}) AS a{i}"
        for i in range(1 + CATEGORICAL, ATTRIBUTES)
    ]
    return ["CAST(value AS STRING) AS id", "timestamp", zipf, *some, *others]


def _latencies(folder: Path) -> list[float]:
    """Return for each micro-batch the seconds from the creation of its median event to the commit of its files."""
    latencies = []
    for path in sorted(folder.glob("batch=*"), key=lambda batch_folder: int(batch_folder.name.split("=")[1])):
        written = (path / "_SUCCESS").stat().st_mtime
        column = pq.read_table(path, columns=["timestamp"], partitioning=None)["timestamp"]
        times = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        latencies.append(written - median([time / _MILLION for time in times]))
    return latencies

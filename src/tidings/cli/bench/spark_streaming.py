"""A stream at a steady pace: whether a pipeline keeps up, and how long an event takes from its creation to files."""

import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, median, steps, workload
from tidings.cli.bench.workload import ATTRIBUTES, CATEGORICAL, CLASSES, DOMAIN, VALUES
from tidings.spark import session
from tidings.spark.pipeline import Folder, Pipeline

_MILLION = 1_000_000


def measure(count: int, rate: int, seconds: int) -> list[Measurement]:
    """Events of Spark's `rate` source with the attributes of workload W; `matches` out, as Parquet."""
    with steps(3) as step, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
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
            taken = [entry for entry in entries if entry.counts.events]
            late = _latencies(folder / "matches")
        finally:
            spark.stop()
    half = len(taken) // 2
    took = [entry.ended - entry.started for entry in taken]
    routed = sum(entry.counts.events for entry in taken)
    span = taken[-1].ended - taken[0].started
    first, last = median(late[: len(late) // 2]), median(late[len(late) // 2 :])
    return [
        Measurement("offered", rate, "events/s", "5,000"),
        Measurement("routed", routed / span, "events/s", "", f"{len(taken)} batches"),
        Measurement("a batch, median", median(took), "s", "", f"first half {median(took[:half]):.2f}"),
        Measurement("from creation to the files, median", median(late), "s", "2.5", f"slowest {max(late):.2f}"),
        Measurement("the same, second half / first", last / first, "times", "", "about 1: nothing piles up"),
    ]


def _attributes() -> list[str]:
    """Each row its own, drawn by hashing its number."""
    zipf = f"CAST(floor(pow({CLASSES}, hash(value, 0) % 1000 / 2000.0 + 0.5)) - 1 AS DOUBLE) AS a0"
    some = [f"CAST(pmod(hash(value, {i}), {VALUES}) AS DOUBLE) AS a{i}" for i in range(1, 1 + CATEGORICAL)]
    others = [
        f"IF(pmod(hash(value, {i}), 4) = 0, NULL, pmod(hash({i}, value), 1000000) / 1e6 * {DOMAIN}) AS a{i}"
        for i in range(1 + CATEGORICAL, ATTRIBUTES)
    ]
    return ["CAST(value AS STRING) AS id", "timestamp", zipf, *some, *others]


def _latencies(folder: Path) -> list[float]:
    """Of each batch, in their order: from the creation of its middle event to when its files were there."""
    found = []
    for path in sorted(folder.glob("batch=*"), key=lambda one: int(one.name.split("=")[1])):
        written = (path / "_SUCCESS").stat().st_mtime
        column = pq.read_table(path, columns=["timestamp"], partitioning=None)["timestamp"]
        times = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        found.append(written - median([one / _MILLION for one in times]))
    return found

"""Measure very many subscriptions on one machine: the time to compile and to match them, and the memory."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import processes
from benchmarks.workloads import workload
from tidings.cli.measurement import Measurement, steps, time_once
from tidings.spark import route, session

_A_FILE = 250_000  # subscriptions in a file
_WIDTH = 0.25  # width of ranges for 100,000 subscriptions; more have narrower ones, for as many matches
_GIBIBYTE = 1 << 30


def measure(count: int, events: int) -> list[Measurement]:
    """Measure workload W with narrow ranges. The memory is that of all processes, shared pages counted once."""
    with steps(3) as step, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        step("making the data")
        (folder / "subscriptions").mkdir()
        width = _WIDTH * (count / 100_000) ** -0.453
        for number in range(0, count, _A_FILE):
            slots = workload.subscriptions(min(_A_FILE, count - number), seed=1 + number, width=width)
            table = workload.loadable(*slots, first=number)
            pq.write_table(table, folder / "subscriptions" / f"{number}.parquet")
        pq.write_table(workload.published(events), folder / "events")
        spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": 2})
        try:
            event_frame = spark.read.parquet(str(folder / "events"))
            subscription_frame = spark.read.parquet(str(folder / "subscriptions"))
            step("compiling the subscriptions")
            with _sampled_memory() as compiling_memory:
                routed = []
                compiling = time_once(
                    lambda: routed.append(route(event_frame, subscription_frame, folder=str(folder / "registry")))
                )
            step("routing")
            with _sampled_memory() as memory:
                matching = time_once(lambda: routed[0].matches.write.parquet(str(folder / "matches")))
            row = spark.read.parquet(str(folder / "matches")).selectExpr("sum(size(subscriptions))").first()
        finally:
            spark.stop()
    pairs = 0 if row is None else int(row[0] or 0)
    shards = routed[0].registry.shards
    return [
        Measurement(f"compiling {count:,} subscriptions", compiling, "s", "", f"{shards} shards"),
        Measurement("most memory while compiling", max(compiling_memory) / _GIBIBYTE, "GiB", "16"),
        Measurement("matches, with starting", events / matching, "events/s", "", f"{pairs / events:,.3g} an event"),
        Measurement("most memory while matching", max(memory) / _GIBIBYTE, "GiB", "16"),
    ]


@contextmanager
def _sampled_memory() -> Iterator[list[int]]:
    """Yield a list that collects, every second, the bytes of memory of this process and its descendants."""
    samples, ended = [processes.memory()], threading.Event()

    def sample() -> None:
        while not ended.wait(1.0):
            samples.append(processes.memory())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()

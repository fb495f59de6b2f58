"""Very many subscriptions on one machine: how long they take to compile and to match, and how much memory they need."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, processes, steps, timed, workload
from tidings.spark import route, session

_A_FILE = 250_000  # subscriptions
_WIDTH = 0.25  # of the ranges of 100,000; more of them have narrower ones, so that an event has as many matches
_GIBIBYTE = 1 << 30


def measure(count: int, events: int) -> list[Measurement]:
    """Workload W with narrow ranges; memory of all processes together, what they share counted once."""
    with steps(3) as step, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
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
            given = spark.read.parquet(str(folder / "events"))
            wanted = spark.read.parquet(str(folder / "subscriptions"))
            step("compiling the subscriptions")
            with _watched() as compiling_memory:
                routed = []
                compiling = timed(lambda: routed.append(route(given, wanted, folder=str(folder / "registry"))))
            step("routing")
            with _watched() as memory:
                matching = timed(lambda: routed[0].matches.write.parquet(str(folder / "matches")))
            found = spark.read.parquet(str(folder / "matches")).selectExpr("sum(size(subscriptions))").first()
        finally:
            spark.stop()
    pairs = 0 if found is None else int(found[0] or 0)
    shards = routed[0].registry.shards
    return [
        Measurement(f"compiling {count:,} subscriptions", compiling, "s", "", f"{shards} shards"),
        Measurement("most memory while compiling", max(compiling_memory) / _GIBIBYTE, "GiB", "16"),
        Measurement("matches, with starting", events / matching, "events/s", "", f"{pairs / events:,.3g} an event"),
        Measurement("most memory while matching", max(memory) / _GIBIBYTE, "GiB", "16"),
    ]


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Bytes that this process and all below it have, every now and then."""
    seen, ended = [processes.memory()], threading.Event()

    def look() -> None:
        while not ended.wait(1.0):
            seen.append(processes.memory())

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield seen
    finally:
        ended.set()
        watching.join()

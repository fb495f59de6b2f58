"""Measure routing on a local cluster of executors, in a child process that prints its timing."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.processes import processor
from tidings.cli.measurement import time_once
from tidings.engine.settings import Settings
from tidings.model.errors import TidingsError
from tidings.spark import session
from tidings.spark.events import prepare_events
from tidings.spark.route import RouteResult, worker_of
from tidings.spark.shards.registry import Registry

_ROUNDS = 2  # the first round starts the Python workers


class ClusterTiming(NamedTuple):
    """The seconds of a run, and the processor seconds."""

    seconds: float
    processor: float  # processor seconds of all processes together


def measured(folder: Path, master: str) -> ClusterTiming:
    """Measure, in a new process, the matching of the events in `folder` with the registry that was built there.

    Raises TidingsError with the last line of the process's error output if it fails.
    """
    command = [sys.executable, "-m", __name__, str(folder), master]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    if done.returncode:
        raise TidingsError(f"{master}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no answer'}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=ClusterTiming)


def run(folder: Path, master: str) -> ClusterTiming:
    """Measure matching with a Spark master such as `local-cluster[2,1,1024]`, and return the best round."""
    spark = session("tidings bench", master, **{"spark.sql.shuffle.partitions": 2})
    try:
        registry = Registry(folder=str(folder / "registry"), shards=1, subscriptions=0, rejected=[])
        events = spark.read.parquet(str(folder / "events"))
        matches = RouteResult(prepare_events(events), registry, worker_of(registry, Settings(name="spark"))).matches
        took = []
        for _ in range(_ROUNDS):
            before = processor()
            seconds = time_once(lambda: matches.write.mode("overwrite").parquet(str(folder / "matches of a cluster")))
            took.append(ClusterTiming(seconds, processor() - before))
        return min(took)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run(Path(sys.argv[1]), sys.argv[2])))

"""The same routing on a cluster of executors: a process of its own for each, which tells its seconds."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.cli.bench import timed
from tidings.cli.bench.processes import processor
from tidings.engine.settings import Settings
from tidings.model.errors import TidingsError
from tidings.spark import session
from tidings.spark.events import prepared
from tidings.spark.registry import Registry
from tidings.spark.route import Routed, worker_of

_ROUNDS = 2  # the first one starts the workers


class Took(NamedTuple):
    seconds: float
    processor: float  # seconds of all processes together


def measured(folder: Path, master: str) -> Took:
    """Matches of the events in that folder, by the registry that was built there."""
    command = [sys.executable, "-m", __name__, str(folder), master]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    if done.returncode:
        raise TidingsError(f"{master}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no answer'}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Took)


def run(folder: Path, master: str) -> Took:
    spark = session("tidings bench", master, **{"spark.sql.shuffle.partitions": 2})
    try:
        registry = Registry(folder=str(folder / "registry"), shards=1, subscriptions=0, rejected=[])
        events = spark.read.parquet(str(folder / "events"))
        matches = Routed(prepared(events), registry, worker_of(registry, Settings(name="spark"))).matches
        took = []
        for _ in range(_ROUNDS):
            before = processor()
            seconds = timed(lambda: matches.write.mode("overwrite").parquet(str(folder / "matches of a cluster")))
            took.append(Took(seconds, processor() - before))
        return min(took)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run(Path(sys.argv[1]), sys.argv[2])))

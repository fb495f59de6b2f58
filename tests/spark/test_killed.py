"""A pipeline that is killed at any moment, or whose executors are, loses nothing and gives nothing twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.limits import PATIENCE
from tests.sizes import sized
from tests.spark.cuts import cut, write
from tests.spark.test_pipeline import CONTEXTS, LAST
from tests.spark.test_route import COLUMNS, EVENTS, SUBSCRIPTIONS, expected, history, once

pytestmark = [pytest.mark.spark, pytest.mark.java]
ROOT = Path(__file__).parents[2]
TIMES = sized(1, 50)
ROWS_A_BATCH = sized(19, 7)
FILES_AHEAD = sized(1, 4)


def prepare(folder: Path, seed: int) -> set[tuple[object, ...]]:
    """Writes rows for several batches; what is due.

    Changes stand some files before the events of their time. Spark logs the files of a batch source by source: when it
    is killed in between, the source of events is a file further than before, and a change must not come too late.
    """
    events, subscriptions, contexts = history(seed, with_policies=False)
    ends = [*range(3, 60, ROWS_A_BATCH), LAST]
    write(folder / "events", EVENTS, cut(events, 1, ends))
    write(folder / "contexts", CONTEXTS, cut(contexts, 1, ends[FILES_AHEAD:]))
    write(folder / "subscriptions", SUBSCRIPTIONS, cut(subscriptions, 5, ends[FILES_AHEAD:]))
    return expected(events, subscriptions, contexts)


def started(folder: Path, master: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.streaming_program", str(folder), master]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def entries(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "ledger").glob("*.json")))


def until(running: subprocess.Popen[bytes], folder: Path, count: int) -> bool:
    """Whether the ledger has come to so many entries before the program ended."""
    deadline = time.monotonic() + PATIENCE
    while running.poll() is None:
        if entries(folder) >= count:
            return True
        assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
        time.sleep(0.01)
    return False


def descendants(process: int) -> list[int]:
    """All processes below one, the nearest first."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def finish(running: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits batch by batch until the program has ended well."""
    while until(running, folder, entries(folder) + 1):
        pass
    assert running.wait(PATIENCE) == 0, (folder / "log").read_text()[-3000:]


def written(folder: Path) -> set[tuple[object, ...]]:
    """The notifications in the folder of the sink."""
    table = pq.read_table(folder / "notifications", columns=list(COLUMNS))
    return once(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def test_the_driver(tmp_path: Path) -> None:
    random = Random(1)
    due = prepare(tmp_path, 21)
    killed = 0
    while killed < TIMES:
        running = started(tmp_path, "local[2]")
        if not until(running, tmp_path, entries(tmp_path) + random.randrange(1, 4)):
            assert running.returncode == 0, (tmp_path / "log").read_text()[-3000:]
            break
        time.sleep(random.random())
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        killed += 1
    finish(started(tmp_path, "local[2]"), tmp_path)
    assert killed
    assert written(tmp_path) == due
    assert not (tmp_path / "rejected").exists()


@pytest.mark.slow  # three machines of Java; a driver that is killed recovers in every run
def test_executors(tmp_path: Path) -> None:
    random = Random(2)
    due = prepare(tmp_path, 22)
    running = started(tmp_path, "local-cluster[2,1,1024]")
    killed = 0
    while killed < TIMES and until(running, tmp_path, entries(tmp_path) + 1):
        time.sleep(random.random() * 0.5)
        executors = [one for one in descendants(running.pid) if b"CoarseGrainedExecutorBackend" in command_line(one)]
        if executors:
            os.kill(random.choice(executors), signal.SIGKILL)
            killed += 1
    finish(running, tmp_path)
    assert killed
    assert written(tmp_path) == due


def command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""

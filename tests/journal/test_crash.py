"""Crashes: at every step that touches the disk, and by kill -9 at random moments."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.journal.cases import NOW, Crash, CrashingDisk, contents, fill, publication, segments_of, subscribing
from tidings.journal import Journal, JournalOptions, Record

OPTIONS = JournalOptions(roll_records=4)


class Life:
    """One life of a journal's owner: what it was told is safe, until it ends."""

    def __init__(self, folder: Path, disk: CrashingDisk) -> None:
        self.safe: list[Record] = []
        self.floor = 0
        self.state: bytes | None = None
        try:
            self._live(folder, disk)
        except Crash:
            self.crashed = True
        else:
            self.crashed = False

    def _live(self, folder: Path, disk: CrashingDisk) -> None:
        journal = Journal.open(folder, options=OPTIONS, disk=disk)
        try:
            self._work(journal)
        except Crash:
            journal.release_lock()  # as the system does when a process ends
            raise
        else:
            journal.close()

    def _work(self, journal: Journal) -> None:
        for turn in range(5):
            operations = [publication(turn), subscribing(turn)]
            span = journal.commit(operations, NOW + turn * 100)
            self.safe += [
                Record(offset, span.timestamp + number, operation)
                for number, (offset, operation) in enumerate(zip(span.offsets, operations, strict=True))
            ]
        journal.write_snapshot(6, b"six")
        self.state = b"six"
        journal.append([publication(9)], NOW)
        journal.roll()
        self.floor = 4
        journal.retain(max_bytes=0)


def steps() -> int:
    import tempfile

    disk = CrashingDisk()
    with tempfile.TemporaryDirectory() as folder:
        assert not Life(Path(folder), disk).crashed
    return disk.steps


@pytest.mark.parametrize("at", range(steps()))
def test_a_crash_at_any_step_loses_nothing_that_was_safe(tmp_path: Path, at: int) -> None:
    life = Life(tmp_path, CrashingDisk(at))
    assert life.crashed
    with Journal.open(tmp_path, options=OPTIONS) as journal:
        held = list(journal.read())
        safe = [record for record in life.safe if record.offset >= journal.first]
        assert held[: len(safe)] == safe
        assert journal.first in (0, life.floor)
        assert len(held) <= len(safe) + 2
        if life.state is not None:
            latest = journal.latest_snapshot()
            assert latest is not None
            assert latest.data == life.state
        after = journal.commit([publication(7)], NOW).next
        journal.roll()
        assert journal.next == after
        assert journal.verify() == len(held) + 1
    assert contents(tmp_path)[: len(held)] == held
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(list((tmp_path / "log").iterdir())) == 1


@pytest.mark.parametrize("second", range(0, 12, 2))
def test_a_crash_while_recovering_from_a_crash(tmp_path: Path, second: int) -> None:
    at = steps() - 12
    life = Life(tmp_path, CrashingDisk(at))
    Life(tmp_path, CrashingDisk(second))
    with Journal.open(tmp_path) as journal:
        safe = [record for record in life.safe if record.offset >= journal.first]
        assert list(journal.read())[: len(safe)] == safe


def test_a_crash_while_logs_are_removed(tmp_path: Path) -> None:
    at, firsts = 0, set()
    while True:
        folder, disk = tmp_path / str(at), CrashingDisk()
        journal = Journal.open(folder, options=JournalOptions(roll_records=4, convert=False), disk=disk)
        held = fill(journal, 14)
        journal.write_snapshot(14, b"all")
        disk.steps, disk.at = 0, at
        try:
            assert journal.retain(max_bytes=0) == 3
        except Crash:
            journal.release_lock()
        else:
            disk.at = -1
            journal.close()
            break
        with Journal.open(folder) as journal:
            first = journal.first
            firsts.add(first)
            assert list(journal.read()) == held[first:]
            assert journal.retain(max_bytes=0) == 3 - first // 4
        at += 1
    assert firsts == {0, 4, 8, 12}


def test_both_a_log_and_its_segment(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.commit([publication(number) for number in range(5)], NOW)
        held = list(journal.read())
        log = next((tmp_path / "log").iterdir())
        data = log.read_bytes()
        journal.roll()
    log.write_bytes(data)
    assert contents(tmp_path) == held
    assert not log.exists()
    log.write_bytes(data)
    damaged = segments_of(tmp_path)[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with Journal.open(tmp_path) as journal:
        assert list(journal.read()) == held
        assert "its log is still there and is kept instead" in journal.notes[0]


WRITER = """
import sys
from tests.journal.cases import NOW, publication, subscribing
from tidings.journal import Journal, JournalOptions
import threading
journal = Journal.open(sys.argv[1], options=JournalOptions(roll_records=200))
print("ready", flush=True)
def work(thread):
    while True:
        span = journal.commit([publication(thread), subscribing(thread)], NOW)
        sys.stdout.write(f"{span.first} {span.timestamp} {thread}\\n")
        sys.stdout.flush()
for thread in range(3):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.process
def test_killed_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(7)
    acknowledged: dict[int, tuple[int, int]] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0.02, 0.5))
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read()
        process.wait()
        process.stdout.close()
        for line in said.splitlines(keepends=True):
            if line.endswith("\n"):
                first, timestamp, thread = map(int, line.split())
                acknowledged[first] = timestamp, thread
        with Journal.open(tmp_path) as journal:
            held = {record.offset: record for record in journal.read()}
            assert sorted(held) == list(range(journal.next))
            assert journal.verify() == len(held)
        for first, (timestamp, thread) in acknowledged.items():
            assert held[first] == Record(first, timestamp, publication(thread))
            assert held[first + 1] == Record(first + 1, timestamp + 1, subscribing(thread))
    assert len(acknowledged) > 50

"""The journal as its owner sees it: order, durability, one writer, reading while it grows."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.journal.cases import NOW, FailingDisk, contents, fill, log_of, publication, segments_of, subscribing
from tidings.journal import Journal, JournalOptions, Span
from tidings.journal.log import FILE_HEADER
from tidings.model.errors import (
    InvalidValueError,
    JournalError,
    JournalFailedError,
    JournalFullError,
    JournalLockedError,
    OffsetGoneError,
)


def test_offsets_are_consecutive_and_timestamps_rise_strictly(tmp_path: Path) -> None:
    with Journal.open(tmp_path, name="b1") as journal:
        assert journal.commit([publication(0), publication(1)], NOW) == Span(0, 2, NOW)
        assert journal.commit([publication(2)], NOW - 5) == Span(2, 3, NOW + 2)
        span = journal.commit([publication(3)], NOW + 10)
        assert (span.offsets, len(span)) == (range(3, 4), 1)
        assert (journal.first, journal.next, journal.synced, journal.timestamp) == (0, 4, 4, NOW + 10)
        assert [record.timestamp for record in journal.read()] == [NOW, NOW + 1, NOW + 2, NOW + 10]
        assert [record.offset for record in journal.read(1, 3)] == [1, 2]
    with Journal.open(tmp_path) as journal:
        assert journal.name == "b1"
        assert journal.commit([subscribing(4)], 0) == Span(4, 5, NOW + 11)
        assert journal.notes == []


def test_only_what_is_durable_is_read(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.append([publication(0)], NOW)
        assert list(journal.read()) == []
        assert journal.sync() == 1
        assert len(list(journal.read())) == 1
        assert len(journal.append([], NOW)) == 0


@pytest.mark.parametrize("now", [-1, 2**63, 1.0, True])
def test_a_time_that_is_none(tmp_path: Path, now: int) -> None:
    with Journal.open(tmp_path) as journal, pytest.raises(InvalidValueError, match="now"):
        journal.append([publication(0)], now)


def test_logs_roll_by_records_and_by_size(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10)) as journal:
        held = fill(journal, 25)
        assert len(segments_of(tmp_path)) == 2
        assert list(journal.read()) == held
        assert [record.offset for record in journal.read(13)] == list(range(13, 25))
        assert journal.verify() == 25
    with Journal.open(tmp_path, options=JournalOptions(roll_bytes=1, convert=False)) as journal:
        fill(journal, 2)
        assert len(list((tmp_path / "log").iterdir())) == 3
        assert journal.unrolled == 2
        journal.roll(begin=False)
        assert journal.unrolled == 0
        journal.roll()
        assert len(list((tmp_path / "log").iterdir())) == 1
        journal.roll()  # nothing to roll
        assert [record.offset for record in journal.read()] == list(range(27))
    assert contents(tmp_path)[:25] == held


@pytest.mark.process
def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Journal.open(tmp_path):
        with pytest.raises(JournalLockedError, match=f"{tmp_path} is open in process") as refused:
            Journal.open(tmp_path)
        code = f"from tidings.journal import Journal; Journal.open({str(tmp_path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"is open in process {refused.value.process}" in other.stderr
    Journal.open(tmp_path).close()


def test_a_folder_that_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not a journal"):
        Journal.open(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []


def test_closed_is_closed(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.append([publication(0)], NOW)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.append([publication(0)], NOW)
    assert len(contents(tmp_path)) == 1


def test_many_threads_share_an_fsync(tmp_path: Path) -> None:
    disk = FailingDisk()
    spans: list[Span] = []
    with Journal.open(tmp_path, disk=disk) as journal:
        disk.syncs = 0
        gate = threading.Barrier(16)

        def work(number: int) -> None:
            gate.wait()
            for turn in range(20):
                span = journal.commit([publication(number * 20 + turn)], NOW)
                assert journal.synced >= span.next
                spans.append(span)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert disk.syncs < 320
        sequences = [record.operation.sequence for record in journal.read()]
    assert sorted(span.first for span in spans) == list(range(320))
    assert sorted(map(int, map(str, sequences))) == list(range(320))
    for number in range(16):  # each thread's own stand in its order
        own = [one for one in sequences if one is not None and one // 20 == number]
        assert own == sorted(own)


class SlowDisk(FailingDisk):
    """Its fsyncs take until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def sync(self, fd: int) -> None:
        self.begun.set()
        assert self.let_go.wait(60)
        super().sync(fd)


def test_appends_go_on_while_an_fsync_is_under_way(tmp_path: Path) -> None:
    """Also those that fill the log: the one who syncs begins the next."""
    disk = SlowDisk()
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(roll_records=5, convert=False)) as journal:
        journal.append([publication(0)], NOW)
        disk.begun.clear()
        disk.let_go.clear()
        syncing = threading.Thread(target=journal.sync)
        syncing.start()
        assert disk.begun.wait(60)
        for number in range(1, 12):
            assert journal.append([publication(number)], NOW).first == number
        assert (journal.synced, journal.unrolled) == (0, 0)
        disk.let_go.set()
        syncing.join()
        assert journal.synced >= 1
        journal.sync()
        assert (journal.synced, journal.unrolled) == (12, 1)
        assert [record.operation.sequence for record in journal.read()] == list(range(12))


def test_reading_while_it_grows_rolls_and_is_written(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=50)) as journal:
        fill(journal, 120, 10)
        reader = journal.read()
        seen = [next(reader).offset for _ in range(30)]
        fill(journal, 100, 10)
        journal.roll()
        seen += [record.offset for record in reader]
        assert seen == list(range(120))


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Journal.open(tmp_path, disk=disk) as journal:
        held = fill(journal, 3)
        size = log_of(tmp_path).stat().st_size
        disk.room = 60
        for _ in range(2):
            with pytest.raises(JournalFullError, match=r"nothing was written .*; make room and try again"):
                journal.commit([publication(3), publication(4)], NOW)
        assert (journal.next, log_of(tmp_path).stat().st_size) == (3, size)
        disk.room = None
        assert journal.commit([publication(3)], NOW).first == 3
        assert list(journal.read())[:3] == held
    assert len(contents(tmp_path)) == 4


LIMITED = """
import resource, sys
from tests.journal.cases import NOW, publication
from tidings.journal import Journal
from tidings.model.errors import JournalFullError
journal = Journal.open(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
safe = 0
try:
    while True:
        safe = journal.commit([publication(safe)], NOW).next
except JournalFullError as error:
    assert journal.next == journal.synced == safe, error
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert journal.commit([publication(safe)], NOW).first == safe > 5
"""


@pytest.mark.process
def test_a_limit_that_the_system_sets(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], env=environment, check=True)
    held = contents(tmp_path)
    assert [record.operation for record in held] == [publication(number) for number in range(len(held))]


def test_a_full_disk_while_rolling_costs_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(roll_records=3)) as journal:
        fill(journal, 2)
        one = (log_of(tmp_path).stat().st_size - FILE_HEADER) // 2
        disk.room = one + 8  # for the record, not for the log after it
        journal.commit([publication(2)], NOW)
        assert "no new log can be begun" in journal.notes[-1]
        with pytest.raises(JournalFullError, match="no new log can be begun"):
            journal.roll()
        with pytest.raises(JournalFullError, match="nothing was written"):
            journal.commit([publication(3)], NOW)
        disk.room = None
        fill(journal, 4)
        assert len(list(journal.read())) == 7
    assert len(contents(tmp_path)) == 7


def test_after_a_failed_fsync_nothing_is_acknowledged(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal = Journal.open(tmp_path, disk=disk)
    held = fill(journal, 2)
    size = log_of(tmp_path).stat().st_size
    disk.sync_error = errno.EIO
    with pytest.raises(JournalFailedError, match=r"fsync failed .* closed and opened again"):
        journal.commit([publication(2)], NOW)
    disk.sync_error = None  # the next fsync would succeed, and mean nothing
    for attempt in (lambda: journal.commit([publication(3)], NOW), journal.sync, journal.roll):
        with pytest.raises(JournalFailedError, match="fsync failed"):
            attempt()
    assert (journal.synced, list(journal.read())) == (2, held)
    journal.close()
    disk.syncs, disk.overwritten = 0, []
    unsynced = log_of(tmp_path).read_bytes()[size:]
    with Journal.open(tmp_path, disk=disk) as journal:
        assert unsynced in disk.overwritten, "what had been written is written once more, and synced"
        assert disk.syncs > 0
        assert list(journal.read())[:2] == held


def test_all_who_wait_for_a_failed_fsync_are_told(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal = Journal.open(tmp_path, disk=disk)
    disk.sync_error = errno.EIO
    told: list[JournalFailedError] = []

    def work() -> None:
        try:
            journal.commit([publication(0)], NOW)
        except JournalFailedError as error:
            told.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(told), journal.synced) == (8, 0)
    journal.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="the folder cannot be written to"):
        Journal.open(tmp_path / "file" / "journal")


@pytest.mark.parametrize("broken", ["write_error", "truncate_error"])
def test_after_a_failed_write_nothing_more_is_taken(tmp_path: Path, broken: str) -> None:
    disk = FailingDisk()
    journal = Journal.open(tmp_path, disk=disk)
    held = fill(journal, 2)
    disk.room = 10
    setattr(disk, broken, errno.EIO)
    for _ in range(2):
        with pytest.raises(JournalFailedError, match="a write failed"):
            journal.commit([publication(2)], NOW)
    journal.close()
    assert contents(tmp_path) == held


def test_retention_by_age_and_by_size(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10)) as journal:
        for turn in range(5):
            journal.commit([publication(n) for n in range(10)], NOW + turn * 1000)
        fill(journal, 3)
        assert journal.retain(before_timestamp=NOW + 10_000) == 0, "no snapshot stands for what would go"
        journal.write_snapshot(30, b"state")
        assert journal.retain(before_timestamp=NOW + 1500) == 2
        assert journal.first == 20
        with pytest.raises(OffsetGoneError, match="offset 5 is gone; the oldest that is there is 20"):
            list(journal.read(5))
        assert journal.retain(max_bytes=0, keep_from=25) == 0
        assert journal.retain(max_bytes=0) == 1
        assert journal.retain(max_bytes=0) == 0, "what the snapshot does not stand for stays"
        assert journal.retain(max_bytes=0, without_snapshot=True) == 2
        assert [record.offset for record in journal.read()] == [50, 51, 52]
        reader = journal.read()
    with Journal.open(tmp_path) as journal:
        assert journal.first == 50
        assert journal.verify() == 3
    del reader


def test_a_reader_that_retention_overtakes_is_told(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=5)) as journal:
        fill(journal, 20)
        reader = journal.read()
        next(reader)
        journal.retain(max_bytes=0, without_snapshot=True)
        with pytest.raises(OffsetGoneError):
            list(reader)

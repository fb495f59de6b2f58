"""The ledger: what was acknowledged is there again, whatever happened; what was not is cut off or whole."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.journal.cases import Crash, CrashingDisk
from tests.sizes import examples
from tidings.journal.append_file import HEADER, AppendFile, read
from tidings.journal.disk import Disk
from tidings.model.errors import (
    ClosedError,
    JournalDamagedError,
    JournalError,
    JournalFailedError,
    JournalFullError,
    JournalLockedError,
)

RECORDS = [b"", b"one", b"\0" * 50, b"x" * 5_000]


def filled(path: Path) -> list[bytes]:
    with AppendFile(path, "authority") as ledger:
        for one in RECORDS:
            ledger.append(one)
    return RECORDS


def held(path: Path) -> list[bytes]:
    with AppendFile(path, "authority") as ledger:
        return list(ledger)


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger"
    assert held(path) == []
    assert held(path) == [] != filled(path) == held(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_there_is_one_writer_and_readers_need_no_lock(tmp_path: Path) -> None:
    with AppendFile(tmp_path / "ledger", "authority") as ledger:
        ledger.append(b"one")
        with pytest.raises(JournalLockedError, match=r"^the authority in .* is open in process \d+; it has one writer"):
            AppendFile(tmp_path / "ledger", "authority")
        assert read(tmp_path / "ledger")[0] == [b"one"]
    with pytest.raises(ClosedError):
        ledger.append(b"two")


@examples(60, 2_000)
@given(cut=st.integers(0, 5_200), blank=st.integers(0, 100))
@example(cut=5_067, blank=2)  # the end of a frame is blank
def test_an_unfinished_end_is_cut_off_and_what_is_appended_then_is_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, blank: int
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    filled(path)
    data = path.read_bytes()
    kept = max(len(HEADER), len(data) - cut)
    path.write_bytes(data[:kept] + (b"\0" * blank if kept < len(data) - 5_000 else b""))
    before = read(path)[0]
    assert before == RECORDS[: len(before)]
    with AppendFile(path, "authority") as ledger:
        assert list(ledger) == before
        ledger.append(b"after")
    assert held(path) == [*before, b"after"]


def test_damage_in_the_middle_is_told_and_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    filled(path)
    data = bytearray(path.read_bytes())
    data[len(HEADER) + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalDamagedError, match="cannot be vouched for"):
        held(path)
    path.write_bytes(b"something else")
    with pytest.raises(JournalDamagedError, match="is no ledger"):
        held(path)
    path.unlink()
    filled(path)  # the lock was let go of


def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    at, crashed = 0, True
    while crashed:
        path, told, disk = tmp_path / str(at) / "ledger", [], CrashingDisk(at)
        crashed = False
        ledger = None
        try:
            ledger = AppendFile(path, "authority", disk)
            for one in RECORDS:
                ledger.append(one)
                told.append(one)
            ledger.rewrite([b"all"])
            told = [b"all"]
            ledger.append(b"more")
            told.append(b"more")
        except Crash:
            crashed = True
        if ledger is not None:
            ledger.close()
        found = held(path)
        assert found[: len(told)] == told or found == [b"all"]
        assert len(found) <= len(told) + 1
        at += 1
    assert at > 12


class Failing(Disk):
    """Fails from the given call on."""

    def __init__(self) -> None:
        self.write_error = self.sync_error = self.truncate_error = 0

    def write(self, fd: int, data: bytes) -> None:
        if self.write_error:
            super().write(fd, data[:3])
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(fd, size)


def test_a_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    disk = Failing()
    with AppendFile(tmp_path / "ledger", "authority", disk) as ledger:
        ledger.append(b"one")
        disk.write_error = errno.ENOSPC
        with pytest.raises(JournalFullError):
            ledger.append(b"two")
        disk.write_error = errno.EIO
        with pytest.raises(JournalError, match="nothing was written"):
            ledger.append(b"two")
        disk.write_error = 0
        ledger.append(b"three")
    assert held(tmp_path / "ledger") == [b"one", b"three"]


@pytest.mark.parametrize("broken", ["sync", "truncate"])
def test_after_a_failure_that_leaves_doubt_nothing_is_taken(tmp_path: Path, broken: str) -> None:
    disk = Failing()
    with AppendFile(tmp_path / "ledger", "authority", disk) as ledger:
        if broken == "sync":
            disk.sync_error = errno.EIO
        else:
            disk.write_error = disk.truncate_error = errno.EIO
        with pytest.raises(JournalFailedError):
            ledger.append(b"one")
        disk.write_error = disk.truncate_error = disk.sync_error = 0
        with pytest.raises(JournalFailedError):
            ledger.append(b"two")
    assert held(tmp_path / "ledger") in ([], [b"one"])

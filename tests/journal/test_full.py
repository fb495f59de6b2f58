"""Full disks: what has no room is refused whole, what is there stays usable, and with room all goes on."""

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal.cases import (
    NOW,
    FailingDisk,
    FullDisk,
    contents,
    fill,
    log_of,
    publication,
    segments_of,
    subscribing,
)
from tidings.journal import Journal, JournalOptions, Operation
from tidings.journal.disk import is_temporary
from tidings.journal.lock import FolderLock
from tidings.journal.log import framed_size
from tidings.journal.record import encode_operations
from tidings.model.errors import JournalFullError, JournalLockedError


def test_wherever_the_room_ends_a_batch_is_refused_whole(tmp_path: Path) -> None:
    disk = FailingDisk()
    batch = [publication(number) for number in range(3, 8)]
    with Journal.open(tmp_path, disk=disk) as journal:
        held = fill(journal, 3)
        before = log_of(tmp_path).read_bytes()
        size = journal.size
        needed = framed_size(encode_operations(batch))
        for room in range(0, needed, 7):
            disk.room = room
            with pytest.raises(JournalFullError, match="nothing was written"):
                journal.append(batch, NOW)
            assert log_of(tmp_path).read_bytes() == before
            assert (journal.next, journal.size) == (3, size)
        disk.room = None
        assert len(journal.commit(batch, NOW)) == 5
        assert list(journal.read())[:3] == held
    assert [record.operation for record in contents(tmp_path)[3:]] == batch


UPKEEP: dict[str, Callable[[Journal], object]] = {
    "snapshot": lambda journal: journal.write_snapshot(journal.synced, b"state" * 9),
    "roll": lambda journal: journal.roll(),
    "retain": lambda journal: journal.retain(max_bytes=0),
    "append": lambda journal: journal.append([publication(0), publication(1)], NOW),
    "fill a log": lambda journal: journal.append([publication(number) for number in range(6)], NOW),
}


@pytest.mark.parametrize("times", [1, 2, 1000])
@pytest.mark.parametrize("what", UPKEEP)
def test_upkeep_on_a_full_disk_leaves_everything_usable(tmp_path: Path, what: str, times: int) -> None:
    """Whichever step has no room, and for however long."""
    step, refused = 0, 0
    while True:
        folder, disk = tmp_path / str(step), FullDisk()
        with Journal.open(folder, disk=disk, options=JournalOptions(roll_records=6)) as journal:
            held = fill(journal, 14)
            journal.write_snapshot(9, b"state")
            disk.full_at(step, times)
            try:
                UPKEEP[what](journal)
            except JournalFullError as error:
                refused += 1
                assert "make room and try again" in str(error)
            reached = disk.steps > step
            disk.full_at(-1, 0)
            assert not [path for path in folder.rglob("*") if is_temporary(path)]
            assert list(journal.read(6)) == held[6:] + list(journal.read(14))
            UPKEEP[what](journal)
            fill(journal, 3)
            count = journal.verify()
        after = contents(folder)
        assert (len(after), after[-1].offset) == (count, journal.next - 1)
        if not reached:
            break
        step += 1
    assert step > 0
    # A log that cannot be followed by another grows on, and a floor that cannot be made anew is written over.
    assert refused or what == "fill a log" or (what, times) == ("retain", 1)


def test_retention_writes_its_floor_where_no_file_can_be_made(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(roll_records=5)) as journal:
        fill(journal, 12)
        journal.write_snapshot(12, b"state")
        disk.room = 0
        assert journal.retain(max_bytes=0) == 2
        disk.room = None
    assert contents(tmp_path)[0].offset == 10


def test_a_folder_can_be_locked_when_nobody_can_be_told_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tidings.journal.lock.os.pwrite", full)
        lock = FolderLock(tmp_path)
    with pytest.raises(JournalLockedError, match="is open in another process"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_below_the_reserve_only_what_is_essential_is_taken(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(reserve_bytes=1000)) as journal:
        fill(journal, 2)
        grown = log_of(tmp_path).stat().st_size
        journal.append([publication(2)], NOW)
        size = log_of(tmp_path).stat().st_size - grown
        disk.free = 1000 + size - 1
        with pytest.raises(JournalFullError, match=r"999 bytes of the disk would be left, and 1,000 are kept"):
            journal.append([publication(2)], NOW)
        assert journal.next == 3
        disk.free = 0
        journal.commit([subscribing(1)], NOW, essential=True)
        disk.room = 0
        with pytest.raises(JournalFullError, match="nothing was written"):
            journal.append([subscribing(2)], NOW, essential=True)
        disk.room, disk.free = None, 1000 + size
        journal.append([publication(2)], NOW)
    assert [record.operation for record in contents(tmp_path)[2:]] == [publication(2), subscribing(1), publication(2)]


def test_how_much_is_free_is_asked_for_now_and_then(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.free = 10**9
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(reserve_bytes=160_000)) as journal:
        before = journal.size
        journal.append([publication(0)], NOW)
        disk.free = 0
        assert "0 bytes of the disk would be left" in until_full(journal, lambda: publication(1), essential=False)
        assert 0 < journal.size - before < 12_000, "a sixteenth of the reserve is used up, and no more"
        disk.free = 10**9
        journal.append([publication(0)], NOW)


def test_without_a_reserve_nobody_asks_how_much_is_free(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.free = 0
    with Journal.open(tmp_path, disk=disk, options=JournalOptions(reserve_bytes=0)) as journal:
        assert len(fill(journal, 2)) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes, where one may be made."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "small", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def until_full(journal: Journal, draw: Callable[[], Operation], *, essential: bool) -> str:
    """Commits one after the other until there is no room; what is said then."""
    while True:
        try:
            journal.commit([draw()], NOW, essential=essential)
        except JournalFullError as error:
            return str(error)


@pytest.mark.process
def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    options = JournalOptions(roll_bytes=300_000, convert=False, reserve_bytes=200_000)
    chance = random.Random(1)
    note = Operation.control("acknowledge", client="car-1", body={"offset": 1})
    folder, other = small_disk / "journal", small_disk / "other"

    def large() -> Operation:
        return Operation.control("k", payload=chance.randbytes(3000))  # what does not become smaller in a segment

    def fill_the_rest() -> None:
        usage = os.statvfs(small_disk)
        other.write_bytes(bytes(usage.f_bavail * usage.f_frsize))

    with Journal.open(folder, options=options) as journal:
        assert "are kept for acknowledgements" in until_full(journal, large, essential=False)
        journal.commit([note], NOW, essential=True)
        fill_the_rest()
        assert "No space left on device" in until_full(journal, lambda: note, essential=True)
        safe = journal.next
        with pytest.raises(JournalFullError, match="the snapshot was not written"):
            journal.write_snapshot(safe, bytes(100_000))
        with pytest.raises(JournalFullError, match="a log cannot be rolled, and stays"):
            journal.roll(begin=False)
        assert journal.verify() == safe
    with Journal.open(folder, options=options) as journal:  # opening needs no room
        assert (journal.next, journal.synced) == (safe, safe)
        other.unlink()
        with pytest.raises(JournalFullError, match="a log cannot be rolled, and stays"):
            journal.roll(begin=False)  # the room that is reserved is not enough for it
        journal.write_snapshot(journal.synced, b"state")
        fill_the_rest()
        held = journal.unrolled
        assert journal.retain(max_bytes=1_000_000) > 3
        kept = journal.unrolled
        assert 0 < kept < held
        assert journal.size <= 1_000_000
        journal.roll(begin=False)
        assert len(segments_of(folder)) == kept
        last = large()
        journal.commit([last], NOW)
        assert journal.verify() == journal.next - journal.first
    assert contents(folder)[-1].operation == last

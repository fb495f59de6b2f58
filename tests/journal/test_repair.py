"""Repair: what can be read stays, what is lost is told and stands there as lost, and damaged files are kept."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal.cases import (
    NOW,
    Crash,
    CrashingDisk,
    Image,
    contents,
    fill,
    filled,
    flip,
    log_of,
    publication,
    segments_of,
)
from tidings.journal import LOST, Journal, JournalOptions, Record, repair
from tidings.journal.log import FILE_HEADER, RECORD_HEADER
from tidings.model.errors import JournalDamagedError


def build(folder: Path, convert: bool = True) -> list[Record]:
    """Four parts: offsets 0-4, 5-9, 10-14, and a log with 15-17."""
    with Journal.open(folder, options=JournalOptions(roll_records=5, convert=convert)) as journal:
        return fill(journal, 18)


def lost_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records if record.operation.kind == LOST]


def body_of(record: int) -> Callable[[Path], None]:
    """Flips a byte in the body of that record of a log."""

    def change(path: Path) -> None:
        data, at = path.read_bytes(), FILE_HEADER
        for _ in range(record):
            at += RECORD_HEADER + int.from_bytes(data[at + 4 : at + 8], "little")
        flip(path, at + RECORD_HEADER + 1)

    return change


def gone(path: Path) -> None:
    path.unlink()


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


CASES: dict[str, tuple[bool, int, Callable[[Path], None], list[int]]] = {
    "first segment": (True, 0, lambda path: flip(path, 30), [0, 1, 2, 3, 4]),
    "second segment is gone": (True, 1, gone, [5, 6, 7, 8, 9]),
    "last segment is cut": (True, 2, halved, [10, 11, 12, 13, 14]),
    "a record of the log": (True, 3, body_of(1), [16]),
    "the last record of the log": (True, 3, body_of(2), [17]),
    "the header of the log": (True, 3, lambda path: flip(path, 9), []),
    "the log is gone": (True, 3, gone, [15, 16, 17]),
    "the log is empty": (True, 3, lambda path: os.truncate(path, 0), [15, 16, 17]),
    "a log that is not rolled": (False, 1, body_of(4), [9]),
    "a log that is not rolled is gone": (False, 2, gone, [10, 11, 12, 13, 14]),
    "the first log": (False, 0, body_of(0), [0]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_read_stays(tmp_path: Path, case: str) -> None:
    convert, number, change, lost = CASES[case]
    held = build(tmp_path, convert)
    part = [*segments_of(tmp_path), *sorted((tmp_path / "log").iterdir())][number]
    change(part)
    with pytest.raises(JournalDamagedError, match="repair"):
        contents(tmp_path)
    report = repair(tmp_path)
    assert [offset for first, after in report.lost for offset in range(first, after)] == lost
    assert [path.exists() for path in report.aside] == [True] * (change is not gone)
    assert (f"{len(lost)} records are lost" in str(report)) == bool(lost)
    after = contents(tmp_path)
    assert lost_of(after) == lost
    assert [record.offset for record in after] == list(range(18))
    assert [one for one in after if one.offset not in lost] == [one for one in held if one.offset not in lost]
    with Journal.open(tmp_path) as journal:
        assert journal.verify() == 18
        journal.commit([publication(18)], NOW)
        journal.roll()
        assert journal.verify() == 19
    assert str(repair(tmp_path)) == "nothing was damaged"


def test_several_at_once(tmp_path: Path) -> None:
    build(tmp_path)
    first, second, third = segments_of(tmp_path)
    flip(first, 50)
    second.unlink()
    flip(third, 50)
    body_of(0)(log_of(tmp_path))
    assert str(repair(tmp_path)).startswith("16 records are lost (offsets 0 to 15)")
    assert lost_of(contents(tmp_path)) == list(range(16))


def test_nothing_to_do(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    assert str(repair(tmp_path)) == "nothing was damaged"
    assert contents(tmp_path) == held


def test_row_groups_that_stand_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.journal.segment.ROWS", 5)
    with Journal.open(tmp_path) as journal:
        held = fill(journal, 20, 20)
        journal.roll()
    flip(segments_of(tmp_path)[0], 40)
    report = repair(tmp_path)
    assert report.lost == ((0, 5),)
    assert contents(tmp_path)[5:] == held[5:]


@pytest.mark.parametrize("case", ["a record of the log", "first segment", "a log that is not rolled"])
def test_a_crash_while_repairing_is_repaired(tmp_path: Path, case: str) -> None:
    convert, number, change, lost = CASES[case]
    build(tmp_path, convert)
    change([*segments_of(tmp_path), *sorted((tmp_path / "log").iterdir())][number])
    image, at = Image(tmp_path), 0
    while True:
        try:
            repair(image.restore(), disk=CrashingDisk(at))
        except Crash:
            repair(tmp_path)
            assert lost_of(contents(tmp_path)) == lost, at
            assert list((tmp_path / "damaged").iterdir())
            at += 1
        else:
            break
    assert at > 5


def test_an_unfinished_write_is_no_damage(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    with log_of(tmp_path).open("ab") as file:
        file.write(b"half a record")
    assert str(repair(tmp_path)) == "nothing was damaged"
    assert contents(tmp_path) == held


def test_an_empty_log_is_made_anew(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        held = fill(journal, 3)
        journal.roll()
    os.truncate(log_of(tmp_path), 20)
    assert repair(tmp_path).lost == ()
    assert contents(tmp_path) == held


def test_without_a_mark(tmp_path: Path) -> None:
    held = build(tmp_path)
    (tmp_path / "synced").unlink()
    body_of(0)(log_of(tmp_path))
    report = repair(tmp_path)
    assert (report.lost, report.renewed) == (((15, 16),), (tmp_path / "synced",))
    assert contents(tmp_path)[16:] == held[16:]


def test_a_mark_that_is_damaged_alone(tmp_path: Path) -> None:
    held = build(tmp_path)
    flip(tmp_path / "synced", 0)
    assert str(repair(tmp_path)) == "no record is lost; put aside: synced; written anew: synced"
    assert contents(tmp_path) == held


def test_a_segment_that_can_be_read_in_full_is_written_again(tmp_path: Path) -> None:
    """The new file is bit for bit what the damaged one was, and so has its name."""
    held = build(tmp_path)
    name = segments_of(tmp_path)[0].name
    flip(segments_of(tmp_path)[0], 0)
    assert repair(tmp_path).lost == ()
    assert segments_of(tmp_path)[0].name == name
    assert contents(tmp_path) == held


def test_a_file_with_another_name_is_put_aside(tmp_path: Path) -> None:
    build(tmp_path)
    for path in (segments_of(tmp_path)[1], log_of(tmp_path)):
        path.rename(path.with_name(f"copy of {path.name}"))
    with pytest.raises(JournalDamagedError, match="was it renamed"):
        contents(tmp_path)
    report = repair(tmp_path)
    assert report.lost == ((5, 10), (15, 18))
    assert {path.name[:8] for path in report.aside} == {"copy of "}
    assert lost_of(contents(tmp_path)) == [5, 6, 7, 8, 9, 15, 16, 17]


def test_what_an_earlier_repair_put_aside_stays(tmp_path: Path) -> None:
    build(tmp_path)
    kept = []
    for position in (0, 1):
        flip(segments_of(tmp_path)[0], position)
        kept.append(segments_of(tmp_path)[0].read_bytes())
        report = repair(tmp_path)
    assert [path.name[-2:] for path in report.aside] == [".1"]
    assert [path.read_bytes() for path in sorted((tmp_path / "damaged").iterdir())] == kept


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path, case: str) -> None:
    convert, number, change, _ = CASES[case]
    build(tmp_path, convert)
    change([*segments_of(tmp_path), *sorted((tmp_path / "log").iterdir())][number])
    before = Image(tmp_path).files
    told = repair(tmp_path, dry_run=True)
    assert Image(tmp_path).files == before
    assert told == repair(tmp_path)


def test_a_damaged_floor(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=5)) as journal:
        fill(journal, 18)
        journal.retain(max_bytes=0, without_snapshot=True)
        held = list(journal.read())
    flip(tmp_path / "first", 2)
    with pytest.raises(JournalDamagedError, match="up to where retention"):
        contents(tmp_path)
    assert repair(tmp_path).lost == ()
    assert contents(tmp_path) == held

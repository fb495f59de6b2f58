"""Snapshots: a shortcut that is passed over when it is damaged, and never a reason to skip records."""

from pathlib import Path

import pytest

from tests.journal.cases import NOW, fill, flip, publication
from tidings.journal import Journal, JournalOptions, Snapshot
from tidings.model.errors import InvalidValueError, JournalDamagedError


def test_replay_starts_from_the_newest(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        assert journal.replay().snapshot is None
        held = fill(journal, 10)
        for offset in (3, 5, 7):
            journal.write_snapshot(offset, str(offset).encode())
        start, records = journal.replay()
        assert (start, list(records)) == (Snapshot(7, b"7"), held[7:])
        assert len(list((tmp_path / "snapshots").iterdir())) == 2


def test_every_flipped_byte_falls_back_to_the_one_before(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        held = fill(journal, 4)
        journal.write_snapshot(2, b"two")
        journal.write_snapshot(4, b"four")
        newest, older = sorted((tmp_path / "snapshots").iterdir(), reverse=True)
        for position in range(newest.stat().st_size):
            flip(newest, position)
            assert journal.latest_snapshot() == Snapshot(2, b"two")
            flip(newest, position)
        flip(newest, 3)
        flip(older, 3)
        start, records = journal.replay()
        assert (start, list(records)) == (None, held)
        assert "was passed over" in journal.notes[-1]


def test_no_replay_from_the_middle(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=2)) as journal:
        fill(journal, 5)
        journal.write_snapshot(4, b"four")
        journal.retain(max_bytes=0)
        assert journal.first == 4
        assert journal.replay().snapshot == Snapshot(4, b"four")
        flip(next((tmp_path / "snapshots").iterdir()), 5)
        with pytest.raises(JournalDamagedError, match="before offset 4 are gone, and no sound snapshot"):
            journal.replay()


def test_a_snapshot_of_what_is_not_durable_is_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        journal.append([publication(0)], NOW)
        with pytest.raises(InvalidValueError, match="between 0 and 0, not 1"):
            journal.write_snapshot(1, b"")


def test_retention_trusts_no_damaged_snapshot(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=5)) as journal:
        fill(journal, 20)
        for offset in (10, 15):
            journal.write_snapshot(offset, b"state")
        for path in (tmp_path / "snapshots").iterdir():
            flip(path, 40)
        assert journal.retain(max_bytes=0) == 0
        (tmp_path / "snapshots" / "notes.snapshot").write_text("not one of ours")
        assert journal.retain(max_bytes=0) == 0
        for offset in (19, 20):
            journal.write_snapshot(offset, b"state")
        assert journal.retain(max_bytes=0) == 3, "the older of the two stands for 19 records"

"""Journals of earlier versions are read record by record, and go on."""

import shutil
from pathlib import Path

import pytest

from tests.compatibility.contents import record_fields
from tests.compatibility.release import Release
from tests.journal.cases import flip, log_of, segments_of
from tidings import ContextFilter
from tidings.journal import Journal, Operation
from tidings.journal.snapshot import list_snapshots
from tidings.model.errors import JournalDamagedError


def test_every_record_and_the_snapshot_are_there(release: Release, tmp_path: Path) -> None:
    expected = release.expected("journal")
    folder = release.unpack("journal", tmp_path / "journal")
    with Journal.open(folder, create=False) as journal:
        assert journal.name == expected["name"]
        assert journal.notes == []
        assert list(map(record_fields, journal.read())) == expected["records"]
        snapshot, records = journal.replay()
        assert snapshot is not None
        assert {"offset": snapshot.offset, "data": snapshot.data.decode()} == expected["snapshot"]
        assert list(map(record_fields, records)) == expected["records"][snapshot.offset :]
    assert len(segments_of(folder)) == expected["segments"]


def test_every_event_can_be_made_of_its_record(release: Release, tmp_path: Path) -> None:
    with Journal.open(release.unpack("journal", tmp_path / "journal"), create=False) as journal:
        rows = [record.operation for record in journal.read() if record.operation.publisher is not None]
    assert len(rows) == 8
    assert [Operation.publication(row.event(ContextFilter.parse), row.kind, row.content()) for row in rows] == rows


def test_it_goes_on(release: Release, tmp_path: Path) -> None:
    expected = release.expected("journal")["records"]
    folder = release.unpack("journal", tmp_path / "journal")
    with Journal.open(folder, create=False) as journal:
        later = journal.timestamp + 5
        span = journal.commit(
            [Operation.control("subscribe", client="car-2", id="s2", body={"content": "n > 2"})], later
        )
        assert span.first == len(expected)
        journal.roll()
        journal.write_snapshot(journal.next, b"a later state")
    with Journal.open(folder, create=False) as journal:
        records = list(map(record_fields, journal.read()))
        snapshot = journal.replay().snapshot
    added = {"kind": "subscribe", "client": "car-2", "id": "s2", "body": '{"content":"n > 2"}'}
    assert records == [*expected, {"offset": len(expected), "timestamp": later, **added}]
    assert snapshot is not None
    assert snapshot.data == b"a later state"


def test_damage_is_noticed(release: Release, tmp_path: Path) -> None:
    """The checks of the formats themselves: without the checksums of the archives."""
    folder = release.unpack("journal", tmp_path / "journal")
    for number, path in enumerate((log_of(folder), segments_of(folder)[0])):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        flip(copy / path.relative_to(folder), path.stat().st_size // 2)
        with pytest.raises(JournalDamagedError), Journal.open(copy, create=False) as journal:
            list(journal.read())
    flip(list_snapshots(folder / "snapshots")[0], 50)
    with Journal.open(folder, create=False) as journal:
        assert journal.replay().snapshot is None

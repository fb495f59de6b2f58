"""The journal under fire: whatever happens to its files, it opens with all that was synced, or says what is wrong."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.cases import NOW, Image, UnsyncedDisk, fill, publication
from tests.journal.harm import Harm, harms
from tests.sizes import examples
from tidings.journal import LOST, Journal, JournalOptions, JournalReader, Record, repair
from tidings.journal.segment import record_batch
from tidings.model.errors import JournalDamagedError, JournalError, JournalVersionError


class Target(NamedTuple):
    """A journal as a killed process left it, and what was in it."""

    image: Image
    files: list[Path]
    written: list[Record]  # from the floor on
    synced: int  # of them
    snapshots: dict[int, bytes]

    @property
    def folder(self) -> Path:
        return self.image.folder

    def __repr__(self) -> str:
        return "target"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A removed segment, three that are there, a log that is not rolled, one that grows and is not all synced, and two
    snapshots."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Journal.open(folder, name="b1", salt=b"salt", options=JournalOptions(roll_records=8)) as journal:
            fill(journal, 24, 2)
            snapshots = {10: b"ten" * 20, 20: b"twenty" * 20}
            for offset, data in snapshots.items():
                journal.write_snapshot(offset, data)
            assert journal.retain(max_bytes=0) == 1
            fill(journal, 8, 3)
        with Journal.open(folder, options=JournalOptions(roll_records=8, convert=False)) as journal:
            fill(journal, 13, 3)
            synced = journal.synced
            image_of_mark = (folder / "synced").read_bytes()
            journal.append([publication(journal.next + number) for number in range(3)], NOW)
            image = Image(folder)
            assert image.files[folder / "synced"] == image_of_mark
            journal.sync()
            written = list(journal.read())
        files = sorted(path for path in image.files if path.name != "lock")
        assert {path.parent.name for path in files} >= {"log", "segments", "snapshots"}
        assert {path.name for path in files} >= {"journal.toml", "synced", "first"}
        yield Target(image, files, written, synced - written[0].offset, snapshots)


def read(target: Target) -> list[Record]:
    """Everything that can be asked of a journal."""
    with Journal.open(target.folder, create=False, disk=UnsyncedDisk()) as journal:
        records = list(journal.read())
        start, rest = journal.replay()
        assert list(rest) == [one for one in records if one.offset >= (start.offset if start else 0)]
        assert start is None or start.data == target.snapshots[start.offset]
        return records


@examples(52, 1_500)
@given(done=st.lists(harms, min_size=1, max_size=2))
def test_it_opens_with_all_that_was_synced_or_says_what_is_wrong(target: Target, done: list[Harm]) -> None:
    target.image.restore()
    changed = [harm.do(target.files) for harm in done]
    try:
        records = read(target)
    except JournalVersionError as error:
        assert target.folder / "journal.toml" in changed
        assert str(error.path) in str(error)
        return
    except JournalDamagedError as error:
        assert str(error.path) in str(error)
        assert error.repairable == (f"`tidings journal repair {target.folder}`" in str(error))
        if error.repairable:
            assert_repaired(target, knows_its_end=target.folder / "synced" not in changed)
        return
    assert records == target.written[: len(records)]
    assert len(records) >= target.synced


def assert_repaired(target: Target, *, knows_its_end: bool) -> None:
    try:
        told = repair(target.folder, dry_run=True)
        report = repair(target.folder, disk=UnsyncedDisk())
    except JournalDamagedError as error:
        assert not error.repairable
        return
    assert told == report
    with Journal.open(target.folder, create=False, disk=UnsyncedDisk()) as journal:
        records = list(journal.read())
    lost = [offset for first, after in report.lost for offset in range(first, after)]
    assert [record.offset for record in records if record.operation.kind == LOST] == lost
    there = {record.offset: record for record in target.written}
    for record in records:
        assert record.operation.kind == LOST or record == there[record.offset]
    assert [one.offset for one in records] == list(range(records[0].offset, records[0].offset + len(records)))
    # A floor that cannot be read is set to what is there, and said to be new.
    assert records[0].offset <= target.written[0].offset or target.folder / "first" in report.renewed
    assert not knows_its_end or records[-1].offset + 1 >= target.written[0].offset + target.synced
    assert all(one.timestamp < other.timestamp for one, other in itertools.pairwise(records))
    assert str(repair(target.folder, dry_run=True)) == "nothing was damaged"


@examples(200, 4000)
@given(done=st.lists(harms, min_size=1, max_size=2))
def test_a_reader_beside_it_gets_what_was_synced_or_is_told(target: Target, done: list[Harm]) -> None:
    target.image.restore()
    changed = [harm.do(target.files) for harm in done]
    try:
        rows = [row for batch in JournalReader(target.folder).read() for row in batch.to_pylist()]
    except JournalVersionError:
        assert target.folder / "journal.toml" in changed
        return
    except JournalError as error:
        assert str(target.folder) in str(error)
        return
    assert rows == record_batch(target.written, "b1").to_pylist()[: target.synced]

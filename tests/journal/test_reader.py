"""A reader beside the writer: it sees what is durable, exactly, whatever the writer does meanwhile."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.cases import NOW, FailingDisk, fill, publication, subscribing
from tests.sizes import examples
from tidings.journal import Journal, JournalOptions, JournalReader, RecordSelection
from tidings.journal import reader as reading
from tidings.journal.segment import SCHEMA, record_batch
from tidings.model.errors import JournalDamagedError, JournalError, OffsetGoneError


def rows(reader: JournalReader, **asked: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.read(**asked) for row in batch.to_pylist()]


def written(journal: Journal) -> list[dict[str, Any]]:
    return list(record_batch(list(journal.read()), journal.name).to_pylist())


def test_it_reads_what_the_journal_reads_while_it_is_open(tmp_path: Path) -> None:
    with Journal.open(tmp_path, name="b1", options=JournalOptions(roll_records=100)) as journal:
        fill(journal, 350, group=7)
        reader = JournalReader(tmp_path)
        assert (reader.name, reader.first, reader.end) == ("b1", 0, 350)
        assert rows(reader) == written(journal)
        assert [row["offset"] for row in rows(reader, start=120, until=310)] == list(range(120, 310))


def test_logs_that_wait_to_be_rolled(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10, convert=False)) as journal:
        fill(journal, 35)
        reader = JournalReader(tmp_path)
        assert journal.unrolled == 3
        stretches = reader.stretches(5, 33)
        assert [(one.first, one.next) for one in stretches] == [(5, 10), (10, 20), (20, 30), (30, 33)]
        assert rows(reader) == written(journal)
        journal.roll(begin=False)
        assert [row for one in stretches for batch in reader.batches(one) for row in batch.to_pylist()] == written(
            journal
        )[5:33]


def test_what_is_not_synced_is_not_seen(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        fill(journal, 5)
        journal.append([publication(5)], NOW)
        reader = JournalReader(tmp_path)
        assert reader.end == len(rows(reader)) == 5
        journal.sync()
        assert reader.end == len(rows(reader)) == 6


def test_a_torn_end_is_no_error_and_no_record(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        fill(journal, 5)
    [log] = (tmp_path / "log").iterdir()
    with log.open("ab") as stream:
        stream.write(b"TdnR and then the power went")
    assert len(rows(JournalReader(tmp_path))) == 5


def test_a_stretch_of_a_log_is_found_in_the_segment_that_it_becomes(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        fill(journal, 30)
        reader = JournalReader(tmp_path)
        [stretch] = reader.stretches(10, 20)
        journal.roll()
        other: JournalReader = pickle.loads(pickle.dumps(reader))  # noqa: S301 - as Spark does
        found = [row for batch in other.batches(stretch) for row in batch.to_pylist()]
        assert found == written(journal)[10:20]


def test_large_logs_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.LogSteps.__init__, "__defaults__", (10,))
    with Journal.open(tmp_path) as journal:
        fill(journal, 35)
        reader = JournalReader(tmp_path)
        assert [(one.first, one.next) for one in reader.stretches(5, 33)] == [(5, 10), (10, 20), (20, 30), (30, 33)]
        fill(journal, 10)
        assert [(one.first, one.next) for one in reader.stretches(33, 45)] == [(33, 40), (40, 45)]
        assert [(one.first, one.next) for one in reader.stretches(2, 12)] == [(2, 10), (10, 12)]
        assert rows(reader, start=2) == written(journal)[2:]


@examples(25, 500)
@given(
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    kinds=st.none() | st.sets(st.sampled_from(["publish", "subscribe", "other"])).map(frozenset),
    times=st.tuples(st.none() | st.integers(-5, 65), st.none() | st.integers(-5, 65)),
    columns=st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True).map(tuple),
)
def test_wanted_rows_and_columns(
    tmp_path_factory: pytest.TempPathFactory, bounds: Any, kinds: Any, times: Any, columns: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "wanted"
    if not folder.exists():
        with Journal.open(folder, options=JournalOptions(roll_records=20)) as journal:
            journal.commit([subscribing(number) for number in range(20)], NOW)
            journal.commit([publication(number) for number in range(20)], NOW)
            journal.commit([(publication, subscribing)[number % 2](number) for number in range(15)], NOW)
    reader = JournalReader(folder)
    since, until = (None if one is None else NOW + one for one in times)
    wanted = RecordSelection(columns, kinds, since, until)
    everything = [row for batch in reader.read() for row in batch.to_pylist()]
    expected = [
        {name: row[name] for name in columns}
        for row in everything[bounds[0] : bounds[1]]
        if (kinds is None or row["kind"] in kinds)
        and (since is None or NOW + row["offset"] >= since)
        and (until is None or NOW + row["offset"] < until)
    ]
    assert rows(reader, start=bounds[0], until=bounds[1], wanted=wanted) == expected


def test_segments_outside_of_the_time_are_not_opened(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10)) as journal:
        fill(journal, 35)
        reader = JournalReader(tmp_path)
        found = reader.stretches(0, 35, RecordSelection(since=NOW + 12, until=NOW + 25))
        assert [(one.first, one.next) for one in found] == [(10, 20), (20, 30)]


def test_what_retention_takes_away_is_told(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10)) as journal:
        fill(journal, 35)
        reader = JournalReader(tmp_path)
        oldest, second, *_ = reader.stretches(0, 35)
        batches = reader.batches(second)
        assert next(batches).num_rows == 10  # open: it can be read to its end
        journal.retain(before_timestamp=NOW + 25, without_snapshot=True)
        assert list(batches) == []
        assert reader.first == 20
        with pytest.raises(OffsetGoneError, match=r"offset 0 is gone, .* the oldest there is 20") as gone:
            list(reader.batches(oldest))
        assert gone.value.first == 20
        with pytest.raises(OffsetGoneError):
            reader.stretches(5, 35)
        assert len(rows(reader)) == 15


def test_damage_is_the_journals_own_error(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=10)) as journal:
        fill(journal, 15)
    [segment] = (tmp_path / "segments").iterdir()
    [log] = (tmp_path / "log").iterdir()
    for path, offset in ((segment, 0), (log, 14)):
        sound = path.read_bytes()
        path.write_bytes(sound[:-20] + b"x" + sound[-19:])
        with pytest.raises(JournalDamagedError) as damaged:
            rows(JournalReader(tmp_path))
        assert (damaged.value.path, damaged.value.offset) == (path, offset)
        path.write_bytes(sound[:-30])
        with pytest.raises(JournalDamagedError):
            rows(JournalReader(tmp_path))
        path.write_bytes(sound)
    assert len(rows(JournalReader(tmp_path))) == 15
    segment.unlink()
    with pytest.raises(JournalDamagedError, match="offsets 0 to 9 are missing"):
        rows(JournalReader(tmp_path))


def test_a_folder_that_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not a journal"):
        JournalReader(tmp_path)


def test_a_write_that_failed_and_was_taken_back_was_never_there(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Journal.open(tmp_path, disk=disk) as journal:
        fill(journal, 3)
        disk.room = 10
        with pytest.raises(JournalError):
            journal.commit([publication(3)], NOW)
        disk.room = None
        fill(journal, 2)
        assert rows(JournalReader(tmp_path)) == written(journal)


WRITER = """
import sys
from tests.journal.cases import NOW, publication
from tidings.journal import Journal, JournalOptions
with Journal.open(sys.argv[1], options=JournalOptions(roll_records=150)) as journal:
    print("ready", flush=True)
    for start in range(0, 3000, 5):
        journal.commit([publication(number) for number in range(start, start + 5)], NOW)
        if start % 500 == 0 and start > 1000:
            journal.retain(before_timestamp=NOW + start - 700, without_snapshot=True)
"""


@pytest.mark.process
def test_beside_a_writer_that_rolls_and_retains(tmp_path: Path) -> None:
    """Everything that is read is right and in order; the only thing that may be told is what retention took."""
    folder = tmp_path / "journal"
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        reader, offset, gone = JournalReader(folder), 0, 0
        while offset < 3000:
            end = reader.end
            try:
                for batch in reader.read(offset, end):
                    for found in batch.select(["offset", "attributes"]).to_pylist():
                        assert found["offset"] == offset
                        assert f'"n":{offset},' in found["attributes"]
                        offset += 1
                assert offset == end
            except OffsetGoneError as error:
                assert error.first > offset
                offset, gone = error.first, gone + 1
    assert writer.returncode == 0
    assert gone < 6


def test_a_log_that_becomes_a_segment_while_it_is_looked_at_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path, options=JournalOptions(convert=False)) as journal:
        journal.commit(map(publication, range(10)), 1)
        reader = JournalReader(tmp_path)
        look = JournalReader._log_ranges

        def rolled_meanwhile(*given: Any) -> Any:
            if journal.unrolled or not list(tmp_path.rglob("*.parquet")):
                journal.roll()
            return look(*given)

        monkeypatch.setattr(JournalReader, "_log_ranges", rolled_meanwhile)
        assert sum(batch.num_rows for batch in reader.read()) == 10

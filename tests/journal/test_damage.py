"""Damage: whatever bytes are flipped, cut, moved or gone, what is read is right or it is refused."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.cases import NOW, Image, UnsyncedDisk, contents, fill, filled, flip, log_of, publication, segments_of
from tests.sizes import LONG, examples
from tidings.journal import Journal, JournalOptions, JournalReader, Operation, Record, repair
from tidings.journal.log import FILE_HEADER, RECORD_HEADER
from tidings.journal.manifest import JournalManifest
from tidings.journal.sync import mark_bytes
from tidings.model.errors import JournalDamagedError, JournalVersionError

SEED = JournalManifest("journal").seed
_STRIDE = (5, 1)[LONG]  # of the bytes that are flipped, each by itself


def small(number: int) -> Operation:
    return Operation.control("k", id=str(number))


def small_journal(folder: Path, groups: list[int]) -> list[Record]:
    with Journal.open(folder) as journal:
        for count in groups:
            journal.commit([small(journal.next + number) for number in range(count)], NOW)
        return list(journal.read())


def ends(folder: Path) -> list[int]:
    """Where each record of the log ends."""
    data, found, at = log_of(folder).read_bytes(), [], FILE_HEADER
    while at < len(data):
        at += RECORD_HEADER + int.from_bytes(data[at + 4 : at + 8], "little")
        found.append(at)
    return found


def outcome(folder: Path) -> list[Record] | None:
    """What can be read, or nothing if it is refused."""
    try:
        return contents(folder)
    except (JournalDamagedError, JournalVersionError) as error:
        assert str(folder) in str(error)
        return None


@pytest.mark.parametrize("groups", [[1, 1, 1, 1], [4], [2, 2]])
def test_every_flipped_byte_of_a_log_is_noticed(tmp_path: Path, groups: list[int]) -> None:
    small_journal(tmp_path, groups)
    image = Image(tmp_path)
    for position in range(log_of(tmp_path).stat().st_size):
        flip(log_of(image.restore()), position)
        assert outcome(tmp_path) is None, position


@pytest.mark.parametrize("groups", [[1, 1, 1, 1], [4], [2, 2]])
@pytest.mark.parametrize("mark", [0, 2])
def test_flipped_bytes_when_the_mark_is_old(tmp_path: Path, groups: list[int], mark: int) -> None:
    """As after a power cut: nothing wrong is ever read, and what a later sync or the mark vouches for is not cut."""
    held = small_journal(tmp_path, groups)
    (tmp_path / "synced").write_bytes(mark_bytes(mark, SEED))
    image, stops = Image(tmp_path), ends(tmp_path)
    for position in range(FILE_HEADER, stops[-1]):
        flip(log_of(image.restore()), position)
        hit = next(number for number, end in enumerate(stops) if position < end)
        got = outcome(tmp_path)
        vouched = len(held) - groups[-1]  # what had been synced when the last group was written
        if hit < max(vouched, mark):
            assert got is None, position
        else:
            assert got == held[:hit], position


def test_every_truncation_of_what_was_synced_is_refused(tmp_path: Path) -> None:
    small_journal(tmp_path, [2, 2])
    image = Image(tmp_path)
    for size in range(log_of(tmp_path).stat().st_size):
        os.truncate(log_of(image.restore()), size)
        assert outcome(tmp_path) is None, size


def test_every_truncation_of_what_was_not_synced_is_cut_off(tmp_path: Path) -> None:
    held = small_journal(tmp_path, [2, 2])
    (tmp_path / "synced").write_bytes(mark_bytes(2, SEED))
    image, stops = Image(tmp_path), ends(tmp_path)
    for size in range(stops[1], stops[-1] + 1):
        os.truncate(log_of(image.restore()), size)
        whole = sum(end <= size for end in stops)
        with Journal.open(tmp_path) as journal:
            assert list(journal.read()) == held[:whole]
            told = [note for note in journal.notes if "unfinished write" in note]
            assert len(told) == (size not in stops)
            journal.commit([small(9)], NOW)
        assert contents(tmp_path)[:whole] == held[:whole]


def test_an_unsynced_group_whose_pages_came_out_of_order_is_cut_off(tmp_path: Path) -> None:
    held = small_journal(tmp_path, [2, 4])
    (tmp_path / "synced").write_bytes(mark_bytes(2, SEED))
    stops = ends(tmp_path)
    data = bytearray(log_of(tmp_path).read_bytes())
    data[stops[2] : stops[3]] = bytes(stops[3] - stops[2])
    log_of(tmp_path).write_bytes(data)
    assert contents(tmp_path) == held[:3]


@examples(60, 1000)
@given(st.data())
def test_power_cuts(data: st.DataObject) -> None:
    """Whatever of an unsynced group reached the disk, and however old the mark is: what was synced is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = Journal.open(folder, disk=UnsyncedDisk())
        for count in data.draw(st.lists(st.integers(1, 3), max_size=4)):
            journal.commit([small(number) for number in range(count)], NOW)
        synced, size = journal.synced, log_of(folder).stat().st_size
        held = list(journal.read())
        for count in data.draw(st.lists(st.integers(1, 3), max_size=3)):
            journal.append([small(number) for number in range(count)], NOW)
        written = bytearray(log_of(folder).read_bytes())
        journal.close()
        for _ in range(data.draw(st.integers(0, 4))):
            low = data.draw(st.integers(size, len(written)))
            high = data.draw(st.integers(low, len(written)))
            written[low:high] = bytes(high - low)
        log_of(folder).write_bytes(written[: data.draw(st.integers(size, len(written)))])
        (folder / "synced").write_bytes(mark_bytes(data.draw(st.integers(0, synced)), SEED))
        after = contents(folder)
        assert after[:synced] == held
        assert [record.offset for record in after] == list(range(len(after)))


def test_a_tail_of_zeros_is_cut_off(tmp_path: Path) -> None:
    held = small_journal(tmp_path, [2])
    with log_of(tmp_path).open("ab") as file:
        file.write(bytes(5000))
    assert contents(tmp_path) == held


def test_every_flipped_byte_of_the_small_files(tmp_path: Path) -> None:
    held = small_journal(tmp_path, [2, 2])
    image = Image(tmp_path)
    for name in ("journal.toml", "synced"):
        for position in range(len(image.files[tmp_path / name])):
            for bits in (0xFF, 0x01, 0x20):
                flip(image.restore() / name, position, bits)
                assert outcome(tmp_path) in (None, held), (name, position)


def test_every_flipped_byte_of_a_segment_is_noticed(tmp_path: Path) -> None:
    held = small_journal(tmp_path, [4])
    with Journal.open(tmp_path) as journal:
        journal.roll()
    assert contents(tmp_path) == held
    image = Image(tmp_path)
    for position in range(0, segments_of(tmp_path)[0].stat().st_size, _STRIDE):
        flip(segments_of(image.restore())[0], position)
        assert outcome(tmp_path) is None, position


def rearranged(order: list[int]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        stops = [FILE_HEADER, *ends(folder)]
        data = log_of(folder).read_bytes()
        parts = [data[stops[at] : stops[at + 1]] for at in order]
        log_of(folder).write_bytes(data[:FILE_HEADER] + b"".join(parts))

    return change


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 1, 2, 3], [0, 2, 3], [1, 2, 3], [0, 1, 2], [3, 2, 1, 0], []])
def test_records_that_were_moved_doubled_or_taken_away(tmp_path: Path, order: list[int]) -> None:
    small_journal(tmp_path, [1, 1, 1, 1])
    rearranged(order)(tmp_path)
    assert outcome(tmp_path) is None


def test_records_of_another_journal(tmp_path: Path) -> None:
    small_journal(tmp_path / "a", [1, 1])
    with Journal.open(tmp_path / "b", salt=b"other") as journal:
        journal.commit([small(0), small(1)], NOW)
    shutil.copy(log_of(tmp_path / "b"), log_of(tmp_path / "a"))
    assert outcome(tmp_path / "a") is None


def test_a_record_from_another_past_of_the_same_journal(tmp_path: Path) -> None:
    """Same name, salt and offset, sound in itself: it does not follow from what stands before it."""
    logs = []
    for past in ("a", "b"):
        with Journal.open(tmp_path / past) as journal:
            journal.commit([Operation.control(past)], NOW)
            journal.commit([small(1)], NOW)
        logs.append(log_of(tmp_path / past).read_bytes())
    stop = ends(tmp_path / "a")[0]
    log_of(tmp_path / "a").write_bytes(logs[0][:stop] + logs[1][stop:])
    with pytest.raises(JournalDamagedError, match="does not follow from the one before it"):
        contents(tmp_path / "a")


def test_a_record_inside_a_payload_is_not_taken_for_one(tmp_path: Path) -> None:
    """Whoever knows the format but not the salt cannot make an unfinished write look like damage."""
    small_journal(tmp_path / "other", [1, 1, 1])
    forged = log_of(tmp_path / "other").read_bytes()[FILE_HEADER:]
    with Journal.open(tmp_path / "a", salt=b"not to be guessed") as journal:
        held = fill(journal, 1)
        journal.commit([Operation.control("k", payload=forged * 2)], NOW)
    (tmp_path / "a" / "synced").write_bytes(mark_bytes(1, JournalManifest("journal", b"not to be guessed").seed))
    os.truncate(log_of(tmp_path / "a"), log_of(tmp_path / "a").stat().st_size - 40)
    assert contents(tmp_path / "a") == held


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=4)) as journal:
        fill(journal, 14)
    return tmp_path


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_segment_is_a_gap(three_segments: Path, gone: int) -> None:
    segments_of(three_segments)[gone].unlink()
    with pytest.raises(JournalDamagedError, match=f"offsets {gone * 4} to {gone * 4 + 3} are missing") as error:
        Journal.open(three_segments)
    assert error.value.offset == gone * 4


def test_a_missing_folder(three_segments: Path) -> None:
    shutil.rmtree(three_segments / "snapshots")
    assert len(contents(three_segments)) == 14
    shutil.rmtree(three_segments / "segments")
    with pytest.raises(JournalDamagedError, match="offsets 0 to 11 are missing"):
        Journal.open(three_segments)


def test_a_missing_log(three_segments: Path) -> None:
    log_of(three_segments).unlink()
    with pytest.raises(JournalDamagedError, match="there is no log"):
        Journal.open(three_segments)


def test_a_missing_identity(three_segments: Path) -> None:
    (three_segments / "journal.toml").unlink()
    for use in (Journal.open, JournalReader, repair, lambda folder: Journal.open(folder, create=False)):
        with pytest.raises(JournalDamagedError, match=r"journal.toml is missing, but there are records; put it back$"):
            use(three_segments)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 7), lambda path: flip(path, 3)])
def test_without_a_mark_nobody_knows_whether_the_end_is_there(tmp_path: Path, change: Callable[[Path], None]) -> None:
    small_journal(tmp_path, [1, 1])
    change(tmp_path / "synced")
    os.truncate(log_of(tmp_path), ends(tmp_path)[0])  # a whole record is gone, and nothing in the log says so
    with pytest.raises(JournalDamagedError, match="nobody can tell whether the log is whole"):
        Journal.open(tmp_path)
    with pytest.raises(JournalDamagedError, match="nobody can tell what is durable"):
        list(JournalReader(tmp_path).read())


def test_a_snapshot_in_the_place_of_a_log_is_no_newer_format(tmp_path: Path) -> None:
    small_journal(tmp_path, [2])
    with Journal.open(tmp_path) as journal:
        journal.write_snapshot(0, b"state")
    shutil.copy(next((tmp_path / "snapshots").iterdir()), log_of(tmp_path))
    with pytest.raises(JournalDamagedError, match="is no log"):
        Journal.open(tmp_path)


def test_a_mark_in_the_place_of_the_floor(three_segments: Path) -> None:
    shutil.copy(three_segments / "synced", three_segments / "first")
    with pytest.raises(JournalDamagedError, match="all before offset 14 is gone, but there are records from 0 on"):
        Journal.open(three_segments)
    assert str(repair(three_segments)) == "no record is lost; put aside: first; written anew: first"
    assert len(contents(three_segments)) == 14


def test_a_renamed_or_doubled_segment(three_segments: Path) -> None:
    one = segments_of(three_segments)[1]
    shutil.copy(one, one.with_name(one.name.replace("-", "-0")))
    with pytest.raises(JournalDamagedError, match="was it renamed"):
        Journal.open(three_segments)


def test_a_swapped_segment(three_segments: Path) -> None:
    first, second, _ = segments_of(three_segments)
    shutil.copy(first, second)
    with Journal.open(three_segments) as journal, pytest.raises(JournalDamagedError) as error:
        list(journal.read())
    assert error.value.offset == 4
    assert error.value.path == second


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    path = tmp_path / "journal.toml"
    path.write_text(path.read_text().replace("format = 1", "format = 2"))
    with pytest.raises(JournalVersionError, match="says format 2; this version of Tidings reads 1"):
        Journal.open(tmp_path)


def test_damage_is_reported_with_file_offset_and_byte(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    flip(log_of(tmp_path), FILE_HEADER + RECORD_HEADER + 2)
    with pytest.raises(JournalDamagedError, match=r"damaged at byte 36, offset 0: the body .*repair") as error:
        Journal.open(tmp_path)
    assert (error.value.path, error.value.offset, error.value.position) == (log_of(tmp_path), 0, FILE_HEADER)


def test_damage_while_it_is_open_is_noticed_by_reading_and_rolling(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        fill(journal, 3)
        flip(log_of(tmp_path), FILE_HEADER + RECORD_HEADER + 2)
        with pytest.raises(JournalDamagedError):
            journal.verify()
        with pytest.raises(JournalDamagedError):
            journal.roll()
        journal.commit([publication(3)], NOW)


def test_a_reader_of_a_journal_without_a_log_says_so(tmp_path: Path) -> None:
    small_journal(tmp_path, [4])
    with Journal.open(tmp_path) as journal:
        journal.roll()
    reader = JournalReader(tmp_path)
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    with pytest.raises(JournalDamagedError, match="there is no log"):
        list(reader.read())

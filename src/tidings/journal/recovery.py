"""Recovery: bring a journal's folder into a known state when it is opened, before anything is appended.

Rules:
1. An unfinished write at the end was never acknowledged; it is cut off, with a note.
2. Everything else that differs from what was written is damage: recovery raises a `JournalDamagedError` and changes
   nothing more.

Theory of operation: the first invalid record of the last log is an unfinished write or damage, depending on whether it
had been synced. The sync mark says up to which offset the journal was synced; it may be too low after a power failure.
So the records behind the broken one are searched as well: each contains the offset that was synced when it was written
(`check_end_is_unsynced`).
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.journal import log, segment
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage_error
from tidings.journal.disk import Disk, is_temporary
from tidings.journal.log import FILE_HEADER, BrokenLogError, LogPosition, find_headers, read_file_header, read_records
from tidings.journal.manifest import JournalManifest
from tidings.journal.segment import SegmentName, check_segment, read_ends
from tidings.journal.sync import FILE as MARK_FILE
from tidings.journal.sync import mark_bytes, read_mark
from tidings.model.errors import JournalDamagedError

FLOOR_FILE = "first"


class ClosedFile(msgspec.Struct, frozen=True):
    """A file that no longer grows: a segment, or a closed log that is not yet rolled."""

    path: Path
    first: int
    next: int

    @property
    def is_log(self) -> bool:
        """Whether the file is a log, not a segment."""
        return self.path.suffix == log.SUFFIX


class FolderState(NamedTuple):
    """The result of recovery: the closed files in order, the log to append to, and messages for the operator."""

    parts: list[ClosedFile]
    path: Path
    first: int
    place: LogPosition
    size: int
    notes: list[str]


def recover(folder: Path, identity: JournalManifest, disk: Disk) -> FolderState:
    """Recover the journal in a folder and return its state; raise a `JournalDamagedError` if it is damaged."""
    notes: list[str] = []
    remove_temporary_files(folder, disk)
    segments, logs = list_segments(folder), list_logs(folder)
    segments, logs = _resolve_duplicates(segments, logs, disk, notes)
    if not logs:
        raise damage_error(f"{folder}: there is no log in {folder / LOGS}", folder)
    _check_gaps(folder, segments, logs, identity.seed)
    place: LogPosition | None = None
    if segments:
        path = segments[-1].path
        with path.open("rb") as stream:
            check_segment(stream, path, segment_name(path))
            place = read_ends(stream, path, segment_name(path), identity.name, identity.seed).after
    parts = segments
    for path in logs[:-1]:
        scan = scan_log(path, identity.seed, place)
        if scan.broken is not None:
            raise log_damage_error(path, scan.broken)
        parts = [*parts, ClosedFile(path, scan.start.offset, scan.place.offset)]
        place = scan.place
    mark = read_mark(folder, identity.seed)
    if mark is None:
        path = folder / MARK_FILE
        raise damage_error(f"{path}: missing or damaged; without it nobody can tell whether the log is whole", path)
    scan = scan_log(logs[-1], identity.seed, place, mark)
    size = _truncate_and_sync(logs[-1], scan, mark, identity.seed, disk, notes)
    return FolderState(parts, logs[-1], scan.start.offset, scan.place, size, notes)


class LogScan(NamedTuple):
    """The result of reading a whole log: how far it is valid, and the error there, if any."""

    start: LogPosition
    place: LogPosition
    end: int  # the byte after the last valid record
    synced_end: int  # the byte after the last record below the sync mark
    broken: BrokenLogError | None


def scan_log(path: Path, seed: int, follows: LogPosition | None, mark: int | None = None) -> LogScan:
    """Read a whole log.

    Args:
        path: The log.
        seed: The seed of the journal's checksums.
        follows: The position at which the file before it ended, or None if it is unknown.
        mark: The offset of the sync mark, to find which records it covers.

    Raises:
        JournalDamagedError: The file header is damaged, or the log does not continue the file before it.
    """
    with path.open("rb") as stream:
        place = start = read_file_header(stream, path, seed)
        if follows is not None and start != follows:
            raise damage_error(
                f"{path}: starts at offset {start.offset}, but the part before it ends at {follows.offset} with "
                f"another record; a file is missing or another journal's",
                path,
                follows.offset,
            )
        end = synced_end = FILE_HEADER
        broken = None
        try:
            for entry in read_records(stream, start, seed):
                place, end = LogPosition(entry.record.offset + 1, entry.record.timestamp, entry.check), entry.end
                if mark is not None and place.offset <= mark:
                    synced_end = end
        except BrokenLogError as error:
            broken = error
    return LogScan(start, place, end, synced_end, broken)


def log_damage_error(path: Path, broken: BrokenLogError) -> JournalDamagedError:
    """Return the `JournalDamagedError` for an invalid record of a log."""
    return damage_error(
        f"{path}: damaged at byte {broken.position:,}, offset {broken.offset}: {broken.reason}",
        path,
        broken.offset,
        broken.position,
    )


def segment_name(path: Path) -> SegmentName:
    """Return the parsed name of a segment; raise a `JournalDamagedError` if the name is not that of a segment."""
    name = SegmentName.of(path)
    if name is None:
        raise damage_error(f"{path}: not the name of a segment; was it renamed?", path)
    return name


def segment_paths(folder: Path) -> list[Path]:
    """Return the paths of all segments, sorted."""
    return sorted((folder / SEGMENTS).glob(f"*{segment.SUFFIX}"))


def list_segments(folder: Path) -> list[ClosedFile]:
    """Return all segments in the order of their offsets."""
    parts = []
    for path in segment_paths(folder):
        name = segment_name(path)
        parts.append(ClosedFile(path, name.first, name.next))
    return sorted(parts, key=lambda part: (part.first, part.next))


def list_logs(folder: Path) -> list[Path]:
    """Return the paths of all logs in the order of their offsets."""
    return sorted((folder / LOGS).glob(f"*{log.SUFFIX}"))


def log_first_offset(path: Path) -> int:
    """Return the first offset in the name of a log; raise a `JournalDamagedError` if the name is not that of a log."""
    if not path.stem.isdecimal() or len(path.stem) != 20:
        raise damage_error(f"{path}: not the name of a log; was it renamed?", path)
    return int(path.stem)


def read_floor(folder: Path, seed: int) -> int:
    """Return the offset below which retention has removed all records."""
    path = folder / FLOOR_FILE
    if not path.exists():
        return 0
    data = path.read_bytes()
    floor = int.from_bytes(data[:8], "little")
    if data != mark_bytes(floor, seed):
        raise damage_error(f"{path}: damaged; it says up to where retention has removed records", path)
    return floor


def floor_above_records(folder: Path, floor: int, first: int) -> JournalDamagedError:
    """Return the error for a floor that is above existing records."""
    path = folder / FLOOR_FILE
    return damage_error(
        f"{path}: says that all before offset {floor} is gone, but there are records from {first} on", path
    )


def remove_temporary_files(folder: Path, disk: Disk) -> None:
    """Delete the temporary files that a crash left; nothing depends on them."""
    for subfolder in (folder, *(folder / name for name in (LOGS, SEGMENTS, SNAPSHOTS))):
        subfolder.mkdir(exist_ok=True)  # a copied journal may lack empty folders
        for path in subfolder.iterdir():
            if is_temporary(path):
                disk.remove(path)


def _resolve_duplicates(
    segments: list[ClosedFile], logs: list[Path], disk: Disk, notes: list[str]
) -> tuple[list[ClosedFile], list[Path]]:
    """Delete one of a log and its segment if both exist after a crash in rolling: the segment if it is damaged."""
    rolled = {part.first: part for part in segments}
    remaining_logs = []
    for path in logs:
        part = rolled.get(log_first_offset(path))
        if part is None:
            remaining_logs.append(path)
            continue
        try:
            with part.path.open("rb") as stream:
                check_segment(stream, part.path, segment_name(part.path))
        except JournalDamagedError:
            notes.append(f"{part.path.name} was damaged; its log is still there and is kept instead")
            disk.delete(part.path)
            segments = [other for other in segments if other is not part]
            remaining_logs.append(path)
        else:
            notes.append(f"{path.name} had been rolled into {part.path.name} and is removed")
            disk.delete(path)
    return segments, remaining_logs


def _check_gaps(folder: Path, segments: list[ClosedFile], logs: list[Path], seed: int) -> None:
    """Raise a `JournalDamagedError` unless the offsets in the file names are consecutive from the floor on."""
    floor = read_floor(folder, seed)
    first = segments[0].first if segments else log_first_offset(logs[0])
    follows = [*(part.next for part in segments), *map(log_first_offset, logs[1:])]
    if floor > first and floor not in follows[:1]:
        raise floor_above_records(
            folder, floor, first
        )  # a crash during retention leaves at most one file below the floor
    if first > floor:
        raise damage_error(f"{folder}: offsets {floor} to {first - 1} are missing: a file is gone", folder, floor)
    starts = [*(part.first for part in segments), log_first_offset(logs[0])]
    for part, start in zip(segments, starts[1:], strict=True):
        if part.next != start:
            what = "are missing: a file is gone" if part.next < start else "stand in two files"
            low, high = sorted((part.next, start))
            raise damage_error(f"{folder}: offsets {low} to {high - 1} {what}", folder, low)


def _truncate_and_sync(path: Path, scan: LogScan, mark: int, seed: int, disk: Disk, notes: list[str]) -> int:
    """Cut off an unfinished write at the end of the last log, make the rest durable, and return the log's size."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if scan.broken is not None:
            check_end_is_unsynced(path, scan, mark, seed)
            notes.append(
                f"an unfinished write of {size - scan.end:,} bytes behind offset {scan.place.offset - 1} was cut off; "
                "it was never acknowledged"
            )
            disk.truncate(fd, scan.end)
        elif mark > scan.place.offset:
            raise _synced_records_missing(path, scan, mark)
        if scan.synced_end < scan.end:
            # A failed fsync of the earlier process may have marked these pages clean although they are not on the disk.
            # Writing them again makes the next fsync effective.
            disk.overwrite(fd, os.pread(fd, scan.end - scan.synced_end, scan.synced_end), scan.synced_end)
        if scan.broken is not None or scan.synced_end < scan.end:
            disk.sync(fd)
    finally:
        os.close(fd)
    return scan.end


def check_end_is_unsynced(path: Path, scan: LogScan, mark: int | None, seed: int) -> None:
    """Return if the invalid end of a log was never synced; raise a `JournalDamagedError` otherwise.

    It also raises if it is unknown whether that end was synced.

    Args:
        path: The log.
        scan: The result of `scan_log` with an invalid record.
        mark: The offset of the sync mark, or None if it is lost.
        seed: The seed of the journal's checksums.
    """
    broken = scan.broken
    assert broken is not None  # noqa: S101 - the caller has looked
    if mark is not None and mark > broken.offset:
        raise log_damage_error(path, broken)
    with path.open("rb") as stream:
        stream.seek(scan.end)
        rest = stream.read()
    for header in find_headers(rest, scan.end, seed):
        # Without a mark, any valid record behind the broken one means damage. With a mark, a power failure may have
        # written the pages of one unsynced group in any order: only a record written after a later sync proves damage.
        if header.synced > broken.offset or (mark is None and header.position > broken.position):
            raise log_damage_error(path, broken)


def _synced_records_missing(path: Path, scan: LogScan, mark: int) -> JournalDamagedError:
    return damage_error(
        f"{path}: offsets {scan.place.offset} to {mark - 1} were synced and are no longer there",
        path,
        scan.place.offset,
        scan.end,
    )

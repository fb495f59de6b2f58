"""Recovery: what a folder holds, told exactly, before anything is appended to it.

An unfinished write at the end was never acknowledged and is cut off, with a note. Everything else that is not as it
was written is damage, and stops here. Which of the two it is, is told by what is known to have been synced: by the
mark, and by the records behind the broken one, each of which says what was synced when it was written.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.journal import log, segment
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage
from tidings.journal.disk import Disk, is_temporary
from tidings.journal.identity import Identity
from tidings.journal.log import FILE_HEADER, BrokenLogError, Place, find_headers, read_file_header, read_records
from tidings.journal.mark import FILE as MARK_FILE
from tidings.journal.mark import mark_bytes, read_mark
from tidings.journal.segment import SegmentName, check_segment, read_ends
from tidings.model.errors import JournalDamagedError

FLOOR_FILE = "first"


class Part(msgspec.Struct, frozen=True):
    """A file that no longer grows: a segment, or a log that is still to be rolled into one."""

    path: Path
    first: int
    next: int

    @property
    def is_log(self) -> bool:
        return self.path.suffix == log.SUFFIX


class State(NamedTuple):
    """What was found: the parts in order, the log that is appended to, and what there is to tell."""

    parts: list[Part]
    path: Path
    first: int
    place: Place
    size: int
    notes: list[str]


def recover(folder: Path, identity: Identity, disk: Disk) -> State:
    notes: list[str] = []
    sweep(folder, disk)
    segments, logs = list_segments(folder), list_logs(folder)
    segments, logs = _settled(segments, logs, disk, notes)
    if not logs:
        raise damage(f"{folder}: there is no log in {folder / LOGS}", folder)
    _check_gaps(folder, segments, logs, identity.seed)
    place: Place | None = None
    if segments:
        path = segments[-1].path
        with path.open("rb") as stream:
            check_segment(stream, path, name_of(path))
            place = read_ends(stream, path, name_of(path), identity.name, identity.seed).after
    parts = segments
    for path in logs[:-1]:
        scan = scan_log(path, identity.seed, place)
        if scan.broken is not None:
            raise damaged(path, scan.broken)
        parts = [*parts, Part(path, scan.start.offset, scan.place.offset)]
        place = scan.place
    mark = read_mark(folder, identity.seed)
    if mark is None:
        path = folder / MARK_FILE
        raise damage(f"{path}: missing or damaged; without it nobody can tell whether the log is whole", path)
    scan = scan_log(logs[-1], identity.seed, place, mark)
    size = _finished(logs[-1], scan, mark, identity.seed, disk, notes)
    return State(parts, logs[-1], scan.start.offset, scan.place, size, notes)


class Scan(NamedTuple):
    """What a log holds: up to where it is sound, and what is wrong there, if anything is."""

    start: Place
    place: Place
    end: int  # the byte behind the last sound record
    unsynced: int  # the byte behind the last record that the mark vouches for
    broken: BrokenLogError | None


def scan_log(path: Path, seed: int, follows: Place | None, mark: int | None = None) -> Scan:
    """Reads a whole log; `follows` is where the part before it ended."""
    with path.open("rb") as stream:
        place = start = read_file_header(stream, path, seed)
        if follows is not None and start != follows:
            raise damage(
                f"{path}: starts at offset {start.offset}, but the part before it ends at {follows.offset} with "
                f"another record; a file is missing or another journal's",
                path,
                follows.offset,
            )
        end = unsynced = FILE_HEADER
        broken = None
        try:
            for found in read_records(stream, start, seed):
                place, end = Place(found.record.offset + 1, found.record.timestamp, found.check), found.end
                if mark is not None and place.offset <= mark:
                    unsynced = end
        except BrokenLogError as error:
            broken = error
    return Scan(start, place, end, unsynced, broken)


def damaged(path: Path, broken: BrokenLogError) -> JournalDamagedError:
    return damage(
        f"{path}: damaged at byte {broken.position:,}, offset {broken.offset}: {broken.reason}",
        path,
        broken.offset,
        broken.position,
    )


def name_of(path: Path) -> SegmentName:
    name = SegmentName.of(path)
    if name is None:
        raise damage(f"{path}: not the name of a segment; was it renamed?", path)
    return name


def segment_paths(folder: Path) -> list[Path]:
    return sorted((folder / SEGMENTS).glob(f"*{segment.SUFFIX}"))


def list_segments(folder: Path) -> list[Part]:
    parts = []
    for path in segment_paths(folder):
        name = name_of(path)
        parts.append(Part(path, name.first, name.next))
    return sorted(parts, key=lambda part: (part.first, part.next))


def list_logs(folder: Path) -> list[Path]:
    return sorted((folder / LOGS).glob(f"*{log.SUFFIX}"))


def first_of(path: Path) -> int:
    """The offset that a log's name says."""
    if not path.stem.isdecimal() or len(path.stem) != 20:
        raise damage(f"{path}: not the name of a log; was it renamed?", path)
    return int(path.stem)


def read_floor(folder: Path, seed: int) -> int:
    """The offset below which retention has taken away what there was."""
    path = folder / FLOOR_FILE
    if not path.exists():
        return 0
    data = path.read_bytes()
    floor = int.from_bytes(data[:8], "little")
    if data != mark_bytes(floor, seed):
        raise damage(f"{path}: damaged; it says up to where retention has removed records", path)
    return floor


def strange_floor(folder: Path, floor: int, first: int) -> JournalDamagedError:
    path = folder / FLOOR_FILE
    return damage(f"{path}: says that all before offset {floor} is gone, but there are records from {first} on", path)


def sweep(folder: Path, disk: Disk) -> None:
    """Removes what a crash left unfinished; nothing ever relied on it."""
    for place in (folder, *(folder / one for one in (LOGS, SEGMENTS, SNAPSHOTS))):
        place.mkdir(exist_ok=True)  # a copy of a journal may have left out what is empty
        for path in place.iterdir():
            if is_temporary(path):
                disk.remove(path)


def _settled(segments: list[Part], logs: list[Path], disk: Disk, notes: list[str]) -> tuple[list[Part], list[Path]]:
    """A crash between writing a segment and deleting its log leaves both: one of them goes."""
    rolled = {part.first: part for part in segments}
    kept = []
    for path in logs:
        part = rolled.get(first_of(path))
        if part is None:
            kept.append(path)
            continue
        try:
            with part.path.open("rb") as stream:
                check_segment(stream, part.path, name_of(part.path))
        except JournalDamagedError:
            notes.append(f"{part.path.name} was damaged; its log is still there and is kept instead")
            disk.delete(part.path)
            segments = [one for one in segments if one is not part]
            kept.append(path)
        else:
            notes.append(f"{path.name} had been rolled into {part.path.name} and is removed")
            disk.delete(path)
    return segments, kept


def _check_gaps(folder: Path, segments: list[Part], logs: list[Path], seed: int) -> None:
    """By the names alone: what follows must start where the one before it ends."""
    floor = read_floor(folder, seed)
    first = segments[0].first if segments else first_of(logs[0])
    follows = [*(part.next for part in segments), *map(first_of, logs[1:])]
    if floor > first and floor not in follows[:1]:
        raise strange_floor(folder, floor, first)  # a crash while retention removes a file leaves that one, no more
    if first > floor:
        raise damage(f"{folder}: offsets {floor} to {first - 1} are missing: a file is gone", folder, floor)
    starts = [*(part.first for part in segments), first_of(logs[0])]
    for part, start in zip(segments, starts[1:], strict=True):
        if part.next != start:
            what = "are missing: a file is gone" if part.next < start else "stand in two files"
            low, high = sorted((part.next, start))
            raise damage(f"{folder}: offsets {low} to {high - 1} {what}", folder, low)


def _finished(path: Path, scan: Scan, mark: int, seed: int, disk: Disk, notes: list[str]) -> int:
    """Cuts off what was never finished and makes the rest durable; the size of the log."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if scan.broken is not None:
            torn_or_damaged(path, scan, mark, seed)
            notes.append(
                f"an unfinished write of {size - scan.end:,} bytes behind offset {scan.place.offset - 1} was cut off; "
                "it was never acknowledged"
            )
            disk.truncate(fd, scan.end)
        elif mark > scan.place.offset:
            raise _lost(path, scan, mark)
        if scan.unsynced < scan.end:
            # Whoever wrote it may have been told by a failed fsync that it is not on the disk, and the system
            # then takes the pages for clean: writing them again makes the next fsync mean something.
            disk.overwrite(fd, os.pread(fd, scan.end - scan.unsynced, scan.unsynced), scan.unsynced)
        if scan.broken is not None or scan.unsynced < scan.end:
            disk.sync(fd)
    finally:
        os.close(fd)
    return scan.end


def torn_or_damaged(path: Path, scan: Scan, mark: int | None, seed: int) -> None:
    """Returns if the broken end of the log was never synced; raises if it was, or if nobody can tell."""
    broken = scan.broken
    assert broken is not None  # noqa: S101 - the caller has looked
    if mark is not None and mark > broken.offset:
        raise damaged(path, broken)
    with path.open("rb") as stream:
        stream.seek(scan.end)
        rest = stream.read()
    for header in find_headers(rest, scan.end, seed):
        # Without a mark any record behind it speaks for damage. With one, a power cut may have let the pages of
        # one unsynced group reach the disk in any order: only a record written after a later sync proves damage.
        if header.synced > broken.offset or (mark is None and header.position > broken.position):
            raise damaged(path, broken)


def _lost(path: Path, scan: Scan, mark: int) -> JournalDamagedError:
    return damage(
        f"{path}: offsets {scan.place.offset} to {mark - 1} were synced and are no longer there",
        path,
        scan.place.offset,
        scan.end,
    )

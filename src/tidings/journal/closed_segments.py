"""The closed files of a journal, which no longer grow: rolling logs into segments, retention, and reading."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tidings.journal import log
from tidings.journal.damage import SEGMENTS, damage_error
from tidings.journal.disk import FULL, Disk
from tidings.journal.log import FILE_HEADER, BrokenLogError, LogPosition
from tidings.journal.manifest import JournalManifest
from tidings.journal.record import Record
from tidings.journal.recovery import FLOOR_FILE, ClosedFile, log_damage_error, scan_log, segment_name
from tidings.journal.segment import check_segment, read_ends, read_segment, write_segment
from tidings.journal.sync import mark_bytes
from tidings.model.errors import InvalidValueError

DAY = 86_400_000_000  # microseconds


class Retention(msgspec.Struct, frozen=True):
    """How much of a journal to keep: records of so many days, and files of so many bytes. None means no limit."""

    days: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("days", self.days), ("bytes", self.bytes)):
            if value is not None and not 0 <= value < float("inf"):
                raise InvalidValueError(f"retention: {name} is a number from 0 on, not {value}")

    def limits(self, now: int) -> tuple[int | None, int | None]:
        """Return the arguments of `Journal.retain`: the time before which records may go, and the bytes."""
        return (None if self.days is None else max(0, now - int(self.days * DAY))), self.bytes


class Candidate(NamedTuple):
    """A file that retention may remove: its end offset, the timestamp of its last record, and its size."""

    next: int
    timestamp: int
    size: int


def files_to_remove(
    oldest_first: Iterable[Candidate], limit: int, total: int, before_timestamp: int | None, max_bytes: int | None
) -> int:
    """Return how many of the oldest files to remove, because they are too old or the total is too large.

    Removal stops at the first file that must stay.

    Args:
        oldest_first: The files in the order of their offsets.
        limit: The offset up to which files may be removed.
        total: The size of all files together, in bytes.
        before_timestamp: Files that end before this time are too old; None for no limit.
        max_bytes: The total size to reach; None for no limit.
    """
    count = 0
    for candidate in oldest_first:
        too_old = before_timestamp is not None and candidate.timestamp < before_timestamp
        too_much = max_bytes is not None and total > max_bytes
        if candidate.next > limit or not (too_old or too_much):
            break
        total -= candidate.size
        count += 1
    return count


class ClosedSegments:
    """The closed files of one journal. Any thread may read; `add`, `roll` and `retain` must run one at a time."""

    def __init__(self, folder: Path, identity: JournalManifest, disk: Disk, parts: list[ClosedFile]) -> None:
        self._folder, self._identity, self._disk = folder, identity, disk
        self._parts = parts  # replaced as a whole, so that readers need no lock
        self._changing = threading.Lock()
        self._checked: set[Path] = set()  # segments with a verified checksum

    @property
    def parts(self) -> list[ClosedFile]:
        """The closed files, in the order of their offsets."""
        return self._parts

    @property
    def size(self) -> int:
        """The size of all closed files in bytes."""
        return sum(size_of(part.path) for part in self._parts)

    def add(self, part: ClosedFile) -> None:
        """Add a log that has just been closed."""
        with self._changing:
            self._parts = [*self._parts, part]

    def open(self, offset: int) -> tuple[ClosedFile, BinaryIO] | None:
        """Open the file that contains an offset; None if no closed file does.

        The open file can be read to its end even if retention removes it meanwhile.
        """
        with self._changing:
            part = next((part for part in self._parts if part.next > offset), None)
            return None if part is None else (part, part.path.open("rb"))

    def read(self, part: ClosedFile, stream: BinaryIO, offset: int) -> Iterator[Record]:
        """Yield the records of a closed file from an offset on.

        A segment is verified completely before it is read for the first time.
        """
        if part.is_log:
            yield from read_log(part.path, stream, offset, self._identity.seed)
            return
        name = segment_name(part.path)
        if part.path not in self._checked:
            check_segment(stream, part.path, name)
            read_ends(stream, part.path, name, self._identity.name, self._identity.seed)
            self._checked.add(part.path)
        yield from read_segment(stream, part.path, name, offset)

    def roll(self) -> None:
        """Roll all closed logs into segments.

        A log is deleted once its segment is durable and was read back successfully.
        """
        for part in self._parts:
            if not part.is_log:
                continue
            path = self._roll_log(part)
            with self._changing:
                self._parts = [
                    ClosedFile(path, part.first, part.next) if other is part else other for other in self._parts
                ]
            with contextlib.suppress(OSError):  # otherwise the next opening of the journal deletes it
                self._disk.delete(part.path)

    def retain(self, limit: int, total: int, before_timestamp: int | None, max_bytes: int | None) -> int:
        """Remove the oldest closed files that are too old or exceed the size limit, and return how many were removed.

        Logs are removed as well: on a full disk there may be no room to roll them.

        Args:
            limit: The offset up to which files may be removed.
            total: The size of the whole journal in bytes.
            before_timestamp: Files that end before this time are too old; None for no limit.
            max_bytes: The size of the journal to reach; None for no limit.
        """
        parts = self._parts
        count = files_to_remove(map(self._candidate, parts), limit, total, before_timestamp, max_bytes)
        for part in parts[:count]:
            self._remove(part)
        return count

    def verify_all(self) -> None:
        """Check every segment again, byte by byte, and that each segment continues the one before it.

        Raises a `JournalDamagedError` at the first error.
        """
        self._checked.clear()
        place: LogPosition | None = None
        for part in self._parts:
            if part.is_log:
                continue
            with part.path.open("rb") as stream:
                name = segment_name(part.path)
                check_segment(stream, part.path, name)
                ends = read_ends(stream, part.path, name, self._identity.name, self._identity.seed)
            if place is not None and place != ends.before:
                raise damage_error(f"{part.path}: does not follow from the segment before it", part.path, part.first)
            place = ends.after

    def _roll_log(self, part: ClosedFile) -> Path:
        seed = self._identity.seed
        with part.path.open("rb") as stream:
            before = log.read_file_header(stream, part.path, seed)
            try:
                check = before.check
                for entry in log.read_records(stream, before, seed):
                    check = entry.check
                stream.seek(FILE_HEADER)
                records = (entry.record for entry in log.read_records(stream, before, seed))
                folder = self._folder / SEGMENTS
                return write_segment(folder, records, before, check, self._identity.name, seed, self._disk)
            except BrokenLogError as error:
                raise log_damage_error(part.path, error) from None

    def _candidate(self, part: ClosedFile) -> Candidate:
        if part.is_log:
            after = scan_log(part.path, self._identity.seed, None).place
        else:
            with part.path.open("rb") as stream:
                name = segment_name(part.path)
                after = read_ends(stream, part.path, name, self._identity.name, self._identity.seed).after
        return Candidate(part.next, after.timestamp, part.path.stat().st_size)

    def _remove(self, part: ClosedFile) -> None:
        """Remove a file. The floor is written first, so that a crash in between does not look like a missing file."""
        self._write_floor(part.next)
        with self._changing:
            self._parts = [other for other in self._parts if other is not part]
        self._disk.delete(part.path)

    def _write_floor(self, offset: int) -> None:
        path, data = self._folder / FLOOR_FILE, mark_bytes(offset, self._identity.seed)
        try:
            self._disk.create(path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            # Retention must work on a full disk: it has no room for a new file, but the old one can be overwritten.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._disk.overwrite(fd, data, 0)
                self._disk.sync(fd)
            finally:
                os.close(fd)


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if the file was removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_log(path: Path, stream: BinaryIO, offset: int, seed: int) -> Iterator[Record]:
    """Yield the records of a log from an offset on; raise a `JournalDamagedError` at a damaged record.

    Args:
        path: The path of the log.
        stream: The log, open at its beginning.
        offset: The first offset to yield.
        seed: The seed of the journal's checksums.
    """
    try:
        place = log.read_file_header(stream, path, seed)
        for entry in log.read_records(stream, place, seed):
            if entry.record.offset >= offset:
                yield entry.record
    except BrokenLogError as error:
        raise log_damage_error(path, error) from None

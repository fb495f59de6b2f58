"""The shelf: the files of a journal that no longer grow. Logs are rolled into segments here, and old segments go."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tidings.journal import log
from tidings.journal.damage import SEGMENTS, damage
from tidings.journal.disk import FULL, Disk
from tidings.journal.identity import Identity
from tidings.journal.log import FILE_HEADER, BrokenLogError, Place
from tidings.journal.mark import mark_bytes
from tidings.journal.record import Record
from tidings.journal.recovery import FLOOR_FILE, Part, damaged, name_of, scan_log
from tidings.journal.retention import Candidate, surplus
from tidings.journal.segment import check_segment, read_ends, read_segment, write_segment


class Shelf:
    """Reading may go on in any thread while one at a time adds, rolls and removes."""

    def __init__(self, folder: Path, identity: Identity, disk: Disk, parts: list[Part]) -> None:
        self._folder, self._identity, self._disk = folder, identity, disk
        self._parts = parts  # replaced as a whole
        self._changing = threading.Lock()
        self._checked: set[Path] = set()  # segments whose every byte has been looked at

    @property
    def parts(self) -> list[Part]:
        return self._parts

    @property
    def size(self) -> int:
        return sum(size_of(part.path) for part in self._parts)

    def add(self, part: Part) -> None:
        with self._changing:
            self._parts = [*self._parts, part]

    def open(self, offset: int) -> tuple[Part, BinaryIO] | None:
        """The file in which an offset stands: open, so that it can be read to its end even if it is removed."""
        with self._changing:
            part = next((one for one in self._parts if one.next > offset), None)
            return None if part is None else (part, part.path.open("rb"))

    def read(self, part: Part, stream: BinaryIO, offset: int) -> Iterator[Record]:
        if part.is_log:
            yield from read_log(part.path, stream, offset, self._identity.seed)
            return
        name = name_of(part.path)
        if part.path not in self._checked:
            check_segment(stream, part.path, name)
            read_ends(stream, part.path, name, self._identity.name, self._identity.seed)
            self._checked.add(part.path)
        yield from read_segment(stream, part.path, name, offset)

    def roll(self) -> None:
        """Turns logs into segments. A log goes when its segment is durable and has been read back."""
        for part in self._parts:
            if not part.is_log:
                continue
            path = self._rolled(part)
            with self._changing:
                self._parts = [Part(path, part.first, part.next) if one is part else one for one in self._parts]
            with contextlib.suppress(OSError):  # if it stays, the next opening removes it
                self._disk.delete(part.path)

    def retain(self, limit: int, total: int, before_timestamp: int | None, max_bytes: int | None) -> int:
        """Removes the oldest parts below the offset `limit` that are too old, or too much; how many.

        Logs go as well: on a full disk there may be no room to roll them.
        """
        parts = self._parts
        count = surplus(map(self._candidate, parts), limit, total, before_timestamp, max_bytes)
        for part in parts[:count]:
            self._remove(part)
        return count

    def distrust(self) -> None:
        """Has every segment looked at again, and checks that each goes on where the one before it ended."""
        self._checked.clear()
        place: Place | None = None
        for part in self._parts:
            if part.is_log:
                continue
            with part.path.open("rb") as stream:
                name = name_of(part.path)
                check_segment(stream, part.path, name)
                ends = read_ends(stream, part.path, name, self._identity.name, self._identity.seed)
            if place is not None and place != ends.before:
                raise damage(f"{part.path}: does not follow from the segment before it", part.path, part.first)
            place = ends.after

    def _rolled(self, part: Part) -> Path:
        seed = self._identity.seed
        with part.path.open("rb") as stream:
            before = log.read_file_header(stream, part.path, seed)
            try:
                check = before.check
                for found in log.read_records(stream, before, seed):
                    check = found.check
                stream.seek(FILE_HEADER)
                records = (found.record for found in log.read_records(stream, before, seed))
                folder = self._folder / SEGMENTS
                return write_segment(folder, records, before, check, self._identity.name, seed, self._disk)
            except BrokenLogError as error:
                raise damaged(part.path, error) from None

    def _candidate(self, part: Part) -> Candidate:
        if part.is_log:
            after = scan_log(part.path, self._identity.seed, None).place
        else:
            with part.path.open("rb") as stream:
                name = name_of(part.path)
                after = read_ends(stream, part.path, name, self._identity.name, self._identity.seed).after
        return Candidate(part.next, after.timestamp, part.path.stat().st_size)

    def _remove(self, part: Part) -> None:
        """First it is written down that the records may be missing, then they go."""
        self._write_floor(part.next)
        with self._changing:
            self._parts = [one for one in self._parts if one is not part]
        self._disk.delete(part.path)

    def _write_floor(self, offset: int) -> None:
        path, data = self._folder / FLOOR_FILE, mark_bytes(offset, self._identity.seed)
        try:
            self._disk.create(path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            # Where there is no room for a new file there may be room in the old one, and retention is to make room.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._disk.overwrite(fd, data, 0)
                self._disk.sync(fd)
            finally:
                os.close(fd)


def size_of(path: Path) -> int:
    """In bytes; nothing, if it has been removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_log(path: Path, stream: BinaryIO, offset: int, seed: int) -> Iterator[Record]:
    """The records of a log from an offset on."""
    try:
        place = log.read_file_header(stream, path, seed)
        for found in log.read_records(stream, place, seed):
            if found.record.offset >= offset:
                yield found.record
    except BrokenLogError as error:
        raise damaged(path, error) from None

"""The shelf: the files of a journal that no longer grow. Logs are rolled into segments here, and old segments go."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tidings.journal import log
from tidings.journal.damage import damage
from tidings.journal.disk import Disk
from tidings.journal.identity import Identity
from tidings.journal.log import FILE_HEADER, BrokenLogError, Place
from tidings.journal.mark import mark_bytes
from tidings.journal.record import Record
from tidings.journal.recovery import FLOOR_FILE, SEGMENTS, Part, damaged, name_of
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
        return sum(part.path.stat().st_size for part in self._parts)

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
        """Removes the oldest segments below the offset `limit` that are too old, or too much; how many."""
        removed = 0
        for part in self._parts:
            over = max_bytes is not None and total > max_bytes
            if part.is_log or part.next > limit or not (over or self._is_older(part, before_timestamp)):
                break
            total -= part.path.stat().st_size
            self._remove(part)
            removed += 1
        return removed

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

    def _is_older(self, part: Part, timestamp: int | None) -> bool:
        if timestamp is None:
            return False
        with part.path.open("rb") as stream:
            ends = read_ends(stream, part.path, name_of(part.path), self._identity.name, self._identity.seed)
        return ends.after.timestamp < timestamp

    def _remove(self, part: Part) -> None:
        """First it is written down that the records may be missing, then they go."""
        self._disk.create(self._folder / FLOOR_FILE, mark_bytes(part.next, self._identity.seed))
        with self._changing:
            self._parts = [one for one in self._parts if one is not part]
        self._disk.delete(part.path)


def read_log(path: Path, stream: BinaryIO, offset: int, seed: int) -> Iterator[Record]:
    """The records of a log from an offset on."""
    try:
        place = log.read_file_header(stream, path, seed)
        for found in log.read_records(stream, place, seed):
            if found.record.offset >= offset:
                yield found.record
    except BrokenLogError as error:
        raise damaged(path, error) from None

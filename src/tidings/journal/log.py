"""The log: the file that records are appended to, and how it is read.

Every record says where it stands, what was synced when it was written, and the check of the record before it; every
record can be told from garbage by itself. What is damaged and what was merely never finished is judged elsewhere
(`recovery`): here reading stops at the first record that is not as it must be.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tidings.journal.damage import damage
from tidings.journal.disk import Disk
from tidings.journal.record import Operation, Record, Span, decoded
from tidings.model.errors import InvalidValueError, JournalVersionError
from tidings.model.limits import MAX_INTEGER, MAX_RECORD_BYTES

MAGIC = b"TIDINGSJ"
VERSION = 1
MARKER = b"TdnR"
_FILE = struct.Struct("<8sIQQI")  # magic, version, first offset, timestamp and check of the record before
_RECORD = struct.Struct("<4sIQQQII")  # marker, length, offset, timestamp, synced, check before, check of the body
_CHECK = struct.Struct("<I")
_HEADER = struct.Struct("<4sIQQQIII")  # the record's, with its check
FILE_HEADER = _FILE.size + _CHECK.size
RECORD_HEADER = _RECORD.size + _CHECK.size
SUFFIX = ".log"


class Place(NamedTuple):
    """Where a log stands: the next offset, and the timestamp and check of the record before it."""

    offset: int
    timestamp: int
    check: int


class Found(NamedTuple):
    """A record as it was found, and where it ends in the file."""

    record: Record
    check: int
    end: int


class BrokenLogError(Exception):
    """The first record that is not as it must be: its offset, where it starts in the file, and what is wrong."""

    def __init__(self, offset: int, position: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.position, self.reason = offset, position, reason


def log_path(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}{SUFFIX}"


def file_header(place: Place, seed: int) -> bytes:
    data = _FILE.pack(MAGIC, VERSION, *place)
    return data + _CHECK.pack(zlib.crc32(data, seed))


def read_file_header(stream: BinaryIO, path: Path, seed: int) -> Place:
    data = stream.read(FILE_HEADER)
    if len(data) < FILE_HEADER or data[_FILE.size :] != _CHECK.pack(zlib.crc32(data[: _FILE.size], seed)):
        raise damage(f"{path}: the file's header is damaged, or the file is another journal's", path, position=0)
    magic, version, offset, timestamp, check = _FILE.unpack_from(data)
    if magic != MAGIC:  # the head of a snapshot has the same form, and its check is right
        raise damage(f"{path}: is no log, but another file of the journal", path, position=0)
    if version != VERSION:
        raise JournalVersionError(f"{path} is in format {version}; this version of Tidings reads {VERSION}", path)
    if path != log_path(path.parent, offset):
        raise damage(f"{path} starts at offset {offset}, which is not what its name says", path, offset)
    return Place(offset, timestamp, check)


def framed_size(bodies: Sequence[bytes]) -> int:
    return len(bodies) * RECORD_HEADER + sum(map(len, bodies))


def read_records(stream: BinaryIO, place: Place, seed: int) -> Iterator[Found]:
    """The records from the stream's position to its end; a `BrokenLogError` at the first that is not as it must be."""
    position = stream.tell()
    offset, before, previous = place
    while head := stream.read(RECORD_HEADER):
        length, timestamp, _, body_check, check = _checked(head, Place(offset, before, previous), position, seed)
        body = stream.read(length)
        if len(body) < length:
            raise BrokenLogError(offset, position, f"a record of {length:,} bytes ends after {len(body):,}")
        if zlib.crc32(body) != body_check:
            raise BrokenLogError(offset, position, "the body of a record is damaged")
        try:
            record = Record(offset, timestamp, decoded(body))
        except msgspec.MsgspecError as error:
            raise BrokenLogError(offset, position, f"a record that cannot be decoded: {error}") from None
        position += RECORD_HEADER + length
        yield Found(record, check, position)
        offset, before, previous = offset + 1, timestamp, check


class Rows(NamedTuple):
    """Records as three columns."""

    offsets: list[int]
    timestamps: list[int]
    operations: list[Operation]


def read_rows(stream: BinaryIO, step: "Step", end: int, most: int, seed: int) -> Iterator[Rows]:
    """As `read_records`, for those who read many: up to the offset `end`, so many at a time, with as little as possible
    done for each. It ends before `end` if the log does."""
    (offset, before, previous), position = step
    read, unpack, decode, crc32 = stream.read, _HEADER.unpack, decoded, zlib.crc32
    rows = Rows([], [], [])
    stream.seek(position)
    while offset < end and (head := read(RECORD_HEADER)):
        try:
            marker, length, found, timestamp, _, chained, body_check, check = unpack(head)
            body = read(length)
            if (
                (marker, found, chained, len(body)) != (MARKER, offset, previous, length)
                or timestamp <= before
                or crc32(head[: _RECORD.size], seed) != check
                or crc32(body) != body_check
            ):
                raise struct.error
            operation = decode(body)
        except (struct.error, msgspec.MsgspecError):
            stream.seek(position)  # what is wrong is told by the one who tells it better
            next(read_records(stream, Place(offset, before, previous), seed))
            raise
        rows.offsets.append(offset)
        rows.timestamps.append(timestamp)
        rows.operations.append(operation)
        position += RECORD_HEADER + length
        offset, before, previous = offset + 1, timestamp, check
        if len(rows.offsets) == most:
            yield rows
            rows = Rows([], [], [])
    if rows.offsets:
        yield rows


class Step(NamedTuple):
    """Where the next record starts in a log, and what it must follow from."""

    place: Place
    position: int


def hop(stream: BinaryIO, step: Step, end: int, every: int, seed: int) -> Iterator[Step]:
    """From header to header up to the offset `end`, looking at no body: a step after every so many, and the last one.

    The last one is before `end` if the log is; a `BrokenLogError` where a header is not as it must be.
    """
    (offset, before, previous), position = step
    first, read, unpack, crc32 = offset, stream.read, _HEADER.unpack, zlib.crc32
    stream.seek(position)
    while offset < end and (head := read(RECORD_HEADER)):
        place = offset, before, previous
        if len(head) == RECORD_HEADER:
            marker, length, found, timestamp, _, chained, _, check = unpack(head)
        if (
            len(head) < RECORD_HEADER
            or (marker, found, chained) != (MARKER, offset, previous)
            or check != crc32(head[: _RECORD.size], seed)
            or timestamp <= before
        ):
            _checked(head, Place(*place), position, seed)
        stream.seek(length, os.SEEK_CUR)
        position += RECORD_HEADER + length
        offset, before, previous = offset + 1, timestamp, check
        if offset % every == 0 and offset < end:
            yield Step(Place(offset, before, previous), position)
    if offset > first:
        yield Step(Place(offset, before, previous), position)


def _checked(head: bytes, place: Place, position: int, seed: int) -> tuple[int, int, int, int, int]:
    """Of a header: length, timestamp, synced, the check of the body and its own; or a `BrokenLogError`."""
    offset, before, previous = place
    if len(head) < RECORD_HEADER:
        raise BrokenLogError(offset, position, f"{len(head)} bytes where the header of a record should be")
    marker, length, found, timestamp, synced, chained, body_check, check = _unpacked(head)
    if marker != MARKER or check != zlib.crc32(head[: _RECORD.size], seed):
        raise BrokenLogError(offset, position, "the header of a record is damaged")
    if found != offset:
        raise BrokenLogError(offset, position, f"a record with offset {found} stands where {offset} should be")
    if chained != previous or timestamp <= before:
        raise BrokenLogError(offset, position, "the record does not follow from the one before it")
    return length, timestamp, synced, body_check, check


class Header(NamedTuple):
    """The header of a record that was found by looking for it."""

    position: int
    offset: int
    timestamp: int
    synced: int
    check: int
    body: bytes | None  # nothing if it is damaged or cut off


def find_headers(data: bytes, base: int, seed: int) -> Iterator[Header]:
    """Every sound header in a stretch of a file that starts at `base`, wherever it stands."""
    at = data.find(MARKER)
    while 0 <= at <= len(data) - RECORD_HEADER:
        head = data[at : at + RECORD_HEADER]
        _, length, offset, timestamp, synced, _, body_check, check = _unpacked(head)
        if check == zlib.crc32(head[: _RECORD.size], seed) and length <= MAX_RECORD_BYTES:
            body = data[at + RECORD_HEADER : at + RECORD_HEADER + length]
            sound = len(body) == length and zlib.crc32(body) == body_check
            yield Header(base + at, offset, timestamp, synced, check, body if sound else None)
        at = data.find(MARKER, at + 1)


def _unpacked(head: bytes) -> tuple[bytes, int, int, int, int, int, int, int]:
    return _HEADER.unpack(head)


class LogWriter:
    """The one file that grows. Not thread-safe: the journal guards it."""

    def __init__(self, path: Path, first: int, place: Place, size: int, seed: int, disk: Disk) -> None:
        """Goes on at the end of a file of that size, where the journal stands at `place`."""
        self.path, self.first, self.place, self.size = path, first, place, size
        self.untidy = False  # part of a record may stand at the end, and could not be taken away
        self._seed, self._disk = seed, disk
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @classmethod
    def create(cls, folder: Path, place: Place, seed: int, disk: Disk) -> "LogWriter":
        path = log_path(folder, place.offset)
        disk.create(path, file_header(place, seed))
        return cls(path, place.offset, place, FILE_HEADER, seed, disk)

    def append(self, bodies: Sequence[bytes], now: int, synced: int) -> Span:
        """Written, not synced. After an `OSError` nothing of it is in the file, unless `untidy` says so."""
        offset, before, check = self.place
        timestamp = first = max(now, before + 1)
        if first + len(bodies) > MAX_INTEGER:
            raise InvalidValueError("now: the journal's time has come to its end")
        pack, check_of, crc32, seed = _RECORD.pack, _CHECK.pack, zlib.crc32, self._seed
        written: list[bytes] = []
        for body in bodies:
            head = pack(MARKER, len(body), offset, timestamp, synced, check, crc32(body))
            check = crc32(head, seed)
            written += head, check_of(check), body
            offset, timestamp = offset + 1, timestamp + 1
        data = b"".join(written)
        place = Place(offset, timestamp - 1, check) if bodies else self.place
        span = Span(self.place.offset, offset, first)
        try:
            self._disk.write(self.fd, data)
        except BaseException:
            # Also when it is interrupted: what was written in part must not stand in front of the next record.
            self.untidy = True
            self._disk.truncate(self.fd, self.size)
            self.untidy = False
            raise
        self.place = place
        self.size += len(data)
        return span

    def sync(self) -> None:
        self._disk.sync(self.fd)

    def close(self) -> None:
        os.close(self.fd)

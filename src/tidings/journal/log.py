"""The log: the format of the file to which records are appended, its writer and its readers.

A record's header contains its offset and timestamp, the offset that was synced when it was written, the checksum of the
header before it (a chain), and checksums of its body and of itself. So a record can be recognised without its
surroundings, and two logs cannot be mixed up.

Reading stops with a `BrokenLogError` at the first record that is invalid. Whether that is damage or an unfinished write
is decided in `recovery`.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tidings.journal.damage import damage_error
from tidings.journal.disk import Disk
from tidings.journal.record import Operation, Record, Span, decode_operation
from tidings.model.errors import InvalidValueError, JournalVersionError
from tidings.model.limits import MAX_INTEGER, MAX_RECORD_BYTES

MAGIC = b"TIDINGSJ"
VERSION = 1
MARKER = b"TdnR"
_FILE = struct.Struct("<8sIQQI")  # magic, version, first offset, timestamp and checksum of the record before
_RECORD = struct.Struct("<4sIQQQII")  # marker, length, offset, timestamp, synced, checksum before, checksum of the body
_CHECK = struct.Struct("<I")
_HEADER = struct.Struct("<4sIQQQIII")  # as _RECORD, with the header's own checksum
FILE_HEADER = _FILE.size + _CHECK.size
RECORD_HEADER = _RECORD.size + _CHECK.size
SUFFIX = ".log"


class LogPosition(NamedTuple):
    """A position in the journal: the next offset, and the timestamp and checksum of the record before it."""

    offset: int
    timestamp: int
    check: int


class LogEntry(NamedTuple):
    """A record that was read, its checksum, and the byte position after it in the file."""

    record: Record
    check: int
    end: int


class BrokenLogError(Exception):
    """The first invalid record of a log: its offset, its byte position in the file, and what is wrong."""

    def __init__(self, offset: int, position: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.position, self.reason = offset, position, reason


def log_path(folder: Path, first: int) -> Path:
    """Return the path of the log that starts at an offset."""
    return folder / f"{first:020d}{SUFFIX}"


def file_header(place: LogPosition, seed: int) -> bytes:
    """Return the header of a log file that continues the journal at `place`."""
    data = _FILE.pack(MAGIC, VERSION, *place)
    return data + _CHECK.pack(zlib.crc32(data, seed))


def read_file_header(stream: BinaryIO, path: Path, seed: int) -> LogPosition:
    """Read and check the header of a log file; return the position in the journal at which the file starts.

    Raises a `JournalDamagedError` for a damaged header, and a `JournalVersionError` for another format.
    """
    data = stream.read(FILE_HEADER)
    if len(data) < FILE_HEADER or data[_FILE.size :] != _CHECK.pack(zlib.crc32(data[: _FILE.size], seed)):
        raise damage_error(f"{path}: the file's header is damaged, or the file is another journal's", path, position=0)
    magic, version, offset, timestamp, check = _FILE.unpack_from(data)
    if magic != MAGIC:  # the header of a snapshot has the same layout and a valid checksum
        raise damage_error(f"{path}: is no log, but another file of the journal", path, position=0)
    if version != VERSION:
        raise JournalVersionError(f"{path} is in format {version}; this version of Tidings reads {VERSION}", path)
    if path != log_path(path.parent, offset):
        raise damage_error(f"{path} starts at offset {offset}, which is not what its name says", path, offset)
    return LogPosition(offset, timestamp, check)


def framed_size(bodies: Sequence[bytes]) -> int:
    """Return the number of bytes that records with these bodies take in a log."""
    return len(bodies) * RECORD_HEADER + sum(map(len, bodies))


def read_records(stream: BinaryIO, place: LogPosition, seed: int) -> Iterator[LogEntry]:
    """Yield the records from the stream's position to its end; raise a `BrokenLogError` at the first invalid one."""
    position = stream.tell()
    offset, before, previous = place
    while head := stream.read(RECORD_HEADER):
        length, timestamp, _, body_check, check = _check_header(
            head, LogPosition(offset, before, previous), position, seed
        )
        body = stream.read(length)
        if len(body) < length:
            raise BrokenLogError(offset, position, f"a record of {length:,} bytes ends after {len(body):,}")
        if zlib.crc32(body) != body_check:
            raise BrokenLogError(offset, position, "the body of a record is damaged")
        try:
            record = Record(offset, timestamp, decode_operation(body))
        except msgspec.MsgspecError as error:
            raise BrokenLogError(offset, position, f"a record that cannot be decoded: {error}") from None
        position += RECORD_HEADER + length
        yield LogEntry(record, check, position)
        offset, before, previous = offset + 1, timestamp, check


class RecordColumns(NamedTuple):
    """Records as three columns."""

    offsets: list[int]
    timestamps: list[int]
    operations: list[Operation]


def read_rows(stream: BinaryIO, step: "RecordStart", end: int, max_records: int, seed: int) -> Iterator[RecordColumns]:
    """Yield the records up to an offset in blocks of columns: a faster `read_records` for many records.

    Ends early if the log does; raises a `BrokenLogError` at the first invalid record.

    Args:
        stream: The open log.
        step: The first record to read.
        end: The offset after the last record to read.
        most: The largest number of records in a block.
        seed: The seed of the journal's checksums.
    """
    (offset, before, previous), position = step
    read, unpack, decode, crc32 = stream.read, _HEADER.unpack, decode_operation, zlib.crc32
    rows = RecordColumns([], [], [])
    stream.seek(position)
    while offset < end and (head := read(RECORD_HEADER)):
        try:
            marker, length, stored_offset, timestamp, _, stored_previous, body_check, check = unpack(head)
            body = read(length)
            if (
                (marker, stored_offset, stored_previous, len(body)) != (MARKER, offset, previous, length)
                or timestamp <= before
                or crc32(head[: _RECORD.size], seed) != check
                or crc32(body) != body_check
            ):
                raise struct.error
            operation = decode(body)
        except (struct.error, msgspec.MsgspecError):
            stream.seek(position)  # `read_records` raises the error with a precise reason
            next(read_records(stream, LogPosition(offset, before, previous), seed))
            raise
        rows.offsets.append(offset)
        rows.timestamps.append(timestamp)
        rows.operations.append(operation)
        position += RECORD_HEADER + length
        offset, before, previous = offset + 1, timestamp, check
        if len(rows.offsets) == max_records:
            yield rows
            rows = RecordColumns([], [], [])
    if rows.offsets:
        yield rows


class RecordStart(NamedTuple):
    """Where a record starts in a log file, and the journal position that it must continue."""

    place: LogPosition
    position: int


def skip_records(stream: BinaryIO, step: RecordStart, end: int, every: int, seed: int) -> Iterator[RecordStart]:
    """Skip from header to header without reading bodies; yield the start of every `every`-th record, and of the last.

    The last start is before `end` if the log is shorter. Raises a `BrokenLogError` at an invalid header.

    Args:
        stream: The open log.
        step: The record at which to begin.
        end: The offset at which to stop.
        every: Yield the starts of records whose offset is a multiple of this number.
        seed: The seed of the journal's checksums.
    """
    (offset, before, previous), position = step
    first, read, unpack, crc32 = offset, stream.read, _HEADER.unpack, zlib.crc32
    stream.seek(position)
    while offset < end and (head := read(RECORD_HEADER)):
        place = offset, before, previous
        if len(head) == RECORD_HEADER:
            marker, length, stored_offset, timestamp, _, stored_previous, _, check = unpack(head)
        if (
            len(head) < RECORD_HEADER
            or (marker, stored_offset, stored_previous) != (MARKER, offset, previous)
            or check != crc32(head[: _RECORD.size], seed)
            or timestamp <= before
        ):
            _check_header(head, LogPosition(*place), position, seed)
        stream.seek(length, os.SEEK_CUR)
        position += RECORD_HEADER + length
        offset, before, previous = offset + 1, timestamp, check
        if offset % every == 0 and offset < end:
            yield RecordStart(LogPosition(offset, before, previous), position)
    if offset > first:
        yield RecordStart(LogPosition(offset, before, previous), position)


def _check_header(head: bytes, place: LogPosition, position: int, seed: int) -> tuple[int, int, int, int, int]:
    """Return length, timestamp, synced offset, body checksum and own checksum of a header; raise a `BrokenLogError`."""
    offset, before, previous = place
    if len(head) < RECORD_HEADER:
        raise BrokenLogError(offset, position, f"{len(head)} bytes where the header of a record should be")
    marker, length, stored_offset, timestamp, synced, stored_previous, body_check, check = _unpack_header(head)
    if marker != MARKER or check != zlib.crc32(head[: _RECORD.size], seed):
        raise BrokenLogError(offset, position, "the header of a record is damaged")
    if stored_offset != offset:
        raise BrokenLogError(offset, position, f"a record with offset {stored_offset} stands where {offset} should be")
    if stored_previous != previous or timestamp <= before:
        raise BrokenLogError(offset, position, "the record does not follow from the one before it")
    return length, timestamp, synced, body_check, check


class RecordHeader(NamedTuple):
    """The header of a record that was found by searching damaged data."""

    position: int
    offset: int
    timestamp: int
    synced: int
    check: int
    body: bytes | None  # None if it is damaged or cut off


def find_headers(data: bytes, base: int, seed: int) -> Iterator[RecordHeader]:
    """Yield every valid record header in some bytes of a log, wherever it is. `base` is the bytes' position."""
    at = data.find(MARKER)
    while 0 <= at <= len(data) - RECORD_HEADER:
        head = data[at : at + RECORD_HEADER]
        _, length, offset, timestamp, synced, _, body_check, check = _unpack_header(head)
        if check == zlib.crc32(head[: _RECORD.size], seed) and length <= MAX_RECORD_BYTES:
            body = data[at + RECORD_HEADER : at + RECORD_HEADER + length]
            sound = len(body) == length and zlib.crc32(body) == body_check
            yield RecordHeader(base + at, offset, timestamp, synced, check, body if sound else None)
        at = data.find(MARKER, at + 1)


def _unpack_header(head: bytes) -> tuple[bytes, int, int, int, int, int, int, int]:
    return _HEADER.unpack(head)


class LogWriter:
    """The writer of the one log file that grows. Not thread-safe: the journal serialises the calls."""

    def __init__(self, path: Path, first: int, place: LogPosition, size: int, seed: int, disk: Disk) -> None:
        """Continue at the end of a log file with this size, at the journal position `place`."""
        self.path, self.first, self.place, self.size = path, first, place, size
        self.has_partial_record = False  # a partial record may be at the end that could not be cut off
        self._seed, self._disk = seed, disk
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @classmethod
    def create(cls, folder: Path, place: LogPosition, seed: int, disk: Disk) -> "LogWriter":
        """Create a new log file and return its writer.

        Args:
            folder: The folder for logs.
            place: The journal position that the log continues.
            seed: The seed of the journal's checksums.
            disk: The file system operations.
        """
        path = log_path(folder, place.offset)
        disk.create(path, file_header(place, seed))
        return cls(path, place.offset, place, FILE_HEADER, seed, disk)

    def append(self, bodies: Sequence[bytes], now: int, synced: int) -> Span:
        """Write records without syncing them, and return their place.

        After an exception none of the data is in the file, unless `has_partial_record` is set.
        """
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
        place = LogPosition(offset, timestamp - 1, check) if bodies else self.place
        span = Span(self.place.offset, offset, first)
        try:
            self._disk.write(self.fd, data)
        except BaseException:
            # Also after a KeyboardInterrupt: a partial record must not precede the next one.
            self.has_partial_record = True
            self._disk.truncate(self.fd, self.size)
            self.has_partial_record = False
            raise
        self.place = place
        self.size += len(data)
        return span

    def sync(self) -> None:
        """Make everything that was written durable."""
        self._disk.sync(self.fd)

    def close(self) -> None:
        """Close the file without syncing it."""
        os.close(self.fd)

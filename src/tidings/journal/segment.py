"""Segments: closed logs as Parquet files, which Spark and other tools can read.

A segment's name contains its first and next offset and the checksum of the whole file, so that a damaged file is
detected before it is parsed, and a missing file is a gap between names.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.journal.damage import damage_error
from tidings.journal.disk import Disk, temporary_of
from tidings.journal.log import LogPosition, RecordColumns
from tidings.journal.record import Operation, Record
from tidings.model.errors import JournalError

SUFFIX = ".parquet"
SCHEMA = pa.schema(
    [
        pa.field("journal", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        ("id", pa.string()),
        ("client", pa.string()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("published", pa.timestamp("us", tz="UTC")),
        ("subject", pa.string()),
        ("attributes", pa.string()),
        ("payload", pa.binary()),
        ("context", pa.string()),
        ("subscribers", pa.string()),
        ("policy", pa.string()),
        ("token", pa.binary()),
        ("signature", pa.binary()),
        ("body", pa.string()),
    ]
)
ROWS = 65_536  # the largest number of rows in a row group, which also ends at _GROUP_BYTES
_GROUP_BYTES = 32 * 1024 * 1024
_READ_ROWS = 4_096
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.parquet")


class SegmentName(msgspec.Struct, frozen=True):
    """The name of a segment: its range of offsets, and the checksum of the file."""

    first: int
    next: int
    checksum: int

    @classmethod
    def of(cls, path: Path) -> "SegmentName | None":
        """Parse the name of a path; None if it is not the name of a segment."""
        match = _NAME.fullmatch(path.name)
        return cls(int(match[1]), int(match[2]), int(match[3], 16)) if match else None

    def __str__(self) -> str:
        return f"{self.first:020d}-{self.next:020d}-{self.checksum:08x}{SUFFIX}"


class SegmentEnds(msgspec.Struct, frozen=True):
    """The journal positions before and after a segment, stored in its footer."""

    before: LogPosition
    after: LogPosition


def write_segment(
    folder: Path, records: Iterable[Record], before: LogPosition, check: int, journal: str, seed: int, disk: Disk
) -> Path:
    """Write records as a segment, durably, after reading it back, and return its path.

    A crash leaves a temporary file or the complete segment.

    Args:
        folder: The folder for segments.
        records: The records, in order.
        before: The journal position before the first record.
        check: The checksum of the last record in its log.
        journal: The name of the journal.
        seed: The seed of the journal's checksums.
        disk: The file system operations.
    """
    temporary = temporary_of(folder / f"{before.offset:020d}{SUFFIX}")
    place = before
    digest = 0
    try:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(records):
                writer.write_batch(record_batch(group, journal), row_group_size=ROWS)
                digest = _digest(group, digest)
                place = LogPosition(group[-1].offset + 1, group[-1].timestamp, check)
            writer.add_key_value_metadata(_metadata(SegmentEnds(before, place), journal, seed))
        disk.sync_file(temporary)
        with temporary.open("rb") as stream:
            read_digest = 0
            for group in _read(stream, before.offset):
                read_digest = _digest(group, read_digest)
            if read_digest != digest:
                raise damage_error(f"{temporary}: what was read back is not what was written", temporary)
            name = SegmentName(before.offset, place.offset, checksum_of(stream))
    except Exception as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            raise JournalError(f"{folder}: no segment can be written: {error}", folder) from error
        raise
    path = folder / str(name)
    disk.put(temporary, path)
    return path


def checksum_of(stream: BinaryIO) -> int:
    """Return the CRC-32 of a whole file."""
    checksum = 0
    stream.seek(0)
    while data := stream.read(1 << 20):
        checksum = zlib.crc32(data, checksum)
    return checksum


def check_segment(stream: BinaryIO, path: Path, name: SegmentName) -> None:
    """Raise a `JournalDamagedError` unless the file has the checksum in its name."""
    if checksum_of(stream) != name.checksum:
        raise damage_error(f"{path}: the file is not the one that was written under this name", path, name.first)


def read_ends(stream: BinaryIO, path: Path, name: SegmentName, journal: str, seed: int) -> SegmentEnds:
    """Return the journal positions before and after a segment, from its checked footer.

    Args:
        stream: The open segment.
        path: Its path, for error messages.
        name: Its parsed name, which must agree with the footer.
        journal: The name of the journal.
        seed: The seed of the journal's checksums.

    Raises:
        JournalDamagedError: The footer is damaged or of another journal.
    """
    try:
        metadata = pq.read_metadata(stream).metadata or {}
        ends = msgspec.json.decode(metadata[b"tidings.journal"], type=SegmentEnds)
    except Exception as error:  # Parquet readers raise many kinds of errors for a damaged footer
        raise damage_error(f"{path}: the footer cannot be read: {error}", path, name.first) from None
    if metadata != {**metadata, **_metadata(ends, journal, seed)} or (ends.before.offset, ends.after.offset) != (
        name.first,
        name.next,
    ):
        raise damage_error(f"{path}: the footer is damaged, or another journal's", path, name.first)
    return ends


def read_segment(stream: BinaryIO, path: Path, name: SegmentName, start: int) -> Iterator[Record]:
    """Yield the records of a segment from the offset `start` on.

    Args:
        stream: The open segment, which the caller has checked with `check_segment`.
        path: Its path, for error messages.
        name: Its parsed name.
        start: The first offset to yield.

    Raises:
        JournalDamagedError: The segment cannot be read, or offsets are missing.
    """
    offset = start
    try:
        for group in _read(stream, start):
            for record in group:
                if record.offset != offset:
                    raise damage_error(f"{path}: offset {record.offset} where {offset} should be", path, offset)
                offset += 1
                yield record
    except (OSError, pa.ArrowException) as error:
        raise damage_error(f"{path}: cannot be read: {error}", path, offset) from None
    if offset != name.next:
        raise damage_error(f"{path}: ends before offset {offset}, not {name.next}", path, offset)


def salvage_segment(path: Path, name: SegmentName) -> Iterator[Record]:
    """Yield the records of all readable row groups of a damaged segment, for repair.

    Pages have checksums, but the Parquet footer has none. It is used only if it has the right columns and number of
    rows; its statistics are not read, since damaged ones can crash the reading process.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(SCHEMA) or file.metadata.num_rows != name.next - name.first:
                return
            for group in range(file.num_row_groups):
                try:
                    records = _records(file.read_row_group(group).select(SCHEMA.names))
                except Exception:  # noqa: S112 - whatever a damaged file does to its reader, the next group may stand
                    continue
                yield from (record for record in records if name.first <= record.offset < name.next)
    except Exception:
        return


def _read(stream: BinaryIO, start: int) -> Iterator[list[Record]]:
    with pq.ParquetFile(stream, page_checksum_verification=True) as file:
        column = SCHEMA.get_field_index("offset")
        groups = [
            group
            for group in range(file.num_row_groups)
            if file.metadata.row_group(group).column(column).statistics.max >= start
        ]
        for batch in file.iter_batches(_READ_ROWS, row_groups=groups):
            records = _records(batch)
            yield records if records[0].offset >= start else [record for record in records if record.offset >= start]


def _records(batch: Any) -> list[Record]:
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in batch.columns[1:]
    ]
    offsets, timestamps, *fields = columns
    return [
        Record(offset, timestamp, Operation(*values))
        for offset, timestamp, *values in zip(offsets, timestamps, *fields, strict=True)
    ]


def record_batch(records: list[Record], journal: str) -> Any:
    """Return records as an Arrow batch with all columns of a segment."""
    offsets, timestamps = ([getattr(record, name) for record in records] for name in ("offset", "timestamp"))
    return rows_batch(
        RecordColumns(offsets, timestamps, [record.operation for record in records]), journal, SCHEMA.names
    )


def rows_batch(rows: RecordColumns, journal: str, names: Sequence[str]) -> Any:
    """Return records in columns as an Arrow batch with the named columns of a segment."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    columns = []
    for field in schema:
        if field.name == "journal":
            columns.append(pa.repeat(pa.scalar(journal), len(rows.offsets)))
            continue
        values: list[Any]
        if field.name in ("offset", "timestamp"):
            values = rows.offsets if field.name == "offset" else rows.timestamps
        else:
            values = list(map(attrgetter(field.name), rows.operations))
        storage_type = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        columns.append(pa.array(values, storage_type).cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield records in groups that fit into a row group."""
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += sum(len(value) for value in msgspec.structs.astuple(record.operation) if isinstance(value, str | bytes))
        if len(group) >= ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _digest(records: list[Record], digest: int) -> int:
    """Return a checksum over records, to compare what was written with what is read back."""
    for record in records:
        digest = zlib.crc32(_ENCODER.encode(record), digest)
    return digest


def _metadata(ends: SegmentEnds, journal: str, seed: int) -> dict[bytes, bytes]:
    data = msgspec.json.encode(ends)
    check = zlib.crc32(journal.encode(), zlib.crc32(data, seed))
    return {b"tidings.journal": data, b"tidings.name": journal.encode(), b"tidings.check": b"%08x" % check}


_ENCODER = msgspec.msgpack.Encoder()

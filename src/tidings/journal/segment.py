"""A segment: a log that has been rolled into a Parquet file, for Spark and everyone else to read as it is.

Its name says which offsets it holds and the checksum of the whole file, so that a damaged one is known before it is
parsed, and a missing one is a gap between names.
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

from tidings.journal.damage import damage
from tidings.journal.disk import Disk, temporary_of
from tidings.journal.log import Place, Rows
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
ROWS = 65_536  # the most of a row group, which also ends when it has grown to so many bytes:
_GROUP_BYTES = 32 * 1024 * 1024
_READ_ROWS = 4_096
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.parquet")


class SegmentName(msgspec.Struct, frozen=True):
    first: int
    next: int
    checksum: int

    @classmethod
    def of(cls, path: Path) -> "SegmentName | None":
        match = _NAME.fullmatch(path.name)
        return cls(int(match[1]), int(match[2]), int(match[3], 16)) if match else None

    def __str__(self) -> str:
        return f"{self.first:020d}-{self.next:020d}-{self.checksum:08x}{SUFFIX}"


class SegmentEnds(msgspec.Struct, frozen=True):
    """What the footer says: where the journal stood before the segment, and where it stood after it."""

    before: Place
    after: Place


def write_segment(
    folder: Path, records: Iterable[Record], before: Place, check: int, journal: str, seed: int, disk: Disk
) -> Path:
    """The segment of these records, durable and read back; `check` is that of the last one.

    A crash leaves a temporary file, or the whole segment under its name.
    """
    temporary = temporary_of(folder / f"{before.offset:020d}{SUFFIX}")
    place = before
    digest = 0
    try:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(records):
                writer.write_batch(record_batch(group, journal), row_group_size=ROWS)
                digest = _digest(group, digest)
                place = Place(group[-1].offset + 1, group[-1].timestamp, check)
            writer.add_key_value_metadata(_metadata(SegmentEnds(before, place), journal, seed))
        disk.sync_file(temporary)
        with temporary.open("rb") as stream:
            back = 0
            for group in _read(stream, before.offset):
                back = _digest(group, back)
            if back != digest:
                raise damage(f"{temporary}: what was read back is not what was written", temporary)
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
    checksum = 0
    stream.seek(0)
    while data := stream.read(1 << 20):
        checksum = zlib.crc32(data, checksum)
    return checksum


def check_segment(stream: BinaryIO, path: Path, name: SegmentName) -> None:
    """Every byte is as it was written, or a `JournalDamagedError`."""
    if checksum_of(stream) != name.checksum:
        raise damage(f"{path}: the file is not the one that was written under this name", path, name.first)


def read_ends(stream: BinaryIO, path: Path, name: SegmentName, journal: str, seed: int) -> SegmentEnds:
    try:
        metadata = pq.read_metadata(stream).metadata or {}
        ends = msgspec.json.decode(metadata[b"tidings.journal"], type=SegmentEnds)
    except Exception as error:  # a damaged footer makes its reader fail in ways of its own
        raise damage(f"{path}: the footer cannot be read: {error}", path, name.first) from None
    if metadata != {**metadata, **_metadata(ends, journal, seed)} or (ends.before.offset, ends.after.offset) != (
        name.first,
        name.next,
    ):
        raise damage(f"{path}: the footer is damaged, or another journal's", path, name.first)
    return ends


def read_segment(stream: BinaryIO, path: Path, name: SegmentName, start: int) -> Iterator[Record]:
    """The records from `start` on. The caller has checked the file."""
    offset = start
    try:
        for group in _read(stream, start):
            for record in group:
                if record.offset != offset:
                    raise damage(f"{path}: offset {record.offset} where {offset} should be", path, offset)
                offset += 1
                yield record
    except (OSError, pa.ArrowException) as error:
        raise damage(f"{path}: cannot be read: {error}", path, offset) from None
    if offset != name.next:
        raise damage(f"{path}: ends before offset {offset}, not {name.next}", path, offset)


def salvage_segment(path: Path, name: SegmentName) -> Iterator[Record]:
    """The records of all row groups that still stand: for repair, when the file is damaged.

    The pages have checksums, and what the footer says about them has none: it is believed if it names the columns, and
    as many rows, as it must. More of it is not looked at, since a damaged one can end the process that reads it.
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
        wanted = [
            group
            for group in range(file.num_row_groups)
            if file.metadata.row_group(group).column(column).statistics.max >= start
        ]
        for batch in file.iter_batches(_READ_ROWS, row_groups=wanted):
            records = _records(batch)
            yield records if records[0].offset >= start else [one for one in records if one.offset >= start]


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
    """The records as they stand in a segment."""
    offsets, timestamps = ([getattr(one, name) for one in records] for name in ("offset", "timestamp"))
    return rows_batch(Rows(offsets, timestamps, [record.operation for record in records]), journal, SCHEMA.names)


def rows_batch(rows: Rows, journal: str, names: Sequence[str]) -> Any:
    """The same of rows, with these columns."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    columns = []
    for field in schema:
        if field.name == "journal":
            columns.append(pa.repeat(pa.scalar(journal), len(rows.offsets)))
            continue
        given: list[Any]
        if field.name in ("offset", "timestamp"):
            given = rows.offsets if field.name == "offset" else rows.timestamps
        else:
            given = list(map(attrgetter(field.name), rows.operations))
        plain = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        columns.append(pa.array(given, plain).cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
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
    for record in records:
        digest = zlib.crc32(_ENCODER.encode(record), digest)
    return digest


def _metadata(ends: SegmentEnds, journal: str, seed: int) -> dict[bytes, bytes]:
    data = msgspec.json.encode(ends)
    check = zlib.crc32(journal.encode(), zlib.crc32(data, seed))
    return {b"tidings.journal": data, b"tidings.name": journal.encode(), b"tidings.check": b"%08x" % check}


_ENCODER = msgspec.msgpack.Encoder()

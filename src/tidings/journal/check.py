"""Check a journal without changing it, also while a process has it open: read every durable byte."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.journal import snapshot
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage_error
from tidings.journal.lock import holder
from tidings.journal.reader import JournalReader, OffsetRange, RecordSelection
from tidings.journal.record import LOST
from tidings.journal.segment import SUFFIX
from tidings.model.errors import JournalDamagedError

_CHECKED_COLUMNS = RecordSelection(("offset", "timestamp", "kind"))


class CheckResult(msgspec.Struct, frozen=True):
    """The result of checking a journal. `damage` lists what prevents reading it completely, `remarks` what does not."""

    journal: str
    first: int
    next: int
    records: int
    lost: int  # `$lost` records, which a repair put in place of unreadable ones
    bytes: int
    writer: int | None  # process id of the writer; 0 if unknown, None if there is none
    damage: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def check(folder: str | os.PathLike[str]) -> CheckResult:
    """Check the journal in a folder; raise a `JournalError` if it cannot even be opened for reading."""
    reader = JournalReader(folder)
    first, end = reader.first, reader.end
    walk = _Walk(reader)
    errors = tuple(str(error) for error in walk.damage(first, end))
    return CheckResult(
        reader.name,
        first,
        end,
        walk.records,
        walk.lost,
        sum(path.stat().st_size for path in _files(reader.folder)),
        holder(reader.folder),
        errors,
        tuple(_remarks(reader)),
    )


class _Walk:
    """A walk over all records that checks that offsets are consecutive and timestamps rise."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self.records = self.lost = 0
        self._timestamp = -1

    def damage(self, first: int, end: int) -> Iterator[JournalDamagedError]:
        """Yield the errors in the records from `first` to `end`, continuing with the next file after an error."""
        try:
            ranges = self._reader.stretches(first, end, _CHECKED_COLUMNS)
        except JournalDamagedError as error:
            yield error
            return
        for offset_range in ranges:
            try:
                self._read(offset_range)
            except JournalDamagedError as error:
                yield error
        if ranges and ranges[-1].next < end:
            yield damage_error(f"{self._reader.folder}: ends at {ranges[-1].next}, not {end}", self._reader.folder, end)

    def _read(self, offset_range: OffsetRange) -> None:
        offset = offset_range.first
        for batch in self._reader.batches(offset_range, _CHECKED_COLUMNS):
            offsets, times, kinds = _columns(batch)
            if offsets != list(range(offset, offset + len(offsets))):
                raise damage_error(
                    f"{offset_range.path}: offsets are missing behind {offset}", offset_range.path, offset
                )
            for at, timestamp in zip(offsets, times, strict=True):
                if timestamp <= self._timestamp:
                    raise damage_error(
                        f"{offset_range.path}: the timestamp of offset {at} does not rise", offset_range.path, at
                    )
                self._timestamp = timestamp
            offset += len(offsets)
            self.records += len(offsets)
            self.lost += kinds.count(LOST)
        if offset != offset_range.next:
            raise damage_error(
                f"{offset_range.path}: ends before offset {offset}, not {offset_range.next}", offset_range.path, offset
            )


def _columns(batch: Any) -> tuple[list[int], list[int], list[str]]:
    offsets, timestamps, kinds = batch.columns
    return offsets.to_pylist(), timestamps.cast("int64").to_pylist(), kinds.to_pylist()


def _files(folder: Path) -> list[Path]:
    patterns = (f"{LOGS}/*.log", f"{SEGMENTS}/*{SUFFIX}", f"{SNAPSHOTS}/*{snapshot.SUFFIX}")
    return [path for pattern in patterns for path in folder.glob(pattern)]


def _remarks(reader: JournalReader) -> Iterator[str]:
    for path in snapshot.list_snapshots(reader.folder / SNAPSHOTS):
        if reader.snapshot(path) is None:
            yield f"{path}: damaged; it is passed over, and an older one or more records are read instead"

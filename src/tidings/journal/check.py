"""Checking a journal without changing it, also one that a process has open: every byte of what is durable is read."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidings.journal import snapshot
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage
from tidings.journal.lock import holder
from tidings.journal.reader import JournalReader, Stretch, Wanted
from tidings.journal.record import LOST
from tidings.journal.segment import SUFFIX
from tidings.model.errors import JournalDamagedError

_LOOKED_AT = Wanted(("offset", "timestamp", "kind"))


class Checked(msgspec.Struct, frozen=True):
    """What was found. `damage` says what stands in the way of reading it all; `remarks` what does not."""

    journal: str
    first: int
    next: int
    records: int
    lost: int  # of them, those that repair has put in the place of others
    bytes: int
    writer: int | None  # the process that has it open, 0 if that does not say its number
    damage: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def check(folder: str | os.PathLike[str]) -> Checked:
    """Of the journal in that folder; what cannot even be begun with raises a `JournalError`."""
    reader = JournalReader(folder)
    first, end = reader.first, reader.end
    walk = _Walk(reader)
    found = tuple(str(error) for error in walk.damage(first, end))
    return Checked(
        reader.name,
        first,
        end,
        walk.records,
        walk.lost,
        sum(path.stat().st_size for path in _files(reader.folder)),
        holder(reader.folder),
        found,
        tuple(_remarks(reader)),
    )


class _Walk:
    """From record to record: nothing is missing, and time goes on."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self.records = self.lost = 0
        self._timestamp = -1

    def damage(self, first: int, end: int) -> Iterator[JournalDamagedError]:
        """What is wrong, file by file: behind a damaged one it goes on with the next."""
        try:
            stretches = self._reader.stretches(first, end, _LOOKED_AT)
        except JournalDamagedError as error:
            yield error
            return
        for stretch in stretches:
            try:
                self._read(stretch)
            except JournalDamagedError as error:
                yield error
        if stretches and stretches[-1].next < end:
            yield damage(f"{self._reader.folder}: ends at {stretches[-1].next}, not {end}", self._reader.folder, end)

    def _read(self, stretch: Stretch) -> None:
        offset = stretch.first
        for batch in self._reader.batches(stretch, _LOOKED_AT):
            offsets, times, kinds = _columns(batch)
            if offsets != list(range(offset, offset + len(offsets))):
                raise damage(f"{stretch.path}: offsets are missing behind {offset}", stretch.path, offset)
            for at, timestamp in zip(offsets, times, strict=True):
                if timestamp <= self._timestamp:
                    raise damage(f"{stretch.path}: the timestamp of offset {at} does not rise", stretch.path, at)
                self._timestamp = timestamp
            offset += len(offsets)
            self.records += len(offsets)
            self.lost += kinds.count(LOST)
        if offset != stretch.next:
            raise damage(f"{stretch.path}: ends before offset {offset}, not {stretch.next}", stretch.path, offset)


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

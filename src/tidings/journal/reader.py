"""Read a journal that another process may be writing, without a lock and without changing anything.

Rules:
1. A reader returns only durable records, as Arrow batches.
2. An unfinished write at the end is treated as absent. Records that retention has removed raise an `OffsetGoneError`,
   anything else that is missing or altered a `JournalDamagedError`.
3. The work can be divided into `OffsetRange`s that other threads or processes read later. If the log of a range has
   been rolled meanwhile, the range is read from the segment.

Theory of operation: the folder may change while it is listed, so listing is repeated until the files form a sequence
without gaps. Logs have no index; `LogSteps` remembers the start of every `LOG_ROWS`-th record, so that a range in the
middle of a log is found quickly and a growing log is never scanned twice.
"""

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.journal.damage import damage_error
from tidings.journal.log import (
    FILE_HEADER,
    BrokenLogError,
    RecordColumns,
    RecordStart,
    read_file_header,
    read_rows,
    skip_records,
)
from tidings.journal.manifest import JournalManifest
from tidings.journal.recovery import (
    ClosedFile,
    list_logs,
    list_segments,
    log_damage_error,
    log_first_offset,
    read_floor,
    segment_name,
)
from tidings.journal.segment import SCHEMA, SegmentEnds, check_segment, read_ends, rows_batch
from tidings.journal.snapshot import Snapshot, read_snapshot
from tidings.journal.sync import FILE as MARK_FILE
from tidings.journal.sync import read_mark
from tidings.model.errors import JournalDamagedError, JournalError, OffsetGoneError

LOG_ROWS = 50_000  # the number of records in a range of a log
_BATCH_ROWS = 8_192
_TRIES = 8  # attempts to list a folder that changes meanwhile


class RecordSelection(msgspec.Struct, frozen=True):
    """Which columns to read, and of which records: of these kinds, accepted from `since` on and before `until`."""

    columns: tuple[str, ...] = tuple(SCHEMA.names)
    kinds: frozenset[str] | None = None
    since: int | None = None  # microseconds
    until: int | None = None

    def may_hold(self, first: int, last: int) -> bool:
        """Return whether records accepted between these two times (both included) can be selected."""
        return (self.since is None or last >= self.since) and (self.until is None or first < self.until)


EVERYTHING = RecordSelection()


class OffsetRange(msgspec.Struct, frozen=True):
    """A range of offsets in one file. `step` says where it starts in a log; None for a segment."""

    first: int
    next: int
    path: Path
    step: RecordStart | None = None


class JournalReader:
    """A reader for the journal in a folder. It can be pickled; its memory of log positions makes later reads cheap."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._identity = JournalManifest.read(self.folder)
        self._logs: dict[Path, LogSteps] = {}

    @property
    def name(self) -> str:
        """The name of the journal."""
        return self._identity.name

    @property
    def first(self) -> int:
        """The oldest offset that the journal still has."""
        return self._parts()[0].first

    @property
    def end(self) -> int:
        """The offset below which everything is durable."""
        for _ in range(_TRIES):  # the writer may be overwriting the mark
            mark = read_mark(self.folder, self._identity.seed)
            if mark is not None:
                return mark
        path = self.folder / MARK_FILE
        raise damage_error(f"{path}: missing or damaged; without it nobody can tell what is durable", path)

    def stretches(self, start: int, end: int, wanted: RecordSelection = EVERYTHING) -> list[OffsetRange]:
        """Divide the records from `start` to `end` into ranges; ranges without selected records are left out.

        Everything below `end` must be durable. Raises an `OffsetGoneError` if retention has removed `start`.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):  # the log was rolled or removed by retention
                return self._ranges(start, end, wanted)
        return self._ranges(start, end, wanted)

    def _ranges(self, start: int, end: int, selection: RecordSelection) -> list[OffsetRange]:
        ranges: list[OffsetRange] = []
        parts = self._parts()
        if start < min(end, parts[0].first):
            raise self._offset_gone(start, parts[0].first)
        before: ClosedFile | None = None
        for part in parts:
            first, until = max(start, part.first), min(end, part.next)
            if first < until and part.is_log:
                ranges += self._log_ranges(part, before, first, until, selection)
            elif first < until and self._segment_may_match(part, selection):
                ranges.append(OffsetRange(first, until, part.path))
            before = part
        self._logs = {path: steps for path, steps in self._logs.items() if any(part.path == path for part in parts)}
        return ranges

    def batches(self, stretch: OffsetRange, wanted: RecordSelection = EVERYTHING) -> Iterator[Any]:
        """Yield the selected records of a range as Arrow batches with the selected columns."""
        path, stream = self._open_range(stretch)
        with stream:
            if stretch.step is not None and path == stretch.path:
                yield from self._log_batches(stream, stretch, stretch.step, wanted)
            else:
                yield from self._segment_batches(stream, path, stretch, wanted)

    def read(
        self, start: int | None = None, until: int | None = None, wanted: RecordSelection = EVERYTHING
    ) -> Iterator[Any]:
        """Yield the durable, selected records from `start` (by default the oldest) up to `until`, as Arrow batches."""
        end = self.end if until is None else min(until, self.end)
        for stretch in self.stretches(self.first if start is None else start, end, wanted):
            yield from self.batches(stretch, wanted)

    def snapshot(self, path: Path) -> Snapshot | None:
        """Return a snapshot of this journal; None if it is damaged or was removed meanwhile."""
        try:
            return read_snapshot(path, self._identity.seed)
        except FileNotFoundError:
            return None

    # Files

    def _parts(self) -> list[ClosedFile]:
        """Return all files in the order of their offsets; the last log has no end.

        The logs are listed before the segments, so that a log that is rolled meanwhile is in at least one list. The
        floor is read last, so that it covers everything that retention removed before.
        """
        failure: JournalError | None = None
        for _ in range(_TRIES):
            logs = list_logs(self.folder)
            segments = list_segments(self.folder)
            rolled = {part.first for part in segments}
            starts = [log_first_offset(path) for path in logs]
            growing = [
                ClosedFile(path, first, following)
                for path, first, following in zip(logs, starts, [*starts, _NO_END][1:], strict=True)
                if first not in rolled
            ]
            floor = read_floor(self.folder, self._identity.seed)
            parts = [part for part in (*segments, *growing) if part.next > floor]
            failure = self._gap_error(parts if logs else [], floor)  # a journal always has a log, perhaps an empty one
            if failure is None:
                return parts
        assert failure is not None  # noqa: S101 - there was at least one try
        raise failure

    def _gap_error(self, parts: list[ClosedFile], floor: int) -> JournalError | None:
        """Return an error if the files are not consecutive from the floor on, otherwise None."""
        if not parts:
            return damage_error(f"{self.folder}: there is no log", self.folder)
        expected = floor
        for part in parts:
            if part.first != expected:
                what = "are missing: a file is gone" if expected < part.first else "stand in two files"
                low, high = sorted((expected, part.first))
                return damage_error(f"{self.folder}: offsets {low} to {high - 1} {what}", self.folder, low)
            expected = part.next
        return None

    def _open_range(self, offset_range: OffsetRange) -> tuple[Path, BinaryIO]:
        """Open the file that contains the range now; it can be read to its end even if retention removes it."""
        path = offset_range.path
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return path, path.open("rb", buffering=1 << 17)
            parts = self._parts()
            if offset_range.first < parts[0].first:
                raise self._offset_gone(offset_range.first, parts[0].first)
            path = next(part.path for part in parts if part.next > offset_range.first)
        raise damage_error(f"{path}: the file is gone", path, offset_range.first)

    def _offset_gone(self, offset: int, first: int) -> OffsetGoneError:
        message = f"{self.folder}: offset {offset} is gone, retention has taken it away; the oldest there is {first}"
        return OffsetGoneError(message, self.folder, first)

    # Logs

    def _log_ranges(
        self, part: ClosedFile, before: ClosedFile | None, start: int, end: int, selection: RecordSelection
    ) -> Iterator[OffsetRange]:
        """Yield the ranges of a log that contain selected records."""
        steps = self._steps(part.path, before)
        marks = [steps.at(start, end), *steps.between(start, end), steps.last]
        for step, following in itertools.pairwise(marks):
            first, until = max(start, step.place.offset), min(end, following.place.offset)
            if first < until and selection.may_hold(step.place.timestamp + 1, following.place.timestamp):
                yield OffsetRange(first, until, part.path, step)

    def _steps(self, path: Path, before: ClosedFile | None) -> "LogSteps":
        steps = self._logs.get(path)
        if steps is None:
            steps = LogSteps(path, self._identity.seed)
            if before is not None and not before.is_log and steps.start != self._ends(before).after:
                raise damage_error(
                    f"{path}: does not follow from {before.path.name}; a file is missing or another journal's", path
                )
            self._logs[path] = steps
        return steps

    def _log_batches(
        self, stream: BinaryIO, offset_range: OffsetRange, step: RecordStart, selection: RecordSelection
    ) -> Iterator[Any]:
        step = self._skip_to_range(stream, offset_range, step)
        end = step.place.offset
        try:
            for rows in read_rows(stream, step, offset_range.next, _BATCH_ROWS, self._identity.seed):
                end = rows.offsets[-1] + 1
                selected = _selected_rows(rows, selection)
                if selected.offsets:
                    yield rows_batch(selected, self.name, selection.columns)
        except BrokenLogError as error:
            raise log_damage_error(offset_range.path, error) from None
        if end < offset_range.next:
            raise _log_too_short(offset_range.path, end, offset_range.next)

    def _skip_to_range(self, stream: BinaryIO, offset_range: OffsetRange, step: RecordStart) -> RecordStart:
        """Return the start of the range's first record, which may be after the step."""
        try:
            for start in skip_records(stream, step, offset_range.first, _NO_END, self._identity.seed):
                step = start
        except BrokenLogError as error:
            raise log_damage_error(offset_range.path, error) from None
        if step.place.offset < offset_range.first:
            raise _log_too_short(offset_range.path, step.place.offset, offset_range.next)
        return step

    # Segments

    def _ends(self, part: ClosedFile) -> SegmentEnds:
        with part.path.open("rb") as stream:
            return read_ends(stream, part.path, segment_name(part.path), self.name, self._identity.seed)

    def _segment_may_match(self, part: ClosedFile, selection: RecordSelection) -> bool:
        """Return whether a segment may contain selected records, by the times in its footer.

        That part of the footer has its own checksum; the Parquet statistics are used only after the whole file was
        verified.
        """
        if selection.since is None and selection.until is None:
            return True
        try:
            ends = self._ends(part)
        except FileNotFoundError:
            return True  # reading the range will raise the right error
        return selection.may_hold(ends.before.timestamp + 1, ends.after.timestamp)

    def _segment_batches(
        self, stream: BinaryIO, path: Path, offset_range: OffsetRange, selection: RecordSelection
    ) -> Iterator[Any]:
        name, stat = segment_name(path), os.fstat(stream.fileno())
        version = (str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if version not in _VERIFIED_SEGMENTS:
            check_segment(stream, path, name)
            read_ends(stream, path, name, self.name, self._identity.seed)
            _VERIFIED_SEGMENTS.add(version)
        needed = [
            column for column in SCHEMA.names if column in {*selection.columns, *_filter_columns(selection), "offset"}
        ]
        try:
            with pq.ParquetFile(stream, page_checksum_verification=True) as file:
                groups = [
                    group
                    for group in range(file.num_row_groups)
                    if _row_group_may_match(file.metadata.row_group(group), offset_range, selection)
                ]
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=needed):
                    selected = batch.filter(_selection_mask(batch, offset_range, selection))
                    if selected.num_rows:
                        yield selected.select(list(selection.columns))
        except (OSError, pa.ArrowException) as error:
            raise damage_error(f"{path}: cannot be read: {error}", path, offset_range.first) from None


class LogSteps:
    """The start of every `every`-th record of a log, and of the last one that was read; extended as the log grows."""

    def __init__(self, path: Path, seed: int, every: int = LOG_ROWS) -> None:
        self._path, self._seed, self._every = path, seed, every
        with path.open("rb") as stream:
            self.start = read_file_header(stream, path, seed)
        self.last = RecordStart(self.start, FILE_HEADER)
        self._steps = [self.last]

    def at(self, start: int, end: int) -> RecordStart:
        """Return the last known start at or before the offset `start`, after reading the log's headers on to `end`."""
        if self.last.place.offset < start:
            self._read_headers_to(start)
        begin = self.last if self.last.place.offset == start else self._step_before(start)
        if self.last.place.offset < end:
            self._read_headers_to(end)
        return begin

    def between(self, start: int, end: int) -> Sequence[RecordStart]:
        """Return the remembered starts strictly between two offsets."""
        return [step for step in self._steps if start < step.place.offset < end]

    def _step_before(self, offset: int) -> RecordStart:
        return self._steps[bisect.bisect_right(self._steps, offset, key=lambda step: step.place.offset) - 1]

    def _read_headers_to(self, end: int) -> None:
        """Read headers from the last known record on to the offset `end`, and remember every `every`-th start."""
        try:
            with self._path.open("rb", buffering=1 << 17) as stream:
                for step in skip_records(stream, self.last, end, self._every, self._seed):
                    self.last = step
                    if step.place.offset % self._every == 0:
                        self._steps.append(step)
        except BrokenLogError as error:
            raise log_damage_error(self._path, error) from None
        if self.last.place.offset < end:
            raise _log_too_short(self._path, self.last.place.offset, end)


def _log_too_short(path: Path, offset: int, end: int) -> JournalDamagedError:
    message = f"{path}: offsets {offset} to {end - 1} were synced and are no longer there"
    return damage_error(message, path, offset)


def _selected_rows(rows: RecordColumns, selection: RecordSelection) -> RecordColumns:
    if not _filter_columns(selection):
        return rows
    selected = [
        row
        for row in zip(*rows, strict=True)
        if (selection.kinds is None or row[2].kind in selection.kinds) and selection.may_hold(row[1], row[1])
    ]
    return RecordColumns(*map(list, zip(*selected, strict=True))) if selected else RecordColumns([], [], [])


def _filter_columns(selection: RecordSelection) -> list[str]:
    """Return the columns that decide whether a row is selected."""
    by_time = selection.since is not None or selection.until is not None
    return [*(["timestamp"] if by_time else []), *(["kind"] if selection.kinds is not None else [])]


def _row_group_may_match(group: Any, offset_range: OffsetRange, selection: RecordSelection) -> bool:
    def ends(name: str) -> tuple[Any, Any]:
        statistics = group.column(SCHEMA.get_field_index(name)).statistics
        return statistics.min_raw, statistics.max_raw

    first, last = ends("offset")
    if last < offset_range.first or first >= offset_range.next:
        return False
    if not selection.may_hold(*ends("timestamp")):
        return False
    if selection.kinds is None:
        return True
    least, most = (kind.decode() if isinstance(kind, bytes) else kind for kind in ends("kind"))
    return any(least <= kind <= most for kind in selection.kinds)


def _selection_mask(batch: Any, offset_range: OffsetRange, selection: RecordSelection) -> Any:
    offsets = batch.column("offset")
    mask = pc.and_(pc.greater_equal(offsets, offset_range.first), pc.less(offsets, offset_range.next))
    if selection.kinds is not None:
        mask = pc.and_(mask, pc.is_in(batch.column("kind"), pa.array(sorted(selection.kinds), pa.string())))
    if selection.since is not None or selection.until is not None:
        times = batch.column("timestamp").cast(pa.int64())
        if selection.since is not None:
            mask = pc.and_(mask, pc.greater_equal(times, selection.since))
        if selection.until is not None:
            mask = pc.and_(mask, pc.less(times, selection.until))
    return mask


_NO_END = 1 << 63
_VERIFIED_SEGMENTS: set[tuple[str, int, int, int]] = set()  # segments that this process has verified completely

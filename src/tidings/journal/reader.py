"""Reading a journal that another process may be writing: no lock is taken, and nothing is changed.

A reader sees what is durable, in Arrow batches. Its work can be cut into stretches that others do, elsewhere and later:
a stretch that was in a log is found again in the segment that the log has become. An unfinished write at the end is
not yet there; what retention has taken away is an `OffsetGoneError`, and anything else a `JournalDamagedError`.
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

from tidings.journal.damage import damage
from tidings.journal.identity import Identity
from tidings.journal.log import FILE_HEADER, BrokenLogError, Rows, Step, hop, read_file_header, read_rows
from tidings.journal.mark import FILE as MARK_FILE
from tidings.journal.mark import read_mark
from tidings.journal.recovery import Part, damaged, first_of, list_logs, list_segments, name_of, read_floor
from tidings.journal.segment import SCHEMA, SegmentEnds, check_segment, read_ends, rows_batch
from tidings.journal.snapshot import Snapshot, read_snapshot
from tidings.model.errors import JournalDamagedError, JournalError, OffsetGoneError

LOG_ROWS = 50_000  # a log is cut into stretches of so many records
_BATCH_ROWS = 8_192
_TRIES = 8  # how often a folder is looked at again that changes while it is read


class Wanted(msgspec.Struct, frozen=True):
    """Which columns, and of which records: of these kinds, accepted from `since` on and before `until`."""

    columns: tuple[str, ...] = tuple(SCHEMA.names)
    kinds: frozenset[str] | None = None
    since: int | None = None  # microseconds
    until: int | None = None

    def may_hold(self, first: int, last: int) -> bool:
        """Whether records accepted between these two times can be among them."""
        return (self.since is None or last >= self.since) and (self.until is None or first < self.until)


EVERYTHING = Wanted()


class Stretch(msgspec.Struct, frozen=True):
    """A run of offsets in one file; `step` says where it starts, if that is a log."""

    first: int
    next: int
    path: Path
    step: Step | None = None


class JournalReader:
    """Of the journal in a folder. It can be pickled; what it remembers of logs makes going on with one cheap."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._identity = Identity.read(self.folder)
        self._logs: dict[Path, LogSteps] = {}

    @property
    def name(self) -> str:
        return self._identity.name

    @property
    def first(self) -> int:
        """The oldest offset that is there."""
        return self._parts()[0].first

    @property
    def end(self) -> int:
        """Everything below this offset is durable."""
        for _ in range(_TRIES):  # it may be read in the middle of being written
            mark = read_mark(self.folder, self._identity.seed)
            if mark is not None:
                return mark
        path = self.folder / MARK_FILE
        raise damage(f"{path}: missing or damaged; without it nobody can tell what is durable", path)

    def stretches(self, start: int, end: int, wanted: Wanted = EVERYTHING) -> list[Stretch]:
        """The work of reading from `start` to `end`, which must be durable; what cannot hold anything is left out."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):  # a log has just become a segment, or retention took it away
                return self._stretches(start, end, wanted)
        return self._stretches(start, end, wanted)

    def _stretches(self, start: int, end: int, wanted: Wanted) -> list[Stretch]:
        found: list[Stretch] = []
        parts = self._parts()
        if start < min(end, parts[0].first):
            raise self._gone(start, parts[0].first)
        before: Part | None = None
        for part in parts:
            first, until = max(start, part.first), min(end, part.next)
            if first < until and part.is_log:
                found += self._log_stretches(part, before, first, until, wanted)
            elif first < until and self._may_hold(part, wanted):
                found.append(Stretch(first, until, part.path))
            before = part
        self._logs = {path: steps for path, steps in self._logs.items() if any(one.path == path for one in parts)}
        return found

    def batches(self, stretch: Stretch, wanted: Wanted = EVERYTHING) -> Iterator[Any]:
        """The records of a stretch, as Arrow batches of the wanted columns."""
        path, stream = self._open(stretch)
        with stream:
            if stretch.step is not None and path == stretch.path:
                yield from self._log_batches(stream, stretch, stretch.step, wanted)
            else:
                yield from self._segment_batches(stream, path, stretch, wanted)

    def read(self, start: int | None = None, until: int | None = None, wanted: Wanted = EVERYTHING) -> Iterator[Any]:
        """The durable records from `start` (by default the oldest) up to `until`, as Arrow batches, in order."""
        end = self.end if until is None else min(until, self.end)
        for stretch in self.stretches(self.first if start is None else start, end, wanted):
            yield from self.batches(stretch, wanted)

    def snapshot(self, path: Path) -> Snapshot | None:
        """A snapshot of this journal, or nothing if it is damaged, or gone meanwhile."""
        try:
            return read_snapshot(path, self._identity.seed)
        except FileNotFoundError:
            return None

    # Files

    def _parts(self) -> list[Part]:
        """In order; the last log ends nowhere. The logs are listed first: one that is rolled meanwhile is then in at
        least one of the lists. The floor is read last, so that it knows of all that is gone."""
        failure: JournalError | None = None
        for _ in range(_TRIES):
            logs = list_logs(self.folder)
            segments = list_segments(self.folder)
            rolled = {part.first for part in segments}
            starts = [first_of(path) for path in logs]
            growing = [
                Part(path, first, following)
                for path, first, following in zip(logs, starts, [*starts, _NOWHERE][1:], strict=True)
                if first not in rolled
            ]
            floor = read_floor(self.folder, self._identity.seed)
            parts = [part for part in (*segments, *growing) if part.next > floor]
            failure = self._gap(parts if logs else [], floor)  # a journal always has a log, which may be empty
            if failure is None:
                return parts
        assert failure is not None  # noqa: S101 - there was at least one try
        raise failure

    def _gap(self, parts: list[Part], floor: int) -> JournalError | None:
        if not parts:
            return damage(f"{self.folder}: there is no log", self.folder)
        expected = floor
        for part in parts:
            if part.first != expected:
                what = "are missing: a file is gone" if expected < part.first else "stand in two files"
                low, high = sorted((expected, part.first))
                return damage(f"{self.folder}: offsets {low} to {high - 1} {what}", self.folder, low)
            expected = part.next
        return None

    def _open(self, stretch: Stretch) -> tuple[Path, BinaryIO]:
        """Opens the file that holds the stretch now; it can be read to its end even if retention removes it."""
        path = stretch.path
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return path, path.open("rb", buffering=1 << 17)
            parts = self._parts()
            if stretch.first < parts[0].first:
                raise self._gone(stretch.first, parts[0].first)
            path = next(part.path for part in parts if part.next > stretch.first)
        raise damage(f"{path}: the file is gone", path, stretch.first)

    def _gone(self, offset: int, first: int) -> OffsetGoneError:
        message = f"{self.folder}: offset {offset} is gone, retention has taken it away; the oldest there is {first}"
        return OffsetGoneError(message, self.folder, first)

    # Logs

    def _log_stretches(
        self, part: Part, before: Part | None, start: int, end: int, wanted: Wanted
    ) -> Iterator[Stretch]:
        steps = self._steps(part.path, before)
        marks = [steps.at(start, end), *steps.between(start, end), steps.last]
        for one, following in itertools.pairwise(marks):
            first, until = max(start, one.place.offset), min(end, following.place.offset)
            if first < until and wanted.may_hold(one.place.timestamp + 1, following.place.timestamp):
                yield Stretch(first, until, part.path, one)

    def _steps(self, path: Path, before: Part | None) -> "LogSteps":
        steps = self._logs.get(path)
        if steps is None:
            steps = LogSteps(path, self._identity.seed)
            if before is not None and not before.is_log and steps.start != self._ends(before).after:
                raise damage(
                    f"{path}: does not follow from {before.path.name}; a file is missing or another journal's", path
                )
            self._logs[path] = steps
        return steps

    def _log_batches(self, stream: BinaryIO, stretch: Stretch, step: Step, wanted: Wanted) -> Iterator[Any]:
        step = self._skipped(stream, stretch, step)
        end = step.place.offset
        try:
            for rows in read_rows(stream, step, stretch.next, _BATCH_ROWS, self._identity.seed):
                end = rows.offsets[-1] + 1
                kept = _kept(rows, wanted)
                if kept.offsets:
                    yield rows_batch(kept, self.name, wanted.columns)
        except BrokenLogError as error:
            raise damaged(stretch.path, error) from None
        if end < stretch.next:
            raise _cut_short(stretch.path, end, stretch.next)

    def _skipped(self, stream: BinaryIO, stretch: Stretch, step: Step) -> Step:
        """Where the stretch begins, if that is behind the step."""
        try:
            for found in hop(stream, step, stretch.first, _NOWHERE, self._identity.seed):
                step = found
        except BrokenLogError as error:
            raise damaged(stretch.path, error) from None
        if step.place.offset < stretch.first:
            raise _cut_short(stretch.path, step.place.offset, stretch.next)
        return step

    # Segments

    def _ends(self, part: Part) -> SegmentEnds:
        with part.path.open("rb") as stream:
            return read_ends(stream, part.path, name_of(part.path), self.name, self._identity.seed)

    def _may_hold(self, part: Part, wanted: Wanted) -> bool:
        """By the times in the footer, which has a check of its own; its other statistics are believed only when every
        byte of the file has been looked at."""
        if wanted.since is None and wanted.until is None:
            return True
        try:
            ends = self._ends(part)
        except FileNotFoundError:
            return True  # whoever reads it will say why
        return wanted.may_hold(ends.before.timestamp + 1, ends.after.timestamp)

    def _segment_batches(self, stream: BinaryIO, path: Path, stretch: Stretch, wanted: Wanted) -> Iterator[Any]:
        name, stat = name_of(path), os.fstat(stream.fileno())
        known = (str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if known not in _CHECKED:
            check_segment(stream, path, name)
            read_ends(stream, path, name, self.name, self._identity.seed)
            _CHECKED.add(known)
        needed = [column for column in SCHEMA.names if column in {*wanted.columns, *_tested(wanted), "offset"}]
        try:
            with pq.ParquetFile(stream, page_checksum_verification=True) as file:
                groups = [
                    group
                    for group in range(file.num_row_groups)
                    if _group_may_hold(file.metadata.row_group(group), stretch, wanted)
                ]
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=needed):
                    kept = batch.filter(_mask(batch, stretch, wanted))
                    if kept.num_rows:
                        yield kept.select(list(wanted.columns))
        except (OSError, pa.ArrowException) as error:
            raise damage(f"{path}: cannot be read: {error}", path, stretch.first) from None


class LogSteps:
    """Where records stand in a log: every so many of them, and the last that was asked for. It goes on where it was."""

    def __init__(self, path: Path, seed: int, every: int = LOG_ROWS) -> None:
        self._path, self._seed, self._every = path, seed, every
        with path.open("rb") as stream:
            self.start = read_file_header(stream, path, seed)
        self.last = Step(self.start, FILE_HEADER)
        self._steps = [self.last]

    def at(self, start: int, end: int) -> Step:
        """Returns the last step at or before the offset `start`, and reads the log on to `end` to learn its steps."""
        if self.last.place.offset < start:
            self._go(start)
        begin = self.last if self.last.place.offset == start else self._before(start)
        if self.last.place.offset < end:
            self._go(end)
        return begin

    def between(self, start: int, end: int) -> Sequence[Step]:
        return [step for step in self._steps if start < step.place.offset < end]

    def _before(self, offset: int) -> Step:
        return self._steps[bisect.bisect_right(self._steps, offset, key=lambda step: step.place.offset) - 1]

    def _go(self, end: int) -> None:
        try:
            with self._path.open("rb", buffering=1 << 17) as stream:
                for step in hop(stream, self.last, end, self._every, self._seed):
                    self.last = step
                    if step.place.offset % self._every == 0:
                        self._steps.append(step)
        except BrokenLogError as error:
            raise damaged(self._path, error) from None
        if self.last.place.offset < end:
            raise _cut_short(self._path, self.last.place.offset, end)


def _cut_short(path: Path, offset: int, end: int) -> JournalDamagedError:
    message = f"{path}: offsets {offset} to {end - 1} were synced and are no longer there"
    return damage(message, path, offset)


def _kept(rows: Rows, wanted: Wanted) -> Rows:
    if not _tested(wanted):
        return rows
    kept = [
        row
        for row in zip(*rows, strict=True)
        if (wanted.kinds is None or row[2].kind in wanted.kinds) and wanted.may_hold(row[1], row[1])
    ]
    return Rows(*map(list, zip(*kept, strict=True))) if kept else Rows([], [], [])


def _tested(wanted: Wanted) -> list[str]:
    """The columns that decide whether a row is wanted."""
    by_time = wanted.since is not None or wanted.until is not None
    return [*(["timestamp"] if by_time else []), *(["kind"] if wanted.kinds is not None else [])]


def _group_may_hold(group: Any, stretch: Stretch, wanted: Wanted) -> bool:
    def ends(name: str) -> tuple[Any, Any]:
        statistics = group.column(SCHEMA.get_field_index(name)).statistics
        return statistics.min_raw, statistics.max_raw

    first, last = ends("offset")
    if last < stretch.first or first >= stretch.next:
        return False
    if not wanted.may_hold(*ends("timestamp")):
        return False
    if wanted.kinds is None:
        return True
    least, most = (one.decode() if isinstance(one, bytes) else one for one in ends("kind"))
    return any(least <= kind <= most for kind in wanted.kinds)


def _mask(batch: Any, stretch: Stretch, wanted: Wanted) -> Any:
    offsets = batch.column("offset")
    mask = pc.and_(pc.greater_equal(offsets, stretch.first), pc.less(offsets, stretch.next))
    if wanted.kinds is not None:
        mask = pc.and_(mask, pc.is_in(batch.column("kind"), pa.array(sorted(wanted.kinds), pa.string())))
    if wanted.since is not None or wanted.until is not None:
        times = batch.column("timestamp").cast(pa.int64())
        if wanted.since is not None:
            mask = pc.and_(mask, pc.greater_equal(times, wanted.since))
        if wanted.until is not None:
            mask = pc.and_(mask, pc.less(times, wanted.until))
    return mask


_NOWHERE = 1 << 63
_CHECKED: set[tuple[str, int, int, int]] = set()  # segments whose every byte this process has looked at

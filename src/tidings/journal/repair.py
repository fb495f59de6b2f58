"""Repair a damaged journal, at the operator's explicit request.

Rules:
1. Every record that can be verified keeps its offset.
2. Every other record is replaced by one of the kind `$lost`, so that offsets, snapshots and readers' positions stay
   valid, and no reader passes over the gap unnoticed.
3. No data is deleted: a damaged file gets a second name in the folder `log_damage_error` before anything else happens.

Theory of operation: each file becomes a `_Piece` that is either undamaged (it knows the positions before and after it)
or must be rewritten from the records that can be salvaged. Missing files become pieces without records. Every piece
that must be rewritten becomes a segment; since segments precede logs, undamaged logs before it are rewritten as
segments as well.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidings.journal.damage import LOGS, SEGMENTS
from tidings.journal.disk import Disk
from tidings.journal.lock import FolderLock
from tidings.journal.log import LogPosition, LogWriter, find_headers
from tidings.journal.manifest import JournalManifest
from tidings.journal.record import LOST, Operation, Record, decode_operation
from tidings.journal.recovery import (
    FLOOR_FILE,
    check_end_is_unsynced,
    floor_above_records,
    list_logs,
    log_damage_error,
    log_first_offset,
    read_floor,
    remove_temporary_files,
    scan_log,
    segment_name,
    segment_paths,
)
from tidings.journal.segment import check_segment, read_ends, salvage_segment, write_segment
from tidings.journal.sync import FILE as MARK_FILE
from tidings.journal.sync import mark_bytes, read_mark
from tidings.model.errors import JournalDamagedError

ASIDE = "damaged"


class Repair(msgspec.Struct, frozen=True):
    """What a repair did.

    `lost` are the ranges of lost offsets (first, and the one after the last), `aside` the files that were moved to the
    folder `log_damage_error`, `renewed` the small files (mark, floor) that were written again.
    """

    lost: tuple[tuple[int, int], ...] = ()
    aside: tuple[Path, ...] = ()
    renewed: tuple[Path, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether anything was damaged."""
        return bool(self.lost or self.aside or self.renewed)

    def __str__(self) -> str:
        if not self.is_needed:
            return "nothing was damaged"
        count = sum(after - first for first, after in self.lost)
        ranges = ", ".join(f"{first} to {after - 1}" for first, after in self.lost)
        lost = f"{count:,} records are lost (offsets {ranges})" if count else "no record is lost"
        aside = ", ".join(path.name for path in self.aside) or "nothing"
        renewed = f"; written anew: {', '.join(path.name for path in self.renewed)}" if self.renewed else ""
        return f"{lost}; put aside: {aside}{renewed}"


def repair(folder: str | os.PathLike[str], *, dry_run: bool = False, disk: Disk | None = None) -> Repair:
    """Repair a damaged journal so that it can be opened, and return what was lost. Nothing is deleted.

    With `dry_run`, only return what a repair would do.
    """
    path = Path(folder)
    identity = JournalManifest.read(path)
    lock = FolderLock(path)
    try:
        return _Repairer(path, identity, disk or Disk(), dry_run=dry_run).run()
    finally:
        lock.release()


class _Piece(NamedTuple):
    """A file, or a gap between files, and the offsets that it should contain.

    `ends` are the positions before and after an undamaged file. For a file that must be rewritten `ends` is None, and
    `records` are its readable records.
    """

    path: Path | None
    first: int
    next: int
    ends: tuple[LogPosition, LogPosition] | None
    records: dict[int, Record]
    aside: bool = True

    @property
    def is_log(self) -> bool:
        return self.path is not None and self.path.parent.name == LOGS


class _Repairer:
    """One run of a repair."""

    def __init__(self, folder: Path, identity: JournalManifest, disk: Disk, *, dry_run: bool) -> None:
        self.folder, self.identity, self.disk, self.dry_run = folder, identity, disk, dry_run
        if not dry_run:
            remove_temporary_files(folder, disk)
        self.mark = read_mark(folder, identity.seed)
        self.aside: list[Path] = []
        self.renewed: list[Path] = []
        self.lost: list[tuple[int, int]] = []

    def run(self) -> Repair:
        pieces = self._segments_first(list(self._with_gaps(self._pieces())))
        place: LogPosition | None = None
        for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
            if piece.ends is None:
                target = following.ends[0] if following is not None and following.ends is not None else None
                place = self._rewrite(piece, place or LogPosition(piece.first, 0, 0), target)
                continue
            if place is not None and piece.ends[0] != place:
                raise JournalDamagedError(
                    f"{piece.path}: sound, but it does not follow from the file before it; is it another journal's?",
                    piece.path,
                    piece.first,
                )
            place = piece.ends[1]
        if place is not None and not (pieces[-1].is_log and pieces[-1].ends) and not self.dry_run:
            LogWriter.create(self.folder / LOGS, place, self.identity.seed, self.disk).close()
        if self.mark is None:
            self._rewrite_offset_file(MARK_FILE, 0 if place is None else place.offset)
        return Repair(tuple(self.lost), tuple(self.aside), tuple(self.renewed))

    def _pieces(self) -> list[_Piece]:
        """Return all files in the order of their offsets.

        Of two files with equal start, the undamaged one is used; if both are damaged, the log, completed from the
        segment.
        """
        chosen: dict[int, _Piece] = {}
        logs = self._with_valid_names(list_logs(self.folder), log_first_offset)
        starts = [log_first_offset(path) for path in logs]
        for path, after in zip(logs, [*starts, None][1:], strict=True):
            chosen[log_first_offset(path)] = self._log_piece(path, after)
        for path in self._with_valid_names(segment_paths(self.folder), segment_name):
            piece = self._segment_piece(path)
            other = chosen.get(piece.first)
            if other is None:
                chosen[piece.first] = piece
            elif other.ends is None and piece.ends is not None:
                chosen[piece.first] = piece
                self._move_aside(other.path)
            else:
                if other.ends is None:
                    chosen[piece.first] = other._replace(records={**piece.records, **other.records}, next=piece.next)
                self._move_aside(path)
        return [chosen[first] for first in sorted(chosen)]

    def _with_valid_names(self, paths: list[Path], read: Callable[[Path], object]) -> list[Path]:
        """Return the paths with valid names; the other files are moved to the folder `log_damage_error`."""
        valid = []
        for path in paths:
            try:
                read(path)
            except JournalDamagedError:
                self._move_aside(path)
            else:
                valid.append(path)
        return valid

    def _log_piece(self, path: Path, after: int | None) -> _Piece:
        """Return a log as a piece. `after` is the start of the next log, or None for the last log.

        Only the last log may end in an unfinished write.
        """
        first, seed = log_first_offset(path), self.identity.seed
        try:
            scan = scan_log(path, seed, None)
            if scan.broken is not None:
                if after is not None:
                    raise log_damage_error(path, scan.broken)
                check_end_is_unsynced(path, scan, self.mark, seed)
            if after is not None or scan.place.offset >= (self.mark or 0):
                return _Piece(path, first, scan.place.offset, (scan.start, scan.place), {})
        except JournalDamagedError:
            pass
        records = self._salvage_log(path)
        end = after if after is not None else max([first, self.mark or 0, *(offset + 1 for offset in records)])
        return _Piece(path, first, end, None, records)

    def _salvage_log(self, path: Path) -> dict[int, Record]:
        """Return the readable records of a log by their offsets, wherever they are in the file."""
        records = {}
        for header in find_headers(path.read_bytes(), 0, self.identity.seed):
            if header.body is not None:
                with contextlib.suppress(msgspec.MsgspecError):
                    records[header.offset] = Record(header.offset, header.timestamp, decode_operation(header.body))
        return records

    def _segment_piece(self, path: Path) -> _Piece:
        name = segment_name(path)
        try:
            with path.open("rb") as stream:
                check_segment(stream, path, name)
                ends = read_ends(stream, path, name, self.identity.name, self.identity.seed)
            return _Piece(path, name.first, name.next, (ends.before, ends.after), {})
        except JournalDamagedError:
            records = {record.offset: record for record in salvage_segment(path, name)}
            return _Piece(path, name.first, name.next, None, records)

    def _with_gaps(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        """Yield the pieces and, for missing offsets between the floor and the mark, pieces without a file.

        Renews a damaged floor. Raises a `JournalDamagedError` if two files contain the same offsets.
        """
        try:
            offset = read_floor(self.folder, self.identity.seed)
            if pieces and pieces[0].first < offset != pieces[0].next:
                raise floor_above_records(self.folder, offset, pieces[0].first)
        except JournalDamagedError:
            offset = pieces[0].first if pieces else 0
            self._rewrite_offset_file(FLOOR_FILE, offset)
        offset = min([offset, *(piece.first for piece in pieces[:1])])
        for piece in pieces:
            if piece.first > offset:
                yield _Piece(None, offset, piece.first, None, {})
            if piece.first < offset:
                raise JournalDamagedError(
                    f"{piece.path}: offsets {piece.first} to {offset - 1} stand in two files; put one of them away",
                    piece.path,
                    piece.first,
                )
            yield piece
            offset = piece.next
        if (self.mark or 0) > offset or not pieces:
            yield _Piece(None, offset, max(self.mark or 0, offset), None, {})

    def _segments_first(self, pieces: list[_Piece]) -> list[_Piece]:
        """Mark undamaged logs before a piece that must be rewritten for rewriting, too: segments must precede logs."""
        last = max((at for at, piece in enumerate(pieces) if piece.ends is None), default=0)
        return [
            piece._replace(ends=None, records=self._salvage_log(piece.path), aside=False)
            if at < last and piece.is_log and piece.path is not None and piece.ends is not None
            else piece
            for at, piece in enumerate(pieces)
        ]

    def _rewrite(self, piece: _Piece, before: LogPosition, target: LogPosition | None) -> LogPosition:
        """Write a piece as a segment, with `$lost` in place of unreadable records; return the position after it.

        The last record takes over timestamp and checksum from the next undamaged file, so that this file still follows.
        """
        check = 0 if target is None else target.check
        if piece.aside:
            self._keep_copy(piece.path)
        after, written = before, None
        if piece.first < piece.next:
            records = list(self._without_gaps(piece, before, target))
            after = LogPosition(piece.next, records[-1].timestamp, check)
            name, seed = self.identity.name, self.identity.seed
            if not self.dry_run:
                written = write_segment(self.folder / SEGMENTS, records, before, check, name, seed, self.disk)
        if (
            piece.path is not None and piece.path != written and not self.dry_run
        ):  # a file that was read completely gets the same name again
            self.disk.delete(piece.path)
        return after

    def _without_gaps(self, piece: _Piece, before: LogPosition, target: LogPosition | None) -> Iterator[Record]:
        """Yield one record for each offset of a piece: the readable one, or a `$lost` record."""
        timestamp = before.timestamp
        for offset in range(piece.first, piece.next):
            record = piece.records.get(offset)
            if record is None or record.timestamp <= timestamp:
                last = target if offset == piece.next - 1 else None
                record = Record(offset, timestamp + 1 if last is None else last.timestamp, Operation(LOST))
                self._note_lost(offset)
            timestamp = record.timestamp
            yield record

    def _note_lost(self, offset: int) -> None:
        if self.lost and self.lost[-1][1] == offset:
            self.lost[-1] = (self.lost[-1][0], offset + 1)
        else:
            self.lost.append((offset, offset + 1))

    def _keep_copy(self, path: Path | None) -> None:
        """Give a damaged file a second name, before anything else is done: a crash must not lose the only copy."""
        if path is None:
            return
        copy = self._free_name(path)
        self.aside.append(copy)
        if self.dry_run:
            return
        copy.parent.mkdir(exist_ok=True)
        if not copy.exists():
            copy.hardlink_to(path)
        self.disk.sync_file(copy.parent)
        self.disk.sync_file(self.folder)

    def _free_name(self, path: Path) -> Path:
        """Return a free name for the file in the folder `log_damage_error`; a number is added if the name is taken."""
        folder = self.folder / ASIDE
        names = itertools.chain([path.name], (f"{path.name}.{number}" for number in itertools.count(1)))
        return next(free for name in names if not (free := folder / name).exists() or free.samefile(path))

    def _move_aside(self, path: Path | None) -> None:
        """Move a file to the folder `log_damage_error`."""
        if path is not None:
            self._keep_copy(path)
            if not self.dry_run:
                self.disk.delete(path)

    def _rewrite_offset_file(self, name: str, offset: int) -> None:
        """Write the mark or the floor again."""
        path = self.folder / name
        self._keep_copy(path if path.exists() else None)
        if not self.dry_run:
            self.disk.create(path, mark_bytes(offset, self.identity.seed))
        self.renewed.append(path)

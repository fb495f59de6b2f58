"""Repair: asked for explicitly, when a journal is damaged.

Every record that can still be vouched for stays where it is. In the place of every other stands a record of the kind
`$lost`, so that offsets stay what they were, snapshots and readers' places stay good, and no reader passes over the gap
without seeing it. Damaged files are kept aside.
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
from tidings.journal.identity import Identity
from tidings.journal.lock import FolderLock
from tidings.journal.log import LogWriter, Place, find_headers
from tidings.journal.mark import FILE as MARK_FILE
from tidings.journal.mark import mark_bytes, read_mark
from tidings.journal.record import LOST, Operation, Record, decoded
from tidings.journal.recovery import (
    FLOOR_FILE,
    damaged,
    first_of,
    list_logs,
    name_of,
    read_floor,
    scan_log,
    segment_paths,
    strange_floor,
    sweep,
    torn_or_damaged,
)
from tidings.journal.segment import check_segment, read_ends, salvage_segment, write_segment
from tidings.model.errors import JournalDamagedError

ASIDE = "damaged"


class Repair(msgspec.Struct, frozen=True):
    """What was done: offsets that are lost (first, and the one after the last), files that were put aside, and small
    files (the mark, the floor) that were written anew."""

    lost: tuple[tuple[int, int], ...] = ()
    aside: tuple[Path, ...] = ()
    renewed: tuple[Path, ...] = ()

    @property
    def is_needed(self) -> bool:
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
    """Makes a damaged journal one that opens, and says what that cost. Nothing is deleted.

    With `dry_run` it only says what it would do.
    """
    path = Path(folder)
    identity = Identity.read(path)
    lock = FolderLock(path)
    try:
        return _Repairer(path, identity, disk or Disk(), dry_run=dry_run).run()
    finally:
        lock.release()


class _Piece(NamedTuple):
    """A file, and the offsets that it should hold. One that is sound says where it starts and ends; one that is to be
    written anew says which of its records can be read."""

    path: Path | None
    first: int
    next: int
    ends: tuple[Place, Place] | None
    records: dict[int, Record]
    aside: bool = True

    @property
    def is_log(self) -> bool:
        return self.path is not None and self.path.parent.name == LOGS


class _Repairer:
    def __init__(self, folder: Path, identity: Identity, disk: Disk, *, dry_run: bool) -> None:
        self.folder, self.identity, self.disk, self.dry_run = folder, identity, disk, dry_run
        if not dry_run:
            sweep(folder, disk)
        self.mark = read_mark(folder, identity.seed)
        self.aside: list[Path] = []
        self.renewed: list[Path] = []
        self.lost: list[tuple[int, int]] = []

    def run(self) -> Repair:
        pieces = self._segments_first(list(self._with_gaps(self._pieces())))
        place: Place | None = None
        for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
            if piece.ends is None:
                target = following.ends[0] if following is not None and following.ends is not None else None
                place = self._rewritten(piece, place or Place(piece.first, 0, 0), target)
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
            self._renew(MARK_FILE, 0 if place is None else place.offset)
        return Repair(tuple(self.lost), tuple(self.aside), tuple(self.renewed))

    def _pieces(self) -> list[_Piece]:
        """All files in the order of their offsets; of two with the same start the sound one, or else the log."""
        chosen: dict[int, _Piece] = {}
        logs = self._named(list_logs(self.folder), first_of)
        starts = [first_of(path) for path in logs]
        for path, after in zip(logs, [*starts, None][1:], strict=True):
            chosen[first_of(path)] = self._log_piece(path, after)
        for path in self._named(segment_paths(self.folder), name_of):
            piece = self._segment_piece(path)
            rival = chosen.get(piece.first)
            if rival is None:
                chosen[piece.first] = piece
            elif rival.ends is None and piece.ends is not None:
                chosen[piece.first] = piece
                self._put_aside(rival.path)
            else:
                if rival.ends is None:
                    chosen[piece.first] = rival._replace(records={**piece.records, **rival.records}, next=piece.next)
                self._put_aside(path)
        return [chosen[first] for first in sorted(chosen)]

    def _named(self, paths: list[Path], read: Callable[[Path], object]) -> list[Path]:
        """Those whose names say what they hold; the others are put aside."""
        kept = []
        for path in paths:
            try:
                read(path)
            except JournalDamagedError:
                self._put_aside(path)
            else:
                kept.append(path)
        return kept

    def _log_piece(self, path: Path, after: int | None) -> _Piece:
        """`after` is where the next log starts; the last one has none, and may end in an unfinished write."""
        first, seed = first_of(path), self.identity.seed
        try:
            scan = scan_log(path, seed, None)
            if scan.broken is not None:
                if after is not None:
                    raise damaged(path, scan.broken)
                torn_or_damaged(path, scan, self.mark, seed)
            if after is not None or scan.place.offset >= (self.mark or 0):
                return _Piece(path, first, scan.place.offset, (scan.start, scan.place), {})
        except JournalDamagedError:
            pass
        records = self._salvaged(path)
        end = after if after is not None else max([first, self.mark or 0, *(offset + 1 for offset in records)])
        return _Piece(path, first, end, None, records)

    def _salvaged(self, path: Path) -> dict[int, Record]:
        records = {}
        for header in find_headers(path.read_bytes(), 0, self.identity.seed):
            if header.body is not None:
                with contextlib.suppress(msgspec.MsgspecError):
                    records[header.offset] = Record(header.offset, header.timestamp, decoded(header.body))
        return records

    def _segment_piece(self, path: Path) -> _Piece:
        name = name_of(path)
        try:
            with path.open("rb") as stream:
                check_segment(stream, path, name)
                ends = read_ends(stream, path, name, self.identity.name, self.identity.seed)
            return _Piece(path, name.first, name.next, (ends.before, ends.after), {})
        except JournalDamagedError:
            records = {record.offset: record for record in salvage_segment(path, name)}
            return _Piece(path, name.first, name.next, None, records)

    def _with_gaps(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        try:
            offset = read_floor(self.folder, self.identity.seed)
            if pieces and pieces[0].first < offset != pieces[0].next:
                raise strange_floor(self.folder, offset, pieces[0].first)
        except JournalDamagedError:
            offset = pieces[0].first if pieces else 0
            self._renew(FLOOR_FILE, offset)
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
        """What is written anew becomes a segment, and segments come before logs: sound logs in front are rolled."""
        last = max((at for at, piece in enumerate(pieces) if piece.ends is None), default=0)
        return [
            piece._replace(ends=None, records=self._salvaged(piece.path), aside=False)
            if at < last and piece.is_log and piece.path is not None and piece.ends is not None
            else piece
            for at, piece in enumerate(pieces)
        ]

    def _rewritten(self, piece: _Piece, before: Place, target: Place | None) -> Place:
        """A segment of what can be read, with `$lost` for the rest; it ends as the next file says that it did."""
        check = 0 if target is None else target.check
        if piece.aside:
            self._keep(piece.path)
        after, written = before, None
        if piece.first < piece.next:
            records = list(self._filled(piece, before, target))
            after = Place(piece.next, records[-1].timestamp, check)
            name, seed = self.identity.name, self.identity.seed
            if not self.dry_run:
                written = write_segment(self.folder / SEGMENTS, records, before, check, name, seed, self.disk)
        if (
            piece.path is not None and piece.path != written and not self.dry_run
        ):  # what could be read in full has the name that it had
            self.disk.delete(piece.path)
        return after

    def _filled(self, piece: _Piece, before: Place, target: Place | None) -> Iterator[Record]:
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

    def _keep(self, path: Path | None) -> None:
        """A second name for a damaged file, before anything else is done: a crash must not lose the only copy."""
        if path is None:
            return
        kept = self._free_name(path)
        self.aside.append(kept)
        if self.dry_run:
            return
        kept.parent.mkdir(exist_ok=True)
        if not kept.exists():
            kept.hardlink_to(path)
        self.disk.sync_file(kept.parent)
        self.disk.sync_file(self.folder)

    def _free_name(self, path: Path) -> Path:
        """Its own name, or one with a number if an earlier repair has put another file of that name aside."""
        folder = self.folder / ASIDE
        names = itertools.chain([path.name], (f"{path.name}.{number}" for number in itertools.count(1)))
        return next(one for name in names if not (one := folder / name).exists() or one.samefile(path))

    def _put_aside(self, path: Path | None) -> None:
        if path is not None:
            self._keep(path)
            if not self.dry_run:
                self.disk.delete(path)

    def _renew(self, name: str, offset: int) -> None:
        """The mark or the floor, written anew."""
        path = self.folder / name
        self._keep(path if path.exists() else None)
        if not self.dry_run:
            self.disk.create(path, mark_bytes(offset, self.identity.seed))
        self.renewed.append(path)

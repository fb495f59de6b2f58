"""The journal: the durable log of accepted operations that hub, live brokers and Spark share.

`append` puts operations in order, `sync` and `commit` make them durable (one fsync for many who wait), `read` gives
back what is durable. It reads no clock and draws nothing at random: `now`, name and salt are handed in.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tidings.journal import snapshot
from tidings.journal.commit import GroupCommit
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage
from tidings.journal.disk import FULL, Disk
from tidings.journal.identity import FILE as IDENTITY_FILE
from tidings.journal.identity import Identity, missing
from tidings.journal.lock import FolderLock
from tidings.journal.log import FILE_HEADER, LogWriter, Place, framed_size, log_path
from tidings.journal.mark import FILE as MARK_FILE
from tidings.journal.mark import Mark, mark_bytes
from tidings.journal.record import Operation, Record, Span, encoded
from tidings.journal.recovery import FLOOR_FILE, Part, list_logs, recover
from tidings.journal.shelf import Shelf, read_log, size_of
from tidings.journal.snapshot import Snapshot
from tidings.model.errors import (
    InvalidValueError,
    JournalDamagedError,
    JournalError,
    JournalFailedError,
    JournalFullError,
    OffsetGoneError,
)
from tidings.model.limits import MAX_INTEGER


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When the log has this size or this many records, a new one is begun; `convert` rolls the old one into Parquet
    at once, in the call that filled it. Without it, whoever syncs begins the new log, so that an `append` waits for
    no fsync, and whoever owns the journal calls `roll` when it has time.

    So long as so many bytes of the disk as `reserve_bytes` are free, everything is taken; below, only what is
    essential: there must be room to acknowledge, to leave and to shut down when publishers have filled the disk."""

    roll_bytes: int = 64 * 1024 * 1024
    roll_records: int = 500_000
    convert: bool = True
    reserve_bytes: int = 16 * 1024 * 1024


class Replay(NamedTuple):
    """How to reach the present: the state to start from, if there is one, and the records after it."""

    snapshot: Snapshot | None
    records: Iterator[Record]


class Journal:
    """Made by `Journal.open`. Every method may be called from any thread."""

    def __init__(self, folder: Path, identity: Identity, lock: FolderLock, options: JournalOptions, disk: Disk) -> None:
        state = recover(folder, identity, disk)
        self.folder, self.name, self.options = folder, identity.name, options
        self.notes = state.notes  # what recovery, falling back and failed rolling had to tell
        self._lock_file, self._disk, self._seed = lock, disk, identity.seed
        self._shelf = Shelf(folder, identity, disk, state.parts)
        self._log = LogWriter(state.path, state.first, state.place, state.size, identity.seed, disk)
        self._mark = Mark(folder, identity.seed, disk)
        self._mark.write(state.place.offset)
        self._failure: JournalError | None = None
        self._closed = False
        self._unasked = 0  # so many bytes may be appended before it is asked again how much is free
        # Taken in this order: upkeep (rolling, retention), then flushing, then the state itself.
        self._upkeep = threading.RLock()
        self._flushing = threading.Lock()
        self._state = threading.Lock()
        self._commit = GroupCommit(self._flush, state.place.offset)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        create: bool = True,
        name: str = "journal",
        salt: bytes = b"",
        options: JournalOptions | None = None,
        disk: Disk | None = None,
    ) -> Self:
        """Opens the journal of that folder, or makes one; `name` and `salt` are those of a new one.

        The name comes second in the order of operations, after the timestamp: give each broker's its own.
        """
        path, disk = Path(folder), disk or Disk()
        if not create:
            Identity.read(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(path)
        except OSError as error:
            raise _failed(error, path, "the folder cannot be written to") from error
        try:
            if not (path / IDENTITY_FILE).exists():
                _create(path, Identity.of(name, salt), disk)
            return cls(path, Identity.read(path), lock, options or JournalOptions(), disk)
        except OSError as error:
            lock.release()
            raise _failed(error, path, "the journal cannot be opened") from error
        except BaseException:
            lock.release()
            raise

    # Writing

    def append(self, operations: Iterable[Operation], now: int, *, essential: bool = False) -> Span:
        """Puts operations at the end, all or none. They are in order, and not durable before `sync`.

        Each gets the time `now` (microseconds), or the microsecond after the one before it if that is later. What is
        `essential` (acknowledgements, control) may use the room that is reserved for it.
        """
        if type(now) is not int or not 0 <= now <= MAX_INTEGER:
            raise InvalidValueError("now: must be an int between 0 and 2^63 - 1")
        bodies = encoded(operations)
        with self._state:
            self._check_usable()
            try:
                if not essential:
                    self._check_reserve(bodies)
                span = self._log.append(bodies, now, self._commit.synced)
            except OSError as error:
                failure = _failed(error, self._log.path, "nothing was written")
                if self._log.untidy or not isinstance(failure, JournalFullError):
                    failure = self._failure = _failed(error, self._log.path, "a write failed", final=True)
                raise failure from error
            except BaseException:
                if self._log.untidy:
                    self._failure = JournalFailedError(f"{self._log.path}: a write was interrupted", self._log.path)
                raise
            due = self.options.convert and self._is_full()
        if due:
            self._roll_when_full()
        return span

    def sync(self, offset: int | None = None) -> int:
        """Returns when everything below the offset (by default: all that was appended) is on the disk.

        What it returns is the offset below which everything is.
        """
        with self._state:
            self._check_usable()
            wanted = self._log.place.offset if offset is None else min(offset, self._log.place.offset)
        return self._wait(wanted)

    def commit(self, operations: Iterable[Operation], now: int, *, essential: bool = False) -> Span:
        """Appends and syncs; those who commit at the same time share an fsync."""
        span = self.append(operations, now, essential=essential)
        self._wait(span.next)
        return span

    @property
    def first(self) -> int:
        """The oldest offset that is there."""
        with self._state:
            return self._first()

    @property
    def next(self) -> int:
        """The offset that the next operation will get."""
        return self._log.place.offset

    @property
    def timestamp(self) -> int:
        """Of the last record; the next one will be later."""
        return self._log.place.timestamp

    @property
    def synced(self) -> int:
        """Everything below this offset is durable."""
        return self._commit.synced

    @property
    def size(self) -> int:
        """The bytes of its logs, segments and snapshots."""
        snapshots = sum(map(size_of, snapshot.list_snapshots(self.folder / SNAPSHOTS)))
        return self._log.size + self._shelf.size + snapshots

    # Reading

    def read(self, start: int | None = None, until: int | None = None) -> Iterator[Record]:
        """The durable records from `start` (by default the oldest) up to, not including, `until`, in order.

        Appending, rolling and retention may go on meanwhile. Where retention has overtaken the reader, it is told.
        """
        offset = self.first if start is None else start
        end = self.synced if until is None else min(until, self.synced)
        while offset < end:
            for record in self._read_part(offset):
                offset = record.offset + 1
                yield record
                if offset >= end:
                    return  # what follows may be in the middle of being written

    def replay(self) -> Replay:
        """What to start from and what to apply to it, to be where the journal is."""
        latest = self.latest_snapshot()
        start = 0 if latest is None else latest.offset
        if start < self.first:
            raise JournalDamagedError(
                f"{self.folder}: the records before offset {self.first} are gone, and no sound snapshot stands for "
                "them; read() gives what is there",
                self.folder,
                start,
            )
        return Replay(latest, self.read(start))

    def verify(self) -> int:
        """Reads every byte of what is durable, and raises a `JournalDamagedError` at the first that is not as it was
        written; the number of records that were looked at."""
        with self._upkeep:
            self._shelf.distrust()
            count, before = 0, -1
            for record in self.read():
                if record.timestamp <= before:
                    raise damage(
                        f"{self.folder}: the timestamp of offset {record.offset} does not rise",
                        self.folder,
                        record.offset,
                    )
                count, before = count + 1, record.timestamp
        return count

    # Snapshots

    def write_snapshot(self, offset: int, data: bytes) -> None:
        """Keeps the state that its owner has reached after every record below `offset`, which must be durable."""
        if not self.first <= offset <= self.synced:
            raise InvalidValueError(f"offset: a snapshot stands between {self.first} and {self.synced}, not {offset}")
        try:
            snapshot.write_snapshot(self.folder / SNAPSHOTS, Snapshot(offset, bytes(data)), self._seed, self._disk)
        except OSError as error:
            raise _failed(error, self.folder / SNAPSHOTS, "the snapshot was not written") from error

    def latest_snapshot(self) -> Snapshot | None:
        """The newest that is sound; others are passed over, with a note."""
        for path in snapshot.list_snapshots(self.folder / SNAPSHOTS):
            found = snapshot.read_snapshot(path, self._seed)
            if found is not None and found.offset <= self.synced:
                return found
            self._note(f"the snapshot {path.name} is damaged and was passed over")
        return None

    # Upkeep

    @property
    def unrolled(self) -> int:
        """How many logs are full and not yet segments; with `convert=False` their owner rolls them."""
        return sum(part.is_log for part in self._shelf.parts)

    def roll(self, *, begin: bool = True) -> None:
        """Begins a new log, and turns those before it into Parquet segments; without `begin`, only those before it."""
        with self._upkeep:
            if begin:
                self._begin_log()
            self._convert()

    def retain(
        self,
        before_timestamp: int | None = None,
        max_bytes: int | None = None,
        *,
        keep_from: int | None = None,
        without_snapshot: bool = False,
    ) -> int:
        """Removes the oldest segments and full logs: those that end before a time, and those that are over a size (of
        all files together); how many.

        Records from `keep_from` on stay, and so does all that the oldest snapshot does not stand for, since
        subscriptions, contexts and policies would be lost with it; `without_snapshot` gives that up.
        """
        with self._upkeep:
            limit = self.synced if keep_from is None else keep_from
            if not without_snapshot:
                limit = min(limit, self._oldest_snapshot())
            try:
                return self._shelf.retain(limit, self.size, before_timestamp, max_bytes)
            except OSError as error:
                raise _failed(error, self.folder / SEGMENTS, "what is too old or too much cannot be removed") from error

    def close(self) -> None:
        """Syncs what was appended, and lets the folder go. Closing twice is no mistake."""
        with self._upkeep:
            if self._closed:
                return
            try:
                if self._failure is None:
                    self.sync()
            finally:
                with self._flushing, self._state:
                    self._closed = True
                    try:
                        self._log.close()
                        with contextlib.suppress(OSError):  # an old mark is still true
                            self._mark.close(sync=self._failure is None)
                    finally:
                        self._lock_file.release()

    def release_lock(self) -> None:
        """Lets another process open the folder although this journal is not closed, as the system does when a process
        is killed. The journal must not be used any more."""
        self._lock_file.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What the above is made of

    def _check_usable(self) -> None:
        if self._closed:
            raise JournalError(f"the journal in {self.folder} is closed", self.folder)
        if self._failure is not None:
            raise JournalFailedError(str(self._failure), self._failure.path)

    def _check_reserve(self, bodies: list[bytes]) -> None:
        """How much is free is asked for now and then: what is appended in between is little beside the reserve."""
        reserve, size = self.options.reserve_bytes, framed_size(bodies)
        self._unasked -= size
        if not reserve or self._unasked > 0:
            return
        free = self._disk.free_bytes(self._log.fd) - size
        if free < reserve:
            raise JournalFullError(
                f"{self._log.path}: nothing was written, since {max(free, 0):,} bytes of the disk would be left, and "
                f"{reserve:,} are kept for acknowledgements and control; make room and try again",
                self._log.path,
            )
        self._unasked = min(free - reserve, reserve // 16)

    def _note(self, what: str) -> None:
        if what not in self.notes[-8:]:  # a full disk says the same with every append
            self.notes.append(what)

    def _wait(self, offset: int) -> int:
        synced = self._commit.wait(offset)
        if not self.options.convert and self._is_full():
            self._roll_when_full()
        return synced

    def _flush(self) -> int:
        with self._flushing:
            with self._state:
                self._check_usable()
                writer, end = self._log, self._log.place.offset
            self._sync_log(writer)
            self._mark.write(end)
            return end

    def _sync_log(self, writer: LogWriter) -> None:
        try:
            writer.sync()
        except OSError as error:
            self._failure = _failed(error, writer.path, "fsync failed", final=True)
            raise self._failure from error

    def _is_full(self) -> bool:
        records = self._log.place.offset - self._log.first
        return records > 0 and (self._log.size >= self.options.roll_bytes or records >= self.options.roll_records)

    def _roll_when_full(self) -> None:
        """What was appended is in the log, whether or not a new one can be begun: a failure is noted and tried again
        the next time; one that makes the journal unusable is told by the next call."""
        if not self._upkeep.acquire(blocking=False):
            return  # somebody is rolling, or at other work that may take long: the log grows a little more
        try:
            if self._is_full():
                self._begin_log()
                if self.options.convert:
                    self._convert()
        except JournalError as error:
            self._note(f"rolling failed: {error}")
        finally:
            self._upkeep.release()

    def _begin_log(self) -> None:
        with self._flushing, self._state:
            self._check_usable()
            old = self._log
            if old.place.offset == old.first:
                return
            if self._commit.synced < old.place.offset:
                self._sync_log(old)
                self._mark.write(old.place.offset)
                self._commit.advance(old.place.offset)
            try:
                new = LogWriter.create(self.folder / LOGS, old.place, self._seed, self._disk)
            except OSError as error:
                failure = _failed(error, self.folder / LOGS, "no new log can be begun")
                if log_path(self.folder / LOGS, old.place.offset).exists():
                    # It has its name and may or may not keep it: the old log must not grow past it.
                    failure = self._failure = _failed(error, self.folder / LOGS, "no new log can be begun", final=True)
                raise failure from error
            self._shelf.add(Part(old.path, old.first, old.place.offset))
            self._log = new
            old.close()

    def _convert(self) -> None:
        try:
            self._shelf.roll()
        except OSError as error:
            raise _failed(error, self.folder / SEGMENTS, "a log cannot be rolled, and stays") from error

    def _oldest_snapshot(self) -> int:
        """The offset of the oldest that is sound, or 0."""
        for path in reversed(snapshot.list_snapshots(self.folder / SNAPSHOTS)):
            found = snapshot.read_snapshot(path, self._seed)
            if found is not None:
                return found.offset
        return 0

    def _first(self) -> int:
        parts = self._shelf.parts
        return parts[0].first if parts else self._log.first

    def _read_part(self, offset: int) -> Iterator[Record]:
        """The records from an offset to the end of the file in which it stands."""
        with self._state:
            first = self._first()
            if offset < first:
                raise OffsetGoneError(
                    f"{self.folder}: offset {offset} is gone; the oldest that is there is {first}", self.folder, first
                )
            found = self._shelf.open(offset)
            path = self._log.path
            stream = path.open("rb") if found is None else found[1]
        with stream:
            if found is None:
                yield from read_log(path, stream, offset, self._seed)
            else:
                yield from self._shelf.read(found[0], stream, offset)


def _create(folder: Path, identity: Identity, disk: Disk) -> None:
    """The identity comes last: a folder without one is no journal, and what a crash left there is begun anew."""
    for name in (LOGS, SEGMENTS, SNAPSHOTS):
        (folder / name).mkdir(exist_ok=True)
    files = [*(folder / SEGMENTS).iterdir(), *(folder / SNAPSHOTS).iterdir()]
    if files or any(path.stat().st_size > FILE_HEADER for path in list_logs(folder)):
        raise missing(folder)
    for path in list_logs(folder):
        disk.remove(path)
    LogWriter.create(folder / LOGS, Place(0, 0, 0), identity.seed, disk).close()
    for name in (MARK_FILE, FLOOR_FILE):
        disk.create(folder / name, mark_bytes(0, identity.seed))
    identity.write(folder, disk)
    disk.sync_file(folder.parent)


def _failed(error: OSError, path: Path, what: str, *, final: bool = False) -> JournalError:
    reason = error.strerror or str(error)
    if final:
        return JournalFailedError(
            f"{path}: {what} ({reason}); what is on the disk is not known, and nothing more is taken or acknowledged "
            "until the journal is closed and opened again",
            path,
        )
    if error.errno in FULL:
        return JournalFullError(f"{path}: {what} ({reason}); make room and try again", path)
    return JournalFailedError(f"{path}: {what} ({reason})", path)

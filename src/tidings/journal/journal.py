"""The journal: the durable log of accepted operations that hub, brokers and Spark share.

`append` puts operations in order; `sync` and `commit` make them durable, with one fsync for all callers that wait;
`read` returns only durable records. The journal reads no clock and draws no random number: the caller passes in `now`,
name and salt.

Rules:
1. Offsets are consecutive and timestamps rise strictly.
2. `append` writes all of its operations or none. After a failed fsync, or a write that failed for another reason than a
   full disk, the journal refuses everything until it is reopened, because the content of the disk is unknown.
3. No record is read before it is durable, and no durable record is changed.

Theory of operation: a `LogWriter` appends to the one log that grows. A `GroupCommit` elects one waiting thread to fsync
for all, and `SyncMark` stores how far that went, so that recovery can tell an unfinished write from damage. A full log
is closed and a new one begun; `ClosedSegments` rolls closed logs into Parquet and applies retention. Three locks, taken
in this order, protect upkeep (rolling and retention), flushing, and the state.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tidings.journal import snapshot
from tidings.journal.closed_segments import ClosedSegments, read_log, size_of
from tidings.journal.damage import LOGS, SEGMENTS, SNAPSHOTS, damage_error
from tidings.journal.disk import FULL, Disk
from tidings.journal.lock import FolderLock
from tidings.journal.log import FILE_HEADER, LogPosition, LogWriter, framed_size, log_path
from tidings.journal.manifest import FILE as IDENTITY_FILE
from tidings.journal.manifest import JournalManifest, manifest_missing_error
from tidings.journal.record import Operation, Record, Span, encode_operations
from tidings.journal.recovery import FLOOR_FILE, ClosedFile, list_logs, recover
from tidings.journal.snapshot import Snapshot
from tidings.journal.sync import FILE as MARK_FILE
from tidings.journal.sync import GroupCommit, SyncMark, mark_bytes
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
    """When a journal begins a new log, and how much room on the disk it reserves.

    A new log begins when the old one has `roll_bytes` or `roll_records`. With `convert`, the call that fills the log
    rolls it into Parquet at once. Without it, a call that syncs begins the new log, so that no `append` waits for an
    fsync, and the owner of the journal calls `roll` when it has time.

    If fewer than `reserve_bytes` of the disk are free, the journal takes only essential operations, so that subscribers
    can still acknowledge and leave, and the broker can shut down, after publishers have filled the disk.
    """

    roll_bytes: int = 64 * 1024 * 1024
    roll_records: int = 500_000
    convert: bool = True
    reserve_bytes: int = 16 * 1024 * 1024


class Replay(NamedTuple):
    """The state to restore from, if there is a snapshot, and the records to apply to it."""

    snapshot: Snapshot | None
    records: Iterator[Record]


class Journal:
    """An open journal, with the lock of its folder; `Journal.open` creates it. All methods are thread-safe."""

    def __init__(
        self, folder: Path, identity: JournalManifest, lock: FolderLock, options: JournalOptions, disk: Disk
    ) -> None:
        state = recover(folder, identity, disk)
        self.folder, self.name, self.options = folder, identity.name, options
        self.notes = state.notes  # messages about recovery, skipped snapshots and failed rolling
        self._folder_lock, self._disk, self._seed = lock, disk, identity.seed
        self._closed_segments = ClosedSegments(folder, identity, disk, state.parts)
        self._log = LogWriter(state.path, state.first, state.place, state.size, identity.seed, disk)
        self._sync_mark = SyncMark(folder, identity.seed, disk)
        self._sync_mark.write(state.place.offset)
        self._failure: JournalError | None = None
        self._closed = False
        self._bytes_until_space_check = 0  # bytes that may be appended before the free space is checked again
        # Lock order: upkeep (rolling, retention), then flushing, then state.
        self._upkeep_lock = threading.RLock()
        self._flush_lock = threading.Lock()
        self._state_lock = threading.Lock()
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
        """Open the journal in a folder, or create one.

        Args:
            folder: The folder of the journal.
            create: Create a journal if the folder has none; otherwise that is a `JournalError`.
            name: The name of a new journal. Give each broker its own: operations are ordered by timestamp, then by
                name.
            salt: Random bytes for the checksums of a new journal.
            options: When to roll, and how much room to reserve.
            disk: The file system operations; tests replace it.

        Raises:
            JournalLockedError: Another writer has the journal open.
            JournalDamagedError: The journal is damaged; the message contains the repair command.
            JournalError: The folder is not a journal, or cannot be written to.
        """
        path, disk = Path(folder), disk or Disk()
        if not create:
            JournalManifest.read(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(path)
        except OSError as error:
            raise _journal_error(error, path, "the folder cannot be written to") from error
        try:
            if not (path / IDENTITY_FILE).exists():
                _create(path, JournalManifest.of(name, salt), disk)
            return cls(path, JournalManifest.read(path), lock, options or JournalOptions(), disk)
        except OSError as error:
            lock.release()
            raise _journal_error(error, path, "the journal cannot be opened") from error
        except BaseException:
            lock.release()
            raise

    # Writing

    def append(self, operations: Iterable[Operation], now: int, *, essential: bool = False) -> Span:
        """Append operations, all or none, and return their place. They are ordered, but not durable before `sync`.

        Each operation gets the timestamp `now` (microseconds), or one microsecond more than the previous record if that
        is later. Operations that are `essential` (acknowledgements, control) may use the reserved room on the disk.
        Raises a `JournalFullError` if there is no room, and a `JournalFailedError` if a write failed.
        """
        if type(now) is not int or not 0 <= now <= MAX_INTEGER:
            raise InvalidValueError("now: must be an int between 0 and 2^63 - 1")
        bodies = encode_operations(operations)
        with self._state_lock:
            self._check_usable()
            try:
                if not essential:
                    self._check_reserve(bodies)
                span = self._log.append(bodies, now, self._commit.synced)
            except OSError as error:
                failure = _journal_error(error, self._log.path, "nothing was written")
                if self._log.has_partial_record or not isinstance(failure, JournalFullError):
                    failure = self._failure = _journal_error(error, self._log.path, "a write failed", final=True)
                raise failure from error
            except BaseException:
                if self._log.has_partial_record:
                    self._failure = JournalFailedError(f"{self._log.path}: a write was interrupted", self._log.path)
                raise
            must_roll = self.options.convert and self._is_full()
        if must_roll:
            self._roll_when_full()
        return span

    def sync(self, offset: int | None = None) -> int:
        """Return once everything below `offset` (by default, all that was appended) is durable.

        The result is the offset below which everything is durable, which may be larger.
        """
        with self._state_lock:
            self._check_usable()
            end = self._log.place.offset if offset is None else min(offset, self._log.place.offset)
        return self._wait(end)

    def commit(self, operations: Iterable[Operation], now: int, *, essential: bool = False) -> Span:
        """Append operations and return once they are durable; concurrent callers share an fsync."""
        span = self.append(operations, now, essential=essential)
        self._wait(span.next)
        return span

    @property
    def first(self) -> int:
        """The oldest offset that the journal still has."""
        with self._state_lock:
            return self._first()

    @property
    def next(self) -> int:
        """The offset that the next operation will get."""
        return self._log.place.offset

    @property
    def timestamp(self) -> int:
        """The timestamp of the last record; the next one will be later."""
        return self._log.place.timestamp

    @property
    def synced(self) -> int:
        """The offset below which everything is durable."""
        return self._commit.synced

    @property
    def size(self) -> int:
        """The size of all logs, segments and snapshots in bytes."""
        snapshots = sum(map(size_of, snapshot.list_snapshots(self.folder / SNAPSHOTS)))
        return self._log.size + self._closed_segments.size + snapshots

    # Reading

    def read(self, start: int | None = None, until: int | None = None) -> Iterator[Record]:
        """Yield the durable records from `start` (by default the oldest) up to, not including, `until`, in order.

        Appending, rolling and retention may continue meanwhile. Raises an `OffsetGoneError` if retention removes
        records before they are read.
        """
        offset = self.first if start is None else start
        end = self.synced if until is None else min(until, self.synced)
        while offset < end:
            for record in self._read_part(offset):
                offset = record.offset + 1
                yield record
                if offset >= end:
                    return  # the next record may be half written

    def replay(self) -> Replay:
        """Return the newest undamaged snapshot and the records after it, from which the owner restores its state.

        Raises a `JournalDamagedError` if retention has removed records that no undamaged snapshot contains.
        """
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
        """Read every durable byte and return the number of records.

        Raises a `JournalDamagedError` at the first byte that differs from what was written.
        """
        with self._upkeep_lock:
            self._closed_segments.verify_all()
            count, before = 0, -1
            for record in self.read():
                if record.timestamp <= before:
                    raise damage_error(
                        f"{self.folder}: the timestamp of offset {record.offset} does not rise",
                        self.folder,
                        record.offset,
                    )
                count, before = count + 1, record.timestamp
        return count

    # Snapshots

    def write_snapshot(self, offset: int, data: bytes) -> None:
        """Store the owner's state after every record below `offset`, which must be durable."""
        if not self.first <= offset <= self.synced:
            raise InvalidValueError(f"offset: a snapshot stands between {self.first} and {self.synced}, not {offset}")
        try:
            snapshot.write_snapshot(self.folder / SNAPSHOTS, Snapshot(offset, bytes(data)), self._seed, self._disk)
        except OSError as error:
            raise _journal_error(error, self.folder / SNAPSHOTS, "the snapshot was not written") from error

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest undamaged snapshot, or None. A damaged snapshot is skipped, with a note in `notes`."""
        for path in snapshot.list_snapshots(self.folder / SNAPSHOTS):
            latest = snapshot.read_snapshot(path, self._seed)
            if latest is not None and latest.offset <= self.synced:
                return latest
            self._note(f"the snapshot {path.name} is damaged and was passed over")
        return None

    # Upkeep

    @property
    def unrolled(self) -> int:
        """The number of closed logs that are not yet segments; with `convert=False` the owner rolls them."""
        return sum(part.is_log for part in self._closed_segments.parts)

    def roll(self, *, begin: bool = True) -> None:
        """Begin a new log and roll all closed logs into Parquet segments; without `begin`, only roll closed logs."""
        with self._upkeep_lock:
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
        """Remove the oldest segments and closed logs, and return how many were removed.

        Args:
            before_timestamp: Remove files that end before this time, in microseconds.
            max_bytes: Remove files until the whole journal has at most this size.
            keep_from: Keep all records from this offset on.
            without_snapshot: Also remove records that the oldest undamaged snapshot does not contain, and with them the
                subscriptions, contexts and policies that no snapshot has.
        """
        with self._upkeep_lock:
            limit = self.synced if keep_from is None else keep_from
            if not without_snapshot:
                limit = min(limit, self._oldest_snapshot())
            try:
                return self._closed_segments.retain(limit, self.size, before_timestamp, max_bytes)
            except OSError as error:
                raise _journal_error(
                    error, self.folder / SEGMENTS, "what is too old or too much cannot be removed"
                ) from error

    def close(self) -> None:
        """Sync what was appended, close the files and release the lock; a second call does nothing."""
        with self._upkeep_lock:
            if self._closed:
                return
            try:
                if self._failure is None:
                    self.sync()
            finally:
                with self._flush_lock, self._state_lock:
                    self._closed = True
                    try:
                        self._log.close()
                        with contextlib.suppress(OSError):  # an older mark is still correct
                            self._sync_mark.close(sync=self._failure is None)
                    finally:
                        self._folder_lock.release()

    def release_lock(self) -> None:
        """Release the folder's lock without closing the journal, as the system does for a killed process.

        The journal must not be used afterwards.
        """
        self._folder_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Implementation

    def _check_usable(self) -> None:
        if self._closed:
            raise JournalError(f"the journal in {self.folder} is closed", self.folder)
        if self._failure is not None:
            raise JournalFailedError(str(self._failure), self._failure.path)

    def _check_reserve(self, bodies: list[bytes]) -> None:
        """Raise a `JournalFullError` if an append would use the reserved room.

        The free space is asked for only after a number of appended bytes that is small compared with the reserve.
        """
        reserve, size = self.options.reserve_bytes, framed_size(bodies)
        self._bytes_until_space_check -= size
        if not reserve or self._bytes_until_space_check > 0:
            return
        free = self._disk.free_bytes(self._log.fd) - size
        if free < reserve:
            raise JournalFullError(
                f"{self._log.path}: nothing was written, since {max(free, 0):,} bytes of the disk would be left, and "
                f"{reserve:,} are kept for acknowledgements and control; make room and try again",
                self._log.path,
            )
        self._bytes_until_space_check = min(free - reserve, reserve // 16)

    def _note(self, message: str) -> None:
        if message not in self.notes[-8:]:  # a full disk would repeat the message with every append
            self.notes.append(message)

    def _wait(self, offset: int) -> int:
        synced = self._commit.wait(offset)
        if not self.options.convert and self._is_full():
            self._roll_when_full()
        return synced

    def _flush(self) -> int:
        """Sync the current log, write the mark, and return the offset up to which everything is durable."""
        with self._flush_lock:
            with self._state_lock:
                self._check_usable()
                writer, end = self._log, self._log.place.offset
            self._sync_log(writer)
            self._sync_mark.write(end)
            return end

    def _sync_log(self, writer: LogWriter) -> None:
        try:
            writer.sync()
        except OSError as error:
            self._failure = _journal_error(error, writer.path, "fsync failed", final=True)
            raise self._failure from error

    def _is_full(self) -> bool:
        records = self._log.place.offset - self._log.first
        return records > 0 and (self._log.size >= self.options.roll_bytes or records >= self.options.roll_records)

    def _roll_when_full(self) -> None:
        """Begin a new log if the current one is full; a failure is noted and retried at the next opportunity.

        The append that filled the log has succeeded either way. A failure that makes the journal unusable is raised by
        the next call.
        """
        if not self._upkeep_lock.acquire(blocking=False):
            return  # another thread rolls or applies retention: let the log grow a little more
        try:
            if self._is_full():
                self._begin_log()
                if self.options.convert:
                    self._convert()
        except JournalError as error:
            self._note(f"rolling failed: {error}")
        finally:
            self._upkeep_lock.release()

    def _begin_log(self) -> None:
        """Sync and close the current log and begin a new one, unless the current one is empty."""
        with self._flush_lock, self._state_lock:
            self._check_usable()
            old = self._log
            if old.place.offset == old.first:
                return
            if self._commit.synced < old.place.offset:
                self._sync_log(old)
                self._sync_mark.write(old.place.offset)
                self._commit.advance(old.place.offset)
            try:
                new = LogWriter.create(self.folder / LOGS, old.place, self._seed, self._disk)
            except OSError as error:
                failure = _journal_error(error, self.folder / LOGS, "no new log can be begun")
                if log_path(self.folder / LOGS, old.place.offset).exists():
                    # The new file exists, perhaps not durably: the old log must not grow past its first offset.
                    failure = self._failure = _journal_error(
                        error, self.folder / LOGS, "no new log can be begun", final=True
                    )
                raise failure from error
            self._closed_segments.add(ClosedFile(old.path, old.first, old.place.offset))
            self._log = new
            old.close()

    def _convert(self) -> None:
        """Roll all closed logs into segments."""
        try:
            self._closed_segments.roll()
        except OSError as error:
            raise _journal_error(error, self.folder / SEGMENTS, "a log cannot be rolled, and stays") from error

    def _oldest_snapshot(self) -> int:
        """Return the offset of the oldest undamaged snapshot, or 0."""
        for path in reversed(snapshot.list_snapshots(self.folder / SNAPSHOTS)):
            oldest = snapshot.read_snapshot(path, self._seed)
            if oldest is not None:
                return oldest.offset
        return 0

    def _first(self) -> int:
        parts = self._closed_segments.parts
        return parts[0].first if parts else self._log.first

    def _read_part(self, offset: int) -> Iterator[Record]:
        """Yield the records from an offset to the end of the file that contains it."""
        with self._state_lock:
            first = self._first()
            if offset < first:
                raise OffsetGoneError(
                    f"{self.folder}: offset {offset} is gone; the oldest that is there is {first}", self.folder, first
                )
            opened = self._closed_segments.open(offset)
            path = self._log.path
            stream = path.open("rb") if opened is None else opened[1]
        with stream:
            if opened is None:
                yield from read_log(path, stream, offset, self._seed)
            else:
                yield from self._closed_segments.read(opened[0], stream, offset)


def _create(folder: Path, identity: JournalManifest, disk: Disk) -> None:
    """Create the files of a journal, the manifest last: a folder without one is no journal, also after a crash."""
    for name in (LOGS, SEGMENTS, SNAPSHOTS):
        (folder / name).mkdir(exist_ok=True)
    files = [*(folder / SEGMENTS).iterdir(), *(folder / SNAPSHOTS).iterdir()]
    if files or any(path.stat().st_size > FILE_HEADER for path in list_logs(folder)):
        raise manifest_missing_error(folder)
    for path in list_logs(folder):
        disk.remove(path)
    LogWriter.create(folder / LOGS, LogPosition(0, 0, 0), identity.seed, disk).close()
    for name in (MARK_FILE, FLOOR_FILE):
        disk.create(folder / name, mark_bytes(0, identity.seed))
    identity.write(folder, disk)
    disk.sync_file(folder.parent)


def _journal_error(error: OSError, path: Path, what: str, *, final: bool = False) -> JournalError:
    """Return the journal error for an `OSError`; `final` says that the journal is unusable from now on."""
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

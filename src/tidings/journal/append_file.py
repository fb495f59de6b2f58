"""An append-only file of small records, for key authorities and services that need no full journal.

Each record is durable when `append` returns. Opening the file cuts off an unfinished record at the end, which a killed
process or a power failure left: that record was never acknowledged. Each record's checksum continues the checksum of
the record before it.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from tidings.journal.disk import FULL, Disk
from tidings.journal.lock import FolderLock
from tidings.model.errors import ClosedError, JournalDamagedError, JournalError, JournalFailedError, JournalFullError
from tidings.model.limits import MAX_RECORD_BYTES

HEADER = b"tidings ledger 1\n"
_FRAME = struct.Struct("<II")  # the length, and a checksum that continues the one before
_START = zlib.crc32(HEADER)


class AppendFile:
    """An append-only file with one writer at a time, enforced by the lock of the file's folder."""

    def __init__(self, path: Path, what: str, disk: Disk | None = None) -> None:
        """Open the file, or create it. `what` names the folder's content in error messages, such as 'authority'.

        Raises a `JournalLockedError` if another writer has the folder open, and a `JournalDamagedError` for a damaged
        file.
        """
        self._path, self._disk = path, disk or Disk()
        self._failure: JournalError | None = None
        self._fd = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FolderLock(path.parent, what)
        except OSError as error:
            raise JournalError(f"{path.parent}: {error.strerror or error}", path) from error
        try:
            if not path.exists():
                self._disk.create(path, HEADER, mode=0o600)
            self._records = self._open_file()
        except OSError as error:
            self._lock.release()
            raise JournalError(f"{path}: {error.strerror or error}", path) from error
        except BaseException:
            self._lock.release()
            raise

    def _open_file(self) -> list[bytes]:
        records, size, self._check = read(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = size
        if os.fstat(self._fd).st_size > size:
            self._disk.truncate(self._fd, size)
            self._disk.sync(self._fd)
        return records

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the records that the file had when it was opened or rewritten."""
        return iter(self._records)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._size

    def append(self, record: bytes) -> None:
        """Append a record and return when it is on the disk.

        Raises a `JournalFullError` if the disk is full; nothing was written then. After a failed fsync this and every
        later call raises a `JournalFailedError`.
        """
        if self._failure is not None:
            raise self._failure
        if self._fd < 0:
            raise ClosedError(f"{self._path} was closed before")
        data = _frame(record, self._check)
        try:
            self._disk.write(self._fd, data)
        except OSError as error:
            raise self._undo_write(error) from error
        try:
            self._disk.sync(self._fd)
        except OSError as error:  # the content of the disk is unknown now
            self._failure = JournalFailedError(f"{self._path}: an fsync failed: {error.strerror or error}", self._path)
            raise self._failure from error
        self._size, self._check = self._size + len(data), _checksum(record, self._check)

    def _undo_write(self, error: OSError) -> JournalError:
        """Cut off what a failed write left, and return the error to raise."""
        message = f"{self._path}: nothing was written: {error.strerror or error}"
        try:
            self._disk.truncate(self._fd, self._size)
        except OSError:
            self._failure = JournalFailedError(message, self._path)
            return self._failure
        return JournalFullError(message, self._path) if error.errno in FULL else JournalError(message, self._path)

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace all records by these, to drop records that are obsolete."""
        data, check = bytearray(HEADER), _START
        for record in records:
            data += _frame(record, check)
            check = _checksum(record, check)
        try:
            self._disk.create(self._path, bytes(data), mode=0o600)
        except OSError as error:  # the path may already be the new file, while the open descriptor is the old one
            message = f"{self._path}: it could not be rewritten: {error.strerror or error}"
            self._failure = JournalFailedError(message, self._path)
            raise self._failure from error
        os.close(self._fd)
        self._records = self._open_file()

    def close(self) -> None:
        """Close the file and release the lock of its folder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> tuple[list[bytes], int, int]:
    """Return the records of a file, the offset of the byte after the last record, and the checksum there.

    Needs no lock: a record that is being written is treated as absent. Raises a `JournalDamagedError` if a record
    before the end is damaged.
    """
    data = path.read_bytes()
    if not data.startswith(HEADER):
        raise JournalDamagedError(f"{path} is no ledger of this version of Tidings", path)
    records: list[bytes] = []
    position, check = len(HEADER), _START
    while position < len(data):
        end = position + _FRAME.size
        if end > len(data):
            break
        length, stored_check = _FRAME.unpack_from(data, position)
        body = data[end : end + length]
        if length > MAX_RECORD_BYTES or len(body) < length or _checksum(body, check) != stored_check:
            if any(data[end + length :]):  # zeros at the end may be left by a power failure, even inside a frame
                raise JournalDamagedError(
                    f"{path} is damaged at byte {position}: what follows cannot be vouched for; restore it from a copy",
                    path,
                    position=position,
                )
            break
        records.append(body)
        position, check = end + length, stored_check
    return records, position, check


def _frame(record: bytes, check: int) -> bytes:
    return _FRAME.pack(len(record), _checksum(record, check)) + record


def _checksum(record: bytes, check: int) -> int:
    return zlib.crc32(record, zlib.crc32(len(record).to_bytes(4, "little"), check))

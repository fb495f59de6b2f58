"""A ledger: a small file that only grows, for those who keep a few records and no events: authorities and services.

Each record is durable when `append` returns. What a killed process, or a machine that lost power, left unfinished at
the end is cut off: nobody was told that it is safe.
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
_FRAME = struct.Struct("<II")  # the length, and a checksum that goes on from the one before
_START = zlib.crc32(HEADER)


class Ledger:
    """With the lock of its folder: one writer at a time."""

    def __init__(self, path: Path, what: str, disk: Disk | None = None) -> None:
        """Opens it, or makes a new one; `what` is a word for messages, such as 'authority'."""
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
            self._records = self._opened()
        except OSError as error:
            self._lock.release()
            raise JournalError(f"{path}: {error.strerror or error}", path) from error
        except BaseException:
            self._lock.release()
            raise

    def _opened(self) -> list[bytes]:
        records, size, self._check = read(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = size
        if os.fstat(self._fd).st_size > size:
            self._disk.truncate(self._fd, size)
            self._disk.sync(self._fd)
        return records

    def __iter__(self) -> Iterator[bytes]:
        """What was there when it was opened."""
        return iter(self._records)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._size

    def append(self, record: bytes) -> None:
        """Returns when the record is on the disk."""
        if self._failure is not None:
            raise self._failure
        if self._fd < 0:
            raise ClosedError(f"{self._path} was closed before")
        data = _framed(record, self._check)
        try:
            self._disk.write(self._fd, data)
        except OSError as error:
            raise self._undone(error) from error
        try:
            self._disk.sync(self._fd)
        except OSError as error:  # nobody knows now what is on the disk
            self._failure = JournalFailedError(f"{self._path}: an fsync failed: {error.strerror or error}", self._path)
            raise self._failure from error
        self._size, self._check = self._size + len(data), _checksum(record, self._check)

    def _undone(self, error: OSError) -> JournalError:
        told = f"{self._path}: nothing was written: {error.strerror or error}"
        try:
            self._disk.truncate(self._fd, self._size)
        except OSError:
            self._failure = JournalFailedError(told, self._path)
            return self._failure
        return JournalFullError(told, self._path) if error.errno in FULL else JournalError(told, self._path)

    def rewrite(self, records: Iterable[bytes]) -> None:
        """These, and no others, from now on: for whoever knows that many are of no use any more."""
        data, check = bytearray(HEADER), _START
        for one in records:
            data += _framed(one, check)
            check = _checksum(one, check)
        try:
            self._disk.create(self._path, bytes(data), mode=0o600)
        except OSError as error:  # the name may be that of the new file already, and the open file the old one
            told = f"{self._path}: it could not be rewritten: {error.strerror or error}"
            self._failure = JournalFailedError(told, self._path)
            raise self._failure from error
        os.close(self._fd)
        self._records = self._opened()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> tuple[list[bytes], int, int]:
    """The records of a ledger, up to which byte they are, and the checksum there. Needs no lock: a record that is being
    written is not there yet."""
    data = path.read_bytes()
    if not data.startswith(HEADER):
        raise JournalDamagedError(f"{path} is no ledger of this version of Tidings", path)
    records: list[bytes] = []
    position, check = len(HEADER), _START
    while position < len(data):
        end = position + _FRAME.size
        if end > len(data):
            break
        length, told = _FRAME.unpack_from(data, position)
        body = data[end : end + length]
        if length > MAX_RECORD_BYTES or len(body) < length or _checksum(body, check) != told:
            if any(data[end + length :]):  # a blank end is what a lost power may leave, also of a frame
                raise JournalDamagedError(
                    f"{path} is damaged at byte {position}: what follows cannot be vouched for; restore it from a copy",
                    path,
                    position=position,
                )
            break
        records.append(body)
        position, check = end + length, told
    return records, position, check


def _framed(record: bytes, check: int) -> bytes:
    return _FRAME.pack(len(record), _checksum(record, check)) + record


def _checksum(record: bytes, check: int) -> int:
    return zlib.crc32(record, zlib.crc32(len(record).to_bytes(4, "little"), check))

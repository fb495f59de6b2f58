"""The sync mark (up to which offset the journal has been synced) and group commit.

The mark is written after every successful fsync, but not synced itself. An old mark is still correct, only too low. A
killed process leaves the newest mark; only a power failure may leave an older one.
"""

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

from tidings.journal.disk import Disk

FILE = "synced"
_MARK = struct.Struct("<Q")
_CHECK = struct.Struct("<I")


class SyncMark:
    """The writer of the sync mark."""

    def __init__(self, folder: Path, seed: int, disk: Disk) -> None:
        self._disk, self._seed = disk, seed
        self._fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, offset: int) -> None:
        """Record that everything below `offset` is synced. An I/O error is ignored: the older mark is still correct."""
        with contextlib.suppress(OSError):  # the older mark stays, and is still correct
            self._disk.overwrite(self._fd, mark_bytes(offset, self._seed), 0)

    def close(self, *, sync: bool) -> None:
        """Close the file, after syncing it with `sync`."""
        try:
            if sync:
                self._disk.sync(self._fd)
        finally:
            os.close(self._fd)


def mark_bytes(offset: int, seed: int) -> bytes:
    """Return an offset with its checksum, as the files of the mark and of the floor contain it."""
    data = _MARK.pack(offset)
    return data + _CHECK.pack(zlib.crc32(data, seed))


def read_mark(folder: Path, seed: int) -> int | None:
    """Return the offset below which everything was synced; None if there is no readable mark."""
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _MARK.size + _CHECK.size:
        return None
    (offset,) = _MARK.unpack_from(data)
    return int(offset) if data == mark_bytes(offset, seed) else None


class GroupCommit:
    """Group commit: one fsync makes the records of many waiting threads durable.

    The first waiting thread becomes the leader and flushes. Threads that arrive meanwhile wait; if the flush did not
    cover their records, one of them leads the next flush.
    """

    def __init__(self, flush: Callable[[], int], synced: int) -> None:
        """`flush` makes everything that was written durable and returns the offset up to which that is."""
        self._flush = flush
        self._changed = threading.Condition()
        self._leading = False
        self._synced = synced

    @property
    def synced(self) -> int:
        """The offset below which everything is durable."""
        return self._synced

    def advance(self, offset: int) -> None:
        """Record that everything below `offset` is durable, and wake the threads that wait for it."""
        with self._changed:
            self._synced = max(self._synced, offset)
            self._changed.notify_all()

    def wait(self, offset: int) -> int:
        """Return once everything below `offset` is durable; raise what `flush` raises."""
        while True:
            with self._changed:
                while self._leading and self._synced < offset:
                    self._changed.wait()
                if self._synced >= offset:
                    return self._synced
                self._leading = True
            try:
                self.advance(self._flush())
            finally:
                # After a failure, the next waiting thread flushes and gets the same error from the journal.
                with self._changed:
                    self._leading = False
                    self._changed.notify_all()

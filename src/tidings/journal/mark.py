"""The mark: up to which offset the journal has been synced.

It is written after every successful fsync and not synced itself. What it says was true when it was written, so an old
mark is still true; a killed process leaves the newest one, and only a machine that loses power may leave an older one.
"""

import contextlib
import os
import struct
import zlib
from pathlib import Path

from tidings.journal.disk import Disk

FILE = "synced"
_MARK = struct.Struct("<Q")
_CHECK = struct.Struct("<I")


class Mark:
    def __init__(self, folder: Path, seed: int, disk: Disk) -> None:
        self._disk, self._seed = disk, seed
        self._fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, offset: int) -> None:
        with contextlib.suppress(OSError):  # the older mark stays, and is still true
            self._disk.overwrite(self._fd, mark_bytes(offset, self._seed), 0)

    def close(self, *, sync: bool) -> None:
        try:
            if sync:
                self._disk.sync(self._fd)
        finally:
            os.close(self._fd)


def mark_bytes(offset: int, seed: int) -> bytes:
    data = _MARK.pack(offset)
    return data + _CHECK.pack(zlib.crc32(data, seed))


def read_mark(folder: Path, seed: int) -> int | None:
    """The offset below which everything was synced, or nothing if there is no readable mark."""
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _MARK.size + _CHECK.size:
        return None
    (offset,) = _MARK.unpack_from(data)
    return int(offset) if data == mark_bytes(offset, seed) else None

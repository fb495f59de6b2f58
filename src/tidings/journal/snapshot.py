"""Snapshots: the state of a journal's owner at an offset, so that a restart need not replay all records.

The journal does not interpret them. A damaged snapshot is skipped: an older one, or more records, are used instead.
"""

import struct
import zlib
from pathlib import Path

import msgspec

from tidings.journal.disk import Disk

SUFFIX = ".snapshot"
KEPT = 2
_HEAD = struct.Struct("<8sIQQI")  # magic, version, offset, length, check of the data
_CHECK = struct.Struct("<I")
_MAGIC = b"TIDINGSS"
_VERSION = 1


class Snapshot(msgspec.Struct, frozen=True):
    """The state after every record below `offset`."""

    offset: int
    data: bytes


def write_snapshot(folder: Path, snapshot: Snapshot, seed: int, disk: Disk) -> None:
    """Write a snapshot atomically and durably, and remove all but the newest `KEPT`.

    Args:
        folder: The folder for snapshots.
        snapshot: The snapshot.
        seed: The seed of the journal's checksums.
        disk: The file system operations.
    """
    head = _HEAD.pack(_MAGIC, _VERSION, snapshot.offset, len(snapshot.data), zlib.crc32(snapshot.data))
    data = head + _CHECK.pack(zlib.crc32(head, seed)) + snapshot.data
    disk.create(folder / f"{snapshot.offset:020d}{SUFFIX}", data)
    for path in list_snapshots(folder)[KEPT:]:
        disk.delete(path)


def list_snapshots(folder: Path) -> list[Path]:
    """Return the paths of all snapshots, the newest first; files with other names are ignored."""
    return sorted((path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()), reverse=True)


def read_snapshot(path: Path, seed: int) -> Snapshot | None:
    """Return the snapshot in a file, or None if the file is damaged."""
    data = path.read_bytes()
    start = _HEAD.size + _CHECK.size
    if len(data) < start or _CHECK.unpack_from(data, _HEAD.size)[0] != zlib.crc32(data[: _HEAD.size], seed):
        return None
    magic, version, offset, length, check = _HEAD.unpack_from(data)
    state = data[start:]
    if (magic, version, length, check) != (_MAGIC, _VERSION, len(state), zlib.crc32(state)):
        return None
    return Snapshot(offset, state) if path.stem == f"{offset:020d}" else None

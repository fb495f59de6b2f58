"""Snapshots: the state that whoever uses a journal has reached at an offset, so that not everything is replayed.

The journal does not know what is in them. They are a shortcut and never the only copy: a damaged one is passed over.
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
    """Durable under its name, or not there; older ones than the last `KEPT` are removed."""
    head = _HEAD.pack(_MAGIC, _VERSION, snapshot.offset, len(snapshot.data), zlib.crc32(snapshot.data))
    data = head + _CHECK.pack(zlib.crc32(head, seed)) + snapshot.data
    disk.create(folder / f"{snapshot.offset:020d}{SUFFIX}", data)
    for path in list_snapshots(folder)[KEPT:]:
        disk.delete(path)


def list_snapshots(folder: Path) -> list[Path]:
    """The newest first; what has another name than ours is not one."""
    return sorted((path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()), reverse=True)


def read_snapshot(path: Path, seed: int) -> Snapshot | None:
    """The snapshot, or nothing if it is damaged."""
    data = path.read_bytes()
    start = _HEAD.size + _CHECK.size
    if len(data) < start or _CHECK.unpack_from(data, _HEAD.size)[0] != zlib.crc32(data[: _HEAD.size], seed):
        return None
    magic, version, offset, length, check = _HEAD.unpack_from(data)
    state = data[start:]
    if (magic, version, length, check) != (_MAGIC, _VERSION, len(state), zlib.crc32(state)):
        return None
    return Snapshot(offset, state) if path.stem == f"{offset:020d}" else None

"""What the journal's tests work with: operations, folders that are copied and damaged, and disks that fail."""

import errno
import os
from pathlib import Path
from uuid import UUID

from tidings import ContextFilter
from tidings.journal import Journal, Operation, Record
from tidings.journal.disk import Disk
from tidings.model import Event, uuid7

NOW = 1_700_000_000_000_000


def event(number: int, **fields: object) -> Event:
    given = {"n": number, "f": float(number), "b": True, "s": f"ä\0{number}"}
    id: UUID = uuid7(NOW + number * 1000, number.to_bytes(10, "big"))  # noqa: A001
    return Event.of(given, id=id, publisher="cam-1", timestamp=NOW + number, sequence=number, **fields)  # type: ignore[arg-type]


def publication(number: int) -> Operation:
    return Operation.publication(event(number, payload=b"x" * (number % 7), context={"x": 1.5}))


def subscribing(number: int) -> Operation:
    return Operation.control("subscribe", client="car-1", id=f"s{number}", body={"content": f"n > {number}"})


def fill(journal: Journal, count: int, group: int = 1) -> list[Record]:
    """That many publications, synced in groups; what the journal holds then."""
    for start in range(0, count, group):
        numbers = range(journal.next, journal.next + min(group, count - start))
        journal.commit([publication(number) for number in numbers], NOW)
    return list(journal.read())


def filled(folder: Path, count: int, group: int = 1) -> list[Record]:
    with Journal.open(folder) as journal:
        return fill(journal, count, group)


def contents(folder: Path) -> list[Record]:
    with Journal.open(folder, create=False, disk=UnsyncedDisk()) as journal:
        return list(journal.read())


class Image:
    """The files of a folder as they were, to be brought back after each change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def restore(self) -> Path:
        for path in [path for path in self.folder.rglob("*") if path.is_file() and path not in self.files]:
            path.unlink()
        for path, data in self.files.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
        return self.folder


def log_of(folder: Path) -> Path:
    return max((folder / "log").glob("*.log"))


def segments_of(folder: Path) -> list[Path]:
    return sorted((folder / "segments").glob("*.parquet"))


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


parse = ContextFilter.parse


class UnsyncedDisk(Disk):
    """For tests that open a journal very often, and pull no plug."""

    def sync(self, fd: int) -> None:
        pass


class Crash(BaseException):
    """The process ends here; what is on the disk stays as it is."""


class CrashingDisk(Disk):
    """Stops at the given step, before or in the middle of it, and does nothing afterwards."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.steps = at, 0

    def _step(self) -> None:
        if self.at >= 0 and self.steps >= self.at:
            raise Crash
        self.steps += 1

    def write(self, fd: int, data: bytes) -> None:
        try:
            self._step()
        except Crash:
            if self.steps == self.at:
                self.at = 0
                os.write(fd, data[: len(data) // 2])
            raise
        super().write(fd, data)

    def overwrite(self, fd: int, data: bytes, position: int) -> None:
        self._step()
        super().overwrite(fd, data, position)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


class FailingDisk(Disk):
    """Counts syncs, and fails where it is told to."""

    def __init__(self) -> None:
        self.syncs = 0
        self.overwritten: list[bytes] = []
        self.room: int | None = None  # bytes that may still be written
        self.sync_error: int | None = None
        self.write_error: int | None = None
        self.truncate_error: int | None = None
        self.free: int | None = None  # what it says that there is

    def free_bytes(self, fd: int) -> int:
        return super().free_bytes(fd) if self.free is None else self.free

    def write(self, fd: int, data: bytes) -> None:
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        if self.room is not None:
            super().write(fd, data[: self.room])
            if len(data) > self.room:
                self.room = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
            return
        super().write(fd, data)

    def overwrite(self, fd: int, data: bytes, position: int) -> None:
        self.overwritten.append(data)
        super().overwrite(fd, data, position)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error is not None:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(fd, size)


class FullDisk(UnsyncedDisk):
    """Has no room from a step on, for so many steps."""

    def __init__(self) -> None:
        self.steps, self.at, self.times = 0, -1, 0

    def full_at(self, step: int, times: int) -> None:
        self.steps, self.at, self.times = 0, step, times

    def _step(self) -> None:
        self.steps += 1
        if 0 <= self.at < self.steps <= self.at + self.times:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, fd: int, data: bytes) -> None:
        try:
            self._step()
        except OSError:
            super().write(fd, data[: len(data) // 2])
            raise
        super().write(fd, data)

    def overwrite(self, fd: int, data: bytes, position: int) -> None:
        self._step()
        super().overwrite(fd, data, position)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)

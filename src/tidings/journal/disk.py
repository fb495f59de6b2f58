"""The few things that the journal asks of the file system, in one place, so that a test can make each of them fail."""

import errno
import fcntl
import os
import sys
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # there may be room later
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # where fsync stops at the drive's own cache


class Disk:
    """Everything that changes a file goes through here, and nothing else in the system calls fsync."""

    def write(self, fd: int, data: bytes) -> None:
        """All of it, at the end of the file."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def overwrite(self, fd: int, data: bytes, position: int) -> None:
        rest = memoryview(data)
        while rest:
            done = os.pwrite(fd, rest, position)
            rest, position = rest[done:], position + done

    def free_bytes(self, fd: int) -> int:
        """What may still be written where that file is; endless, where the file system does not say."""
        found = os.fstatvfs(fd)
        return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize

    def sync(self, fd: int) -> None:
        if _FULL_SYNC is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, _FULL_SYNC)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, path: Path, to: Path) -> None:
        path.replace(to)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_file(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def create(self, path: Path, data: bytes, mode: int = 0o666) -> None:
        """The file with that content, whole or not at all, whenever the process or the machine stops. A secret has the
        mode 0o600."""
        temporary = temporary_of(path)
        temporary.unlink(missing_ok=True)  # one that was left behind may have another mode
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            self.write(fd, data)
            self.sync(fd)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        self.put(temporary, path)

    def put(self, temporary: Path, path: Path) -> None:
        """Gives a written and synced file its name, for good."""
        try:
            self.rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_file(path.parent)

    def delete(self, path: Path) -> None:
        self.remove(path)
        self.sync_file(path.parent)


def temporary_of(path: Path) -> Path:
    """A name beside it; the dot in front keeps Spark, and whoever lists the folder, from seeing what is unfinished."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")

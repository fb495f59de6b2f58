"""File system operations of the journal, in one replaceable class, so that a test can make each of them fail."""

import errno
import fcntl
import os
import sys
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # a later attempt may succeed
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, where fsync does not flush the drive's cache


class Disk:
    """The file system operations of the journal. No other code in Tidings calls fsync."""

    def write(self, fd: int, data: bytes) -> None:
        """Write all data at the file's current position; journal files are open for appending."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def overwrite(self, fd: int, data: bytes, position: int) -> None:
        """Write all data at a position in the file."""
        rest = memoryview(data)
        while rest:
            done = os.pwrite(fd, rest, position)
            rest, position = rest[done:], position + done

    def free_bytes(self, fd: int) -> int:
        """Return how many bytes can still be written to the file system of an open file.

        If the file system does not say, the result is `sys.maxsize`.
        """
        filesystem = os.fstatvfs(fd)
        return filesystem.f_bavail * filesystem.f_frsize if filesystem.f_blocks else sys.maxsize

    def sync(self, fd: int) -> None:
        """Make the file's content durable."""
        if _FULL_SYNC is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, _FULL_SYNC)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to a size."""
        os.ftruncate(fd, size)

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file; a file at the target is replaced."""
        path.replace(to)

    def remove(self, path: Path) -> None:
        """Delete a file if it exists."""
        path.unlink(missing_ok=True)

    def sync_file(self, path: Path) -> None:
        """Make a file or a folder durable by its path."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def create(self, path: Path, data: bytes, mode: int = 0o666) -> None:
        """Create or replace a file atomically and durably: after a crash it is complete or unchanged.

        Pass mode 0o600 for a file with secrets.
        """
        temporary = temporary_of(path)
        temporary.unlink(missing_ok=True)  # a left-over file may have another mode
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
        """Rename a temporary file, which is written and synced, to its final name, durably."""
        try:
            self.rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_file(path.parent)

    def delete(self, path: Path) -> None:
        """Delete a file durably."""
        self.remove(path)
        self.sync_file(path.parent)


def temporary_of(path: Path) -> Path:
    """Return the temporary name of a file in the same folder; the leading dot hides it from Spark."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a file has a name of `temporary_of`."""
    return path.name.startswith(".") and path.name.endswith(".tmp")

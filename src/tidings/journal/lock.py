"""The lock of a journal's folder: one writer at a time. The system releases it when the process ends."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from tidings.model.errors import JournalLockedError

FILE = "lock"
_ATTEMPTS, _PAUSE = 100, 0.005  # attempts, and seconds between them, while `holder` in another process has the lock


class FolderLock:
    """An exclusive lock on a folder, held until `release` or the end of the process."""

    def __init__(self, folder: Path, what: str = "journal") -> None:
        """Take the lock, or raise a `JournalLockedError` that names the folder and the process that has it.

        `what` names the folder's content in the message.
        """
        path = folder / FILE
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(self._fd)
        except BlockingIOError:
            content = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            process = int(content) if content.isdecimal() else None
            who = f"process {process}" if process else "another process"
            raise JournalLockedError(
                f"the {what} in {folder} is open in {who}; it has one writer at a time", folder, process
            ) from None
        except OSError:
            os.close(self._fd)
            raise
        number = str(os.getpid()).encode()
        with contextlib.suppress(OSError):  # on a full disk the file lacks the process id, but the lock is taken
            os.pwrite(self._fd, number, 0)
            os.ftruncate(self._fd, len(number))

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def _lock(fd: int) -> None:
    """Take the lock for a writer; retry while only callers of `holder` have it.

    Raises a `BlockingIOError` at once if another writer has it.
    """
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails where a writer has it
            fcntl.flock(fd, fcntl.LOCK_UN)  # so that another waiting writer does not block on the shared lock
            threading.Event().wait(_PAUSE)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(folder: Path) -> int | None:
    """Return the process id of the writer that has the folder locked; 0 if it is unknown, None if there is none."""
    try:
        fd = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        return int(content) if content.isdecimal() else 0
    finally:
        os.close(fd)
    return None

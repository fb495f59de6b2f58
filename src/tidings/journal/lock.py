"""One writer a journal: a lock that the system lets go of when its process ends, however it ends."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from tidings.model.errors import JournalLockedError

FILE = "lock"
_ATTEMPTS, _PAUSE = 100, 0.005  # seconds between two attempts to get a lock that `holder` has in another process


class FolderLock:
    def __init__(self, folder: Path, what: str = "journal") -> None:
        """Taken at once, or a `JournalLockedError` that names the folder and the process that has it; `what` is a word
        for what is in there."""
        path = folder / FILE
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(self._fd)
        except BlockingIOError:
            said = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            process = int(said) if said.isdecimal() else None
            who = f"process {process}" if process else "another process"
            raise JournalLockedError(
                f"the {what} in {folder} is open in {who}; it has one writer at a time", folder, process
            ) from None
        except OSError:
            os.close(self._fd)
            raise
        number = str(os.getpid()).encode()
        with contextlib.suppress(OSError):  # on a full disk nobody is told who has it, and it is had all the same
            os.pwrite(self._fd, number, 0)
            os.ftruncate(self._fd, len(number))

    def release(self) -> None:
        os.close(self._fd)


def _lock(fd: int) -> None:
    """Takes the lock for a writer, and tries again while only callers of `holder` have it.

    Raises a `BlockingIOError` at once if another writer has it.
    """
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails where a writer has it
            fcntl.flock(fd, fcntl.LOCK_UN)  # so that another writer that waits is no obstacle
            threading.Event().wait(_PAUSE)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(folder: Path) -> int | None:
    """The process that has the folder now: its number, or 0 where that is not known; None if nobody has it."""
    try:
        fd = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        return int(said) if said.isdecimal() else 0
    finally:
        os.close(fd)
    return None

"""The lock of a folder: one process has it, and asking who has it does not take it away from anyone."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from tidings.journal.lock import FILE, FolderLock, holder
from tidings.model.errors import JournalLockedError


def test_one_process_has_it(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert holder(tmp_path) == os.getpid()
    with pytest.raises(JournalLockedError, match=f"is open in process {os.getpid()}; it has one writer at a time"):
        FolderLock(tmp_path)
    lock.release()
    assert holder(tmp_path) is None


def test_a_process_that_asks_who_has_it_does_not_keep_the_next_one_out(tmp_path: Path) -> None:
    fd = os.open(tmp_path / FILE, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(fd, fcntl.LOCK_SH)  # as `holder` does
    asked = threading.Timer(0.015, os.close, [fd])
    asked.start()
    FolderLock(tmp_path).release()
    asked.join()

"""Whoever asks which process has a folder keeps no writer out of it."""

import threading
from pathlib import Path

from tidings.journal.lock import FolderLock, holder


def test_a_writer_gets_the_lock_while_others_ask_who_has_it(tmp_path: Path) -> None:
    FolderLock(tmp_path).release()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            holder(tmp_path)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(300):
            FolderLock(tmp_path).release()
    finally:
        over.set()
        for thread in asking:
            thread.join()

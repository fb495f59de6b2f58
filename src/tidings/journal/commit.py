"""Group commit: many wait for the disk, and one fsync serves all whose records were written before it began."""

import threading
from collections.abc import Callable


class GroupCommit:
    """The first who waits becomes the leader and flushes; those who come meanwhile wait for it or lead the next."""

    def __init__(self, flush: Callable[[], int], synced: int) -> None:
        """`flush` makes durable all that is written, and says up to which offset that is."""
        self._flush = flush
        self._changed = threading.Condition()
        self._leading = False
        self._synced = synced

    @property
    def synced(self) -> int:
        """Everything below this offset is durable."""
        return self._synced

    def advance(self, offset: int) -> None:
        with self._changed:
            self._synced = max(self._synced, offset)
            self._changed.notify_all()

    def wait(self, offset: int) -> int:
        """Returns once everything below the offset is durable; raises what `flush` raises."""
        while True:
            with self._changed:
                while self._leading and self._synced < offset:
                    self._changed.wait()
                if self._synced >= offset:
                    return self._synced
                self._leading = True
            try:
                self.advance(self._flush())
            finally:
                # After a failure the next in line tries, and is told the same by the journal.
                with self._changed:
                    self._leading = False
                    self._changed.notify_all()

"""A brake: lets a pipeline stop between two batches, and not in the middle of one."""

from threading import Lock
from types import TracebackType


class StoppingError(Exception):
    """The batch was not begun, since the pipeline stops; it comes first when the pipeline goes on."""


class Brake:
    """Held while a batch is worked on. In another process, where Spark Connect runs batches, it is another one: there a
    batch may be interrupted, and is repeated later."""

    def __init__(self) -> None:
        self._lock, self._stopping = Lock(), False

    def pull(self) -> None:
        """No batch begins from now on; returns when none is under way."""
        self._stopping = True
        with self._lock:
            pass

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._stopping:
            self._lock.release()
            raise StoppingError

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["Brake"], tuple[()]]:
        return Brake, ()

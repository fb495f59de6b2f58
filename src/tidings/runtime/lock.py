"""The hub's lock, which raises an error instead of deadlocking when code under the lock calls the hub again."""

import threading

from tidings.model.errors import TidingsError


class EngineLock:
    """A lock for `with` around each use of the engine; entering it again in the same thread raises a `TidingsError`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._inside:
            self._lock.release()
            raise TidingsError(
                "a trust provider, or a condition or action of a policy, cannot use the hub that is asking it"
            )
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._lock.release()

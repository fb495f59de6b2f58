"""The hub's lock: one operation at a time, and an error instead of a deadlock where the hub is entered from inside."""

import threading

from tidings.model.errors import TidingsError


class Guard:
    """For `with`. Whoever holds it runs the engine; nothing that may call back into the hub should, but might."""

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

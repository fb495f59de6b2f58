"""Memory of the process that is free and not given back to the system by itself.

Building a part of the index takes some megabytes for a moment. The C library keeps them where something that stays lies
behind them, and next time takes others.
"""

import ctypes
import sys
from collections.abc import Callable

_SOME = 1_000  # subscriptions that have come or gone
_SHARE = 8  # or this part of all of them, if that is more
_FEW = 100  # that are enough once no more come or go


class Spare:
    """When it is worth the while: after many subscriptions have come or gone, and when the last of them have."""

    def __init__(self) -> None:
        self._counted = self._seen = 0
        self.give_back = _trimmer()

    def is_due(self, subscriptions: int) -> bool:
        """Whether enough has changed since it was due last. Asked from time to time."""
        is_quiet, self._seen = subscriptions == self._seen, subscriptions
        if abs(subscriptions - self._counted) < (_FEW if is_quiet else max(_SOME, self._counted // _SHARE)):
            return False
        self._counted = subscriptions
        return True


def _trimmer() -> Callable[[], None]:
    """What gives it back, where the C library knows how to; it takes milliseconds, and may be called in any thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return lambda: None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)

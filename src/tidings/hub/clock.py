"""Time and chance: the only file of the hub that asks the system for either."""

import secrets
import time
from typing import Protocol

from tidings.model.identity import ENTROPY_BYTES


class Clock(Protocol):
    """What a hub asks for. It need not rise: the hub sees to that."""

    def now(self) -> int:
        """Microseconds since the Unix epoch, UTC."""
        ...

    def entropy(self) -> bytes:
        """Ten random bytes, for the id of an event."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> bytes:
        return secrets.token_bytes(ENTROPY_BYTES)

"""Time and randomness of a hub: the only module that asks the system for either."""

import secrets
import time
from typing import Protocol

from tidings.model.identity import ENTROPY_BYTES


class Clock(Protocol):
    """The source of time and entropy of a hub. The time may step back: the hub makes its own timestamps rise."""

    def now(self) -> int:
        """Return microseconds since the Unix epoch, UTC."""
        ...

    def entropy(self) -> bytes:
        """Return ten random bytes, for an event id."""
        ...


class SystemClock:
    """The system's clock and random number generator."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> bytes:
        return secrets.token_bytes(ENTROPY_BYTES)

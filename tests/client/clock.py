"""A clock for waits: each look at it takes a second, so that the number of questions is the same on every machine."""

import time
from itertools import count

import pytest

from tidings.client.secure import service_rpc


class TickingClock:
    def __init__(self) -> None:
        self._seconds = count()

    def monotonic(self) -> float:
        return next(self._seconds)

    def time_ns(self) -> int:
        """The time of day goes on as it does: certificates and keys depend on it."""
        return time.time_ns()


def tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services are asked again by such a clock, without a pause."""
    monkeypatch.setattr(service_rpc, "time", TickingClock())
    monkeypatch.setattr(service_rpc, "_PAUSE", 0)

"""A clock for waits: each look at it takes a second, so that the number of questions is the same on every machine."""

from itertools import count

import pytest

from tidings.client.secure import service_rpc


class TickingClock:
    def __init__(self) -> None:
        self._seconds = count()

    def monotonic(self) -> float:
        return next(self._seconds)


def tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services are asked again by such a clock, without a pause."""
    monkeypatch.setattr(service_rpc, "time", TickingClock())
    monkeypatch.setattr(service_rpc, "_PAUSE", 0)

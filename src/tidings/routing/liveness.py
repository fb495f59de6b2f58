"""Whether the other end of a link is there: it is, as long as something was heard of it not too long ago."""


class Liveness:
    """Times are microseconds; whoever asks says what time it is."""

    __slots__ = ("_last", "_patience")

    def __init__(self, interval: int, patience: int, now: int) -> None:
        """`interval` is the time between two heartbeats, `patience` how many of them may fail to come."""
        self._patience = interval * patience
        self._last = now

    def heard(self, now: int) -> None:
        self._last = max(self._last, now)

    def is_alive(self, now: int) -> bool:
        return now - self._last <= self._patience

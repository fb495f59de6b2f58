"""How much somebody may send: so much a second in the long run, and a burst at once."""


class Allowance:
    """A bucket of tokens that may owe some.

    It never refuses: what is taken is taken, whatever its size, and whoever took it is told how long to wait. So a
    frame that is larger than the burst costs time and no connection. Times are seconds of any clock that does not go
    back; one that does gives nothing away.
    """

    __slots__ = ("_at", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        """Without a burst, it is what comes together in a second."""
        self.rate = rate
        self.burst = rate if burst is None else burst
        self._level = float(self.burst)
        self._at = float("-inf")  # when the level was that

    def take(self, amount: float, now: float) -> float:
        """Takes it. The answer is for how many seconds to take no more; 0: go on."""
        if now > self._at:
            self._level = min(self.burst, self._level + (now - self._at) * self.rate)
            self._at = now
        self._level -= amount
        return max(0.0, -self._level / self.rate)

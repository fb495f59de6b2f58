"""A virtual clock, which a test advances."""

from tidings.model.identity import ENTROPY_BYTES

_START = 1_700_000_000_000_000  # microseconds: 14 November 2023


class VirtualClock:
    """Time and entropy for `Hub(clock=...)`: time stands still until `advance`, and event ids repeat in every run.

    `time` is in microseconds since the Unix epoch, UTC, as everywhere in Tidings; a test may also set it.
    """

    def __init__(self, time: int = _START) -> None:
        self.time = time
        self._draws = 0

    def now(self) -> int:
        """Return the time, in microseconds."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Advance the clock by so many seconds; a negative number sets it back."""
        self.time += round(seconds * 1_000_000)

    def entropy(self) -> bytes:
        """Return bytes that no earlier call returned, the same in every run."""
        self._draws += 1
        return self._draws.to_bytes(ENTROPY_BYTES, "big")

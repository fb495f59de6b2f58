"""A clock that a test moves."""

from tidings.model.identity import ENTROPY_BYTES

_START = 1_700_000_000_000_000  # microseconds: 14 November 2023


class VirtualClock:
    """Time and randomness for `Hub(clock=...)`: time stands still until `advance`, and event ids repeat in every run.

    `time` is in microseconds since the Unix epoch, UTC, as everywhere in Tidings; a test may also set it.
    """

    def __init__(self, time: int = _START) -> None:
        self.time = time
        self._draws = 0

    def now(self) -> int:
        """The time, in microseconds."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Lets so many seconds pass; a negative number sets the clock back."""
        self.time += round(seconds * 1_000_000)

    def entropy(self) -> bytes:
        """Bytes that no earlier call has returned, the same in every run."""
        self._draws += 1
        return self._draws.to_bytes(ENTROPY_BYTES, "big")

"""A quota: how many questions one publisher may ask in a second; so whoever floods a service locks out itself only."""

from collections import Counter

_SECOND = 1_000_000  # microseconds


class Quota:
    def __init__(self, each: int) -> None:
        self.each = each
        self.exceeded = 0  # so many questions were too many
        self._second = -1
        self._taken: Counter[str] = Counter()

    def take(self, publisher: str, now: int) -> bool:
        """Whether one more is within it."""
        if now // _SECOND != self._second:
            self._second = now // _SECOND
            self._taken.clear()
        self._taken[publisher] += 1
        if self._taken[publisher] <= self.each:
            return True
        self.exceeded += 1
        return False

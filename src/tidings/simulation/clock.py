"""Virtual time, and what is due when: nothing happens but what was put down here, one thing after the other."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000  # microseconds

_Due = tuple[int, int, bool, Callable[..., object], tuple[Any, ...]]


def microseconds(seconds: float) -> int:
    return round(seconds * SECOND)


class Clock:
    """Things that are due at the same time happen in the order in which they were put down.

    What goes on for ever, such as heartbeats, is in the background: `under_way` counts everything else.
    """

    __slots__ = ("_number", "_queue", "now", "under_way")

    def __init__(self, now: int = 0) -> None:
        self.now = now  # microseconds
        self.under_way = 0
        self._queue: list[_Due] = []
        self._number = 0

    def at(self, time: int, action: Callable[..., object], *given: Any) -> None:
        self._number += 1
        self.under_way += 1
        heappush(self._queue, (time, self._number, False, action, given))

    def in_background(self, time: int, action: Callable[..., object], *given: Any) -> None:
        self._number += 1
        heappush(self._queue, (time, self._number, True, action, given))

    def step(self) -> None:
        """The next thing that is due happens, and it is then as late as it was put down for."""
        self.now, _, is_background, action, given = heappop(self._queue)
        if not is_background:
            self.under_way -= 1
        action(*given)

    def run_until(self, time: int) -> None:
        """Everything up to that time, that time included."""
        queue = self._queue
        while queue and queue[0][0] <= time:
            self.step()
        self.now = time

    def run_until_idle(self, time: int) -> bool:
        """Goes on until nothing but the background is to be done, or until that time; whether the first was so."""
        queue = self._queue
        while self.under_way and queue[0][0] <= time:
            self.step()
        return not self.under_way

    @property
    def next_time(self) -> int | None:
        """When something is due again; None: never."""
        return self._queue[0][0] if self._queue else None

    def due(self) -> list[Callable[..., object]]:
        """What is under way, earliest first: to say what is still moving."""
        return [action for _, _, is_background, action, _ in sorted(self._queue, key=_order) if not is_background]


def _order(due: _Due) -> tuple[int, int]:
    return due[0], due[1]

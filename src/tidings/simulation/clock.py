"""Virtual time and the queue of scheduled actions. Nothing in a simulation happens outside of this queue."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000  # microseconds

_Due = tuple[int, int, bool, Callable[..., object], tuple[Any, ...]]  # time, number, is_background, action, arguments


def microseconds(seconds: float) -> int:
    """Convert seconds to microseconds."""
    return round(seconds * SECOND)


class SimulatedClock:
    """Runs scheduled actions in the order of their times; at equal times, in the order in which they were scheduled.

    Actions that recur for ever, such as heartbeats, are scheduled in the background. `under_way` counts all other
    pending actions.
    """

    __slots__ = ("_number", "_queue", "now", "under_way")

    def __init__(self, now: int = 0) -> None:
        self.now = now  # microseconds
        self.under_way = 0
        self._queue: list[_Due] = []
        self._number = 0

    def at(self, time: int, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule an action with its arguments."""
        self._number += 1
        self.under_way += 1
        heappush(self._queue, (time, self._number, False, action, arguments))

    def in_background(self, time: int, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule an action that does not keep the simulation from being idle."""
        self._number += 1
        heappush(self._queue, (time, self._number, True, action, arguments))

    def step(self) -> None:
        """Set the time to that of the next action, and run it."""
        self.now, _, is_background, action, arguments = heappop(self._queue)
        if not is_background:
            self.under_way -= 1
        action(*arguments)

    def run_until(self, time: int) -> None:
        """Run all actions up to and including `time`."""
        queue = self._queue
        while queue and queue[0][0] <= time:
            self.step()
        self.now = time

    def run_until_idle(self, time: int) -> bool:
        """Run until only background actions are pending, or until `time`. Returns whether it is idle."""
        queue = self._queue
        while self.under_way and queue[0][0] <= time:
            self.step()
        return not self.under_way

    @property
    def next_time(self) -> int | None:
        """The time of the next action, or None if there is none."""
        return self._queue[0][0] if self._queue else None

    def due(self) -> list[Callable[..., object]]:
        """Return the pending actions that are not in the background, earliest first, for an error message."""
        return [action for _, _, is_background, action, _ in sorted(self._queue, key=_order) if not is_background]


def _order(due: _Due) -> tuple[int, int]:
    return due[0], due[1]

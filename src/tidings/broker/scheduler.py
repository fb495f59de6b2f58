"""The turns of a broker's event loop: timers, calls at the end of a turn, threads that read, and backpressure."""

import asyncio
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.ports import Links, Sessions
from tidings.runtime.clock import Clock

_MAX_QUEUED = 50_000  # entries of the release queue, above which clients are not read


class EventLoopScheduler:
    """Schedules the work of a broker on its event loop. It is the `Scheduler` of the other parts.

    Every callback of the event loop that brings operations to the node ends its turn with `flush`.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.readers = ThreadPoolExecutor(2, "tidings-read")
        self.is_stopping = False
        self._turn_end_calls: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop
        self._release: Callable[[], None]
        self._last: tuple[Callable[[], None], ...]

    def begin(self, release: Callable[[], None], last: Iterable[Callable[[], None]]) -> None:
        """Use the running event loop from now on.

        Args:
            release: Releases what is ready; it begins the end of a turn.
            last: Called after the deferred calls of a turn, in order.
        """
        self._loop = asyncio.get_running_loop()
        self._release, self._last = release, tuple(last)

    def now(self) -> float:
        """Return the time of the event loop, in seconds."""
        return self._loop.time()

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `call` after so many seconds; return a handle that cancels the call."""
        return self._loop.call_later(seconds, call)

    def defer_to_turn_end(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn of the event loop, in `flush`."""
        self._turn_end_calls.append(call)

    def flush(self) -> None:
        """End a turn of the event loop: release what is ready, run deferred calls, and update backpressure."""
        self._release()
        while self._turn_end_calls:
            calls, self._turn_end_calls = self._turn_end_calls, []
            for call in calls:
                call()
        for call in self._last:
            call()


class UnsettledCount(Protocol):
    """Counts publications."""

    @property
    def unsettled(self) -> int:
        """How many publications have not reached every broker that they are for."""
        ...


class Backpressure:
    """Pauses reading from all clients while too much waits for the disk or for neighbours.

    Args:
        configuration: Has the limit on unsettled publications.
        links: The links to the neighbours.
        sessions: The sessions of the clients.
        release_queue: The calls that wait for the disk.
        publications: Counts the publications that are not settled.
    """

    def __init__(
        self,
        configuration: ActiveConfiguration,
        links: Links,
        sessions: Sessions,
        release_queue: Sized,
        publications: UnsettledCount,
    ) -> None:
        self._configuration, self._links, self._sessions = configuration, links, sessions
        self._release_queue, self._publications = release_queue, publications
        self._was_full = False

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk or for neighbours that the broker reads nothing from its clients."""
        slow = any(link.connection.flow.is_stalled for link in self._links.all())
        unsettled = self._publications.unsettled > self._configuration.current.limits.unsettled
        return slow or unsettled or len(self._release_queue) > _MAX_QUEUED

    def update(self) -> None:
        """Pause or resume reading from all clients, if `is_full` has changed."""
        is_full = self.is_full
        if is_full != self._was_full:
            self._was_full = is_full
            for session in self._sessions.all():
                session.update_throttle()

"""An inbox: the notifications of one subscription that wait for being taken. Bounded, and it counts what it loses."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from tidings.model.notification import Notification


class Inbox(Protocol):
    """Where the notifications of a subscription go. For any number of threads."""

    limit: int
    lost: int

    @property
    def waiting(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    @property
    def quiet(self) -> bool:
        """Whether nobody should wait for more: the inbox was closed, or whoever listened has left."""
        ...

    def ready(self) -> bool:
        """Whether `take` would give something."""
        ...

    def put(self, note: Notification, offset: int) -> Notification | None:
        """Adds a notification; the one that was lost for it, if there was no room. One thread at a time puts."""
        ...

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Up to `limit` that wait; if there are none, those that come within `timeout` seconds (None: whenever)."""
        ...

    def close(self) -> None:
        """Nothing more comes; what waits can still be taken. Those who wait for more are told."""

    def leave(self) -> None:
        """Whoever listened has left: nobody waits here until `attend`, but notifications still come."""

    def attend(self) -> None: ...

    def expect(self, offset: int) -> None:
        """A notification for this place in the order will come; a durable inbox makes a note of it."""

    def redeliver(self) -> int:
        """What was taken and not acknowledged waits again; how much. Only durable inboxes remember what was taken."""
        ...

    def has_taken(self) -> list[UUID]:
        """The ids of the events that were taken and are not acknowledged."""
        ...

    def acknowledgement(self, events: Iterable[UUID]) -> "Acknowledged | None": ...


class Forgetful:
    """What all inboxes have in common that are not durable: what was taken from them is gone."""

    __slots__ = ()

    def expect(self, offset: int) -> None:
        return

    def redeliver(self) -> int:
        return 0

    def has_taken(self) -> list[UUID]:
        return []

    def acknowledgement(self, events: Iterable[UUID]) -> "Acknowledged | None":
        return None


class Queue(Forgetful):
    """Of a subscription that is not durable: keeps the newest `limit`, loses the oldest."""

    __slots__ = ("_changed", "_closed", "_left", "_lock", "_sleepers", "_waiting", "limit", "lost")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lost = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleepers = 0
        self._closed = False
        self._left = False
        self._waiting: deque[Notification] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def quiet(self) -> bool:
        return self._closed or self._left

    def ready(self) -> bool:
        return bool(self._waiting)

    def put(self, note: Notification, offset: int) -> Notification | None:
        # Without the lock, unless somebody waits: appending to a deque is atomic, and whoever goes to sleep looks again
        # after having said so.
        waiting = self._waiting
        if self._closed:
            return None
        waiting.append(note)
        if self._sleepers:
            with self._lock:
                self._changed.notify_all()
        return self._lose_oldest() if len(waiting) > self.limit else None

    def _lose_oldest(self) -> Notification | None:
        with self._lock:
            if len(self._waiting) <= self.limit:
                return None  # somebody has just taken some
            self.lost += 1
            return self._waiting.popleft()

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        with self._lock:
            waiting = self._waiting
            if not waiting and timeout != 0:
                self._sleep(timeout)
            count = len(waiting) if limit is None else min(limit, len(waiting))
            return [waiting.popleft() for _ in range(count)]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def leave(self) -> None:
        with self._changed:
            self._left = True
            self._changed.notify_all()

    def attend(self) -> None:
        with self._changed:
            self._left = False

    def _sleep(self, timeout: float | None) -> None:
        """Until something is there, or nothing more comes. The lock is held."""
        self._sleepers += 1
        try:
            self._changed.wait_for(lambda: self._waiting or self.quiet, timeout)
        finally:
            self._sleepers -= 1


class Acknowledged:
    """Which events of a durable inbox are now acknowledged: all below `floor`, and the ones in `beyond`."""

    __slots__ = ("beyond", "count", "events", "floor")

    def __init__(self, floor: int, beyond: list[int], count: int, events: list[UUID]) -> None:
        self.floor, self.beyond, self.count, self.events = floor, beyond, count, events

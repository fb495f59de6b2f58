"""Inboxes: bounded queues that hold the notifications of one subscription until its subscriber takes them."""

import threading
from collections import deque
from typing import Any, Protocol

from tidings.model.errors import InvalidValueError
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS, MAX_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification


class Inbox(Protocol):
    """The queue of one subscription's notifications. Thread-safe; `lost` counts the notifications that did not fit."""

    limit: int
    lost: int

    @property
    def waiting(self) -> int:
        """The number of notifications that wait."""
        ...

    @property
    def closed(self) -> bool:
        """Whether no more notifications come."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no taker should wait for more: the inbox is closed, or its listener has left."""
        ...

    def ready(self) -> bool:
        """Return whether `take` would return something."""
        ...

    def put(self, notification: Notification, offset: int) -> Notification | None:
        """Add the notification of the publication at `offset`; return the one that was dropped for it, if any.

        One thread at a time calls it.
        """
        ...

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        """Take up to `limit` notifications; if there are none, wait for `timeout` seconds (None: without end)."""
        ...

    def close(self) -> None:
        """Close the inbox and wake all waiting takers. Waiting notifications can still be taken."""

    def detach_listener(self) -> None:
        """Mark that the listener has left and wake all waiting takers; notifications still come."""

    def attach_listener(self) -> None:
        """Mark that a listener is there again, after `detach_listener`."""
        ...

    def redeliver(self) -> int:
        """Put taken but unacknowledged notifications back; return how many. Only durable inboxes have any."""
        ...


class TransientInbox:
    """Base of inboxes that are not durable: a notification that was taken is gone."""

    __slots__ = ()

    def redeliver(self) -> int:
        return 0


class BoundedInbox(TransientInbox):
    """The inbox of a subscription that is not durable: holds the newest `limit` notifications and drops the oldest."""

    __slots__ = ("_changed", "_closed", "_is_detached", "_lock", "_waiters", "_waiting", "limit", "lost")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lost = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiters = 0
        self._closed = False
        self._is_detached = False
        self._waiting: deque[Notification] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_idle(self) -> bool:
        return self._closed or self._is_detached

    def ready(self) -> bool:
        return bool(self._waiting)

    def put(self, notification: Notification, offset: int) -> Notification | None:
        # Takes the lock only if a taker waits: appending to a deque is atomic, and a taker counts itself among the
        # waiters before it looks at the deque for the last time.
        waiting = self._waiting
        if self._closed:
            return None
        waiting.append(notification)
        if self._waiters:
            with self._lock:
                self._changed.notify_all()
        return self._lose_oldest() if len(waiting) > self.limit else None

    def _lose_oldest(self) -> Notification | None:
        with self._lock:
            if len(self._waiting) <= self.limit:
                return None  # another thread has just taken some
            self.lost += 1
            return self._waiting.popleft()

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        with self._lock:
            waiting = self._waiting
            if not waiting and timeout != 0:
                self._wait(timeout)
            count = len(waiting) if limit is None else min(limit, len(waiting))
            return [waiting.popleft() for _ in range(count)]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def detach_listener(self) -> None:
        with self._changed:
            self._is_detached = True
            self._changed.notify_all()

    def attach_listener(self) -> None:
        with self._changed:
            self._is_detached = False

    def _wait(self, timeout: float | None) -> None:
        """Wait until a notification is there or none will come. The lock is held."""
        self._waiters += 1
        try:
            self._changed.wait_for(lambda: self._waiting or self.is_idle, timeout)
        finally:
            self._waiters -= 1


def inbox_limit(limit: Any) -> int:
    """Return the checked limit of an inbox, or the default for None."""
    if limit is None:
        return DEFAULT_INBOX_NOTIFICATIONS
    if type(limit) is not int or not 0 < limit <= MAX_INBOX_NOTIFICATIONS:
        raise InvalidValueError(f"limit: from 1 to MAX_INBOX_NOTIFICATIONS ({MAX_INBOX_NOTIFICATIONS:,})")
    return limit

"""Where notifications of a subscription go in a broker: to its subscriber's connection, if there is one."""

from typing import Protocol

from tidings.hub.backlog import Backlog, Read
from tidings.hub.inbox import Forgetful
from tidings.model.notification import Notification


class Outlet(Protocol):
    """The connection of a subscriber."""

    def notify(self, note: Notification, inbox: "Wired") -> None: ...


class Wired(Forgetful):
    """Of a subscription that is not durable: nothing waits here. What waits, waits in the connection, and is bounded
    there for all subscriptions of a client together."""

    __slots__ = ("id", "limit", "lost", "outlet")

    def __init__(self, limit: int, id: str) -> None:  # noqa: A002
        self.limit, self.id = limit, id
        self.lost = 0
        self.outlet: Outlet | None = None

    @property
    def waiting(self) -> int:
        return 0

    @property
    def closed(self) -> bool:
        return self.outlet is None

    @property
    def quiet(self) -> bool:
        return self.outlet is None

    def ready(self) -> bool:
        return False

    def put(self, note: Notification, offset: int) -> Notification | None:
        if self.outlet is not None:
            self.outlet.notify(note, self)
        return None

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        return []

    def close(self) -> None:
        self.outlet = None

    def leave(self) -> None:
        self.outlet = None

    def attend(self) -> None:
        """Its subscriber's session says what the outlet is."""


class Pump(Protocol):
    """Takes out of a durable inbox what its subscriber has room for."""

    def wake(self) -> None: ...


class Kept(Backlog):
    """Of a durable subscription: a backlog that wakes whoever pumps out of it."""

    def __init__(self, limit: int, read: Read | None) -> None:
        super().__init__(limit, read)
        self.pump: Pump | None = None

    @property
    def must_read(self) -> bool:
        """Whether taking something means reading it from the disk."""
        with self._changed:
            return not self._entries and self._is_behind()

    def put(self, note: Notification, offset: int) -> Notification | None:
        lost = super().put(note, offset)
        if self.pump is not None:
            self.pump.wake()
        return lost

    def leave(self) -> None:
        self.pump = None
        super().leave()

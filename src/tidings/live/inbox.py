"""Where notifications of a subscription go in a broker: to its subscriber's connection, if there is one."""

from typing import TYPE_CHECKING, Protocol

from tidings.hub.backlog import Backlog, Read
from tidings.hub.inbox import Forgetful
from tidings.hub.subscription import HubSubscription
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.hub.desk import Desk


class Outlet(Protocol):
    """The connection of a subscriber."""

    def notify(self, note: Notification) -> None: ...


class Wired(Forgetful):
    """One for all subscriptions of a client that are not durable: nothing waits here. What waits, waits in the
    connection, and is counted and bounded there."""

    __slots__ = ("outlet",)
    lost = 0

    def __init__(self, outlet: Outlet | None = None) -> None:
        self.outlet = outlet

    @property
    def limit(self) -> int:
        return DEFAULT_INBOX_NOTIFICATIONS

    @limit.setter
    def limit(self, limit: int) -> None:
        """It is the connection's that counts."""

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
            self.outlet.notify(note)
        return None

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        return []

    def close(self) -> None:
        self.outlet = None

    def leave(self) -> None:
        self.outlet = None

    def attend(self) -> None:
        """Whoever comes brings an outlet."""


_NOBODYS = Wired()


class Served(HubSubscription):
    """One that is not durable: its inbox is that of its subscriber's session, as long as both are there."""

    __slots__ = ()

    def __init__(self, desk: "Desk", subscription: Subscription) -> None:
        super().__init__(desk, subscription, _NOBODYS)

    def end(self) -> None:
        self.inbox = _NOBODYS

    def detach(self) -> None:
        self.inbox = _NOBODYS


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

"""Inboxes of subscriptions at a broker: notifications go to the subscriber's connection, if it is connected.

Non-durable subscriptions of a client share its session's inbox, in which nothing waits. A durable subscription has an
inbox of its own, from which a `DurableDelivery` sends as much as the subscriber can take.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from tidings.broker.net.channel import Channel
from tidings.model.errors import TidingsError
from tidings.model.limits import DEFAULT_INBOX_NOTIFICATIONS
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.runtime.durable_inbox import DurableInbox, Read
from tidings.runtime.inboxes import TransientInbox
from tidings.runtime.subscription_registry import RegisteredSubscription


class NotificationOutlet(Protocol):
    """What sends notifications to a connected subscriber: its session."""

    def notify(self, notification: Notification) -> None:
        """Send a notification to the subscriber."""
        ...


class SessionInbox(TransientInbox):
    """The inbox that all non-durable subscriptions of a session share. It passes notifications on at once.

    Notifications wait in the connection, which counts and bounds them. Without an `outlet` they are dropped.
    """

    __slots__ = ("outlet",)
    lost = 0

    def __init__(self, outlet: NotificationOutlet | None = None) -> None:
        self.outlet = outlet

    @property
    def limit(self) -> int:
        """The notifications that may wait; without effect here, see the setter."""
        return DEFAULT_INBOX_NOTIFICATIONS

    @limit.setter
    def limit(self, limit: int) -> None:
        """Ignore the limit: the limits of the connection count."""

    @property
    def waiting(self) -> int:
        """Always 0: no notification waits in this inbox."""
        return 0

    @property
    def closed(self) -> bool:
        return self.outlet is None

    @property
    def is_idle(self) -> bool:
        return self.outlet is None

    def ready(self) -> bool:
        return False

    def put(self, notification: Notification, offset: int) -> Notification | None:
        """Send a notification to the client, or drop it if no client is connected."""
        if self.outlet is not None:
            self.outlet.notify(notification)
        return None

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[Notification]:
        return []

    def close(self) -> None:
        """Drop notifications from now on, since the session has ended."""
        self.outlet = None

    def detach_listener(self) -> None:
        self.outlet = None

    def attach_listener(self) -> None:
        """Do nothing: a session that connects brings an outlet."""


_NO_INBOX = SessionInbox()


class SessionSubscription(RegisteredSubscription):
    """A non-durable subscription; its inbox is that of its subscriber's session while the session exists."""

    __slots__ = ()

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, _NO_INBOX)

    def end(self) -> None:
        """Drop notifications from now on, since the subscription has ended."""
        self.inbox = _NO_INBOX

    def detach(self) -> None:
        """Drop notifications until the subscriber's next session sets its inbox."""
        self.inbox = _NO_INBOX


class DeliveryPump(Protocol):
    """Sends notifications from a durable inbox to the subscriber."""

    def wake(self) -> None:
        """Send as many notifications as the subscriber can take."""
        ...


class SessionDurableInbox(DurableInbox):
    """The inbox of a durable subscription, which wakes its `DeliveryPump` when a notification comes."""

    def __init__(self, limit: int, read: Read | None) -> None:
        super().__init__(limit, read)
        self.pump: DeliveryPump | None = None

    @property
    def must_read(self) -> bool:
        """Whether the next `take` would read the journal."""
        with self._changed:
            return not self._entries and self._is_behind()

    def put(self, notification: Notification, offset: int) -> Notification | None:
        lost = super().put(notification, offset)
        if self.pump is not None:
            self.pump.wake()
        return lost

    def detach_listener(self) -> None:
        self.pump = None
        super().detach_listener()


_BATCH = 256  # notifications that are taken from the inbox at a time


class DurableDelivery:
    """Sends the notifications of a durable inbox over a connection, until the inbox or the connection limits it.

    The inbox limits how many notifications are sent and not acknowledged. The journal is read in another thread.

    Args:
        inbox: The inbox of the durable subscription.
        connection: The connection of its subscriber.
        choose: Splits notifications into those that may be sent now and those that must wait; nothing overtakes the
            latter.
        write: Encodes a notification as a frame.
        readers: Runs reads of the journal.
        complain: Called with the error if the journal cannot be read.
    """

    def __init__(
        self,
        inbox: SessionDurableInbox,
        connection: Channel,
        split_deliverable: Callable[[list[Notification]], tuple[list[Notification], list[Notification]]],
        encode: Callable[[Notification], bytes],
        readers: Executor,
        on_error: Callable[[TidingsError], None],
    ) -> None:
        self._inbox, self._connection, self._split_deliverable, self._encode = (
            inbox,
            connection,
            split_deliverable,
            encode,
        )
        self._readers, self._on_error = readers, on_error
        self._is_reading = False
        self._waiting: list[Notification] = []  # taken from the inbox, but not to be sent yet

    def wake(self) -> None:
        """Send as many notifications as possible.

        Called when a notification has come or was acknowledged, when the subscriber reads again, and when what had to
        wait may be sent.
        """
        inbox, connection = self._inbox, self._connection
        while not self._is_reading and connection.is_open and not connection.flow.is_stalled and inbox.pump is self:
            if self._waiting:
                self._send(self._waiting)
                if self._waiting:
                    return
            if inbox.must_read:
                self._is_reading = True
                loop = asyncio.get_running_loop()
                loop.run_in_executor(self._readers, inbox.take, _BATCH).add_done_callback(self._read_done)
                return
            notifications = inbox.take(_BATCH)
            if not notifications:
                return
            self._send(notifications)

    def _read_done(self, done: "asyncio.Future[list[Notification]]") -> None:
        """Send what was read from the journal; if another session has the inbox now, put it back for that one."""
        self._is_reading = False
        error = done.exception()
        if isinstance(error, TidingsError):
            self._on_error(error)
            return
        notifications = done.result()
        other_pump = self._inbox.pump
        if other_pump is not self:
            self._inbox.redeliver()  # the new delivery does not know what this one has taken
            if other_pump is not None:
                other_pump.wake()
            return
        self._send(notifications)
        if notifications:
            self.wake()

    def _send(self, notifications: list[Notification]) -> None:
        """Send the notifications that may be sent now, and keep the rest waiting."""
        deliverable, self._waiting = self._split_deliverable(notifications)
        for notification in deliverable:
            self._connection.send(self._encode(notification))

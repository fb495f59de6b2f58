"""Deduplicates the notifications of a client, which a broker may send again after a reconnection."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from uuid import UUID

from tidings.model.limits import MAX_REMEMBERED_NOTIFICATIONS
from tidings.model.notification import Notification


class AckTracker:
    """Tracks which events of a durable subscription were received, taken and acknowledged.

    After a reconnection the broker sends unacknowledged events again; their ids identify them.
    """

    __slots__ = ("_acknowledged", "_received")

    def __init__(self) -> None:
        self._received: dict[UUID, bool] = {}  # event id -> whether the program took it
        self._acknowledged: OrderedDict[UUID, None] = OrderedDict()

    def record_received(self, event: UUID) -> bool:
        """Record that an event was received; return whether it is new."""
        if event in self._received or event in self._acknowledged:
            return False
        self._received[event] = False
        return True

    def is_acknowledged(self, event: UUID) -> bool:
        """Return whether the event was acknowledged."""
        return event in self._acknowledged

    def record_taken(self, event: UUID) -> None:
        """Record that the program took the event."""
        self._received[event] = True

    def all_taken(self) -> list[UUID]:
        """Return the events that were taken and not acknowledged."""
        return [event for event, is_taken in self._received.items() if is_taken]

    def acknowledge(self, events: Iterable[UUID]) -> list[UUID]:
        """Mark taken events as acknowledged; return the events that this concerned."""
        acknowledged = [event for event in dict.fromkeys(events) if self._received.get(event)]
        for event in acknowledged:
            del self._received[event]
            self._acknowledged[event] = None
            if len(self._acknowledged) > MAX_REMEMBERED_NOTIFICATIONS:
                self._acknowledged.popitem(last=False)
        return acknowledged

    def forget(self, event: UUID) -> bool:
        """Drop an event that the program will not get; return whether it was there."""
        return self._received.pop(event, None) is not None


class NotificationDedup:
    """Deduplicates notifications after a reconnection, by remembering the recent ones of earlier connections."""

    def __init__(self) -> None:
        # Two deques rather than one of pairs: each notification is added, but they are read only after a reconnection.
        self._subscriptions: deque[str] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._events: deque[int] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._earlier: frozenset[tuple[str, int]] = frozenset()

    def connected_again(self) -> None:
        """Begin a new connection: notifications noted so far were delivered by earlier ones."""
        self._earlier = frozenset(zip(self._subscriptions, self._events, strict=True))

    def is_new(self, notification: Notification) -> bool:
        """Record a notification; return whether it is new, not delivered by an earlier connection."""
        subscription, event = notification.subscription, notification.event.id.int
        if self._earlier and (subscription, event) in self._earlier:
            return False
        self._subscriptions.append(subscription)
        self._events.append(event)
        return True

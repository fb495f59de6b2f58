"""What a client was told: an event that was under way to where it has moved may come twice."""

from collections import deque

from tidings.model.limits import MAX_REMEMBERED_NOTIFICATIONS
from tidings.model.notification import Notification


class Told:
    """The notifications of this connection that came last, and of those before it."""

    def __init__(self) -> None:
        # Side by side, not as pairs: there is one for all that comes, and nobody looks until a connection breaks.
        self._subscriptions: deque[str] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._events: deque[int] = deque(maxlen=MAX_REMEMBERED_NOTIFICATIONS)
        self._before: frozenset[tuple[str, int]] = frozenset()

    def connected_again(self) -> None:
        """What was told until now was told in an earlier connection."""
        self._before = frozenset(zip(self._subscriptions, self._events, strict=True))

    def note(self, note: Notification) -> bool:
        """Whether it is new: it was not told in an earlier connection."""
        subscription, event = note.subscription, note.event.id.int
        if self._before and (subscription, event) in self._before:
            return False
        self._subscriptions.append(subscription)
        self._events.append(event)
        return True

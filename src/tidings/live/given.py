"""What durable subscriptions here have been given lately: an event may come by several ways where its subscriber has
moved, or may have, and is given once."""

from uuid import UUID

from tidings.hub.inbox import Inbox
from tidings.model.limits import MAX_REMEMBERED_GIVEN


class Given:
    """By the inboxes themselves: one that has ended and begun anew has been given nothing."""

    def __init__(self) -> None:
        self._given: dict[tuple[Inbox, int], None] = {}  # the oldest first

    def note(self, inbox: Inbox, event: UUID) -> bool:
        """Whether that is new."""
        key = inbox, event.int
        if key in self._given:
            return False
        self._given[key] = None
        if len(self._given) > MAX_REMEMBERED_GIVEN:
            del self._given[next(iter(self._given))]
        return True

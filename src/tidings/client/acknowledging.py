"""Acknowledging: of a durable subscription, what has come and is not acknowledged, and what was acknowledged last."""

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

from tidings.model.limits import MAX_REMEMBERED_NOTIFICATIONS


class Acknowledging:
    """By the ids of events: another connection cannot know what is here, and sends it again."""

    __slots__ = ("_acknowledged", "_here")

    def __init__(self) -> None:
        self._here: dict[UUID, bool] = {}  # whether it was taken
        self._acknowledged: OrderedDict[UUID, None] = OrderedDict()

    def came(self, event: UUID) -> bool:
        """Whether it is new."""
        if event in self._here or event in self._acknowledged:
            return False
        self._here[event] = False
        return True

    def is_acknowledged(self, event: UUID) -> bool:
        return event in self._acknowledged

    def taken(self, event: UUID) -> None:
        self._here[event] = True

    def all_taken(self) -> list[UUID]:
        """What can be acknowledged."""
        return [event for event, taken in self._here.items() if taken]

    def acknowledged(self, events: Iterable[UUID]) -> list[UUID]:
        """These need not come again; those of them that were taken."""
        known = [event for event in dict.fromkeys(events) if self._here.get(event)]
        for event in known:
            del self._here[event]
            self._acknowledged[event] = None
            if len(self._acknowledged) > MAX_REMEMBERED_NOTIFICATIONS:
                self._acknowledged.popitem(last=False)
        return known

    def forget(self, event: UUID) -> bool:
        """It is not given to the program; whether it was here."""
        return self._here.pop(event, None) is not None

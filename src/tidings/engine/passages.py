"""What has passed a broker of an overlay: no event twice, and none to a client behind a later one of its publisher."""

from enum import Enum
from uuid import UUID

from tidings.model.limits import MAX_REMEMBERED_PASSAGES

ORDER_MEMORY = 60_000_000  # microseconds: longer than an event can be under way between brokers


class Passage(Enum):
    FIRST = "first"
    ONWARD = "onward"  # it was here, and now it goes everywhere
    AGAIN = "again"


class Passages:
    def __init__(self) -> None:
        self._seen: dict[UUID, bool] = {}  # -> whether it went everywhere
        self._last: dict[tuple[str, str], tuple[int, int]] = {}  # client, publisher -> number, when
        self.overtaken = 0  # events that were not delivered, since later ones of their publishers had been

    def note(self, event: UUID, *, flood: bool) -> Passage:
        """An event comes by."""
        went = self._seen.get(event)
        if went is None:
            self._seen[event] = flood
            if len(self._seen) > MAX_REMEMBERED_PASSAGES:
                del self._seen[next(iter(self._seen))]
            return Passage.FIRST
        if flood and not went:
            self._seen[event] = True
            return Passage.ONWARD
        return Passage.AGAIN

    def forget(self, event: UUID) -> None:
        """It waits, and comes again."""
        self._seen.pop(event, None)

    def flooded(self, event: UUID) -> None:
        """It goes everywhere from here, whether or not it came so."""
        self._seen[event] = True

    def in_order(self, client: str, publisher: str, number: int, now: int) -> bool:
        """Whether the client may be told now; an event without a number has no place in an order."""
        if not number:
            return True
        key = client, publisher
        last = self._last.pop(key, None)
        if last is not None and last[0] > number and now - last[1] < ORDER_MEMORY:
            self._last[key] = last
            self.overtaken += 1
            return False
        self._last[key] = number, now
        if len(self._last) > MAX_REMEMBERED_PASSAGES:
            del self._last[next(iter(self._last))]
        return True

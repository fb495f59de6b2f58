"""What has passed a broker of an overlay: no event twice, and none to a client behind a later one of its publisher."""

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tidings.model.limits import MAX_REMEMBERED_PASSAGES

ORDER_MEMORY = 60_000_000  # microseconds: longer than an event can be under way between brokers


class Passage(Enum):
    FIRST = "first"  # it is for the clients here, and goes on
    ONWARD = "onward"  # it only goes on: clients here have got it, or get it another time
    AGAIN = "again"


class Seen(NamedTuple):
    """The last round in which an event passed, whether it went everywhere, and when it was judged for all clients here;
    0: not yet."""

    round: int
    flood: bool
    judged: int


class Passages:
    def __init__(self) -> None:
        self._seen: dict[UUID, Seen] = {}
        self._before: Seen | None = None  # what was known of the last event before it came
        self._last: dict[tuple[str, str], tuple[int, int, int]] = {}  # client, publisher -> number, timestamp, when
        self.overtaken = 0  # events that were not delivered, since later ones of their publishers had been

    def note(self, event: UUID, now: int, *, flood: bool, round: int = 0, here: bool = True) -> Passage:  # noqa: A002
        """An event comes by; `here`: in this round it is for the clients of this broker too."""
        seen = self._before = self._seen.get(event)
        judged = now if here else 0
        if seen is None:
            self._put(event, Seen(round, flood, judged))
            return Passage.FIRST if here else Passage.ONWARD
        if round <= seen.round and (seen.flood or not flood):
            return Passage.AGAIN
        self._seen[event] = Seen(max(round, seen.round), flood or seen.flood, seen.judged or judged)
        return Passage.FIRST if here and not seen.judged else Passage.ONWARD

    def judged(self, event: UUID) -> int:
        """When it was found out for whom of all clients here it is; 0 if that is not known."""
        seen = self._seen.get(event)
        return 0 if seen is None else seen.judged

    def forget(self, event: UUID) -> None:
        """The event that came last waits, and comes again."""
        if self._before is None:
            self._seen.pop(event, None)
        else:
            self._seen[event] = self._before

    def flooded(self, event: UUID) -> None:
        """It goes everywhere from here, whether or not it came so."""
        self._seen[event] = self._seen[event]._replace(flood=True)

    def in_order(self, client: str, publisher: str, number: int, timestamp: int, now: int) -> bool:
        """Whether the client may be told now; an event without a number has no place in an order. A publisher that has
        begun to count anew, elsewhere, publishes later all the same."""
        if not number:
            return True
        key = client, publisher
        last = self._last.pop(key, None)
        if last is not None and last[0] > number and last[1] >= timestamp and now - last[2] < ORDER_MEMORY:
            self._last[key] = last
            self.overtaken += 1
            return False
        self._last[key] = number, timestamp, now
        if len(self._last) > MAX_REMEMBERED_PASSAGES:
            del self._last[next(iter(self._last))]
        return True

    def _put(self, event: UUID, seen: Seen) -> None:
        self._seen[event] = seen
        if len(self._seen) > MAX_REMEMBERED_PASSAGES:
            del self._seen[next(iter(self._seen))]

"""Events that have passed a broker of an overlay: deduplication, and order per publisher.

No event is handled twice in the same round, and no client gets an event after a later one of the same publisher. Both
memories are limited; the oldest entries are forgotten first.
"""

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tidings.model.limits import MAX_SEEN_EVENTS

ORDER_MEMORY = 60_000_000  # microseconds: longer than an event can be in flight between brokers


class SeenStatus(Enum):
    """What a broker does with an event that comes."""

    FIRST = "first"  # deliver it to local clients and forward it
    ONWARD = "onward"  # only forward it: local clients have got it, or get it another time
    AGAIN = "again"  # ignore it


class SeenEvent(NamedTuple):
    """What is remembered of an event: its last round, whether it was flooded, and when it was matched here.

    `judged` is when it was matched for all local clients; 0 if it was not yet.
    """

    round: int
    flood: bool
    matched_at: int


class SeenEvents:
    """Remembers the events that have passed, and the last event of each publisher that each client got."""

    def __init__(self) -> None:
        self._seen: dict[UUID, SeenEvent] = {}
        self._previous_entry: SeenEvent | None = None  # the former entry of the event that came last
        self._last: dict[tuple[str, str], tuple[int, int, int]] = {}  # client, publisher -> number, timestamp, when
        self.overtaken = 0  # events not delivered because later ones of their publishers had been

    def note(self, event: UUID, now: int, *, flood: bool, round: int = 0, here: bool = True) -> SeenStatus:  # noqa: A002
        """Note that an event has come, and return what is to be done with it.

        Args:
            event: The event's id.
            now: The time in microseconds.
            flood: Whether it is flooded.
            round: The round of redelivery; 0 is the first transmission.
            here: Whether this round is for the local clients too.
        """
        seen = self._previous_entry = self._seen.get(event)
        judged = now if here else 0
        if seen is None:
            self._put(event, SeenEvent(round, flood, judged))
            return SeenStatus.FIRST if here else SeenStatus.ONWARD
        if round <= seen.round and (seen.flood or not flood):
            return SeenStatus.AGAIN
        self._seen[event] = SeenEvent(max(round, seen.round), flood or seen.flood, seen.matched_at or judged)
        return SeenStatus.FIRST if here and not seen.matched_at else SeenStatus.ONWARD

    def matched_at(self, event: UUID) -> int:
        """Return when an event was matched for all local clients; 0 if that is not known."""
        seen = self._seen.get(event)
        return 0 if seen is None else seen.matched_at

    def forget(self, event: UUID) -> None:
        """Undo `note` for the event that came last, which waits and will come again."""
        if self._previous_entry is None:
            self._seen.pop(event, None)
        else:
            self._seen[event] = self._previous_entry

    def mark_flooded(self, event: UUID) -> None:
        """Note that an event is flooded from here on, whether or not it came so."""
        self._seen[event] = self._seen[event]._replace(flood=True)

    def is_in_order(self, client: str, publisher: str, number: int, timestamp: int, now: int) -> bool:
        """Whether a client may get an event now; False if it has got a later one of the same publisher.

        An event without a sequence number has no place in an order. If a publisher counts from the start again, at
        another broker, its later timestamps keep its events in order.

        Args:
            client: The subscriber.
            publisher: The publisher.
            number: The event's sequence number; 0 if it has none.
            timestamp: When it was accepted.
            now: The time in microseconds.
        """
        if not number:
            return True
        key = client, publisher
        last = self._last.pop(key, None)
        if last is not None and last[0] > number and last[1] >= timestamp and now - last[2] < ORDER_MEMORY:
            self._last[key] = last
            self.overtaken += 1
            return False
        self._last[key] = number, timestamp, now
        if len(self._last) > MAX_SEEN_EVENTS:
            del self._last[next(iter(self._last))]
        return True

    def _put(self, event: UUID, seen: SeenEvent) -> None:
        self._seen[event] = seen
        if len(self._seen) > MAX_SEEN_EVENTS:
            del self._seen[next(iter(self._seen))]

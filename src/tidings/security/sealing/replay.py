"""Replay protection: at a broker's ingress, and at a subscriber.

1. Ingress (`IngressReplayGuard`): per publisher and instance, (timestamp, sequence) and the counter rise strictly,
   and the timestamp is within `freshness` of the broker's clock.
2. Subscriber (`ReplayWindow`): per publisher and instance, each counter is accepted once, in any order, within a
   sliding window.

Memory is bounded. When the guard drops an instance, it remembers the timestamp of that instance's last event as a
floor: an instance it does not know must be newer than the floor, so dropping an instance never permits a replay.
A publisher with too many instances raises a floor of its own. The common floor rises only if there are too many
instances in all, or too many publishers with floors.
"""

from collections.abc import Iterable, Mapping

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_REPLAY_INSTANCES, MAX_REPLAY_INSTANCES_OF_ONE
from tidings.security.sealing.envelope import Seal

WINDOW = 1_024  # counters up to and including the highest one that a subscriber remembers individually
_ALL = (1 << WINDOW) - 1
InstanceKey = tuple[str, bytes]  # a publisher's name and an instance id


class LatestEvent(msgspec.Struct, frozen=True, array_like=True):
    """The last accepted event of one instance of a publisher."""

    publisher: str
    instance: bytes
    timestamp: int
    sequence: int
    counter: int


class IngressReplayGuard:
    """Refuses replayed sealed events where they enter the overlay.

    Events older than `freshness`, or further in the future, are refused. State is bounded: the least recently used
    instances are dropped, see the module docstring.
    """

    def __init__(self, freshness: int | None) -> None:
        """`freshness` is in microseconds; None disables all checks, for events that were checked before."""
        self.freshness = freshness
        self._latest: dict[InstanceKey, LatestEvent] = {}  # least recently used first
        self._instances: dict[str, dict[bytes, None]] = {}  # instance ids by publisher, in the same order
        self._floor = 0  # a timestamp: an unknown instance must be newer than this
        self._floors: dict[str, int] = {}  # floors of publishers with too many instances; most recently raised last

    def check(self, publisher: str, seal: Seal, now: int) -> None:
        """Raise `SecurityError("replay")` if the event repeats an earlier one, or its timestamp is out of bounds.
        Changes nothing."""
        if self.freshness is None:
            return
        if seal.timestamp > now + self.freshness:
            raise SecurityError("replay", "the event is from the future: the publisher's clock is wrong")
        if seal.timestamp < now - self.freshness:
            raise SecurityError("replay", "the event was sealed too long ago; seal it anew")
        last = self._latest.get((publisher, seal.instance))
        if last is None:
            if seal.timestamp <= max(self._floor, self._floors.get(publisher, 0)):
                raise SecurityError("replay", "the event was sealed too long ago; seal it anew")
        elif (seal.timestamp, seal.sequence) <= (last.timestamp, last.sequence):
            raise SecurityError("replay", "the event, or a later one of its publisher, came before")
        elif seal.counter <= last.counter:
            raise SecurityError("replay", "a nonce came twice")

    def record(self, publisher: str, seal: Seal) -> None:
        """Record an accepted event as the last of its instance."""
        if self.freshness is not None:
            self.record_all([LatestEvent(publisher, seal.instance, seal.timestamp, seal.sequence, seal.counter)])

    def undo(self, publisher: str, seal: Seal) -> None:
        """Undo `record` for the publisher's last event, which was not accepted after all: it may be sent again, earlier
        ones may not."""
        self.record_all([LatestEvent(publisher, seal.instance, seal.timestamp, seal.sequence - 1, seal.counter - 1)])

    def record_all(self, events: Iterable[LatestEvent]) -> None:
        """Record each of these as the last event of its instance, and drop instances beyond the limits."""
        for event in events:
            instances = self._instances.setdefault(event.publisher, {})
            instances.pop(event.instance, None)
            instances[event.instance] = None
            self._latest.pop((event.publisher, event.instance), None)
            self._latest[event.publisher, event.instance] = event
            if len(instances) > MAX_REPLAY_INSTANCES_OF_ONE:
                dropped = self._drop((event.publisher, next(iter(instances))))
                self._raise_floor(event.publisher, dropped.timestamp)
            elif len(self._latest) > MAX_REPLAY_INSTANCES:
                self._floor = max(self._floor, self._drop(next(iter(self._latest))).timestamp)

    def _drop(self, instance_key: InstanceKey) -> LatestEvent:
        """Forget one instance of a publisher (one run of its program) and return the last event seen from it."""
        publisher, instance = instance_key
        del self._instances[publisher][instance]
        if not self._instances[publisher]:
            del self._instances[publisher]
        return self._latest.pop(instance_key)

    def _raise_floor(self, publisher: str, floor: int) -> None:
        self._floors[publisher] = max(self._floors.pop(publisher, 0), floor)
        if len(self._floors) > MAX_REPLAY_INSTANCES:
            self._floor = max(self._floor, self._floors.pop(next(iter(self._floors))))

    @property
    def floor(self) -> int:
        """The timestamp that an event of an unknown instance must exceed, for all publishers."""
        return self._floor

    @property
    def floors(self) -> dict[str, int]:
        """Higher floors of single publishers, by name."""
        return dict(self._floors)

    def state(self) -> list[LatestEvent]:
        """Return the last event of each instance, for a snapshot."""
        return list(self._latest.values())

    def restore(self, events: Iterable[LatestEvent], floor: int, floors: Mapping[str, int]) -> None:
        """Restore `state`, `floor` and `floors` from a snapshot."""
        self.record_all(events)
        self._floor = max(self._floor, floor)
        for publisher, publisher_floor in floors.items():
            self._raise_floor(publisher, publisher_floor)


class ReplayWindow:
    """The counters of events that a subscriber has opened, per publisher and instance, in a sliding window.

    Accepts each counter once, in any order. Counters that are `WINDOW` or more behind the highest one are refused.
    """

    def __init__(self) -> None:
        self._seen: dict[InstanceKey, tuple[int, int]] = {}  # the highest counter, and a bit for each one up to it

    def is_new(self, publisher: str, seal: Seal) -> bool:
        """Return whether the event's counter was not seen before and is within the window, and record it."""
        instance_key = publisher, seal.instance
        highest, bits = self._seen.pop(instance_key, (-1, 0))
        ahead = seal.counter - highest
        if ahead > 0:
            behind = (bits << ahead) & _ALL if ahead < WINDOW else 0
            self._put(instance_key, seal.counter, behind | 1)
            return True
        bit = 1 << -ahead
        self._put(instance_key, highest, bits | bit if -ahead < WINDOW else bits)
        return -ahead < WINDOW and not bits & bit

    def _put(self, instance_key: InstanceKey, highest: int, bits: int) -> None:
        self._seen[instance_key] = highest, bits
        if len(self._seen) > MAX_REPLAY_INSTANCES:
            del self._seen[next(iter(self._seen))]

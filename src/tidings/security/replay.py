"""What came before: at ingress strictly rising, per publisher and instance; at a subscriber, in a sliding window."""

from collections.abc import Iterable, Mapping

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_REPLAY_INSTANCES, MAX_REPLAY_INSTANCES_OF_ONE
from tidings.security.envelope import Seal

WINDOW = 1_024  # numbers behind the highest one, in which a subscriber remembers each
_ALL = (1 << WINDOW) - 1
Place = tuple[str, bytes]  # a publisher, and an instance


class Latest(msgspec.Struct, frozen=True, array_like=True):
    publisher: str
    instance: bytes
    timestamp: int
    sequence: int
    counter: int


class Ingress:
    """The last event of each publisher's instance. What is older than `freshness`, or from the future, is refused; so
    an instance that was forgotten, because very many came after it, cannot be replayed once that time is over. One
    publisher that has very many has its own forgotten, and nobody else's."""

    def __init__(self, freshness: int | None) -> None:
        """None: what comes was accepted before, by someone who has seen to that."""
        self.freshness = freshness
        self._latest: dict[Place, Latest] = {}  # the one that was used longest ago first
        self._instances: dict[str, dict[bytes, None]] = {}  # the same by publisher, in the same order
        self._floor = 0  # a time: of instances that were forgotten nothing older than this is taken
        self._floors: dict[str, int] = {}  # the same of publishers that had too many; the latest last

    def check(self, publisher: str, seal: Seal, now: int) -> None:
        """Raises a `SecurityError` if it came before, or comes too late."""
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

    def note(self, publisher: str, seal: Seal) -> None:
        if self.freshness is not None:
            self.recall([Latest(publisher, seal.instance, seal.timestamp, seal.sequence, seal.counter)])

    def take_back(self, publisher: str, seal: Seal) -> None:
        """The last one that was noted was not accepted after all, and may come again; none before it may."""
        self.recall([Latest(publisher, seal.instance, seal.timestamp, seal.sequence - 1, seal.counter - 1)])

    def recall(self, known: Iterable[Latest]) -> None:
        for one in known:
            instances = self._instances.setdefault(one.publisher, {})
            instances.pop(one.instance, None)
            instances[one.instance] = None
            self._latest.pop((one.publisher, one.instance), None)
            self._latest[one.publisher, one.instance] = one
            if len(instances) > MAX_REPLAY_INSTANCES_OF_ONE:
                gone = self._forgotten((one.publisher, next(iter(instances))))
                self._raise_floor(one.publisher, gone.timestamp)
            elif len(self._latest) > MAX_REPLAY_INSTANCES:
                self._floor = max(self._floor, self._forgotten(next(iter(self._latest))).timestamp)

    def _forgotten(self, place: Place) -> Latest:
        publisher, instance = place
        del self._instances[publisher][instance]
        if not self._instances[publisher]:
            del self._instances[publisher]
        return self._latest.pop(place)

    def _raise_floor(self, publisher: str, floor: int) -> None:
        self._floors[publisher] = max(self._floors.pop(publisher, 0), floor)
        if len(self._floors) > MAX_REPLAY_INSTANCES:
            self._floor = max(self._floor, self._floors.pop(next(iter(self._floors))))

    @property
    def floor(self) -> int:
        return self._floor

    @property
    def floors(self) -> dict[str, int]:
        """By publisher."""
        return dict(self._floors)

    def state(self) -> list[Latest]:
        return list(self._latest.values())

    def restore(self, known: Iterable[Latest], floor: int, floors: Mapping[str, int]) -> None:
        """What `state`, `floor` and `floors` were before a restart."""
        self.recall(known)
        self._floor = max(self._floor, floor)
        for publisher, one in floors.items():
            self._raise_floor(publisher, one)


class Window:
    """What a subscriber has opened: each counter of an instance once, in any order, and none that is too far behind."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[int, int]] = {}  # -> the highest counter, and bits of those behind it

    def is_new(self, publisher: str, seal: Seal) -> bool:
        place = publisher, seal.instance
        highest, bits = self._seen.pop(place, (-1, 0))
        ahead = seal.counter - highest
        if ahead > 0:
            behind = (bits << ahead) & _ALL if ahead < WINDOW else 0
            self._put(place, seal.counter, behind | 1)
            return True
        bit = 1 << -ahead
        self._put(place, highest, bits | bit if -ahead < WINDOW else bits)
        return -ahead < WINDOW and not bits & bit

    def _put(self, place: Place, highest: int, bits: int) -> None:
        self._seen[place] = highest, bits
        if len(self._seen) > MAX_REPLAY_INSTANCES:
            del self._seen[next(iter(self._seen))]

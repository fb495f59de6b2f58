"""Epochs of topics: when a new one begins, and what everybody is told of it.

Who may read what is sealed under an epoch is decided when its key is given. An epoch that somebody was given is
replaced at its end; one that nobody asked for has no need to be, and a topic that is at rest makes no keys.
"""

from collections.abc import Callable

import msgspec

from tidings.security.authority import SKEW
from tidings.security.centre.changes import EpochMade
from tidings.security.centre.state import State
from tidings.security.identity import Identity
from tidings.security.keys import EpochKey
from tidings.security.notices import Notice, SignedNotice

Draw = Callable[[int], bytes]  # so many random bytes
SECOND = 1_000_000  # microseconds
_LEAD = 60 * SECOND


class Epochs:
    def __init__(self, state: State, identity: Identity, draw: Draw) -> None:
        self._state, self._identity, self._draw = state, identity, draw
        # The latest epoch that somebody was given, of each topic: after a restart that may be any.
        self._given: dict[bytes, int] = {}

    # When

    def lead(self, topic: bytes) -> int:
        """How long before it begins a key is given to those who ask: so that everybody has it when it is used."""
        return min(self._state.topics[topic].lifetime * SECOND // 2, _LEAD)

    def due(self, topic: bytes) -> int | None:
        """When the next epoch has to be made; None: not before somebody asks."""
        latest = self._state.latest(topic)
        if self._given.get(topic, latest.epoch) < latest.epoch:
            return None
        return latest.until - self.lead(topic)

    def given(self, topic: bytes) -> None:
        """Somebody is given the latest key."""
        self._given[topic] = self._state.latest(topic).epoch

    # A new one

    def begin(self, topic: bytes, now: int) -> EpochKey:
        """The first one."""
        return self._make(topic, now, now - SKEW, now, accepted=1)

    def follow(self, topic: bytes, now: int) -> EpochKey:
        """The one after the latest, if it is time for it: in its place when that ends, at once if it has ended."""
        latest = self._state.latest(topic)
        if now < latest.until - self.lead(topic):
            return latest
        return self._scheduled(topic, now, max(latest.until, now))

    def rotate(self, topic: bytes, now: int) -> EpochKey:
        """A new one before the latest ends: soon, but not before those who ask can have it."""
        return self._scheduled(topic, now, max(self._state.latest(topic).since, now + self.lead(topic)))

    def is_waiting(self, topic: bytes, now: int) -> bool:
        """Whether the latest has yet to begin."""
        return self._state.latest(topic).since > now

    def compromise(self, topic: bytes, now: int) -> EpochKey:
        """A new one at once: what is sealed under any older one is not accepted from now on."""
        return self._make(topic, now, now - SKEW, now, accepted=self._state.latest(topic).epoch + 1)

    def _scheduled(self, topic: bytes, now: int, begins: int) -> EpochKey:
        notice, grace = self._state.notices[topic], self._state.topics[topic].grace * SECOND
        accepted = notice.accepted
        while accepted < notice.epoch and self._ended(topic, accepted) <= now - grace:
            accepted += 1
        # One that begins at once begins on the clocks of those that are behind, too.
        since = begins if begins > now else now - SKEW
        return self._make(topic, now, since, begins, accepted=accepted, grace=grace)

    def _ended(self, topic: bytes, epoch: int) -> int:
        following = self._state.epochs.get(topic, epoch + 1)
        return 0 if following is None else following.since

    def _make(self, topic: bytes, now: int, since: int, begins: int, *, accepted: int, grace: int = 0) -> EpochKey:
        latest, suite = self._state.epochs.latest(topic), self._state.record(topic).suite
        epoch = 1 if latest is None else latest.epoch + 1
        until = begins + self._state.topics[topic].lifetime * SECOND
        key = EpochKey(topic, epoch, suite, self._draw(suite.key_bytes), since, until)
        self._state.keep(EpochMade(key))
        self._given.setdefault(topic, epoch - 1)
        self._tell(topic, Notice(topic, 0, epoch, accepted, begins + grace, now))
        return key

    # What everybody is told

    def tell_grants(self, topic: bytes, now: int) -> None:
        """That some grants count no more (`TopicKept.floors`); all else is as it was."""
        self._tell(topic, msgspec.structs.replace(self._state.notices[topic], issued=now))

    def _tell(self, topic: bytes, notice: Notice) -> None:
        kept, before = self._state.topics[topic], self._state.notices.get(topic)
        floors = {holder: floor for holder, floor in kept.floors.items() if floor[1] > notice.issued}
        said = msgspec.structs.replace(
            notice,
            version=1 if before is None else before.version + 1,
            grants={holder: version for holder, (version, _) in floors.items()},
        )
        data = SignedNotice.make(self._identity, said).data
        self._state.keep(msgspec.structs.replace(kept, floors=floors, notice=data))
        self._state.untold[topic] = data

"""Epochs of topics: when a new epoch begins, and the notices that announce it.

Rules:

1. A key is issued up to `lead` microseconds before its epoch begins, so that all members have it by then.
2. An epoch whose key was issued to somebody is replaced when it ends. If nobody asked for the latest key, no new
   epoch is needed, so an idle topic creates no keys.
3. After a scheduled change, brokers accept earlier epochs for the topic's `grace`; after a compromise or a
   revocation they refuse them at once.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tidings.security.ca.authority import SKEW
from tidings.security.ca.identity import Identity
from tidings.security.kmc.state import Change, EpochAdded, TopicChange
from tidings.security.sealing.keys import EpochKey, Keyring
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.topic_record import TopicRecord

Draw = Callable[[int], bytes]  # returns the given number of random bytes
SECOND = 1_000_000  # microseconds
_LEAD = 60 * SECOND


class EpochState(Protocol):
    """The topics and epochs in a centre's state. `CentreState` says what each of these is."""

    topics: dict[bytes, TopicChange]
    notices: dict[bytes, Notice]
    epochs: Keyring
    unpublished_notices: dict[bytes, bytes]

    def record(self, topic: bytes) -> TopicRecord: ...
    def latest(self, topic: bytes) -> EpochKey: ...
    def record_change(self, change: Change) -> None: ...


class Epochs:
    """Creates the epoch keys of topics and the notices about them."""

    def __init__(self, state: EpochState, identity: Identity, draw: Draw) -> None:
        self._state, self._identity, self._draw = state, identity, draw
        # By topic, the latest epoch whose key was issued. Unknown after a restart: then assume the latest.
        self._issued: dict[bytes, int] = {}

    # Times

    def lead(self, topic: bytes) -> int:
        """Return how long before its epoch begins a key is issued to members that ask."""
        return min(self._state.topics[topic].lifetime * SECOND // 2, _LEAD)

    def due(self, topic: bytes) -> int | None:
        """Return when the next epoch has to be created, or None if that can wait until somebody asks for a key."""
        latest = self._state.latest(topic)
        if self._issued.get(topic, latest.epoch) < latest.epoch:
            return None
        return latest.until - self.lead(topic)

    def mark_issued(self, topic: bytes) -> None:
        """Record that the latest key of a topic is issued."""
        self._issued[topic] = self._state.latest(topic).epoch

    # New epochs

    def begin(self, topic: bytes, now: int) -> EpochKey:
        """Create the first epoch of a topic."""
        return self._create(topic, now, now - SKEW, now, accepted=1)

    def create_if_due(self, topic: bytes, now: int) -> EpochKey:
        """Return the latest key, after creating the next epoch if that is due: it begins when the latest ends, or
        now if that has ended."""
        latest = self._state.latest(topic)
        if now < latest.until - self.lead(topic):
            return latest
        return self._create_scheduled(topic, now, max(latest.until, now))

    def rotate(self, topic: bytes, now: int) -> EpochKey:
        """Create an epoch before the latest one ends, which begins as soon as members that ask can have its key."""
        return self._create_scheduled(topic, now, max(self._state.latest(topic).since, now + self.lead(topic)))

    def is_waiting(self, topic: bytes, now: int) -> bool:
        """Return whether the latest epoch has not begun yet."""
        return self._state.latest(topic).since > now

    def compromise(self, topic: bytes, now: int) -> EpochKey:
        """Create an epoch that begins at once. Events sealed under older epochs are refused from now on."""
        return self._create(topic, now, now - SKEW, now, accepted=self._state.latest(topic).epoch + 1)

    def _create_scheduled(self, topic: bytes, now: int, begins: int) -> EpochKey:
        """Create an epoch that begins at `begins`, with the topic's grace for earlier ones."""
        notice, grace = self._state.notices[topic], self._state.topics[topic].grace * SECOND
        accepted = notice.accepted
        while accepted < notice.epoch and self._end_of(topic, accepted) <= now - grace:
            accepted += 1
        # An epoch that begins at once is backdated, so that it has begun by slow clocks as well.
        since = begins if begins > now else now - SKEW
        return self._create(topic, now, since, begins, accepted=accepted, grace=grace)

    def _end_of(self, topic: bytes, epoch: int) -> int:
        """Return when the epoch after `epoch` began, or 0 if that is unknown."""
        following = self._state.epochs.get(topic, epoch + 1)
        return 0 if following is None else following.since

    def _create(self, topic: bytes, now: int, since: int, begins: int, *, accepted: int, grace: int = 0) -> EpochKey:
        latest, suite = self._state.epochs.latest(topic), self._state.record(topic).suite
        epoch = 1 if latest is None else latest.epoch + 1
        until = begins + self._state.topics[topic].lifetime * SECOND
        key = EpochKey(topic, epoch, suite, self._draw(suite.key_bytes), since, until)
        self._state.record_change(EpochAdded(key))
        self._issued.setdefault(topic, epoch - 1)
        self._publish_notice(topic, Notice(topic, 0, epoch, accepted, begins + grace, now))
        return key

    # Notices

    def announce_revoked_grants(self, topic: bytes, now: int) -> None:
        """Issue a notice with the revoked grants of `TopicChange.floors`, which is otherwise unchanged."""
        self._publish_notice(topic, msgspec.structs.replace(self._state.notices[topic], issued=now))

    def _publish_notice(self, topic: bytes, notice: Notice) -> None:
        """Sign a notice with the next version and the current floors, and store it for publication."""
        topic_state, previous = self._state.topics[topic], self._state.notices.get(topic)
        floors = {holder: floor for holder, floor in topic_state.floors.items() if floor[1] > notice.issued}
        content = msgspec.structs.replace(
            notice,
            version=1 if previous is None else previous.version + 1,
            grants={holder: version for holder, (version, _) in floors.items()},
        )
        data = SignedNotice.make(self._identity, content).data
        self._state.record_change(msgspec.structs.replace(topic_state, floors=floors, notice=data))
        self._state.unpublished_notices[topic] = data

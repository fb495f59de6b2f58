"""The state of a key management centre: what its changes add up to, and those that nobody has saved yet."""

from collections.abc import Iterator

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_INTEGER, MAX_KEPT_EPOCHS
from tidings.security.centre.changes import (
    Change,
    EnrolmentEnded,
    EnrolmentKept,
    EpochMade,
    GrantEnded,
    GrantKept,
    RevocationsKept,
    ServiceKept,
    TopicKept,
)
from tidings.security.credentials import Credentials
from tidings.security.keys import EpochKey, Keyring
from tidings.security.notices import Notice, SignedNotice
from tidings.security.records import TopicRecord
from tidings.security.revocation import Update


class State:
    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials  # the records of its topics, and the list of revocations
        self.service: ServiceKept | None = None
        self.topics: dict[bytes, TopicKept] = {}
        self.notices: dict[bytes, Notice] = {}
        self.epochs = Keyring()
        self.grants: dict[bytes, dict[str, GrantKept]] = {}
        self.enrolments: dict[str, EnrolmentKept] = {}
        self._first_end = MAX_INTEGER  # before then no grant ends
        self.unsaved: list[Change] = []
        self.untold: dict[bytes, bytes] = {}  # notices to publish; of each topic, only the latest
        self.unknown: list[bytes] = []  # records to publish

    # Changing

    def keep(self, change: Change) -> None:
        """Makes a change; it counts for others once it was saved."""
        self.apply(change)
        self.unsaved.append(change)

    def apply(self, change: Change) -> None:
        match change:
            case ServiceKept():
                self.service = change
            case TopicKept():
                self._apply_topic(change)
            case EpochMade(key):
                self._apply_epoch(key)
            case GrantKept():
                self.grants.setdefault(change.topic, {})[change.entity] = change
                self._first_end = min(self._first_end, change.until)
            case GrantEnded():
                self.grants.get(change.topic, {}).pop(change.entity, None)
            case EnrolmentKept():
                self.enrolments[change.entity] = change
            case EnrolmentEnded():
                self.enrolments.pop(change.entity, None)
            case RevocationsKept():
                self.credentials.revoke(Update.read(change.update))

    def _apply_topic(self, topic: TopicKept) -> None:
        known = self.topics.get(topic.id)
        self.topics[topic.id] = topic
        if known is None or known.record != topic.record:
            self.credentials.recall([TopicRecord(topic.record)], (), None)
        if topic.notice and (known is None or known.notice != topic.notice):
            self.notices[topic.id] = SignedNotice(topic.notice).notice

    def _apply_epoch(self, key: EpochKey) -> None:
        """Every epoch has one key for ever: no number comes twice."""
        latest = self.epochs.latest(key.topic)
        if latest is not None and key.epoch <= latest.epoch:
            raise SecurityError("epoch", f"epoch {key.epoch} of {key.topic.hex()} was there before")
        self.epochs.put(key)
        self.epochs.drop(key.topic, key.epoch - MAX_KEPT_EPOCHS)

    # Looking

    def snapshot(self) -> Iterator[Change]:
        """Changes that add up to the same state."""
        if self.service is not None:
            yield self.service
        revocations = self.credentials.revocations.since(0)
        if revocations is not None:
            yield RevocationsKept(revocations.data)
        yield from self.topics.values()
        yield from (EpochMade(key) for topic in self.topics for key in self.epochs.since(topic, 0))
        yield from (grant for grants in self.grants.values() for grant in grants.values())
        yield from self.enrolments.values()

    def record(self, topic: bytes) -> TopicRecord:
        found = self.credentials.topics.get(topic)
        if found is None or topic not in self.topics:
            raise SecurityError("topic", "this centre has no topic of that id; `tidings kmc list` shows what it has")
        return found

    def latest(self, topic: bytes) -> EpochKey:
        """Of a topic that is registered: it has one from the beginning."""
        found = self.epochs.latest(topic)
        assert found is not None  # noqa: S101
        return found

    def current(self, topic: bytes, now: int) -> EpochKey:
        """The one that is sealed under."""
        found = self.epochs.current(topic, now)
        assert found is not None  # noqa: S101
        return found

    def grant(self, topic: bytes, entity: str, now: int) -> GrantKept | None:
        """What it may do now."""
        found = self.grants.get(topic, {}).get(entity)
        return None if found is None or now >= found.until else found

    @property
    def first_end(self) -> int:
        """No grant ends before that moment."""
        return self._first_end

    def ended(self, now: int) -> list[GrantKept]:
        """Grants whose time is over. All are looked at only when one has to be."""
        if now < self._first_end:
            return []
        grants = [grant for of_topic in self.grants.values() for grant in of_topic.values()]
        self._first_end = min((one.until for one in grants if now < one.until), default=MAX_INTEGER)
        return [one for one in grants if now >= one.until]

    def topics_of(self, entity: str) -> list[bytes]:
        """Those that it was granted something on."""
        return [topic for topic, grants in self.grants.items() if entity in grants]

"""The state of a key management centre: the sum of all its changes, and the changes that are not saved yet."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_INTEGER, MAX_KEPT_EPOCHS
from tidings.security.ca.revocation import RevocationEntry, Revocations, RevocationUpdate
from tidings.security.kmc.state_changes import (
    Change,
    EnrolmentChange,
    EnrolmentRemoved,
    EpochAdded,
    GrantChange,
    GrantRemoved,
    RevocationsChange,
    ServiceChange,
    TopicChange,
)
from tidings.security.sealing.keys import EpochKey, Keyring
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.topic_record import TopicRecord


class RegisteredTopics(Protocol):
    """The topic records and the revocation list of a centre. `Credentials` says what each of these does."""

    topics: dict[bytes, TopicRecord]
    revocations: Revocations

    def learn(self, record: TopicRecord, now: int) -> bool: ...
    def recall(
        self, records: Iterable[TopicRecord], notices: Iterable[SignedNotice], update: RevocationUpdate | None
    ) -> None: ...
    def revoke(self, update: RevocationUpdate) -> tuple[RevocationEntry, ...]: ...


class CentreState:
    """Topics, epochs, grants, challenge queries and revocations of a centre.

    Changes only through `apply` and `record_change`. `unsaved`, `unpublished_notices` and `unpublished_records`
    collect what the next `CentreReply` contains.
    """

    def __init__(self, credentials: RegisteredTopics) -> None:
        self.credentials = credentials  # the topic records and the revocation list
        self.service: ServiceChange | None = None
        self.topics: dict[bytes, TopicChange] = {}
        self.notices: dict[bytes, Notice] = {}
        self.epochs = Keyring()
        self.grants: dict[bytes, dict[str, GrantChange]] = {}
        self.enrolments: dict[str, EnrolmentChange] = {}
        self._first_end = MAX_INTEGER  # no grant ends before this time
        self.unsaved: list[Change] = []
        self.unpublished_notices: dict[bytes, bytes] = {}  # notices to publish, the latest of each topic
        self.unpublished_records: list[bytes] = []  # topic records to publish

    # Changes

    def record_change(self, change: Change) -> None:
        """Apply a change and add it to `unsaved`. It must not be visible to others before it is saved."""
        self.apply(change)
        self.unsaved.append(change)

    def apply(self, change: Change) -> None:
        """Apply a change, which may have been saved before."""
        match change:
            case ServiceChange():
                self.service = change
            case TopicChange():
                self._apply_topic(change)
            case EpochAdded(key):
                self._apply_epoch(key)
            case GrantChange():
                self.grants.setdefault(change.topic, {})[change.entity] = change
                self._first_end = min(self._first_end, change.until)
            case GrantRemoved():
                self.grants.get(change.topic, {}).pop(change.entity, None)
            case EnrolmentChange():
                self.enrolments[change.entity] = change
            case EnrolmentRemoved():
                self.enrolments.pop(change.entity, None)
            case RevocationsChange():
                self.credentials.revoke(RevocationUpdate.read(change.update))

    def learn(self, record: TopicRecord, now: int) -> None:
        """Verify a topic record, and publish it if it is new. Raises `SecurityError`, see `Credentials.learn`."""
        if self.credentials.learn(record, now):
            self.unpublished_records.append(record.data)

    def _apply_topic(self, topic: TopicChange) -> None:
        before = self.topics.get(topic.id)
        self.topics[topic.id] = topic
        if before is None or before.record != topic.record:
            self.credentials.recall([TopicRecord(topic.record)], (), None)
        if topic.notice and (before is None or before.notice != topic.notice):
            self.notices[topic.id] = SignedNotice(topic.notice).notice

    def _apply_epoch(self, key: EpochKey) -> None:
        """Add an epoch key. Raises `SecurityError` unless its epoch is later than all before: an epoch never gets a
        second key."""
        latest = self.epochs.latest(key.topic)
        if latest is not None and key.epoch <= latest.epoch:
            raise SecurityError("epoch", f"epoch {key.epoch} of {key.topic.hex()} was there before")
        self.epochs.put(key)
        self.epochs.drop(key.topic, key.epoch - MAX_KEPT_EPOCHS)

    # Queries

    def snapshot(self) -> Iterator[Change]:
        """Yield changes that produce the same state when applied to an empty one."""
        if self.service is not None:
            yield self.service
        revocations = self.credentials.revocations.since(0)
        if revocations is not None:
            yield RevocationsChange(revocations.data)
        yield from self.topics.values()
        yield from (EpochAdded(key) for topic in self.topics for key in self.epochs.since(topic, 0))
        yield from (grant for grants in self.grants.values() for grant in grants.values())
        yield from self.enrolments.values()

    def record(self, topic: bytes) -> TopicRecord:
        """Return the record of a registered topic, or raise `SecurityError`."""
        record = self.credentials.topics.get(topic)
        if record is None or topic not in self.topics:
            raise SecurityError("topic", "this centre has no topic of that id; `tidings kmc list` shows what it has")
        return record

    def latest(self, topic: bytes) -> EpochKey:
        """Return the key of a registered topic's latest epoch, which may not have begun."""
        key = self.epochs.latest(topic)
        assert key is not None  # noqa: S101
        return key

    def current(self, topic: bytes, now: int) -> EpochKey:
        """Return the key of a registered topic that publishers seal under now."""
        key = self.epochs.current(topic, now)
        assert key is not None  # noqa: S101
        return key

    def grant(self, topic: bytes, entity: str, now: int) -> GrantChange | None:
        """Return the entity's grant on a topic, unless it has ended."""
        grant = self.grants.get(topic, {}).get(entity)
        return None if grant is None or now >= grant.until else grant

    @property
    def first_end(self) -> int:
        """A time before which no grant ends."""
        return self._first_end

    def ended(self, now: int) -> list[GrantChange]:
        """Return the grants that have ended by now. Scans all grants only if one may have ended."""
        if now < self._first_end:
            return []
        grants = [grant for topic_grants in self.grants.values() for grant in topic_grants.values()]
        self._first_end = min((grant.until for grant in grants if now < grant.until), default=MAX_INTEGER)
        return [grant for grant in grants if now >= grant.until]

    def topics_of(self, entity: str) -> list[bytes]:
        """Return the topics on which the entity has a grant."""
        return [topic for topic, grants in self.grants.items() if entity in grants]

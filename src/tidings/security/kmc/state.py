"""The state of a key management centre: the sum of all its changes, and the changes that are not saved yet.

Changes are values that are stored on disk. Each contains the complete new value of its subject (a topic, a grant, an
enrolment ...), so that applying the changes in order gives the state, and later changes replace earlier ones. Some
contain secrets, which their `repr` does not show.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_INTEGER, MAX_KEPT_EPOCHS
from tidings.security.ca.revocation import RevocationEntry, Revocations, RevocationUpdate
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.sealing.keys import EpochKey, Keyring
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.topic_record import TopicRecord


class ServiceChange(msgspec.Struct, frozen=True, array_like=True, tag="service"):
    """The centre's service topic, and the private key that questions are sealed to."""

    topic: str
    kem: bytes
    version: int

    def __repr__(self) -> str:
        return f"<ServiceChange, version {self.version}>"


class TopicChange(msgspec.Struct, frozen=True, array_like=True, tag="topic"):
    """A secure topic: the owner's record, the parameters, the number of grant versions so far, and the latest
    notice.

    `floors` are the revoked grants that the notice names: for the fingerprint of a holder's certificate, the
    lowest valid grant version, and when the last token of an older version has expired.
    """

    id: bytes
    record: bytes
    lifetime: int
    messages: int
    grace: int
    challenge: int
    granted: int = 0
    floors: dict[str, tuple[int, int]] = {}
    notice: bytes = b""


class EpochAdded(msgspec.Struct, frozen=True, array_like=True, tag="epoch"):
    """A new epoch key of a topic."""

    key: EpochKey


class TokenCertificate(msgspec.Struct, frozen=True, array_like=True):
    """A certificate that a token was issued for."""

    fingerprint: str  # in hex
    serial: bytes
    not_after: int


class GrantChange(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    """What an entity may do on a topic.

    The entity may read from the time `begun` and the epoch `since` on. `certificates` are those that tokens were
    issued for.
    """

    topic: bytes
    entity: str
    rights: int
    begun: int
    until: int
    template: str | None
    version: int
    since: int
    certificates: tuple[TokenCertificate, ...] = ()


class GrantRemoved(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A grant was revoked or has ended."""

    topic: bytes
    entity: str


class ChallengeQuery(msgspec.Struct, frozen=True, array_like=True):
    """A challenge query, with salt and digest of its answer."""

    text: str
    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "<ChallengeQuery>"


class EnrolmentChange(msgspec.Struct, frozen=True, array_like=True, tag="enrolment"):
    """An entity's challenge queries, when it last answered one, and the number of wrong answers since."""

    entity: str
    queries: tuple[ChallengeQuery, ...]
    answered: int
    wrong: int = 0


class EnrolmentRemoved(msgspec.Struct, frozen=True, array_like=True, tag="unenrolled"):
    """An entity's challenge queries were deleted."""

    entity: str


class RevocationsChange(msgspec.Struct, frozen=True, array_like=True, tag="revocations"):
    """An update of the authority's revocation list."""

    update: bytes


Change: TypeAlias = (
    ServiceChange
    | TopicChange
    | EpochAdded
    | GrantChange
    | GrantRemoved
    | EnrolmentChange
    | EnrolmentRemoved
    | RevocationsChange
)


class _ChangeList(msgspec.Struct, frozen=True, array_like=True):
    changes: tuple[Change, ...]


def changes_data(changes: tuple[Change, ...]) -> bytes:
    """Encode changes for the disk."""
    return encode_canonical(_ChangeList(changes))


def read_changes(data: bytes) -> tuple[Change, ...]:
    """Decode changes from the disk. Raises `SecurityError` if they are malformed."""
    return decode_canonical(data, _ChangeList, "record of a key management centre").changes


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

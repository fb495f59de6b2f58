"""What can change at a key management centre, as values. Each says all there is to say of its subject, so that the
state is what they add up to, whichever were applied before: that is what is kept on the disk.

Some hold secrets, and none of these shows them.
"""

from typing import TypeAlias

import msgspec

from tidings.security.encoding import decoded, encoded
from tidings.security.keys import EpochKey


class ServiceKept(msgspec.Struct, frozen=True, array_like=True, tag="service"):
    """Where the centre is asked, and the private half of the key that questions are sealed to."""

    topic: str
    kem: bytes
    version: int

    def __repr__(self) -> str:
        return f"<ServiceKept, version {self.version}>"


class TopicKept(msgspec.Struct, frozen=True, array_like=True, tag="topic"):
    """A secure topic: the owner's record, the parameters, how many grants there were, and the latest notice.

    `floors` are the grants that the notice says count no more: by the fingerprint of a holder's certificate, the oldest
    version that counts, and when the last token of an older one has expired.
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


class EpochMade(msgspec.Struct, frozen=True, array_like=True, tag="epoch"):
    key: EpochKey


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A certificate that a token was made for."""

    fingerprint: str  # in hex
    serial: bytes
    not_after: int


class GrantKept(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    """What an entity may do. `begun` and `since` are the moment and the epoch from which on it may read;
    `certificates` those that tokens were made for."""

    topic: bytes
    entity: str
    rights: int
    begun: int
    until: int
    template: str | None
    version: int
    since: int
    certificates: tuple[Held, ...] = ()


class GrantEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    topic: bytes
    entity: str


class Query(msgspec.Struct, frozen=True, array_like=True):
    """A query, and what its answer is compared with."""

    text: str
    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "<Query>"


class EnrolmentKept(msgspec.Struct, frozen=True, array_like=True, tag="enrolment"):
    """The query set of an entity; when it has answered last, and how often wrongly since."""

    entity: str
    queries: tuple[Query, ...]
    answered: int
    wrong: int = 0


class EnrolmentEnded(msgspec.Struct, frozen=True, array_like=True, tag="unenrolled"):
    entity: str


class RevocationsKept(msgspec.Struct, frozen=True, array_like=True, tag="revocations"):
    """An update of the authority's list."""

    update: bytes


Change: TypeAlias = (
    ServiceKept | TopicKept | EpochMade | GrantKept | GrantEnded | EnrolmentKept | EnrolmentEnded | RevocationsKept
)


class _Several(msgspec.Struct, frozen=True, array_like=True):
    changes: tuple[Change, ...]


def changes_data(changes: tuple[Change, ...]) -> bytes:
    return encoded(_Several(changes))


def read_changes(data: bytes) -> tuple[Change, ...]:
    return decoded(data, _Several, "record of a key management centre").changes

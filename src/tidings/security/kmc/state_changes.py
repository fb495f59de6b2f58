"""The changes of a key management centre's state, as values that are stored on disk.

Each change contains the complete new value of its subject (a topic, a grant, an enrolment ...), so that applying
the changes in order gives the state, and later changes replace earlier ones. Some contain secrets, which their
`repr` does not show.
"""

from typing import TypeAlias

import msgspec

from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.sealing.keys import EpochKey


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

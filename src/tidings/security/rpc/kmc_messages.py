"""The requests that entities send to a key management centre, and its responses.

These are the bodies of the questions and answers in `messages`.
"""

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.ca.certificates import Certificate
from tidings.security.encoding import encode_canonical, signing_input
from tidings.security.sealing.keys import EpochKey

# Kinds of requests
KEYS, TOPIC, GRANT, REVOKE, ROTATE, ENROL, CHALLENGE, RELEASE, REWRAP, LIST = (
    *("keys", "topic", "grant", "revoke", "rotate"),
    *("enrol", "challenge", "release", "rewrap", "list"),
)
CHALLENGED = "challenge: "  # prefix of a refusal of keys; the query that has to be answered first follows
SUSPENDED = "is suspended after"  # part of the refusal after too many wrong answers
_PROOF = "signing key"


class KeyRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request a token and the epoch keys of a topic.

    `key` is the public half of the asker's signing key, and `proof` a signature that shows that the asker has the
    private half. `have` is the latest epoch that the asker has a key of (0: none), and `used` the number of
    messages it has sealed under that key.
    """

    topic: bytes
    key: bytes
    proof: bytes
    have: int = 0
    used: int = 0

    @classmethod
    def make(
        cls,
        topic: bytes,
        signing: Ed25519PrivateKey,
        asker: Certificate,
        kmc: Certificate,
        have: int = 0,
        used: int = 0,
    ) -> "KeyRequest":
        """Create a request with the proof of the signing key.

        Args:
            topic: The topic's id.
            signing: The asker's signing key.
            asker: The asker's certificate.
            kmc: The centre's certificate.
            have: The latest epoch that the asker has a key of; 0 for none.
            used: How many messages the asker has sealed under that key.
        """
        key = signing.public_key().public_bytes_raw()
        return cls(topic, key, signing.sign(_proof(topic, key, asker, kmc)), have, used)

    def check(self, asker: Certificate, kmc: Certificate) -> None:
        """Raise `SecurityError` unless the proof shows that the asker has the private signing key."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.proof, _proof(self.topic, self.key, asker, kmc))
        except (InvalidSignature, ValueError):
            raise SecurityError("proof", f"{asker.name} has not shown that it has the signing key") from None


class KeyResponse(msgspec.Struct, frozen=True, array_like=True):
    """The token, and the keys of the epochs that the asker may have and lacks.

    The asker should ask again after sealing `messages` messages under the latest key, and no later than
    `renew_at`.
    """

    token: bytes
    keys: tuple[EpochKey, ...]
    notice: bytes
    messages: int
    renew_at: int


class RegisterTopicRequest(msgspec.Struct, frozen=True, array_like=True):
    """Register a topic or change its record or parameters; sent by the topic's owner.

    Publishers seal under one epoch for at most `lifetime` seconds and `messages` messages each. After a scheduled
    rotation the previous epoch is accepted for `grace` seconds. An entity gets keys only if it has answered a
    challenge query in the last `challenge` seconds; 0 disables challenges.
    """

    record: bytes
    lifetime: int = 86_400
    messages: int = 2**32
    grace: int = 30
    challenge: int = 0


class GrantRequest(msgspec.Struct, frozen=True, array_like=True):
    """Grant rights on a topic to an entity, by the name in its certificate; sent by the topic's owner.

    The grant ends at `until` (microseconds). With `history` the entity also gets the keys of all earlier epochs.
    """

    topic: bytes
    entity: str
    rights: int
    until: int
    template: str | None = None
    history: bool = False


class RevokeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Revoke an entity's grant on a topic; sent by the topic's owner. Without a topic, on all topics; sent by the
    administrator."""

    entity: str
    topic: bytes | None = None


class RotateRequest(msgspec.Struct, frozen=True, array_like=True):
    """Begin a new epoch; sent by the topic's owner. `compromised`: events sealed under older epochs are refused from
    now on."""

    topic: bytes
    compromised: bool = False


class ChangeResponse(msgspec.Struct, frozen=True, array_like=True):
    """The response to a change: the latest epoch of each topic that it concerns."""

    epochs: dict[str, int]  # by the topic's id in hex


class EnrolRequest(msgspec.Struct, frozen=True, array_like=True):
    """Enrol an entity's challenge queries with their answers; sent by the entity, or for `entity` by the
    administrator."""

    queries: tuple[tuple[str, str], ...]
    entity: str | None = None


class AnswerChallengeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Answer the query that came with a refusal of keys."""

    query: str
    answer: str


class ReleaseRequest(msgspec.Struct, frozen=True, array_like=True):
    """Reset an entity's wrong answers; sent by the administrator, or by an owner who granted the entity something.

    With `anew`, for the administrator only, the query set is deleted as well, so that the entity can enrol again.
    """

    entity: str
    anew: bool = False


class GrantListing(msgspec.Struct, frozen=True, array_like=True):
    """A grant, as `ListResponse` shows it."""

    entity: str
    rights: int
    until: int
    template: str | None
    version: int
    since: int  # the first epoch that the entity may read


class TopicListing(msgspec.Struct, frozen=True, array_like=True):
    """A topic as `ListResponse` shows it to its owner and to the administrator. Contains no secret."""

    record: bytes
    epoch: int
    until: int  # the end of that epoch
    lifetime: int
    messages: int
    grace: int
    challenge: int
    grants: tuple[GrantListing, ...]


class ListResponse(msgspec.Struct, frozen=True, array_like=True):
    """The topics that the asker owns, or all of them for the administrator."""

    topics: tuple[TopicListing, ...]
    suspended: tuple[str, ...] = ()  # entities with too many wrong answers


class RewrapRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request content keys of missed events under the latest epoch.

    Each item is the epoch that the content key is wrapped under, the wrapped key, and the time of the event's
    acceptance.
    """

    topic: bytes
    wrapped: tuple[tuple[int, bytes, int], ...]


class RewrapResponse(msgspec.Struct, frozen=True, array_like=True):
    """The content keys, in the request's order, wrapped under `epoch`; empty where the asker may not have one."""

    epoch: int
    wrapped: tuple[bytes, ...]


def _proof(topic: bytes, key: bytes, asker: Certificate, kmc: Certificate) -> bytes:
    return signing_input(_PROOF, encode_canonical((topic, key, asker.fingerprint, kmc.fingerprint)))

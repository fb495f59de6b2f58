"""What entities ask of a key management centre, and its answers: the bodies of questions and answers of `exchange`."""

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.certificates import Certificate
from tidings.security.encoding import encoded, purpose
from tidings.security.keys import EpochKey

# Kinds of questions
KEYS, TOPIC, GRANT, REVOKE, ROTATE, ENROL, CHALLENGE, RELEASE, REWRAP, LIST = (
    *("keys", "topic", "grant", "revoke", "rotate"),
    *("enrol", "challenge", "release", "rewrap", "list"),
)
CHALLENGED = "challenge: "  # a refusal of keys that begins so goes on with the query to answer first
SUSPENDED = "is suspended after"  # in a refusal of who has given too many wrong answers
_PROOF = "signing key"


class WantsKeys(msgspec.Struct, frozen=True, array_like=True):
    """The keys and a token for a topic. `key` is the public half of the key that the asker will sign with, `proof` that
    it has the other one; `have` is the latest epoch that it holds, 0 for none, and `used` how many messages it has
    sealed under that one."""

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
    ) -> "WantsKeys":
        key = signing.public_key().public_bytes_raw()
        return cls(topic, key, signing.sign(_proof(topic, key, asker, kmc)), have, used)

    def check(self, asker: Certificate, kmc: Certificate) -> None:
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.proof, _proof(self.topic, self.key, asker, kmc))
        except (InvalidSignature, ValueError):
            raise SecurityError("proof", f"{asker.name} has not shown that it has the signing key") from None


class GivesKeys(msgspec.Struct, frozen=True, array_like=True):
    """`keys` are those of the epochs that the asker may have and lacks; `messages`: after so many sealed under the
    latest one it is time to ask again, and at `renew_at` at the latest."""

    token: bytes
    keys: tuple[EpochKey, ...]
    notice: bytes
    messages: int
    renew_at: int


class RegistersTopic(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner. Each epoch is sealed under for at most `lifetime` seconds, and `messages` messages of a
    publisher; after a scheduled rotation the one before is accepted for `grace` seconds. Who has not answered a query
    of its set for `challenge` seconds has to before it gets keys again; 0: nobody is asked."""

    record: bytes
    lifetime: int = 86_400
    messages: int = 2**32
    grace: int = 30
    challenge: int = 0


class Grants(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner: an entity, by the name in its certificate, gets these rights, until then (microseconds).
    `history`: with the keys of all earlier epochs, too."""

    topic: bytes
    entity: str
    rights: int
    until: int
    template: str | None = None
    history: bool = False


class Revokes(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner, for that topic; by the centre's own administrator, with no topic, for all."""

    entity: str
    topic: bytes | None = None


class Rotates(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner. `compromised`: nothing sealed under older epochs is accepted any more."""

    topic: bytes
    compromised: bool = False


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """The answer to who has changed something: the latest epoch of each topic that it concerns."""

    epochs: dict[str, int]  # by the topic's id, in hex


class Enrols(msgspec.Struct, frozen=True, array_like=True):
    """Queries that an entity will be asked, and what it will answer: by itself, or for it by the administrator."""

    queries: tuple[tuple[str, str], ...]
    entity: str | None = None


class AnswersChallenge(msgspec.Struct, frozen=True, array_like=True):
    """By an entity that was refused keys with a query."""

    query: str
    answer: str


class Releases(msgspec.Struct, frozen=True, array_like=True):
    """By the centre's administrator, or the owner of a topic that the entity was granted something on: wrong answers
    are forgotten. `anew`, by the administrator only: the set is, too, and the entity may enrol again."""

    entity: str
    anew: bool = False


class ListedGrant(msgspec.Struct, frozen=True, array_like=True):
    entity: str
    rights: int
    until: int
    template: str | None
    version: int
    since: int  # the epoch


class ListedTopic(msgspec.Struct, frozen=True, array_like=True):
    """What its owner may know of a topic, and the administrator of all: no secret is in it."""

    record: bytes
    epoch: int
    until: int  # of that epoch
    lifetime: int
    messages: int
    grace: int
    challenge: int
    grants: tuple[ListedGrant, ...]


class Listed(msgspec.Struct, frozen=True, array_like=True):
    topics: tuple[ListedTopic, ...]
    suspended: tuple[str, ...] = ()  # entities that have given too many wrong answers


class WantsRewrapped(msgspec.Struct, frozen=True, array_like=True):
    """Content keys of events that were missed, as they are wrapped in their seals: under which epoch, and when the
    event was accepted."""

    topic: bytes
    wrapped: tuple[tuple[int, bytes, int], ...]


class Rewrapped(msgspec.Struct, frozen=True, array_like=True):
    """The same, under the latest epoch; empty bytes for what the asker may not have."""

    epoch: int
    wrapped: tuple[bytes, ...]


def _proof(topic: bytes, key: bytes, asker: Certificate, kmc: Certificate) -> bytes:
    return purpose(_PROOF, encoded((topic, key, asker.fingerprint, kmc.fingerprint)))

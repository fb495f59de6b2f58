"""What entities ask of a key management centre, and its answers: the bodies of questions and answers of `exchange`."""

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.certificates import Certificate
from tidings.security.encoding import encoded, purpose
from tidings.security.keys import EpochKey

# Kinds of questions
KEYS, TOPIC, GRANT, REVOKE, ROTATE, ENROL, CHALLENGE, REWRAP = (
    *("keys", "topic", "grant", "revoke", "rotate"),
    *("enrol", "challenge", "rewrap"),
)
_PROOF = "signing key"


class WantsKeys(msgspec.Struct, frozen=True, array_like=True):
    """The keys and a token for a topic. `key` is the public half of the key that the asker will sign with, `proof` that
    it has the other one; `have` is the latest epoch that it holds, 0 for none."""

    topic: bytes
    key: bytes
    proof: bytes
    have: int = 0

    @classmethod
    def make(
        cls, topic: bytes, signing: Ed25519PrivateKey, asker: Certificate, kmc: Certificate, have: int = 0
    ) -> "WantsKeys":
        key = signing.public_key().public_bytes_raw()
        return cls(topic, key, signing.sign(_proof(topic, key, asker, kmc)), have)

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
    """By a topic's owner. Each epoch is sealed under for at most `lifetime` seconds and `messages` messages; after a
    scheduled rotation the one before is accepted for `grace` seconds."""

    record: bytes
    lifetime: int = 86_400
    messages: int = 2**32
    grace: int = 30


class Grants(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner: an entity, by the name in its certificate, gets these rights, until then (microseconds)."""

    topic: bytes
    entity: str
    rights: int
    until: int
    template: str | None = None


class Revokes(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner, for that topic; by the centre's own administrator, with no topic, for all."""

    entity: str
    topic: bytes | None = None


class Rotates(msgspec.Struct, frozen=True, array_like=True):
    """By a topic's owner. `compromised`: nothing sealed under older epochs is accepted any more."""

    topic: bytes
    compromised: bool = False


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

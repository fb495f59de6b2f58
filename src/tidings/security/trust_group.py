"""Trust groups: entities that share a group secret prove their membership by challenge and response.

The challenger sends a nonce. The prover answers with its own nonce and an HMAC over both nonces, both identities,
their roles and the certificates of the connection. A proof is therefore valid once, for one challenger, on one
connection.

A new member gets the secret by enrolment: it makes a signed `request`, a member answers it with `invite`, which
seals the secret to the key in the request, and the new member opens the answer with `join`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.certificates import Certificate, TrustAnchor
from tidings.security.ca.identity import Identity
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical, signing_input
from tidings.security.rpc.messages import HPKE
from tidings.security.vault import read_secret, write_secret

SECRET_BYTES = 32
NONCE_BYTES = 32
PURPOSE = "trust-group"
_PROVER = "prover"


class ConnectionEnds(NamedTuple):
    """The two ends of a connection: challenger and prover, and the fingerprints of their TLS certificates (empty
    without one)."""

    challenger: str
    prover: str
    challenger_certificate: bytes = b""
    prover_certificate: bytes = b""


class TrustGroup:
    """A group's name and secret: makes and checks proofs of membership. Its `repr` does not contain the secret."""

    def __init__(self, name: str, secret: bytes) -> None:
        if not name:
            raise InvalidValueError("a trust group needs a name")
        if len(secret) != SECRET_BYTES:
            raise InvalidValueError(
                f"the secret of a trust group has {SECRET_BYTES} bytes; `tidings trust init` makes one"
            )
        self.name = name
        self._secret = secret

    @property
    def secret(self) -> bytes:
        """The group's secret, to pass on to a new member."""
        return self._secret

    @classmethod
    def new(cls, name: str) -> "TrustGroup":
        """Create a group with a random secret."""
        return cls(name, secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def load(cls, name: str, path: str | Path) -> "TrustGroup":
        """Read the secret from a file in hexadecimal. Raises `InvalidValueError` if others can read the file or it
        holds no secret."""
        text = read_secret(Path(path), 4 * SECRET_BYTES)
        try:
            return cls(name, bytes.fromhex(text.decode().strip()))
        except ValueError:
            raise InvalidValueError(f"{path}: holds no secret of a trust group in hexadecimal") from None

    def save(self, path: str | Path) -> None:
        """Write the secret to a file that only its owner can read."""
        write_secret(Path(path), self._secret.hex().encode() + b"\n")

    def prove(self, ends: ConnectionEnds, asked: bytes, answered: bytes) -> bytes:
        """Return the prover's proof, over the challenger's nonce (`asked`) and its own (`answered`)."""
        statement = encode_canonical((_PROVER, self.name, *ends, asked, answered))
        return hmac.digest(self._secret, signing_input(PURPOSE, statement), hashlib.sha256)

    def check(self, ends: ConnectionEnds, asked: bytes, answered: bytes, proof: bytes) -> None:
        """Raise `SecurityError` unless the proof shows that the prover has the group's secret.

        Args:
            ends: The connection's ends; must be those that the proof was made for.
            asked: The challenger's nonce.
            answered: The prover's nonce.
            proof: The prover's proof.
        """
        if len(asked) != NONCE_BYTES or len(answered) != NONCE_BYTES:
            raise SecurityError("form", f"a nonce has {NONCE_BYTES} bytes")
        if not hmac.compare_digest(self.prove(ends, asked, answered), proof):
            raise SecurityError("trust", f"{ends.prover} has not proved that it belongs to {self.name}")

    def __repr__(self) -> str:
        return f"<TrustGroup {self.name}>"


REQUEST, INVITATION = "trust-request", "trust-invitation"  # purposes of signatures
FRESHNESS = 7 * 86_400_000_000  # microseconds: the maximum age of an enrolment request
_SKEW = 300_000_000
KEY_BYTES = 32


class _Request(msgspec.Struct, frozen=True, array_like=True):
    group: str
    kem: bytes
    time: int
    certificate: bytes


class _Invitation(msgspec.Struct, frozen=True, array_like=True):
    request: bytes  # the digest of the request that this answers
    group: str
    secret: bytes
    certificate: bytes


class EnrolmentRequest(NamedTuple):
    """A signed request to join a group, and the private key that opens the answer and must stay secret."""

    data: bytes
    key: bytes


def request(identity: Identity, group: str, now: int) -> EnrolmentRequest:
    """Create a request to join a group, signed by `identity`."""
    key = X25519PrivateKey.generate()
    body = encode_canonical(_Request(group, key.public_key().public_bytes_raw(), now, identity.certificate.der))
    return EnrolmentRequest(encode_canonical(SignedValue(body, identity.sign(REQUEST, body))), key.private_bytes_raw())


def invite(group: TrustGroup, data: bytes, identity: Identity, members: Collection[str], now: int) -> bytes:
    """Answer a request to join: return the group's secret, signed, and sealed to the key in the request.

    Raises `SecurityError` if the request is not valid, is for another group, or its sender is not in `members`.

    Args:
        group: The group.
        data: The request's bytes.
        identity: The identity of the member that answers.
        members: The names that may join.
        now: The time, in microseconds.
    """
    request, certificate = _read_request(data, identity.anchor, now)
    if request.group != group.name:
        raise SecurityError("trust", f"{certificate.name} asks for the group {request.group}, not for {group.name}")
    if certificate.name not in members:
        raise SecurityError("trust", f"{certificate.name} is not among those that may join {group.name}")
    digest = hashlib.sha256(data).digest()
    body = encode_canonical(_Invitation(digest, group.name, group.secret, identity.certificate.der))
    signed = encode_canonical(SignedValue(body, identity.sign(INVITATION, body)))
    try:
        return HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(request.kem), digest)
    except ValueError:
        raise SecurityError("form", "the key in the request cannot be used") from None


def join(
    data: bytes, requested: EnrolmentRequest, identity: Identity, now: int, *, by: Collection[str] = ()
) -> TrustGroup:
    """Open the answer to an enrolment request and return the group.

    Raises `SecurityError` if the answer is not to this request, or not signed by a trusted certificate.

    Args:
        data: The answer's bytes.
        requested: The request, with its private key.
        identity: The identity that made the request.
        now: The time, in microseconds.
        by: The members that may have answered; any, if empty.
    """
    digest = hashlib.sha256(requested.data).digest()
    request, own = _read_request(requested.data, identity.anchor, now)
    if own != identity.certificate:
        raise SecurityError("trust", f"the request is that of {own.name}, with another certificate")
    try:
        signed_bytes = HPKE.decrypt(data, X25519PrivateKey.from_private_bytes(requested.key), digest)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "this is no answer to the request") from None
    signed = decode_canonical(signed_bytes, SignedValue, "invitation")
    invitation = decode_canonical(signed.body, _Invitation, "invitation")
    inviter = Certificate.read(invitation.certificate)
    inviter.verify(INVITATION, signed.body, signed.signature)
    identity.anchor.check(inviter, now)
    if invitation.request != digest or invitation.group != request.group:
        raise SecurityError("seal", "this is the answer to another request")
    if by and inviter.name not in by:
        raise SecurityError("trust", f"the answer is from {inviter.name}, not from {' or '.join(sorted(by))}")
    return TrustGroup(invitation.group, invitation.secret)


def _read_request(data: bytes, anchor: TrustAnchor, now: int) -> tuple[_Request, Certificate]:
    """Decode and verify an enrolment request. Raises `SecurityError` if it is not valid or too old."""
    signed = decode_canonical(data, SignedValue, "request")
    request = decode_canonical(signed.body, _Request, "request")
    certificate = Certificate.read(request.certificate)
    certificate.verify(REQUEST, signed.body, signed.signature)
    anchor.check(certificate, now)
    if not now - FRESHNESS <= request.time <= now + _SKEW:
        raise SecurityError("expired", "the request is too old, or from the future; make another one")
    return request, certificate

"""Joining a trust group: its secret is given, under certificates, to who is on the group's list.

Who wants to join makes a request, signed with its certificate's key, with a fresh key in it; a member answers with the
secret, sealed to that key and signed with its own. Both are files: how they travel is of no matter.
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.certificates import Anchor, Certificate
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.exchange import HPKE
from tidings.security.identity import Identity
from tidings.security.trust import Group

REQUEST, INVITATION = "trust-request", "trust-invitation"  # purposes of signatures
FRESHNESS = 7 * 86_400_000_000  # microseconds: a request that is older is to be made anew
_SKEW = 300_000_000
KEY_BYTES = 32


class _Request(msgspec.Struct, frozen=True, array_like=True):
    group: str
    kem: bytes
    time: int
    certificate: bytes


class _Invitation(msgspec.Struct, frozen=True, array_like=True):
    request: bytes  # its digest
    group: str
    secret: bytes
    certificate: bytes


class Requested(NamedTuple):
    """A request, and the private key that opens the answer to it: for nobody else."""

    data: bytes
    key: bytes


def request(identity: Identity, group: str, now: int) -> Requested:
    key = X25519PrivateKey.generate()
    body = encoded(_Request(group, key.public_key().public_bytes_raw(), now, identity.certificate.der))
    return Requested(encoded(Signed(body, identity.sign(REQUEST, body))), key.private_bytes_raw())


def invite(group: Group, data: bytes, identity: Identity, members: Collection[str], now: int) -> bytes:
    """By a member: the answer to a request, if it is of one who is on the list."""
    asked, certificate = _asked(data, identity.anchor, now)
    if asked.group != group.name:
        raise SecurityError("trust", f"{certificate.name} asks for the group {asked.group}, not for {group.name}")
    if certificate.name not in members:
        raise SecurityError("trust", f"{certificate.name} is not among those that may join {group.name}")
    digest = hashlib.sha256(data).digest()
    body = encoded(_Invitation(digest, group.name, group.secret, identity.certificate.der))
    signed = encoded(Signed(body, identity.sign(INVITATION, body)))
    try:
        return HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(asked.kem), digest)
    except ValueError:
        raise SecurityError("form", "the key in the request cannot be used") from None


def join(data: bytes, requested: Requested, identity: Identity, now: int, *, by: Collection[str] = ()) -> Group:
    """The group, of a member's answer; `by`: one of these members, if any are named."""
    digest = hashlib.sha256(requested.data).digest()
    asked, own = _asked(requested.data, identity.anchor, now)
    if own != identity.certificate:
        raise SecurityError("trust", f"the request is that of {own.name}, with another certificate")
    try:
        opened = HPKE.decrypt(data, X25519PrivateKey.from_private_bytes(requested.key), digest)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "this is no answer to the request") from None
    signed = decoded(opened, Signed, "invitation")
    said = decoded(signed.body, _Invitation, "invitation")
    giver = Certificate.read(said.certificate)
    giver.verify(INVITATION, signed.body, signed.signature)
    identity.anchor.check(giver, now)
    if said.request != digest or said.group != asked.group:
        raise SecurityError("seal", "this is the answer to another request")
    if by and giver.name not in by:
        raise SecurityError("trust", f"the answer is from {giver.name}, not from {' or '.join(sorted(by))}")
    return Group(said.group, said.secret)


def _asked(data: bytes, anchor: Anchor, now: int) -> tuple[_Request, Certificate]:
    signed = decoded(data, Signed, "request")
    asked = decoded(signed.body, _Request, "request")
    certificate = Certificate.read(asked.certificate)
    certificate.verify(REQUEST, signed.body, signed.signature)
    anchor.check(certificate, now)
    if not now - FRESHNESS <= asked.time <= now + _SKEW:
        raise SecurityError("expired", "the request is too old, or from the future; make another one")
    return asked, certificate

"""Questions to a key management centre or a discovery node, and their answers, as payloads of events.

A question is signed with the asker's certificate and sealed to the service's key; it carries a fresh key for the
answer, and where that is to be sent. An answer is signed inside of what is sealed, and names its question: HPKE
alone would not say whom it is from.
"""

import hashlib
import secrets
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tidings.model.errors import RefusedError, SecurityError
from tidings.security.certificates import Certificate, Role
from tidings.security.credentials import Credentials
from tidings.security.encoding import Signed, decoded, encoded
from tidings.security.identity import Identity

SERVICE_TOPIC = "service_topic"  # the attribute that says to whom a question or an answer goes
FRESHNESS = 60_000_000  # microseconds
MAX_REMEMBERED_QUESTIONS = 65_536
QUESTION, ANSWER, SERVICE = "question", "answer", "service"
HPKE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class _Service(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    kem: bytes
    version: int
    overlay: str
    certificate: bytes


class Service:
    """Where a service can be reached, and with which key: signed by itself. Later versions take the place of others."""

    def __init__(self, data: bytes) -> None:
        signed = decoded(data, Signed, "service")
        said = decoded(signed.body, _Service, "service")
        self.data, self.certificate = data, Certificate.read(said.certificate)
        self.certificate.verify(SERVICE, signed.body, signed.signature)
        self.topic, self.kem, self.version, self.overlay = said.topic, said.kem, said.version, said.overlay

    @classmethod
    def make(cls, identity: Identity, topic: str, kem: bytes, version: int, overlay: str = "tidings") -> "Service":
        body = encoded(_Service(topic, kem, version, overlay, identity.certificate.der))
        return cls(encoded(Signed(body, identity.sign(SERVICE, body))))

    def check(self, credentials: Credentials, role: Role, now: int) -> None:
        credentials.anchor.check(self.certificate, now, role)
        credentials.revocations.check(self.certificate, now)
        if self.overlay != credentials.overlay:
            raise SecurityError("audience", f"{self.certificate.name} serves the overlay {self.overlay!r}")


class _Question(msgspec.Struct, frozen=True, array_like=True):
    service: bytes  # the fingerprint of its certificate
    nonce: bytes
    time: int
    reply_to: str
    kem: bytes
    certificate: bytes
    kind: str
    body: bytes


class Question:
    """A question that has been opened and checked: who asks, and what."""

    def __init__(self, asked: _Question, certificate: Certificate, digest: bytes) -> None:
        self.kind, self.body, self.reply_to, self.kem = asked.kind, asked.body, asked.reply_to, asked.kem
        self.certificate, self.digest, self.nonce, self.time = certificate, digest, asked.nonce, asked.time


class Pending(NamedTuple):
    """A question that was asked, on the side of who asked it."""

    payload: bytes
    digest: bytes
    reply_to: str
    service: Certificate
    key: X25519PrivateKey


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    question: bytes
    body: bytes
    refused: str | None = None


def ask(identity: Identity, service: Service, kind: str, body: bytes, now: int, reply_to: str | None = None) -> Pending:
    """What to publish to the service's topic; the answer comes to `reply_to`."""
    key = X25519PrivateKey.generate()
    reply = secrets.token_hex(16) if reply_to is None else reply_to
    kem = key.public_key().public_bytes_raw()
    asked = _Question(
        *(service.certificate.fingerprint, secrets.token_bytes(16), now, reply, kem, identity.certificate.der),
        *(kind, body),
    )
    inner = encoded(asked)
    signed = encoded(Signed(inner, identity.sign(QUESTION, inner)))
    sealed = HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(service.kem), service.certificate.fingerprint)
    return Pending(sealed, hashlib.sha256(signed).digest(), reply, service.certificate, key)


class Asked:
    """Questions that came lately: none is answered twice."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """The number of questions that are remembered."""
        return len(self._seen)

    def check(self, question: bytes, time: int, now: int) -> None:
        if not now - FRESHNESS <= time <= now + FRESHNESS:
            raise SecurityError("replay", "the question is too old, or from the future: look at the clocks")
        if question in self._seen:
            raise SecurityError("replay", "the question came before")
        self._seen[question] = now
        while len(self._seen) > MAX_REMEMBERED_QUESTIONS or next(iter(self._seen.values())) < now - 2 * FRESHNESS:
            del self._seen[next(iter(self._seen))]


def read_question(
    payload: bytes, key: X25519PrivateKey, own: Certificate, credentials: Credentials, asked: Asked, now: int
) -> Question:
    """At the service: opened and checked, or a `SecurityError`."""
    try:
        signed_bytes = HPKE.decrypt(payload, key, own.fingerprint)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "the question is not for this service") from None
    signed = decoded(signed_bytes, Signed, "question")
    said = decoded(signed.body, _Question, "question")
    certificate = Certificate.read(said.certificate)
    certificate.verify(QUESTION, signed.body, signed.signature)
    credentials.revocations.check_fresh(now)
    credentials.anchor.check(certificate, now)
    credentials.revocations.check(certificate, now)
    if said.service != own.fingerprint:
        raise SecurityError("audience", "the question is for another service")
    digest = hashlib.sha256(signed_bytes).digest()
    asked.check(digest, said.time, now)
    return Question(said, certificate, digest)


def answer(identity: Identity, question: Question, body: bytes = b"", refused: str | None = None) -> bytes:
    """What to publish to the question's `reply_to`."""
    inner = encoded(_Answer(question.digest, body, refused))
    signed = encoded(Signed(inner, identity.sign(ANSWER, inner)))
    return HPKE.encrypt(signed, X25519PublicKey.from_public_bytes(question.kem), question.digest)


def read_answer(pending: Pending, payload: bytes) -> bytes:
    """The body; a `RefusedError` if that is the answer, a `SecurityError` if it is not from the service."""
    try:
        signed_bytes = HPKE.decrypt(payload, pending.key, pending.digest)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "this is no answer to the question") from None
    signed = decoded(signed_bytes, Signed, "answer")
    pending.service.verify(ANSWER, signed.body, signed.signature)
    said = decoded(signed.body, _Answer, "answer")
    if said.question != pending.digest:
        raise SecurityError("seal", "this is the answer to another question")
    if said.refused is not None:
        raise RefusedError("authorize", said.refused)
    return said.body

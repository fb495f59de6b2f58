"""Sealed questions to a key management centre or discovery node, and sealed answers, as event payloads.

Theory of operation. A question is signed with the asker's certificate and then sealed (HPKE) to the service's
key. It carries a fresh key for the answer and the topic to send it to. HPKE does not authenticate the sender, so
the answer is signed inside the sealed part, and contains the hash of its question. The service refuses questions
that are too old or that it has seen.
"""

import hashlib
import secrets
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tidings.model.errors import RefusedError, SecurityError
from tidings.security.ca.certificates import Certificate, Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import CertificateTrust
from tidings.security.encoding import SignedValue, decode_canonical, encode_canonical

SERVICE_TOPIC = "service_topic"  # the attribute with the address of a question or an answer
FRESHNESS = 60_000_000  # microseconds
MAX_REMEMBERED_QUESTIONS = 65_536
QUESTION, ANSWER, SERVICE = "question", "answer", "service"  # purposes of signatures
HPKE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class _Service(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    kem: bytes
    version: int
    overlay: str
    certificate: bytes


class ServiceRecord:
    """The address and public key of a service, signed by the service. A later version replaces earlier ones.

    The constructor raises `SecurityError` for malformed data or a wrong signature.
    """

    def __init__(self, data: bytes) -> None:
        signed = decode_canonical(data, SignedValue, "service")
        body = decode_canonical(signed.body, _Service, "service")
        self.data, self.certificate = data, Certificate.read(body.certificate)
        self.certificate.verify(SERVICE, signed.body, signed.signature)
        self.topic, self.kem, self.version, self.overlay = body.topic, body.kem, body.version, body.overlay

    @classmethod
    def make(
        cls, identity: Identity, topic: str, kem: bytes, version: int, overlay: str = "tidings"
    ) -> "ServiceRecord":
        """Create and sign a service record.

        Args:
            identity: The identity of the service.
            topic: The topic that the service receives questions on.
            kem: The public key that questions are sealed to.
            version: The version; a later one replaces this record.
            overlay: The overlay that the record is valid in.
        """
        body = encode_canonical(_Service(topic, kem, version, overlay, identity.certificate.der))
        return cls(encode_canonical(SignedValue(body, identity.sign(SERVICE, body))))

    def check(self, trust: CertificateTrust, role: Role, now: int) -> None:
        """Raise `SecurityError` unless the service's certificate is valid now, not revoked, has `role`, and is of
        this overlay."""
        trust.anchor.check(self.certificate, now, role)
        trust.revocations.check(self.certificate, now)
        if self.overlay != trust.overlay:
            raise SecurityError("audience", f"{self.certificate.name} serves the overlay {self.overlay!r}")


class _Question(msgspec.Struct, frozen=True, array_like=True):
    service: bytes  # the fingerprint of the service's certificate
    nonce: bytes
    time: int
    reply_to: str
    kem: bytes
    certificate: bytes
    kind: str
    body: bytes


class RpcRequest:
    """A question that the service has opened and verified: the asker's certificate, the kind and the body."""

    def __init__(self, question: _Question, certificate: Certificate, digest: bytes) -> None:
        self.kind, self.body, self.reply_to, self.kem = question.kind, question.body, question.reply_to, question.kem
        self.certificate, self.digest, self.nonce, self.time = certificate, digest, question.nonce, question.time


class PendingCall(NamedTuple):
    """A question that was sent, with what the asker needs to open the answer."""

    payload: bytes
    digest: bytes
    reply_to: str
    service: Certificate
    key: X25519PrivateKey


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    question: bytes
    body: bytes
    refused: str | None = None


def ask(
    identity: Identity, service: ServiceRecord, kind: str, body: bytes, now: int, reply_to: str | None = None
) -> PendingCall:
    """Create a sealed question: return the payload to publish to the service's topic, and the key that opens the
    answer.

    Args:
        identity: The asker's identity.
        service: The service's record.
        kind: The kind of question.
        body: The question's body.
        now: The time, in microseconds.
        reply_to: The topic for the answer; a random one by default.
    """
    key = X25519PrivateKey.generate()
    reply = secrets.token_hex(16) if reply_to is None else reply_to
    kem = key.public_key().public_bytes_raw()
    question = _Question(
        *(service.certificate.fingerprint, secrets.token_bytes(16), now, reply, kem, identity.certificate.der),
        *(kind, body),
    )
    question_data = encode_canonical(question)
    signed = encode_canonical(SignedValue(question_data, identity.sign(QUESTION, question_data)))
    sealed = _encrypt(signed, service.kem, service.certificate.fingerprint)
    return PendingCall(sealed, hashlib.sha256(signed).digest(), reply, service.certificate, key)


class SeenRequests:
    """The digests of recent questions, so that none is answered twice."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """The number of remembered questions."""
        return len(self._seen)

    def check(self, question: bytes, time: int, now: int) -> None:
        """Record a question. Raises `SecurityError("replay")` if it was seen before, or its time is out of bounds."""
        if not now - FRESHNESS <= time <= now + FRESHNESS:
            raise SecurityError("replay", "the question is too old, or from the future: look at the clocks")
        if question in self._seen:
            raise SecurityError("replay", "the question came before")
        self._seen[question] = now
        while len(self._seen) > MAX_REMEMBERED_QUESTIONS or next(iter(self._seen.values())) < now - 2 * FRESHNESS:
            del self._seen[next(iter(self._seen))]


def read_question(
    payload: bytes, key: X25519PrivateKey, own: Certificate, trust: CertificateTrust, seen: SeenRequests, now: int
) -> RpcRequest:
    """Open and verify a question at the service, or raise `SecurityError`.

    Args:
        payload: The event's payload.
        key: The service's private key.
        own: The service's certificate.
        trust: What the asker's certificate is checked with.
        seen: The questions seen before.
        now: The time, in microseconds.
    """
    try:
        signed_bytes = HPKE.decrypt(payload, key, own.fingerprint)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "the question is not for this service") from None
    signed = decode_canonical(signed_bytes, SignedValue, "question")
    question = decode_canonical(signed.body, _Question, "question")
    certificate = Certificate.read(question.certificate)
    certificate.verify(QUESTION, signed.body, signed.signature)
    trust.revocations.check_fresh(now)
    trust.anchor.check(certificate, now)
    trust.revocations.check(certificate, now)
    if question.service != own.fingerprint:
        raise SecurityError("audience", "the question is for another service")
    digest = hashlib.sha256(signed_bytes).digest()
    seen.check(digest, question.time, now)
    return RpcRequest(question, certificate, digest)


def answer(identity: Identity, question: RpcRequest, body: bytes = b"", refused: str | None = None) -> bytes:
    """Return the payload of the answer, to publish to the question's `reply_to`.

    Args:
        identity: The identity of the service.
        question: The question.
        body: The answer's body.
        refused: The reason, if the service refuses the question.
    """
    inner = encode_canonical(_Answer(question.digest, body, refused))
    signed = encode_canonical(SignedValue(inner, identity.sign(ANSWER, inner)))
    return _encrypt(signed, question.kem, question.digest)


def _encrypt(data: bytes, key: bytes, info: bytes) -> bytes:
    """Encrypt for the owner of a public key. Raises `SecurityError` for a key that the other side made up."""
    try:
        return HPKE.encrypt(data, X25519PublicKey.from_public_bytes(key), info)
    except ValueError:
        raise SecurityError("seal", "the public key that was sent is no X25519 key") from None


def read_answer(pending: PendingCall, payload: bytes) -> bytes:
    """Open an answer and return its body.

    Raises `RefusedError` if the service refused the question, and `SecurityError` if the answer is not from the
    service.
    """
    try:
        signed_bytes = HPKE.decrypt(payload, pending.key, pending.digest)
    except (InvalidTag, ValueError):
        raise SecurityError("seal", "this is no answer to the question") from None
    signed = decode_canonical(signed_bytes, SignedValue, "answer")
    pending.service.verify(ANSWER, signed.body, signed.signature)
    answer = decode_canonical(signed.body, _Answer, "answer")
    if answer.question != pending.digest:
        raise SecurityError("seal", "this is the answer to another question")
    if answer.refused is not None:
        raise RefusedError("authorize", answer.refused)
    return answer.body


class RpcServer:
    """The service side: opens questions and seals answers.

    Without `key` it generates one that is never stored, so that a later intruder cannot decrypt old questions.
    """

    def __init__(self, identity: Identity, trust: CertificateTrust, key: X25519PrivateKey | None = None) -> None:
        self.identity, self._trust = identity, trust
        self._key = X25519PrivateKey.generate() if key is None else key
        self._seen_requests = SeenRequests()

    def service(self, topic: str, version: int) -> ServiceRecord:
        """Return the signed record by which others find and ask this service."""
        kem = self._key.public_key().public_bytes_raw()
        return ServiceRecord.make(self.identity, topic, kem, version, self._trust.overlay)

    def read(self, payload: bytes, now: int) -> RpcRequest:
        """Open and verify a question. Raises `SecurityError` if it is for another service, too old, seen before, or
        not trusted."""
        return read_question(payload, self._key, self.identity.certificate, self._trust, self._seen_requests, now)

    def answer(self, question: RpcRequest, body: bytes = b"", refused: str | None = None) -> bytes:
        """Return the payload of the answer to a question, with a body or with the reason of a refusal."""
        return answer(self.identity, question, body, refused)

    def __repr__(self) -> str:
        return f"<RpcServer {self.identity.name}>"

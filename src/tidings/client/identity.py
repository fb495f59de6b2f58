"""The identity of a client: its TLS certificate, and its answers to the challenges of brokers."""

import hashlib
import logging
import secrets
import ssl
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tidings.model.errors import InvalidValueError, TidingsError
from tidings.protocol.handshake import Challenge, Proof
from tidings.security.trust_group import NONCE_BYTES, ConnectionEnds, TrustGroup

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class TlsIdentity(msgspec.Struct, frozen=True):
    """The files of a client's certificate and key, and of the authority that issues the brokers' certificates."""

    authority: str | Path
    certificate: str | Path | None = None
    key: str | Path | None = None
    check_host: bool = True

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the client's certificate, the first in its file.

        Empty if it has none or cannot read it. An unreadable file raises an error when the client connects.
        """
        if self.certificate is None:
            return b""
        try:
            text = Path(self.certificate).read_text(errors="replace")
            first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()
        except (OSError, ValueError):
            return b""

    def answer(self, broker: str, name: str, nonce: bytes) -> bytes:
        """Sign a broker's challenge with the certificate's key; empty without a key."""
        key = self.key or self.certificate
        if key is None:
            return b""
        from tidings.security.ca import certificates  # loads cryptography, which most clients do not need

        return certificates.sign_challenge(key, certificates.challenge_body(broker, name, nonce))

    def context(self) -> ssl.SSLContext:
        """Return the TLS context, for TLS 1.3 only.

        Raises:
            InvalidValueError: A file cannot be read.
        """
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.authority))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = self.check_host
            if self.certificate is not None:
                context.load_cert_chain(str(self.certificate), None if self.key is None else str(self.key))
        except (OSError, ssl.SSLError) as error:
            raise InvalidValueError(f"identity: {error}") from None
        return context


_LOG = logging.getLogger("tidings.client")


class ChallengeResponder:
    """Answers challenges for one client, with its TLS identity and the secrets of its trust groups."""

    def __init__(self, name: str, identity: TlsIdentity | None, groups: Iterable[TrustGroup] = ()) -> None:
        self._name, self._identity = name, identity
        self._groups = {group.name: group for group in groups}
        self.fingerprint = b"" if identity is None else identity.fingerprint()  # of the client's certificate

    def answer(self, challenge: Challenge, broker: str, certificate: bytes | None) -> Proof:
        """Answer a challenge of the broker with that certificate (DER), if any.

        If the client cannot prove what is asked, the answer is an empty proof.
        """
        if len(challenge.nonce) != NONCE_BYTES:
            return Proof(challenge.number)
        if challenge.group is None:
            return self._sign_proof(challenge, broker)
        group = self._groups.get(challenge.group)
        if group is None:
            return Proof(challenge.number)
        certificate_digest = hashlib.sha256(certificate).digest() if certificate else b""
        nonce = secrets.token_bytes(NONCE_BYTES)
        ends = ConnectionEnds(broker, self._name, certificate_digest, self.fingerprint)
        return Proof(challenge.number, nonce, group.prove(ends, challenge.nonce, nonce))

    def _sign_proof(self, challenge: Challenge, broker: str) -> Proof:
        """Prove the client's identity by signing with the key of its certificate."""
        if self._identity is None:
            return Proof(challenge.number)
        try:
            return Proof(challenge.number, b"", self._identity.answer(broker, self._name, challenge.nonce))
        except TidingsError as error:
            _LOG.error("%s cannot prove its identity to %s: %s", self._name, broker, error)
            return Proof(challenge.number)

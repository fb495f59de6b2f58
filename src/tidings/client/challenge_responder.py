"""Answers a broker's challenges: proves that the client belongs to a trust group, or owns its certificate."""

import hashlib
import logging
import secrets
from collections.abc import Iterable

from tidings.client.identity import TlsIdentity
from tidings.model.errors import TidingsError
from tidings.protocol.handshake import Challenge, Proof
from tidings.security.trust_group import NONCE_BYTES, ConnectionEnds, TrustGroup

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
            _LOG.error("who %s is cannot be proved: %s", self._name, error)
            return Proof(challenge.number)

"""Proving: a client answers what its broker wants to have proved, that it belongs to a trust group or who it is."""

import hashlib
import logging
import secrets
from collections.abc import Iterable

from tidings.client.identity import Identity
from tidings.model.errors import TidingsError
from tidings.protocol.challenges import Challenge, Proof
from tidings.security.trust import NONCE_BYTES, Ends, Group

_LOG = logging.getLogger("tidings.client")


class Prover:
    def __init__(self, name: str, identity: Identity | None, groups: Iterable[Group] = ()) -> None:
        self._name, self._identity = name, identity
        self._groups = {one.name: one for one in groups}
        self.fingerprint = b"" if identity is None else identity.fingerprint()  # of the certificate that it shows

    def answer(self, challenge: Challenge, broker: str, certificate: bytes | None) -> Proof:
        """To a broker that has that certificate (DER), if any. What cannot be proved is answered all the same."""
        if len(challenge.nonce) != NONCE_BYTES:
            return Proof(challenge.number)
        if challenge.group is None:
            return self._signed(challenge, broker)
        group = self._groups.get(challenge.group)
        if group is None:
            return Proof(challenge.number)
        shown = hashlib.sha256(certificate).digest() if certificate else b""
        nonce = secrets.token_bytes(NONCE_BYTES)
        ends = Ends(broker, self._name, shown, self.fingerprint)
        return Proof(challenge.number, nonce, group.prove(ends, challenge.nonce, nonce))

    def _signed(self, challenge: Challenge, broker: str) -> Proof:
        """With the key of its certificate."""
        if self._identity is None:
            return Proof(challenge.number)
        try:
            return Proof(challenge.number, b"", self._identity.answer(broker, self._name, challenge.nonce))
        except TidingsError as error:
            _LOG.error("who %s is cannot be proved: %s", self._name, error)
            return Proof(challenge.number)

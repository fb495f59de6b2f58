"""Trust groups: who holds a group's secret belongs to it, and proves so without telling it.

The challenger sends a nonce, the prover answers with one of its own and an HMAC over both, over who challenges whom,
and over the certificates of the connection: so a proof is good once, for one challenger, on one connection.
"""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import NamedTuple

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.encoding import encoded, purpose
from tidings.security.files import read_secret, write_secret

SECRET_BYTES = 32
NONCE_BYTES = 32
PURPOSE = "trust-group"
_PROVER = "prover"


class Ends(NamedTuple):
    """The two ends of a connection: who challenges whom, and the fingerprints of the certificates that they have shown
    each other; empty where one has none."""

    challenger: str
    prover: str
    challenger_certificate: bytes = b""
    prover_certificate: bytes = b""


class Group:
    """A group's name and its secret, which never shows itself."""

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
        """For who gives it to another member."""
        return self._secret

    @classmethod
    def new(cls, name: str) -> "Group":
        return cls(name, secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def load(cls, name: str, path: str | Path) -> "Group":
        """Of a file with the secret in hexadecimal, which nobody but its owner can read."""
        text = read_secret(Path(path), 4 * SECRET_BYTES)
        try:
            return cls(name, bytes.fromhex(text.decode().strip()))
        except ValueError:
            raise InvalidValueError(f"{path}: holds no secret of a trust group in hexadecimal") from None

    def save(self, path: str | Path) -> None:
        write_secret(Path(path), self._secret.hex().encode() + b"\n")

    def prove(self, ends: Ends, asked: bytes, answered: bytes) -> bytes:
        """The prover's proof, with the challenger's nonce and its own."""
        said = encoded((_PROVER, self.name, *ends, asked, answered))
        return hmac.digest(self._secret, purpose(PURPOSE, said), hashlib.sha256)

    def check(self, ends: Ends, asked: bytes, answered: bytes, proof: bytes) -> None:
        if len(asked) != NONCE_BYTES or len(answered) != NONCE_BYTES:
            raise SecurityError("form", f"a nonce has {NONCE_BYTES} bytes")
        if not hmac.compare_digest(self.prove(ends, asked, answered), proof):
            raise SecurityError("trust", f"{ends.prover} has not proved that it belongs to {self.name}")

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

"""A respondent: who answers questions, with the key that they are sealed to, and what was asked of it lately."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tidings.security.credentials import Credentials
from tidings.security.exchange import Asked, Question, Service, answer, read_question
from tidings.security.identity import Identity


class Respondent:
    """Without a key that it keeps it has a new one every time, which is never written down: whoever takes the machine
    later reads no old question."""

    def __init__(self, identity: Identity, credentials: Credentials, key: X25519PrivateKey | None = None) -> None:
        self.identity, self.credentials = identity, credentials
        self._key = X25519PrivateKey.generate() if key is None else key
        self._asked = Asked()

    def service(self, topic: str, version: int) -> Service:
        """What tells others where and how it can be asked."""
        kem = self._key.public_key().public_bytes_raw()
        return Service.make(self.identity, topic, kem, version, self.credentials.overlay)

    def read(self, payload: bytes, now: int) -> Question:
        """The question, opened and checked; a `SecurityError` if it is for somebody else, too old, or not to be
        trusted."""
        return read_question(payload, self._key, self.identity.certificate, self.credentials, self._asked, now)

    def answer(self, question: Question, body: bytes = b"", refused: str | None = None) -> bytes:
        return answer(self.identity, question, body, refused)

    def __repr__(self) -> str:
        return f"<Respondent {self.identity.name}>"

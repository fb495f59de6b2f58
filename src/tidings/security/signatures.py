"""Signatures of events, as they are checked: a batch has one for many events, and costs it once."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.batches import root_of
from tidings.security.encoding import purpose
from tidings.security.envelope import BATCH, EVENT, Seal

_MOST = 4_096  # batches, and keys, that are remembered


class Signatures:
    """Remembers which roots of batches had a good signature, by all that it depends on: the key, the signature and the
    root."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Ed25519PublicKey] = {}
        self._good: dict[tuple[bytes, bytes, bytes], None] = {}  # the oldest first

    def check(self, digest: bytes, seal: Seal, key: bytes) -> None:
        """That what has this digest (see `Seal`) is signed with the key that the publisher's token names, alone or in a
        batch."""
        if seal.size == 1 and not seal.path:
            self._verify(key, seal.signature, purpose(EVENT, digest))
            return
        root = root_of(digest, seal.index, seal.size, seal.path)
        if (key, seal.signature, root) not in self._good:
            self._verify(key, seal.signature, purpose(BATCH, root))
            self._good[key, seal.signature, root] = None
            if len(self._good) > _MOST:
                del self._good[next(iter(self._good))]

    def _verify(self, key: bytes, signature: bytes, said: bytes) -> None:
        public = self._keys.get(key)
        if public is None:
            public = self._keys[key] = Ed25519PublicKey.from_public_bytes(key)
            if len(self._keys) > _MOST:
                del self._keys[next(iter(self._keys))]
        try:
            public.verify(signature, said)
        except InvalidSignature:
            raise SecurityError("signature", "the event is not as its publisher signed it") from None

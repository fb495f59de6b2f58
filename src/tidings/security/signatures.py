"""Signatures of events, as they are checked: a batch has one for many events, and costs it once."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security.batches import Place, above, place_of, root_at
from tidings.security.encoding import purpose
from tidings.security.envelope import BATCH, EVENT, Seal

_MOST_PLACES = 16_384  # in batches, that are remembered
_MOST_KEYS = 4_096


class Signatures:
    """Remembers the places in batches that led to a root with a good signature: from the next event of the batch it is
    mostly one step to such a place. Only what was found good is remembered, and by all that it depends on."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Ed25519PublicKey] = {}
        self._batches: dict[tuple[bytes, bytes], set[Place]] = {}  # by key and signature; the oldest first
        self._places = 0  # in them all

    def check(self, event: Event, seal: Seal, key: bytes) -> None:
        """Signed with the key that the publisher's token names, alone or in a batch."""
        digest = seal.digest(event)
        if seal.size == 1 and not seal.path:
            self._verify(key, seal.signature, purpose(EVENT, digest))
            return
        place = place_of(digest, seal.index, seal.size, seal.path)
        known = self._batches.get((key, seal.signature), ())
        passed = []
        while place not in known:
            passed.append(place)
            if place[2] == 1:
                self._verify(key, seal.signature, purpose(BATCH, root_at(place)))
                break
            place = above(place)
        if passed:
            self._remember((key, seal.signature), passed)

    def _verify(self, key: bytes, signature: bytes, said: bytes) -> None:
        public = self._keys.get(key)
        if public is None:
            public = self._keys[key] = Ed25519PublicKey.from_public_bytes(key)
            if len(self._keys) > _MOST_KEYS:
                del self._keys[next(iter(self._keys))]
        try:
            public.verify(signature, said)
        except InvalidSignature:
            raise SecurityError("signature", "the event is not as its publisher signed it") from None

    def _remember(self, batch: tuple[bytes, bytes], places: list[Place]) -> None:
        known = self._batches.setdefault(batch, set())
        known.update(places)
        self._places += len(places)
        while self._places > _MOST_PLACES:
            self._places -= len(self._batches.pop(next(iter(self._batches))))

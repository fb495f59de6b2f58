"""Signatures of events, as they are checked: a batch has one for many events, and costs it once."""

from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.batches import Places, climbed, tree
from tidings.security.encoding import purpose
from tidings.security.envelope import BATCH, EVENT, Seal

_MOST = 4_096  # batches, and keys, that are remembered
_MOST_PLACES = 16_384  # in the trees of batches, all together
_NONE: Places = {}


class Signatures:
    """Remembers which roots of batches had a good signature, by all that it depends on: the key, the signature and the
    root. Of the latest batches also places in their trees from which a path has led to such a root, each with all of
    that path: an event that comes to one with the same path before it would come to the same root."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Ed25519PublicKey] = {}
        self._good: dict[tuple[bytes, bytes, bytes], None] = {}  # the oldest first
        self._places: dict[tuple[bytes, bytes, int], Places] = {}  # by key, signature and size; the oldest first
        self._many = 0  # places, in all of them

    @property
    def root_count(self) -> int:
        """The number of roots that are remembered as signed."""
        return len(self._good)

    @property
    def place_counts(self) -> list[int]:
        """The number of places that are remembered of each batch, the oldest first."""
        return [len(places) for places in self._places.values()]

    def check(self, digest: bytes, seal: Seal, key: bytes) -> None:
        """That what has this digest (see `Seal`) is signed with the key that the publisher's token names, alone or in a
        batch."""
        if seal.size == 1 and not seal.path:
            self.verify(key, seal.signature, purpose(EVENT, digest))
            return
        name = key, seal.signature, seal.size
        root, passed = climbed(digest, seal.index, seal.size, seal.path, self._places.get(name, _NONE))
        if root is not None:
            self._check_root(key, seal.signature, root)
        if passed:
            self._note(name, passed)

    def check_all(self, digests: Sequence[bytes], seals: Sequence[Seal], key: bytes) -> None:
        """The same of many. Where these are all events of one batch, in its order, its tree is made once more instead
        of going the way of each of them."""
        first, many = seals[0], len(seals)
        if many > 1 and all(
            one.index == place and one.size == many and one.signature == first.signature
            for place, one in enumerate(seals)
        ):
            root, paths = tree(digests)
            if [one.path for one in seals] == paths:
                self._check_root(key, first.signature, root)
                return
        for digest, seal in zip(digests, seals, strict=True):
            self.check(digest, seal, key)

    def _check_root(self, key: bytes, signature: bytes, root: bytes) -> None:
        if (key, signature, root) not in self._good:
            self.verify(key, signature, purpose(BATCH, root))
            self._good[key, signature, root] = None
            if len(self._good) > _MOST:
                del self._good[next(iter(self._good))]

    def _note(self, name: tuple[bytes, bytes, int], passed: Places) -> None:
        """Places from which the way is known to be good, now."""
        known = self._places.setdefault(name, {})
        before = len(known)
        known |= passed
        self._many += len(known) - before
        while self._many > _MOST_PLACES:
            self._many -= len(self._places.pop(next(iter(self._places))))

    def verify(self, key: bytes, signature: bytes, said: bytes) -> None:
        """Checks one signature, and remembers the key; a `SecurityError` if it is not good."""
        public = self._keys.get(key)
        if public is None:
            public = self._keys[key] = Ed25519PublicKey.from_public_bytes(key)
            if len(self._keys) > _MOST:
                del self._keys[next(iter(self._keys))]
        try:
            public.verify(signature, said)
        except InvalidSignature:
            raise SecurityError("signature", "the event is not as its publisher signed it") from None

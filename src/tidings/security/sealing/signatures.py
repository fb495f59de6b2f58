"""Verification of event signatures, which caches what the events of a signed batch share."""

from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.security.encoding import signing_input
from tidings.security.sealing.envelope import BATCH, EVENT, Seal
from tidings.security.sealing.merkle_batch import VerifiedNodes, follow_path, tree

_MAX_CACHED = 4_096  # size of the caches of batch roots and of public keys
_MAX_NODES = 16_384  # verified tree nodes cached, over all batches
_NONE: VerifiedNodes = {}


class Signatures:
    """Verifies event signatures; verifies the signature of a batch once for all its events.

    Caches batch roots with a good signature by public key, signature and root. For the latest batches it also caches
    tree nodes from which a path led to such a root, each with its remaining path: another event that reaches the
    node with the same remaining path needs no further hashing.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, Ed25519PublicKey] = {}
        self._verified_roots: dict[tuple[bytes, bytes, bytes], None] = {}  # key, signature and root; the oldest first
        self._verified_nodes: dict[
            tuple[bytes, bytes, int], VerifiedNodes
        ] = {}  # by key, signature and batch size; the oldest first
        self._node_count = 0  # the number of nodes in `_verified_nodes`

    @property
    def root_count(self) -> int:
        """The number of batch roots that are cached as signed."""
        return len(self._verified_roots)

    @property
    def node_counts(self) -> list[int]:
        """The number of verified tree nodes that are cached for each batch, the oldest batch first."""
        return [len(nodes) for nodes in self._verified_nodes.values()]

    def check(self, digest: bytes, seal: Seal, key: bytes) -> None:
        """Raise `SecurityError` unless `key` has signed the event with this digest, alone or in a batch.

        `digest` is `Seal.digest` of the event; `key` is the public key in the publisher's token.
        """
        if seal.size == 1 and not seal.path:
            self.verify(key, seal.signature, signing_input(EVENT, digest))
            return
        batch = key, seal.signature, seal.size
        root, siblings = follow_path(digest, seal.index, seal.size, seal.path, self._verified_nodes.get(batch, _NONE))
        if root is not None:
            self._check_root(key, seal.signature, root)
        if siblings:
            self._cache_nodes(batch, siblings)

    def check_all(self, digests: Sequence[bytes], seals: Sequence[Seal], key: bytes) -> None:
        """Raise `SecurityError` unless `key` has signed all these events.

        If they are all the events of one batch in order, the tree is built once instead of following each path.
        """
        first, count = seals[0], len(seals)
        if count > 1 and all(
            seal.index == index and seal.size == count and seal.signature == first.signature
            for index, seal in enumerate(seals)
        ):
            root, paths = tree(digests)
            if [seal.path for seal in seals] == paths:
                self._check_root(key, first.signature, root)
                return
        for digest, seal in zip(digests, seals, strict=True):
            self.check(digest, seal, key)

    def _check_root(self, key: bytes, signature: bytes, root: bytes) -> None:
        if (key, signature, root) not in self._verified_roots:
            self.verify(key, signature, signing_input(BATCH, root))
            self._verified_roots[key, signature, root] = None
            if len(self._verified_roots) > _MAX_CACHED:
                del self._verified_roots[next(iter(self._verified_roots))]

    def _cache_nodes(self, batch: tuple[bytes, bytes, int], siblings: VerifiedNodes) -> None:
        """Cache nodes whose paths lead to a verified root."""
        verified = self._verified_nodes.setdefault(batch, {})
        count_before = len(verified)
        verified |= siblings
        self._node_count += len(verified) - count_before
        while self._node_count > _MAX_NODES:
            self._node_count -= len(self._verified_nodes.pop(next(iter(self._verified_nodes))))

    def verify(self, key: bytes, signature: bytes, message: bytes) -> None:
        """Verify one signature over `message` with a cached public key. Raises `SecurityError("signature")` if it is
        not good."""
        public_key = self._keys.get(key)
        if public_key is None:
            public_key = self._keys[key] = Ed25519PublicKey.from_public_bytes(key)
            if len(self._keys) > _MAX_CACHED:
                del self._keys[next(iter(self._keys))]
        try:
            public_key.verify(signature, message)
        except InvalidSignature:
            raise SecurityError("signature", "the event is not as its publisher signed it") from None

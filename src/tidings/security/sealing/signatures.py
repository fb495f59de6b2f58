"""Verification of event signatures, of which one can cover a batch of events.

A batch is signed at the root of a Merkle tree. Routing separates the events of a batch, so each event carries its path:
the hashes of the siblings from its leaf to the signed root. A *position* is the pair of level (0 = leaves) and index of
a node. `follow_path` can stop at a position that an earlier event of the batch has verified, which `Signatures` caches.
"""

from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_SIGNED_BATCH
from tidings.security.encoding import signing_input
from tidings.security.sealing.envelope import BATCH, EVENT, Seal

Path = tuple[bytes, ...]
VerifiedNodes = dict[
    tuple[int, int], tuple[bytes, Path]
]  # by level and index: the hash of a node, and its path to the root
DIGEST = 32


def tree(digests: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    """Return the root over the digests, and the path of each digest. A node without a sibling moves up a level
    unchanged."""
    if not 0 < len(digests) <= MAX_SIGNED_BATCH:
        raise SecurityError("form", f"a batch has 1 to MAX_SIGNED_BATCH ({MAX_SIGNED_BATCH}) events")
    level = [sha256(b"\x00" + digest).digest() for digest in digests]
    levels: list[list[bytes]] = []
    while len(level) > 1:
        levels.append(level)
        pairs = zip(level[::2], level[1::2], strict=False)
        unpaired = level[-1:] if len(level) & 1 else []
        level = [sha256(b"\x01" + left + right).digest() for left, right in pairs] + unpaired
    paths: list[Path] = [()]
    for nodes in reversed(levels):
        paths = [
            (nodes[index ^ 1], *paths[index >> 1]) if index ^ 1 < len(nodes) else paths[index >> 1]
            for index in range(len(nodes))
        ]
    return level[0], paths


def root_of(digest: bytes, index: int, size: int, path: Path) -> bytes:
    """Return the root that a path leads to, from the event at `index` in a batch of `size`.

    Raises `SecurityError("form")` if the path does not fit the position.

    Args:
        digest: The digest of the event.
        index: The event's position in the batch.
        size: The number of events in the batch.
        path: The hashes of the siblings, from the leaf upwards.
    """
    root, _ = follow_path(digest, index, size, path, {})
    assert root is not None  # noqa: S101  # without verified positions every path ends at a root
    return root


def follow_path(
    digest: bytes, index: int, size: int, path: Path, verified: VerifiedNodes
) -> tuple[bytes | None, VerifiedNodes]:
    """Follow a path upwards until it reaches the root or a verified node.

    Returns the root, or None if the path met a node in `verified` with the same hash and remaining path; and the
    sibling nodes on the way with their paths, which lead to the same root. Raises `SecurityError("form")` if the
    path does not fit the position.

    Args:
        digest: The digest of the event.
        index: The event's position in the batch.
        size: The number of events in the batch.
        path: The hashes of the siblings, from the leaf upwards.
        verified: Nodes of this batch's tree that are verified already.
    """
    if not 0 <= index < size <= MAX_SIGNED_BATCH:
        raise SecurityError("form", "this is no place in a batch")
    node, level = sha256(b"\x00" + digest).digest(), 0
    if verified.get((0, index)) == (node, path):  # the sibling of an event verified before: half of all events
        return None, {}
    if not {DIGEST}.issuperset(map(len, path)):
        raise SecurityError("form", "this is no place in a batch")
    siblings: VerifiedNodes = {}
    while size > 1:
        if index ^ 1 < size:
            if not path:
                raise SecurityError("form", "the path in the batch is too short")
            sibling, path = path[0], path[1:]
            siblings[level, index ^ 1] = sibling, (node, *path)
            node = sha256(b"\x01" + sibling + node if index & 1 else b"\x01" + node + sibling).digest()
        index, size, level = index >> 1, (size + 1) >> 1, level + 1
        if verified.get((level, index)) == (node, path):
            return None, siblings
    if path:
        raise SecurityError("form", "the path in the batch is too long")
    return node, siblings


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

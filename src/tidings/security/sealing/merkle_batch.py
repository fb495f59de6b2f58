"""Merkle trees over batches of events, so that one signature covers many events.

Routing separates the events of a batch, so each event carries its path: the hashes of the siblings from its leaf to
the signed root. A *position* is the pair of level (0 = leaves) and index of a node. `follow_path` can stop at a
position that an earlier event of the batch has verified.
"""

from collections.abc import Sequence
from hashlib import sha256

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_SIGNED_BATCH

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

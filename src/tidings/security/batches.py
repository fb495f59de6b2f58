"""Batches: one signature for many events. Each carries its path to the root that is signed, as routing parts them."""

from collections.abc import Sequence
from hashlib import sha256

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_SIGNED_BATCH

Path = tuple[bytes, ...]
Places = dict[tuple[int, int], tuple[bytes, Path]]  # by level and number a node of a tree, and its path to the root
DIGEST = 32


def tree(digests: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    """The root over the digests, and the path of each. What has no neighbour goes up as it is."""
    if not 0 < len(digests) <= MAX_SIGNED_BATCH:
        raise SecurityError("form", f"a batch has 1 to MAX_SIGNED_BATCH ({MAX_SIGNED_BATCH}) events")
    level = [sha256(b"\x00" + one).digest() for one in digests]
    below: list[list[bytes]] = []
    while len(level) > 1:
        below.append(level)
        pairs = zip(level[::2], level[1::2], strict=False)
        alone = level[-1:] if len(level) & 1 else []
        level = [sha256(b"\x01" + left + right).digest() for left, right in pairs] + alone
    paths: list[Path] = [()]
    for nodes in reversed(below):
        paths = [
            (nodes[place ^ 1], *paths[place >> 1]) if place ^ 1 < len(nodes) else paths[place >> 1]
            for place in range(len(nodes))
        ]
    return level[0], paths


def root_of(digest: bytes, index: int, size: int, path: Path) -> bytes:
    """The root that this path leads to, from the event that is `index` of `size`."""
    root, _ = climbed(digest, index, size, path, {})
    assert root is not None  # noqa: S101  # where nothing is known, every way ends at a root
    return root


def climbed(digest: bytes, index: int, size: int, path: Path, known: Places) -> tuple[bytes | None, Places]:
    """The root that this path leads to, or None where the way comes to a place that is known, with the path that is
    known to lead on from there; and the places beside the way, which lead where it does."""
    if not 0 <= index < size <= MAX_SIGNED_BATCH:
        raise SecurityError("form", "this is no place in a batch")
    node, level = sha256(b"\x00" + digest).digest(), 0
    if known.get((0, index)) == (node, path):  # as with every other event of a batch
        return None, {}
    if not {DIGEST}.issuperset(map(len, path)):
        raise SecurityError("form", "this is no place in a batch")
    passed: Places = {}
    while size > 1:
        if index ^ 1 < size:
            if not path:
                raise SecurityError("form", "the path in the batch is too short")
            beside, path = path[0], path[1:]
            passed[level, index ^ 1] = beside, (node, *path)
            node = sha256(b"\x01" + beside + node if index & 1 else b"\x01" + node + beside).digest()
        index, size, level = index >> 1, (size + 1) >> 1, level + 1
        if known.get((level, index)) == (node, path):
            return None, passed
    if path:
        raise SecurityError("form", "the path in the batch is too long")
    return node, passed

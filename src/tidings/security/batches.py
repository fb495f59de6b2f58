"""Batches: one signature for many events. Each carries its path to the root that is signed, as routing parts them."""

import hashlib
from collections.abc import Sequence

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_SIGNED_BATCH

Path = tuple[bytes, ...]
Place = tuple[bytes, int, int, Path]  # a node: which one of how many on its level, and the path that is left from there
DIGEST = 32


def _leaf(digest: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + digest).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def tree(digests: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    """The root over the digests, and the path of each. What has no neighbour goes up as it is."""
    if not 0 < len(digests) <= MAX_SIGNED_BATCH:
        raise SecurityError("form", f"a batch has 1 to MAX_SIGNED_BATCH ({MAX_SIGNED_BATCH}) events")
    level = [_leaf(one) for one in digests]
    paths: list[list[bytes]] = [[] for _ in digests]
    position = list(range(len(digests)))
    while len(level) > 1:
        for index, here in enumerate(position):
            beside = here ^ 1
            if beside < len(level):
                paths[index].append(level[beside])
            position[index] = here // 2
        level = [
            _node(level[start], level[start + 1]) if start + 1 < len(level) else level[start]
            for start in range(0, len(level), 2)
        ]
    return level[0], [tuple(one) for one in paths]


def place_of(digest: bytes, index: int, size: int, path: Path) -> Place:
    """The place of the event that is `index` of `size`."""
    if not 0 <= index < size <= MAX_SIGNED_BATCH or not {DIGEST}.issuperset(map(len, path)):
        raise SecurityError("form", "this is no place in a batch")
    return _leaf(digest), index, size, path


def above(place: Place) -> Place:
    """The next one on the way to the root, which is that of size 1."""
    node, index, size, path = place
    if index ^ 1 < size:
        if not path:
            raise SecurityError("form", "the path in the batch is too short")
        node = _node(path[0], node) if index & 1 else _node(node, path[0])
        path = path[1:]
    return node, index >> 1, (size + 1) >> 1, path


def root_at(place: Place) -> bytes:
    """The root, where the path has led to it."""
    node, _, _, path = place
    if path:
        raise SecurityError("form", "the path in the batch is too long")
    return node

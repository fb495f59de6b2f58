"""The routing root: one hash that commits to all attributes and context values of a sealed event.

Theory of operation. Attributes are in the clear because brokers route by them, and policies may remove some on the
way. Each attribute and context value is one leaf, SHA-256(0x00 | salt | name, type, value), with a random salt of 16
bytes. The leaves are sorted and hashed to the root, which the publisher signs. To remove an attribute, a broker
removes its value and its salt but keeps the leaf: the other values still verify, and without the salt the removed
value cannot be guessed.

In this module the *content* of a leaf is its encoded name, type and value, without the salt. A leaf is named by `a`
or `c` (attribute or context) and the attribute's name.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import compress, repeat
from typing import Any

from tidings.model.errors import SecurityError
from tidings.security.encoding import encode_canonical

SALT = 16
LEAF = 32
_ATTRIBUTE, _CONTEXT = "a", "c"
Salts = dict[str, bytes]
LeafContents = tuple[Sequence[str], Sequence[bytes]]  # the names of leaves, and their contents without salts


def leaves(attributes: Mapping[str, Any], context: Mapping[str, Any], random_bytes: bytes) -> tuple[Salts, bytes]:
    """Return the salts by leaf name and the sorted leaves of an event. `random_bytes` has `SALT` bytes for each
    value."""
    salts: Salts = {}
    hashes: list[bytes] = []
    start = 0
    for namespace, values in ((_ATTRIBUTE, attributes), (_CONTEXT, context)):
        for name, value in values.items():
            salt = random_bytes[start : start + SALT]
            start += SALT
            salts[namespace + name] = salt
            hashes.append(_leaf(_leaf_content(namespace, name, value), salt))
    return salts, b"".join(sorted(hashes))


def root_of(sorted_leaves: bytes) -> bytes:
    """Return the routing root over the sorted leaves."""
    return sha256(b"\x02" + sorted_leaves).digest()


def leaf_contents(attributes: Mapping[str, Any], context: Mapping[str, Any]) -> LeafContents:
    """Return the names and contents of the leaves that an event with these attributes and this context must have."""
    names = [_ATTRIBUTE + name for name in attributes]
    contents = [_leaf_content(_ATTRIBUTE, name, value) for name, value in attributes.items()]
    if context:
        names += [_CONTEXT + name for name in context]
        contents += [_leaf_content(_CONTEXT, name, value) for name, value in context.items()]
    return names, contents


def leaf_contents_by_column(attributes: Mapping[str, Sequence[Any]]) -> Iterator[LeafContents]:
    """Yield the same as `leaf_contents` for many events whose attributes are given as columns, where None is a missing
    attribute."""
    names = [_ATTRIBUTE + name for name in attributes]
    columns = [_leaf_contents_of_column(name, values) for name, values in attributes.items()]
    rows: Iterator[tuple[bytes, ...]] = zip(*columns, strict=True)
    if all(map(all, columns)):
        return zip(repeat(names), rows)
    return (([*compress(names, row)], [*compress(row, row)]) for row in rows)


def has_leaves(expected: LeafContents, salts: Salts, sorted_leaves: bytes) -> bool:
    """Return whether the leaves in `sorted_leaves`, with these salts, contain all the given contents."""
    names, contents = expected
    try:
        hashes = [  # `_leaf` inlined: this is most of the cost of verifying an event
            sha256(b"\x00" + salts[name] + content).digest()
            for name, content in zip(names, contents, strict=True)
            if len(salts[name]) == SALT
        ]
    except KeyError:
        return False
    if len(hashes) < len(contents) or len(sorted_leaves) % LEAF:
        return False
    hashes.sort()
    return b"".join(hashes) == sorted_leaves or all(sorted_leaves.find(leaf) % LEAF == 0 for leaf in hashes)


def check(
    attributes: Mapping[str, Any],
    context: Mapping[str, Any],
    salts: Salts,
    sorted_leaves: bytes,
    added: Mapping[str, Any],
) -> None:
    """Raise `SecurityError("attributes")` unless each value was signed by the publisher or added by a broker.

    A value in `added` cannot replace one that the publisher signed: while the salt of the signed value is there, the
    signed value counts.

    Args:
        attributes: The event's attributes as received.
        context: The publisher's context values as received.
        salts: The salts of the seal, by leaf name.
        sorted_leaves: The sorted leaves of the seal.
        added: Attributes that brokers added and signed.
    """
    if has_leaves(leaf_contents(attributes, context), salts, sorted_leaves):
        return
    if len(sorted_leaves) % LEAF:
        raise SecurityError("attributes", "the leaves of the routing root are 32 bytes each")
    for namespace, values in ((_ATTRIBUTE, attributes), (_CONTEXT, context)):
        for name, value in values.items():
            leaf_name = namespace + name
            if has_leaves(([leaf_name], [_leaf_content(namespace, name, value)]), salts, sorted_leaves):
                continue
            is_added = namespace == _ATTRIBUTE and leaf_name not in salts and name in added
            if is_added and added[name] == value and type(added[name]) is type(value):
                continue
            description = "attribute" if namespace == _ATTRIBUTE else "context value"
            raise SecurityError("attributes", f"the {description} {name} is not as its publisher signed it")


def remaining_salts(
    salts: Salts, attributes: Mapping[str, Any], context: Mapping[str, Any], added: Container[str] = ()
) -> Salts:
    """Return the salts of the values that are still in the event.

    Drops the salts of removed attributes and context values, and of attributes that something in `added` replaces.

    Args:
        salts: The salts of the seal, by leaf name.
        attributes: The attributes that are left.
        context: The context values that are left.
        added: Names of attributes that brokers added.
    """
    values_by_namespace = {_ATTRIBUTE: attributes, _CONTEXT: context}
    remaining = {name: salt for name, salt in salts.items() if name[1:] in values_by_namespace[name[0]]}
    if not added:
        return remaining
    return {name: salt for name, salt in remaining.items() if name[0] != _ATTRIBUTE or name[1:] not in added}


def _leaf_content(namespace: str, name: str, value: Any) -> bytes:
    return encode_canonical((namespace, name, type(value).__name__, value))


def _leaf_contents_of_column(name: str, values: Sequence[Any]) -> list[bytes]:
    """Return the leaf contents of one attribute's column, empty for missing values. Encodes equal strings once."""
    if all(type(value) is str for value in values):
        encoded_values = {value: _leaf_content(_ATTRIBUTE, name, value) for value in set(values)}
        return [encoded_values[value] for value in values]
    return [b"" if value is None else _leaf_content(_ATTRIBUTE, name, value) for value in values]


def _leaf(content: bytes, salt: bytes) -> bytes:
    return sha256(b"\x00" + salt + content).digest()

"""The routing root: one hash over all attributes and context values of an event, each in a leaf of its own.

Attributes route, and policies may take them away. Every leaf has a salt of its own, so a leaf whose value is gone, with
its salt, tells nothing; what is left can still be checked against the root, which is signed.
"""

from collections.abc import Container, Mapping
from hashlib import sha256
from typing import Any

from tidings.model.errors import SecurityError
from tidings.security.encoding import encoded

SALT = 16
LEAF = 32
_ATTRIBUTE, _CONTEXT = "a", "c"
Salts = dict[str, bytes]
_BEGUN = sha256(b"\x00")  # every leaf begins so; a copy of it is made faster than another one


def leaves(attributes: Mapping[str, Any], context: Mapping[str, Any], chance: bytes) -> tuple[Salts, bytes]:
    """Salts by the leaves' names, and the leaves in their order; `chance` is for salts, `SALT` bytes each."""
    salts: Salts = {}
    made: list[bytes] = []
    start = 0
    for where, values in ((_ATTRIBUTE, attributes), (_CONTEXT, context)):
        for name, value in values.items():
            salt = chance[start : start + SALT]
            start += SALT
            salts[where + name] = salt
            made.append(_leaf(where, name, value, salt))
    return salts, b"".join(sorted(made))


def root_of(ordered: bytes) -> bytes:
    return sha256(b"\x02" + ordered).digest()


def check(
    attributes: Mapping[str, Any], context: Mapping[str, Any], salts: Salts, ordered: bytes, added: Mapping[str, Any]
) -> None:
    """Everything that is there was there when it was signed, or was added and is signed by who added it. Nothing that
    was added stands for what its publisher signed: that has a salt."""
    if len(ordered) % LEAF:
        raise SecurityError("attributes", "the leaves of the routing root are 32 bytes each")
    for where, values in ((_ATTRIBUTE, attributes), (_CONTEXT, context)) if context else ((_ATTRIBUTE, attributes),):
        for name, value in values.items():
            salt = salts.get(where + name)
            if salt is None or len(salt) != SALT or ordered.find(_leaf(where, name, value, salt)) % LEAF:
                is_added = where == _ATTRIBUTE and salt is None and name in added
                if is_added and added[name] == value and type(added[name]) is type(value):
                    continue
                what = "attribute" if where == _ATTRIBUTE else "context value"
                raise SecurityError("attributes", f"the {what} {name} is not as its publisher signed it")


def trimmed(
    salts: Salts, attributes: Mapping[str, Any], context: Mapping[str, Any], added: Container[str] = ()
) -> Salts:
    """Without the salts of what has been taken away, and of attributes in whose place something was `added`."""
    kept = {_ATTRIBUTE: attributes, _CONTEXT: context}
    left = {name: salt for name, salt in salts.items() if name[1:] in kept[name[0]]}
    if not added:
        return left
    return {name: salt for name, salt in left.items() if name[0] != _ATTRIBUTE or name[1:] not in added}


def _leaf(where: str, name: str, value: Any, salt: bytes) -> bytes:
    begun = _BEGUN.copy()
    begun.update(salt + encoded((where, name, type(value).__name__, value)))
    return begun.digest()

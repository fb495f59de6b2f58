"""The routing root: one hash over all attributes and context values of an event, each in a leaf of its own.

Attributes route, and policies may take them away. Every leaf has a salt of its own, so a leaf whose value is gone, with
its salt, tells nothing; what is left can still be checked against the root, which is signed.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import compress, repeat
from typing import Any

from tidings.model.errors import SecurityError
from tidings.security.encoding import encoded

SALT = 16
LEAF = 32
_ATTRIBUTE, _CONTEXT = "a", "c"
Salts = dict[str, bytes]
Told = tuple[Sequence[str], Sequence[bytes]]  # the names of salts, and what is said beside them in a leaf


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
            made.append(_leaf(_said(where, name, value), salt))
    return salts, b"".join(sorted(made))


def root_of(ordered: bytes) -> bytes:
    return sha256(b"\x02" + ordered).digest()


def told(attributes: Mapping[str, Any], context: Mapping[str, Any]) -> Told:
    """What is to be found in leaves."""
    names = [_ATTRIBUTE + name for name in attributes]
    said = [_said(_ATTRIBUTE, name, value) for name, value in attributes.items()]
    if context:
        names += [_CONTEXT + name for name in context]
        said += [_said(_CONTEXT, name, value) for name, value in context.items()]
    return names, said


def told_in_columns(attributes: Mapping[str, Sequence[Any]]) -> Iterator[Told]:
    """The same of many events, of attributes that have a column each; None is missing."""
    names = [_ATTRIBUTE + name for name in attributes]
    columns = [_said_in_column(name, values) for name, values in attributes.items()]
    rows: Iterator[tuple[bytes, ...]] = zip(*columns, strict=True)
    if all(map(all, columns)):
        return zip(repeat(names), rows)
    return (([*compress(names, row)], [*compress(row, row)]) for row in rows)


def holds(told: Told, salts: Salts, ordered: bytes) -> bool:
    """Whether there is a leaf for everything that is told."""
    names, said = told
    try:
        made = [  # `_leaf`, without calling it: it is the most of what an event costs
            sha256(b"\x00" + salts[name] + one).digest()
            for name, one in zip(names, said, strict=True)
            if len(salts[name]) == SALT
        ]
    except KeyError:
        return False
    if len(made) < len(said) or len(ordered) % LEAF:
        return False
    made.sort()
    return b"".join(made) == ordered or all(ordered.find(one) % LEAF == 0 for one in made)


def check(
    attributes: Mapping[str, Any], context: Mapping[str, Any], salts: Salts, ordered: bytes, added: Mapping[str, Any]
) -> None:
    """Everything that is there was there when it was signed, or was added and is signed by who added it. Nothing that
    was added stands for what its publisher signed: that has a salt."""
    if holds(told(attributes, context), salts, ordered):
        return
    if len(ordered) % LEAF:
        raise SecurityError("attributes", "the leaves of the routing root are 32 bytes each")
    for where, values in ((_ATTRIBUTE, attributes), (_CONTEXT, context)):
        for name, value in values.items():
            named = where + name
            if holds(([named], [_said(where, name, value)]), salts, ordered):
                continue
            is_added = where == _ATTRIBUTE and named not in salts and name in added
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


def _said(where: str, name: str, value: Any) -> bytes:
    return encoded((where, name, type(value).__name__, value))


def _said_in_column(name: str, values: Sequence[Any]) -> list[bytes]:
    """Of attributes; nothing is said where there is none. Texts are often the same again."""
    if all(type(value) is str for value in values):
        known = {value: _said(_ATTRIBUTE, name, value) for value in set(values)}
        return [known[value] for value in values]
    return [b"" if value is None else _said(_ATTRIBUTE, name, value) for value in values]


def _leaf(said: bytes, salt: bytes) -> bytes:
    return sha256(b"\x00" + salt + said).digest()

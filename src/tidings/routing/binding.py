"""A context filter with its own side filled in: `this.x` becomes the value that it has.

What is bound can be judged where only the other party's context is known (004, section 3.1.2: the filters that travel
with subscriptions and publications). A name that one's own context lacks stays `this.x`, which is unknown to everyone.
"""

from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from tidings.model.expression import Constant, Expression, Own
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_CACHED_BINDINGS
from tidings.model.values import Context, Value

_Term = TypeVar("_Term", bound=Expression)


def bound(wanted: ContextFilter, this: Context) -> ContextFilter:
    """The filter that asks of the other party what `wanted` asks from within the context `this`."""
    return wanted if wanted.own_names.isdisjoint(this) else _bound(wanted, this)


@lru_cache(MAX_CACHED_BINDINGS, typed=True)  # typed: a public filter is equal to its plain value, but can do more
def _bound(wanted: ContextFilter, this: Context) -> ContextFilter:
    return type(wanted)(_filled(wanted.expression, this))


def _filled(node: _Term, this: Context) -> _Term:
    """A value stays a value and a condition a condition: only leaves are replaced, by leaves of the same sort."""
    if isinstance(node, Own):
        known: Value | None = this.get(node.name)
        return cast("_Term", node if known is None else Constant(known))
    changes: dict[str, object] = {}
    for name in node.__struct_fields__:
        part = getattr(node, name)
        if isinstance(part, tuple):
            changes[name] = tuple(_filled(one, this) for one in part)
        elif isinstance(part, msgspec.Struct):
            changes[name] = _filled(cast("Expression", part), this)
    return msgspec.structs.replace(node, **changes) if changes else node

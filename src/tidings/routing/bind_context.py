"""Bind a context filter: replace `this.x` by the value of `x` in the context of the client that wrote the filter.

A bound filter can be evaluated where only the other party's context is known, so it can travel with subscriptions and
publications (paper 004, section 3.1.2). A name that the context lacks stays `this.x`, which is NULL everywhere.
"""

from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from tidings.model.expression import Constant, Expression, OwnContextValue
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_CACHED_BINDINGS
from tidings.model.values import Context, Value

_Term = TypeVar("_Term", bound=Expression)


def bound(context_filter: ContextFilterValue, this: Context) -> ContextFilterValue:
    """Return the filter with `this.x` replaced by the values of the context `this`; the same object if none applies."""
    return context_filter if context_filter.own_names.isdisjoint(this) else _bound(context_filter, this)


@lru_cache(MAX_CACHED_BINDINGS, typed=True)  # typed: `ContextFilter` equals its plain base class but has more methods
def _bound(context_filter: ContextFilterValue, this: Context) -> ContextFilterValue:
    return type(context_filter)(_with_values(context_filter.expression, this))


def _with_values(node: _Term, this: Context) -> _Term:
    """Return the tree with `this.x` replaced by constants; a value stays a value and a condition a condition."""
    if isinstance(node, OwnContextValue):
        value: Value | None = this.get(node.name)
        return cast("_Term", node if value is None else Constant(value))
    changes: dict[str, object] = {}
    for name in node.__struct_fields__:
        part = getattr(node, name)
        if isinstance(part, tuple):
            changes[name] = tuple(_with_values(item, this) for item in part)
        elif isinstance(part, msgspec.Struct):
            changes[name] = _with_values(cast("Expression", part), this)
    return msgspec.structs.replace(node, **changes) if changes else node

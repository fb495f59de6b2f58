"""Filters as plain values: the predicates that subscriptions, advertisements and publications contain.

`tidings.Filter` and `tidings.ContextFilter` are subclasses that add parsing, matching and covering.
"""

from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr

from tidings.model.errors import FilterError
from tidings.model.expression import TRUE, Attribute, Condition, OwnContextValue, walk
from tidings.model.limits import MAX_CACHED_NAMES
from tidings.model.printer import format_expression


@lru_cache(MAX_CACHED_NAMES)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Return one frozenset object for all filters that use the same names, to save memory."""
    return names


class _Predicate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The common part of both kinds of filter: a condition, compared by structure and by kind."""

    expression: Condition = TRUE
    _names: frozenset[str] | None = None  # cached on first use

    def __post_init__(self) -> None:
        if not isinstance(self.expression, msgspec.Struct):
            raise FilterError(f"a filter is made from text by {type(self).__name__}.parse(...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Predicate) and self._side == other._side and self.expression == other.expression

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own `!=` does not call `__eq__`

    def __hash__(self) -> int:
        return hash(self.expression)

    def __str__(self) -> str:
        return format_expression(self.expression)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def _side(self) -> type["_Predicate"]:
        return ContextFilterValue if isinstance(self, ContextFilterValue) else FilterValue

    @property
    def names(self) -> frozenset[str]:
        """The names of attributes (in a context filter, of the other party's context values) without reserved names."""
        names = self._names
        if names is None:
            attribute_names = {node.name for node in walk(self.expression) if isinstance(node, Attribute)}
            names = _shared(frozenset(name for name in attribute_names if not name.startswith("$")))
            force_setattr(self, "_names", names)
        return names


class FilterValue(_Predicate, frozen=True, eq=False):
    """A predicate over the content of events. The empty filter matches every event."""


class ContextFilterValue(_Predicate, frozen=True, eq=False):
    """A predicate over the other party's context; `this.x` in it is the context of the client that wrote the filter."""

    _own_names: frozenset[str] | None = None  # cached on first use

    @property
    def own_names(self) -> frozenset[str]:
        """The names that the filter uses with `this.`, that is, from the context of the client that wrote it."""
        own_names = self._own_names
        if own_names is None:
            own_names = _shared(
                frozenset(node.name for node in walk(self.expression) if isinstance(node, OwnContextValue))
            )
            force_setattr(self, "_own_names", own_names)
        return own_names

"""Filters as values: what a subscription, an advertisement or a publication asks for.

`tidings.Filter` and `tidings.ContextFilter` add parsing, matching and covering on top.
"""

from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr

from tidings.model.errors import FilterError
from tidings.model.expression import TRUE, Attribute, Condition, Own, walk
from tidings.model.limits import MAX_CACHED_NAMES
from tidings.model.text import written


@lru_cache(MAX_CACHED_NAMES)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """One for all filters that speak of the same: there are very many of them."""
    return names


class _FilterValue(msgspec.Struct, frozen=True, eq=False, gc=False):
    expression: Condition = TRUE
    _names: frozenset[str] | None = None  # noted when they are first asked for

    def __post_init__(self) -> None:
        if not isinstance(self.expression, msgspec.Struct):
            raise FilterError(f"a filter is made from text by {type(self).__name__}.parse(...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FilterValue) and self._side == other._side and self.expression == other.expression

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own `!=` does not ask `__eq__`

    def __hash__(self) -> int:
        return hash(self.expression)

    def __str__(self) -> str:
        return written(self.expression)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def _side(self) -> type["_FilterValue"]:
        return ContextFilter if isinstance(self, ContextFilter) else Filter

    @property
    def names(self) -> frozenset[str]:
        """The attributes (or the other party's context values) that the filter speaks of, without the system's."""
        known = self._names
        if known is None:
            found = {node.name for node in walk(self.expression) if isinstance(node, Attribute)}
            known = _shared(frozenset(name for name in found if not name.startswith("$")))
            force_setattr(self, "_names", known)
        return known


class Filter(_FilterValue, frozen=True, eq=False):
    """A predicate over the content of events. The empty filter matches everything."""


class ContextFilter(_FilterValue, frozen=True, eq=False):
    """A predicate over the other party's context, in which `this.` is one's own."""

    _own_names: frozenset[str] | None = None  # likewise

    @property
    def own_names(self) -> frozenset[str]:
        """The values of one's own context that the filter uses."""
        known = self._own_names
        if known is None:
            known = _shared(frozenset(node.name for node in walk(self.expression) if isinstance(node, Own)))
            force_setattr(self, "_own_names", known)
        return known

"""Filters without some of their attributes: what `RemoveAttributes` does to a subscription or an advertisement.

The predicates that speak of a removed attribute are dropped so that the filter matches more, never less: a policy that
hides an attribute in a zone must not hide the events from those who may see the rest.
"""

from collections.abc import Collection

from tidings.model.expression import FALSE, TRUE, And, Attribute, Condition, Not, Or, all_of, any_of, walk
from tidings.model.filter import Filter


def without(content: Filter, removed: Collection[str]) -> Filter:
    """The filter with all predicates on these attributes dropped; the same one if it has none."""
    if not content.names.intersection(removed):
        return content
    return type(content)(_widened(content.expression, removed, positive=True))


def _widened(condition: Condition, removed: Collection[str], *, positive: bool) -> Condition:
    """What is at least as true; below a NOT, at most as true."""
    everything, nothing = (TRUE, FALSE) if positive else (FALSE, TRUE)
    match condition:
        case And(parts) | Or(parts):
            wider = [_widened(part, removed, positive=positive) for part in parts]
            is_and = isinstance(condition, And)
            absorbing, idle = (FALSE, TRUE) if is_and else (TRUE, FALSE)
            if absorbing in wider:
                return absorbing
            kept = [part for part in wider if part != idle]
            return all_of(kept) if is_and else any_of(kept)
        case Not(part):
            inner = _widened(part, removed, positive=not positive)
            return nothing if inner == everything else everything if inner == nothing else Not(inner)
        case _:
            speaks = any(isinstance(node, Attribute) and node.name in removed for node in walk(condition))
            return everything if speaks else condition

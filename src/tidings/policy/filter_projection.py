"""Remove attributes from a filter: what `RemoveAttributes` does to a subscription or an advertisement.

A predicate on a removed attribute is replaced so that the filter matches more events, never fewer: a policy that hides
an attribute in a zone must not hide the events from subscribers that may see the rest.
"""

from collections.abc import Collection

from tidings.model.expression import FALSE, TRUE, And, Attribute, Condition, Not, Or, all_of, any_of, walk
from tidings.model.filter import FilterValue


def without_attributes(content: FilterValue, removed: Collection[str]) -> FilterValue:
    """Return the filter without the predicates on these attributes; the same object if it has no such predicates."""
    if not content.names.intersection(removed):
        return content
    return type(content)(_widened(content.expression, removed, positive=True))


def _widened(condition: Condition, removed: Collection[str], *, positive: bool) -> Condition:
    """Return a condition that is true wherever `condition` is; with `positive=False` (below a NOT), nowhere else."""
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

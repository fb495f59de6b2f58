"""Compare two filters: does one cover the other, do they overlap?

`f` covers `g` if f matches everything that g matches, that is, if 'g true and f not true' is unsatisfiable. A search
(`satisfiability.py`) over formulas (`formula.py`) decides that: exactly for comparisons with constants, IN, BETWEEN,
LIKE and null tests, in any combination. Where a condition cannot be decomposed (regular expressions, XPath, arithmetic)
or the search exceeds MAX_COVERING_STEPS, `covers` returns False and `overlaps` returns True, so that routing stays
correct and only costs traffic.
"""

from enum import Enum

from tidings.matching.formula import negation, when_true
from tidings.matching.merging import merge as merge
from tidings.matching.satisfiability import Budget, satisfiable
from tidings.model.expression import TRUE, And, Condition, Or
from tidings.model.filter import ContextFilterValue, FilterValue


class Relation(Enum):
    """How the sets of events that two filters match relate to each other."""

    EQUAL = "equal"  # they match the same events
    COVERS = "covers"  # the first matches all that the second does, and more
    COVERED = "covered"  # the other way round
    OVERLAPS = "overlaps"  # some events match both
    DISJOINT = "disjoint"  # no event matches both


AnyFilter = FilterValue | ContextFilterValue


def covers(f: AnyFilter, g: AnyFilter) -> bool:
    """Return whether `f` matches everything that `g` matches; False if that cannot be decided."""
    return _covers(f.expression, g.expression, Budget())


def _covers(f: Condition, g: Condition, budget: Budget) -> bool:
    if isinstance(g, Or):
        return all(_covers(f, part, budget) for part in g.parts)
    # Decided without a search: an alternative of f is TRUE, g itself, or a conjunct of g.
    alternatives = f.parts if isinstance(f, Or) else (f,)
    conjuncts = g.parts if isinstance(g, And) else (g,)
    if TRUE in alternatives or g in alternatives or any(part in conjuncts for part in alternatives):
        return True
    return budget.left > 0 and not satisfiable(when_true(g), negation(when_true(f)), budget=budget)


def overlaps(f: AnyFilter, g: AnyFilter) -> bool:
    """Return whether some event can match both filters; True if that cannot be decided."""
    return satisfiable(when_true(f.expression), when_true(g.expression))


def relation(f: AnyFilter, g: AnyFilter) -> Relation:
    """Return the most specific relation of two filters; a filter that nothing can match is covered by every other."""
    match covers(f, g), covers(g, f):
        case True, True:
            return Relation.EQUAL
        case True, False:
            return Relation.COVERS
        case False, True:
            return Relation.COVERED
    return Relation.OVERLAPS if overlaps(f, g) else Relation.DISJOINT

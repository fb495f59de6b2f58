"""How two filters stand to each other: does one cover the other, do they overlap?

`f` covers `g` when everything that g matches, f matches: when 'g true and f not true' cannot be. That is decided by
search (`satisfiability.py`) over formulas (`formula.py`): exactly for comparisons with constants, IN, BETWEEN, LIKE
and null tests, in any combination; where a condition cannot be taken apart (regular expressions, XPath, arithmetic)
or the search grows past MAX_COVERING_STEPS, `covers` says no and `overlaps` says yes, so that routing stays correct
and only costs traffic.
"""

from enum import Enum

from tidings.matching.formula import negation, when_true
from tidings.matching.merging import merge as merge
from tidings.matching.satisfiability import Budget, satisfiable
from tidings.model.expression import TRUE, And, Condition, Or
from tidings.model.filter import ContextFilter, Filter


class Relation(Enum):
    EQUAL = "equal"  # they match the same events
    COVERS = "covers"  # the first matches all that the second does, and more
    COVERED = "covered"  # the other way round
    OVERLAPS = "overlaps"  # some events match both
    DISJOINT = "disjoint"  # none does


AnyFilter = Filter | ContextFilter


def covers(f: AnyFilter, g: AnyFilter) -> bool:
    """Everything that `g` matches, `f` matches."""
    return _covers(f.expression, g.expression, Budget())


def _covers(f: Condition, g: Condition, budget: Budget) -> bool:
    if isinstance(g, Or):
        return all(_covers(f, part, budget) for part in g.parts)
    # What can be seen without a search: one of the alternatives is asked for as it stands.
    wide = f.parts if isinstance(f, Or) else (f,)
    narrow = g.parts if isinstance(g, And) else (g,)
    if TRUE in wide or g in wide or any(part in narrow for part in wide):
        return True
    return budget.left > 0 and not satisfiable(when_true(g), negation(when_true(f)), budget=budget)


def overlaps(f: AnyFilter, g: AnyFilter) -> bool:
    """Something matches both."""
    return satisfiable(when_true(f.expression), when_true(g.expression))


def relation(f: AnyFilter, g: AnyFilter) -> Relation:
    """The closest of the five; a filter that nothing can match is covered by every other."""
    match covers(f, g), covers(g, f):
        case True, True:
            return Relation.EQUAL
        case True, False:
            return Relation.COVERS
        case False, True:
            return Relation.COVERED
    return Relation.OVERLAPS if overlaps(f, g) else Relation.DISJOINT

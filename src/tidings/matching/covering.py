"""How two filters stand to each other: does one cover the other, do they overlap?

`f` covers `g` when everything that g matches, f matches: when 'g true and f not true' cannot be. That is decided by
search over the formulas of `formula.py`: exactly for comparisons with constants, IN, BETWEEN, LIKE and null tests,
in any combination; where a condition cannot be taken apart (regular expressions, XPath, arithmetic) or the search
grows past MAX_COVERING_STEPS, `covers` says no and `overlaps` says yes, so that routing stays correct and only
costs traffic.
"""

from enum import Enum

from tidings.matching.formula import All, Any, Formula, Judged, Variable, Within, negation, when_true
from tidings.matching.merging import merge as merge
from tidings.matching.valuesets import EVERYTHING, STRINGS, ValueSet
from tidings.model.expression import TRUE, Attribute
from tidings.model.filter import ContextFilter, Filter
from tidings.model.limits import MAX_COVERING_STEPS


class Relation(Enum):
    EQUAL = "equal"  # they match the same events
    COVERS = "covers"  # the first matches all that the second does, and more
    COVERED = "covered"  # the other way round
    OVERLAPS = "overlaps"  # some events match both
    DISJOINT = "disjoint"  # none does


AnyFilter = Filter | ContextFilter


def covers(f: AnyFilter, g: AnyFilter) -> bool:
    """Everything that `g` matches, `f` matches."""
    if f.expression == TRUE or f.expression == g.expression:
        return True
    return not satisfiable(when_true(g.expression), negation(when_true(f.expression)))


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


def satisfiable(*formulas: Formula) -> bool:
    """Whether all formulas can hold at once; a cautious yes where that is not known."""
    branches = [_Branch({}, frozenset(), list(formulas), [])]
    steps = 0
    while branches:
        branch = branches.pop()
        consistent, taken = branch.settle()
        steps += taken
        if steps > MAX_COVERING_STEPS:
            return True
        if not consistent:
            continue
        if not branch.choices:
            return True
        branches.extend(branch.split())
    return False


class _Branch:
    """One line of the search: what is known of each value, what has been judged, and what is still open."""

    __slots__ = ("choices", "domains", "judged", "pending")

    def __init__(
        self, domains: dict[Variable, ValueSet], judged: frozenset[Judged], pending: list[Formula], choices: list[Any]
    ) -> None:
        self.domains, self.judged, self.pending, self.choices = domains, judged, pending, choices

    def settle(self) -> tuple[bool, int]:
        """Takes in all that must hold until only choices are left; no contradiction so far, and the steps taken."""
        steps = 0
        while True:
            while self.pending:
                steps += 1
                if not self._take(self.pending.pop()):
                    return False, steps
            open_choices, self.choices = self.choices, []
            for choice in open_choices:
                possible = [part for part in choice.parts if self._possible(part)]
                steps += len(choice.parts)
                if not possible:
                    return False, steps
                if len(possible) == 1:
                    self.pending.append(possible[0])
                else:
                    self.choices.append(Any(tuple(possible)))
            if not self.pending:
                return True, steps

    def split(self) -> list["_Branch"]:
        """One branch for each way to make the narrowest choice; the first way is looked at first."""
        narrowest = min(self.choices, key=lambda choice: len(choice.parts))
        others = [choice for choice in self.choices if choice is not narrowest]
        return [_Branch(dict(self.domains), self.judged, [part], list(others)) for part in reversed(narrowest.parts)]

    def _take(self, formula: Formula) -> bool:
        match formula:
            case All(parts):
                self.pending.extend(parts)
            case Any(parts):
                self.choices.append(formula)
            case Within(variable, values):
                narrowed = self._domain(variable).intersection(values)
                self.domains[variable] = narrowed
                return not narrowed.is_empty
            case Judged():
                self.judged |= {formula}
                return not self._contradicts(formula)
        return True

    def _possible(self, formula: Formula) -> bool:
        match formula:
            case Within(variable, values):
                return not self._domain(variable).intersection(values).is_empty
            case Judged():
                return not self._contradicts(formula)
        return not isinstance(formula, Any) or bool(formula.parts)

    def _contradicts(self, judged: Judged) -> bool:
        condition, outcome, holds = judged.condition, judged.outcome, judged.holds
        if Judged(condition, outcome, not holds) in self.judged:
            return True
        return holds and Judged(condition, not outcome) in self.judged  # true and false at once

    def _domain(self, variable: Variable) -> ValueSet:
        known = self.domains.get(variable)
        return _universe(variable) if known is None else known


_TEXT = ValueSet(missing=True, strings=STRINGS.strings)


def _universe(variable: Variable) -> ValueSet:
    """The system's own attributes are strings."""
    return _TEXT if isinstance(variable, Attribute) and variable.name.startswith("$") else EVERYTHING

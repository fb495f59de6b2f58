"""Decide whether several formulas can hold together.

The search asserts everything that must hold, drops what is already decided, and branches only over disjunctions with
more than one possible part. It is exact, except for conditions that cannot be decomposed, whose outcomes it treats as
independent of all values; after MAX_COVERING_STEPS it gives up and returns True.
"""

from tidings.matching.formula import ConditionOutcome, Conjunction, Disjunction, Formula, InSet, Variable
from tidings.matching.value_sets import EVERYTHING, STRINGS, ValueSet
from tidings.model.expression import Attribute
from tidings.model.limits import MAX_COVERING_STEPS


class Budget:
    """The number of search steps that are left; related searches share one budget."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_COVERING_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> bool:
        """Take steps from the budget; return False if it is exhausted."""
        self.left -= steps
        return self.left >= 0


def satisfiable(*formulas: Formula, budget: Budget | None = None) -> bool:
    """Return whether all formulas can hold for some assignment of values; True if the budget runs out first."""
    start = _Branch({}, frozenset(), list(formulas), [])
    return _search(start, budget or Budget(), 0)


_MAX_DEPTH = 32  # of splitting into independent parts; deeper down, parts are searched together


def _search(start: "_Branch", budget: Budget, depth: int) -> bool:
    branches = [start]
    while branches:
        branch = branches.pop()
        consistent, steps = branch.propagate()
        if not budget.spend(steps):
            return True
        if not consistent:
            continue
        parts = branch.parts() if depth < _MAX_DEPTH else [branch]
        if len(parts) > 1:
            # Disjunctions without a common variable are independent: each part must be satisfiable by itself.
            if all(_search(part, budget, depth + 1) for part in parts):
                return True
            continue
        if not branch.choices:
            return True
        branches.extend(branch.split())
    return False


class _Branch:
    """A node of the search: the domain of each variable, the outcomes asserted so far, and the open disjunctions."""

    __slots__ = ("choices", "domains", "outcomes", "pending")

    def __init__(
        self,
        domains: dict[Variable, ValueSet],
        outcomes: frozenset[ConditionOutcome],
        pending: list[Formula],
        choices: list[Disjunction],
    ) -> None:
        self.domains, self.outcomes, self.pending, self.choices = domains, outcomes, pending, choices

    def propagate(self) -> tuple[bool, int]:
        """Assert all that must hold until only disjunctions are left.

        Returns whether no contradiction was found, and the steps taken.
        """
        steps = 0
        while True:
            while self.pending:
                formula = self.pending.pop()
                steps += 1 + (_size(formula.values) if isinstance(formula, InSet) else 0)
                if not self._assert(formula):
                    return False, steps
            open_choices, self.choices = self.choices, []
            for choice in open_choices:
                steps += sum(1 + (_size(part.values) if isinstance(part, InSet) else 0) for part in choice.parts)
                possible = self._possible_parts(choice)
                if possible is None:
                    continue
                if not possible:
                    return False, steps
                if len(possible) == 1:
                    self.pending.append(possible[0])
                else:
                    self.choices.append(Disjunction(tuple(possible)))
            if not self.pending:
                return True, steps

    def split(self) -> list["_Branch"]:
        """Return one branch for each part of the smallest disjunction.

        The branch of the first part is the last, which the search pops first.
        """
        narrowest = min(self.choices, key=lambda choice: len(choice.parts))
        others = [choice for choice in self.choices if choice is not narrowest]
        return [_Branch(dict(self.domains), self.outcomes, [part], list(others)) for part in reversed(narrowest.parts)]

    def parts(self) -> list["_Branch"]:
        """Split the branch into groups of disjunctions that share neither variables nor conditions."""
        groups: list[tuple[set[object], list[Disjunction]]] = []
        for choice in self.choices:
            topics, members = _topics(choice), [choice]
            disjoint = []
            for group_topics, others in groups:
                if group_topics & topics:
                    topics, members = topics | group_topics, others + members
                else:
                    disjoint.append((group_topics, others))
            groups = [*disjoint, (topics, members)]
        return [_Branch(dict(self.domains), self.outcomes, [], members) for _, members in groups]

    def _assert(self, formula: Formula) -> bool:
        match formula:
            case Conjunction(parts):
                self.pending.extend(parts)
            case Disjunction():
                self.choices.append(formula)
            case InSet(variable, values):
                narrowed = self._domain(variable).intersection(values)
                self.domains[variable] = narrowed
                return not narrowed.is_empty
            case ConditionOutcome():
                if self._contradicts(formula):
                    return False
                self.outcomes |= {formula}
        return True

    def _possible_parts(self, choice: Disjunction) -> list[Formula] | None:
        """Return the parts of a disjunction that nothing contradicts; None if one of them holds already."""
        possible: list[Formula] = []
        for part in choice.parts:
            if isinstance(part, InSet):
                domain = self._domain(part.variable)
                narrowed = domain.intersection(part.values)
                if narrowed == domain:
                    return None
                if not narrowed.is_empty:
                    possible.append(part)
            elif isinstance(part, ConditionOutcome):
                if part in self.outcomes:
                    return None
                if not self._contradicts(part):
                    possible.append(part)
            elif isinstance(part, Conjunction) and not part.parts:
                return None
            else:
                possible.append(part)
        return possible

    def _contradicts(self, condition_outcome: ConditionOutcome) -> bool:
        condition, outcome, holds = condition_outcome.condition, condition_outcome.outcome, condition_outcome.holds
        if ConditionOutcome(condition, outcome, not holds) in self.outcomes:
            return True
        return holds and ConditionOutcome(condition, not outcome) in self.outcomes  # true and false at once

    def _domain(self, variable: Variable) -> ValueSet:
        domain = self.domains.get(variable)
        return _universe(variable) if domain is None else domain


def _topics(formula: Formula) -> set[object]:
    """Return the variables, and the conditions that cannot be decomposed, that occur in a formula."""
    match formula:
        case InSet(variable, _):
            return {variable}
        case ConditionOutcome(condition):
            return {condition}
        case Conjunction(parts) | Disjunction(parts):
            return set().union(*(_topics(part) for part in parts))


def _size(values: ValueSet) -> int:
    """Return the additional cost, in steps, of working with a large set."""
    return (len(values.numbers) + len(values.strings)) // 16


_TEXT = ValueSet(missing=True, strings=STRINGS.strings)


def _universe(variable: Variable) -> ValueSet:
    """Return the values that a variable can have at all; a system attribute is a string or missing."""
    return _TEXT if isinstance(variable, Attribute) and variable.name.startswith("$") else EVERYTHING

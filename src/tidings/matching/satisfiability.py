"""Can these formulas hold all at once?

A search that takes in everything that must hold, drops what is settled, and branches only over real alternatives.
It is exact, but for conditions that cannot be taken apart; past MAX_COVERING_STEPS it gives a cautious yes.
"""

from tidings.matching.formula import All, Any, Formula, Judged, Variable, Within
from tidings.matching.valuesets import EVERYTHING, STRINGS, ValueSet
from tidings.model.expression import Attribute
from tidings.model.limits import MAX_COVERING_STEPS


class Budget:
    """How much work a question may still take; questions that belong together share one."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_COVERING_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> bool:
        """Takes steps from what is left; False where nothing was."""
        self.left -= steps
        return self.left >= 0


def satisfiable(*formulas: Formula, budget: Budget | None = None) -> bool:
    start = _Branch({}, frozenset(), list(formulas), [])
    return _possible(start, budget or Budget(), 0)


_MAX_DEPTH = 32  # of splitting into parts; deeper down, parts are searched together


def _possible(start: "_Branch", budget: Budget, depth: int) -> bool:
    branches = [start]
    while branches:
        branch = branches.pop()
        consistent, steps = branch.settle()
        if not budget.spend(steps):
            return True
        if not consistent:
            continue
        parts = branch.parts() if depth < _MAX_DEPTH else [branch]
        if len(parts) > 1:
            # Choices that share no value do not touch each other: each part must be possible by itself.
            if all(_possible(part, budget, depth + 1) for part in parts):
                return True
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
                formula = self.pending.pop()
                steps += 1 + (_size(formula.values) if isinstance(formula, Within) else 0)
                if not self._take(formula):
                    return False, steps
            open_choices, self.choices = self.choices, []
            for choice in open_choices:
                steps += sum(1 + (_size(part.values) if isinstance(part, Within) else 0) for part in choice.parts)
                possible = self._possible(choice)
                if possible is None:
                    continue
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

    def parts(self) -> list["_Branch"]:
        """The branch, cut into groups of choices that speak of different things."""
        groups: list[tuple[set[object], list[Any]]] = []
        for choice in self.choices:
            topics, members = _topics(choice), [choice]
            apart = []
            for known, others in groups:
                if known & topics:
                    topics, members = topics | known, others + members
                else:
                    apart.append((known, others))
            groups = [*apart, (topics, members)]
        return [_Branch(dict(self.domains), self.judged, [], members) for _, members in groups]

    def _take(self, formula: Formula) -> bool:
        match formula:
            case All(parts):
                self.pending.extend(parts)
            case Any():
                self.choices.append(formula)
            case Within(variable, values):
                narrowed = self._domain(variable).intersection(values)
                self.domains[variable] = narrowed
                return not narrowed.is_empty
            case Judged():
                if self._contradicts(formula):
                    return False
                self.judged |= {formula}
        return True

    def _possible(self, choice: Any) -> list[Formula] | None:
        """The alternatives that nothing contradicts; None where one of them holds already."""
        possible: list[Formula] = []
        for part in choice.parts:
            if isinstance(part, Within):
                domain = self._domain(part.variable)
                narrowed = domain.intersection(part.values)
                if narrowed == domain:
                    return None
                if not narrowed.is_empty:
                    possible.append(part)
            elif isinstance(part, Judged):
                if part in self.judged:
                    return None
                if not self._contradicts(part):
                    possible.append(part)
            elif isinstance(part, All) and not part.parts:
                return None
            else:
                possible.append(part)
        return possible

    def _contradicts(self, judged: Judged) -> bool:
        condition, outcome, holds = judged.condition, judged.outcome, judged.holds
        if Judged(condition, outcome, not holds) in self.judged:
            return True
        return holds and Judged(condition, not outcome) in self.judged  # true and false at once

    def _domain(self, variable: Variable) -> ValueSet:
        known = self.domains.get(variable)
        return _universe(variable) if known is None else known


def _topics(formula: Formula) -> set[object]:
    """The variables and the judged conditions that a formula speaks of."""
    match formula:
        case Within(variable, _):
            return {variable}
        case Judged(condition):
            return {condition}
        case All(parts) | Any(parts):
            return set().union(*(_topics(part) for part in parts))


def _size(values: ValueSet) -> int:
    """What it costs to work with a set, beside that of a small one."""
    return (len(values.numbers) + len(values.strings)) // 16


_TEXT = ValueSet(missing=True, strings=STRINGS.strings)


def _universe(variable: Variable) -> ValueSet:
    """The system's own attributes are strings."""
    return _TEXT if isinstance(variable, Attribute) and variable.name.startswith("$") else EVERYTHING

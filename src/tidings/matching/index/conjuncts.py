"""Convert filters to conjuncts: alternatives that each put one simple constraint on each attribute.

The index holds conjuncts, not filters. A conjunct is *exact* if the filter is true on every event that satisfies its
constraints. Otherwise (comparisons between attributes, arithmetic, XPath, too many alternatives) its constraints are
only necessary, and the reference decides.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tidings.matching import numbers, strings
from tidings.matching.formula import ConditionOutcome, Conjunction, Disjunction, Formula, InSet, when_true
from tidings.matching.numbers import Number
from tidings.matching.strings import StringSet
from tidings.matching.value_sets import EVERYTHING, PRESENT, StringPattern, ValueSet
from tidings.model.expression import SUBJECT, And, Attribute, Between, Comparison, Condition, Constant
from tidings.model.limits import MAX_CACHED_CONJUNCTS, MAX_CONJUNCTS
from tidings.model.subscription import Subscription

# Flags of a conjunct in the kernels. RESIDUAL: the reference decides. SEVERAL: its subscription has several conjuncts.
RESIDUAL, SEVERAL = 1, 2


class ConstraintKind(IntEnum):
    """The kinds of constraints; the first four are also the kinds of an event's values."""

    MISSING = 0
    NUMBER = 1
    STRING = 2
    BOOLEAN = 3
    PRESENT = 4
    TEST = 5


class StringTest(NamedTuple):
    """A condition on a string other than equality; it is evaluated once for each distinct string."""

    intervals: StringSet
    required: frozenset[StringPattern]
    excluded: frozenset[StringPattern]


class Constraint(NamedTuple):
    """A constraint on one attribute.

    NUMBER and BOOLEAN require a value between `low` and `high`; STRING requires `text`, or any string if that is None;
    TEST requires that the string passes `test`.
    """

    kind: ConstraintKind
    low: Number = 0
    high: Number = 0
    text: str | None = None
    test: StringTest | None = None


class Conjunct(NamedTuple):
    """One alternative of a filter: the constraints by attribute, all of which an event must satisfy."""

    constraints: dict[str, Constraint]
    exact: bool
    alone: bool = True  # the only conjunct of its filter

    @property
    def flags(self) -> int:
        """The conjunct's flags as the kernels take them."""
        return (0 if self.exact else RESIDUAL) | (0 if self.alone else SEVERAL)


def conjuncts_for(subscription: Subscription) -> list[Conjunct]:
    """Return the conjuncts of a subscription: those of its content, with constraints for its subject and structure."""
    conjuncts = _cached_conjuncts(subscription.content.expression)
    if subscription.subject is None and subscription.structure is None:
        return list(conjuncts)
    return [_with_structure(conjunct, subscription) for conjunct in conjuncts]


@lru_cache(MAX_CACHED_CONJUNCTS)  # brokers that share a process have many subscriptions in common
def _cached_conjuncts(condition: Condition) -> tuple[Conjunct, ...]:
    return tuple(conjuncts_of(condition))


def conjuncts_of(condition: Condition) -> list[Conjunct]:
    """Return the conjuncts of a condition, at most MAX_CONJUNCTS.

    There are none if the sets of values show that nothing satisfies it.
    """
    plain = _plain(condition)
    return [plain] if plain is not None else conjuncts_where(when_true(condition))


def conjuncts_where(formula: Formula) -> list[Conjunct]:
    """Return the conjuncts of a formula, at most MAX_CONJUNCTS.

    There are none if the sets of values show that nothing satisfies it.
    """
    conjuncts: list[Conjunct] = []
    boxes = _boxes(formula)
    room = max(1, MAX_CONJUNCTS // max(1, len(boxes)))
    for box in boxes:
        conjuncts.extend(_split_box(box, room))
    return conjuncts if len(conjuncts) == 1 else [conjunct._replace(alone=False) for conjunct in conjuncts]


def conjunct_inside(formula: Formula) -> Conjunct | None:
    """Return a conjunct that lies wholly within a formula, however many alternatives it has; None if none is found."""
    for sides, exact in _boxes(formula):
        if exact:
            constraints = {name: next(_options(values)) for name, values in sides.items()}
            return Conjunct(
                {name: constraint for name, constraint in constraints.items() if constraint is not None}, True
            )
    return None


def is_satisfiable(conjunct: Conjunct) -> bool:
    """Return whether an event can satisfy the conjunct, as far as its system attributes are concerned.

    System attributes are strings: a constraint that requires a number or a boolean of one can never be satisfied.
    """
    return not any(
        constraint.kind in (ConstraintKind.NUMBER, ConstraintKind.BOOLEAN) and name.startswith("$")
        for name, constraint in conjunct.constraints.items()
    )


def _plain(condition: Condition) -> Conjunct | None:
    """Convert the most common filters quickly: comparisons of different attributes with constants, joined by AND.

    Returns None for all other conditions.
    """
    constraints: dict[str, Constraint] = {}
    for part in condition.parts if isinstance(condition, And) else (condition,):
        if isinstance(part, Comparison):
            left, right = part.left, part.right
            if not isinstance(left, Attribute) or not isinstance(right, Constant) or left.name in constraints:
                return None
            value = right.value
            if type(value) is str and part.operator == "=":
                constraints[left.name] = Constraint(ConstraintKind.STRING, text=value)
            elif type(value) is int or type(value) is float:
                interval = _INTERVALS[part.operator](value)
                if len(interval) != 1:
                    return None
                constraints[left.name] = Constraint(ConstraintKind.NUMBER, *interval[0])
            else:
                return None
        elif isinstance(part, Between):
            operand, low, high = part.value, part.low, part.high
            if not (isinstance(operand, Attribute) and isinstance(low, Constant) and isinstance(high, Constant)):
                return None
            first, last = low.value, high.value
            if type(first) not in (int, float) or type(last) not in (int, float) or operand.name in constraints:
                return None
            if first > last:  # type: ignore[operator]
                return None
            constraints[operand.name] = Constraint(ConstraintKind.NUMBER, first, last)  # type: ignore[arg-type]
        else:
            return None
    return Conjunct(constraints, True)


_INTERVALS: dict[str, Callable[[Number], numbers.NumberSet]] = {
    "=": numbers.exactly,
    "!=": lambda number: numbers.complement(numbers.exactly(number)),
    "<": numbers.below,
    "<=": numbers.at_most,
    ">": numbers.above,
    ">=": numbers.at_least,
}


class _Box(NamedTuple):
    """An alternative of a formula: a set of values for each attribute.

    `exact` is False if it only contains the alternative.
    """

    sides: dict[str, ValueSet]
    exact: bool


_WHOLE = _Box({}, True)


def _boxes(formula: Formula) -> list[_Box]:
    match formula:
        case InSet(Attribute(name), values):
            return [] if values.is_empty else [_Box({name: values}, True)]
        case ConditionOutcome() | InSet():
            return [_Box({}, False)]
        case Disjunction(parts):
            alternatives = [box for part in parts for box in _boxes(part)]
            return alternatives if len(alternatives) <= MAX_CONJUNCTS else [_Box({}, False)]
        case Conjunction(parts):
            boxes = [_WHOLE]
            for part in sorted((_boxes(part) for part in parts), key=len):
                if len(boxes) * len(part) > MAX_CONJUNCTS:
                    boxes = [box._replace(exact=False) for box in boxes]
                else:
                    boxes = [
                        common
                        for left, right in product(boxes, part)
                        if (common := _intersection(left, right)) is not None
                    ]
            return boxes


def _intersection(left: _Box, right: _Box) -> _Box | None:
    sides = dict(left.sides)
    for name, values in right.sides.items():
        former = sides.get(name)
        sides[name] = values if former is None else former.intersection(values)
        if former is not None and sides[name].is_empty:
            return None
    return _Box(sides, left.exact and right.exact)


def _split_box(box: _Box, room: int) -> Iterator[Conjunct]:
    """Split a box into at most `room` conjuncts of simple constraints.

    Where that would take more, it widens the box, and the conjuncts are not exact.
    """
    exact = box.exact
    choices: list[list[tuple[str, Constraint | None]]] = []
    for name, values in sorted(box.sides.items(), key=lambda side: len(side[1].numbers) + len(side[1].strings)):
        options = list(_options(values))
        if len(options) > room:
            test = _single_test(values)
            exact = exact and test is not None
            options = [_widened(values) if test is None else test]
        room //= max(1, len(options))
        choices.append([(name, option) for option in options])
    for choice in product(*choices):
        yield Conjunct({name: constraint for name, constraint in choice if constraint is not None}, exact)


def _options(values: ValueSet) -> Iterator[Constraint | None]:
    """Yield the constraints whose union is a set of values; None stands for no constraint."""
    if values == EVERYTHING:
        yield None
        return
    if values == PRESENT:
        yield Constraint(ConstraintKind.PRESENT)
        return
    if values.missing:
        yield Constraint(ConstraintKind.MISSING)
    if values.booleans:
        yield Constraint(ConstraintKind.BOOLEAN, min(values.booleans), max(values.booleans))
    for low, high in values.numbers:
        yield Constraint(ConstraintKind.NUMBER, low, high)
    if values.has_patterns:
        yield Constraint(ConstraintKind.TEST, test=StringTest(values.strings, values.required, values.excluded))
        return
    for start, end in values.strings:
        if end == start + "\0":
            yield Constraint(ConstraintKind.STRING, text=start)
        elif (start, end) == strings.EVERY[0]:
            yield Constraint(ConstraintKind.STRING)
        else:
            yield Constraint(ConstraintKind.TEST, test=StringTest(((start, end),), frozenset(), frozenset()))


def _single_test(values: ValueSet) -> Constraint | None:
    """Return a single string test for a set of strings; None if the set has other values or patterns."""
    if values.missing or values.booleans or values.numbers or values.has_patterns:
        return None
    return Constraint(ConstraintKind.TEST, test=StringTest(values.strings, frozenset(), frozenset()))


def _widened(values: ValueSet) -> Constraint | None:
    if values.missing:
        return None
    kinds = [bool(values.booleans), bool(values.numbers), bool(values.strings)]
    if kinds == [False, True, False]:
        return Constraint(ConstraintKind.NUMBER, values.numbers[0][0], values.numbers[-1][1])
    if kinds == [False, False, True]:
        return Constraint(ConstraintKind.STRING)
    return Constraint(ConstraintKind.PRESENT)


def _with_structure(conjunct: Conjunct, subscription: Subscription) -> Conjunct:
    """Return the conjunct with constraints for the subscription's subject and structure."""
    subject, structure = subscription.subject, subscription.structure
    structure_constraints: dict[str, Constraint] = {}
    if structure is not None:
        structure_constraints |= {name: Constraint(ConstraintKind.PRESENT) for name in structure.names}
        structure_constraints |= {name: Constraint(ConstraintKind.MISSING) for name in structure.absent}
        structure_constraints[SUBJECT] = Constraint(ConstraintKind.STRING, text=structure.schema.subject)
    exact = conjunct.exact
    if subject is not None:
        exact = (
            exact
            and structure_constraints.get(SUBJECT, Constraint(ConstraintKind.STRING, text=subject)).text == subject
        )
        structure_constraints[SUBJECT] = Constraint(ConstraintKind.STRING, text=subject)
    # Where the content restricts the same attribute in another way, the reference decides.
    exact = exact and all(
        conjunct.constraints.get(name, constraint) == constraint for name, constraint in structure_constraints.items()
    )
    return Conjunct({**structure_constraints, **conjunct.constraints}, exact, conjunct.alone)

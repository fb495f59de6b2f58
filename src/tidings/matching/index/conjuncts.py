"""A filter as conjuncts: alternatives that each ask something simple of each attribute.

The index holds conjuncts, not filters. A conjunct is *exact* if whatever passes its constraints makes the filter
true; otherwise (regular expressions between attributes, arithmetic, too many alternatives) it is only necessary,
and the reference decides.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tidings.matching import numbers, strings
from tidings.matching.formula import All, Any, Formula, Judged, Within, when_true
from tidings.matching.numbers import Number
from tidings.matching.strings import StringSet
from tidings.matching.valuesets import EVERYTHING, PRESENT, StringPattern, ValueSet
from tidings.model.expression import SUBJECT, And, Attribute, Between, Comparison, Condition, Constant
from tidings.model.limits import MAX_CACHED_CONJUNCTS, MAX_CONJUNCTS
from tidings.model.subscription import Subscription

# What the kernels know of a conjunct: the reference decides; its subscription has several.
RESIDUAL, SEVERAL = 1, 2


class Kind(IntEnum):
    """What a constraint asks for; the first four are also what a value is."""

    MISSING = 0
    NUMBER = 1
    STRING = 2
    BOOLEAN = 3
    PRESENT = 4
    TEST = 5


class StringTest(NamedTuple):
    """What is asked of a string that is not simply to be equal: it is answered once for each distinct value."""

    intervals: StringSet
    required: frozenset[StringPattern]
    excluded: frozenset[StringPattern]


class Constraint(NamedTuple):
    """NUMBER and BOOLEAN lie between `low` and `high`; a STRING equals `text`, or is any string; a TEST is passed."""

    kind: Kind
    low: Number = 0
    high: Number = 0
    text: str | None = None
    test: StringTest | None = None


class Conjunct(NamedTuple):
    constraints: dict[str, Constraint]
    exact: bool
    alone: bool = True  # the only one of its filter

    @property
    def flags(self) -> int:
        return (0 if self.exact else RESIDUAL) | (0 if self.alone else SEVERAL)


def conjuncts_for(subscription: Subscription) -> list[Conjunct]:
    """The alternatives of a subscription: those of its content, with what subject and structure ask."""
    found = _remembered(subscription.content.expression)
    if subscription.subject is None and subscription.structure is None:
        return list(found)
    return [_with_structure(one, subscription) for one in found]


@lru_cache(MAX_CACHED_CONJUNCTS)  # brokers that share a process have many subscriptions in common
def _remembered(condition: Condition) -> tuple[Conjunct, ...]:
    return tuple(conjuncts_of(condition))


def conjuncts_of(condition: Condition) -> list[Conjunct]:
    """The alternatives of a filter: at most MAX_CONJUNCTS, none if nothing can match it."""
    plain = _plain(condition)
    return [plain] if plain is not None else conjuncts_where(when_true(condition))


def conjuncts_where(formula: Formula) -> list[Conjunct]:
    """The alternatives of a formula; likewise."""
    found: list[Conjunct] = []
    boxes = _boxes(formula)
    room = max(1, MAX_CONJUNCTS // max(1, len(boxes)))
    for box in boxes:
        found.extend(_simple(box, room))
    return found if len(found) == 1 else [one._replace(alone=False) for one in found]


def conjunct_inside(formula: Formula) -> Conjunct | None:
    """Something simple that lies wholly within a formula, however many alternatives it has; None if none is found."""
    for sides, exact in _boxes(formula):
        if exact:
            chosen = {name: next(_options(values)) for name, values in sides.items()}
            return Conjunct({name: one for name, one in chosen.items() if one is not None}, True)
    return None


def can_be(conjunct: Conjunct) -> bool:
    """The system's attributes are strings: whoever asks one for a number or a boolean is never content."""
    return not any(
        one.kind in (Kind.NUMBER, Kind.BOOLEAN) and name.startswith("$") for name, one in conjunct.constraints.items()
    )


def _plain(condition: Condition) -> Conjunct | None:
    """The short way for what most filters are: comparisons of different attributes with constants, joined by AND."""
    constraints: dict[str, Constraint] = {}
    for part in condition.parts if isinstance(condition, And) else (condition,):
        if isinstance(part, Comparison):
            left, right = part.left, part.right
            if not isinstance(left, Attribute) or not isinstance(right, Constant) or left.name in constraints:
                return None
            value = right.value
            if type(value) is str and part.operator == "=":
                constraints[left.name] = Constraint(Kind.STRING, text=value)
            elif type(value) is int or type(value) is float:
                interval = _INTERVALS[part.operator](value)
                if len(interval) != 1:
                    return None
                constraints[left.name] = Constraint(Kind.NUMBER, *interval[0])
            else:
                return None
        elif isinstance(part, Between):
            one, low, high = part.value, part.low, part.high
            if not (isinstance(one, Attribute) and isinstance(low, Constant) and isinstance(high, Constant)):
                return None
            first, last = low.value, high.value
            if type(first) not in (int, float) or type(last) not in (int, float) or one.name in constraints:
                return None
            if first > last:  # type: ignore[operator]
                return None
            constraints[one.name] = Constraint(Kind.NUMBER, first, last)  # type: ignore[arg-type]
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
    sides: dict[str, ValueSet]
    exact: bool


_WHOLE = _Box({}, True)


def _boxes(formula: Formula) -> list[_Box]:
    match formula:
        case Within(Attribute(name), values):
            return [] if values.is_empty else [_Box({name: values}, True)]
        case Judged() | Within():
            return [_Box({}, False)]
        case Any(parts):
            alternatives = [box for part in parts for box in _boxes(part)]
            return alternatives if len(alternatives) <= MAX_CONJUNCTS else [_Box({}, False)]
        case All(parts):
            boxes = [_WHOLE]
            for part in sorted((_boxes(part) for part in parts), key=len):
                if len(boxes) * len(part) > MAX_CONJUNCTS:
                    boxes = [box._replace(exact=False) for box in boxes]
                else:
                    boxes = [both for one, other in product(boxes, part) if (both := _both(one, other)) is not None]
            return boxes


def _both(one: _Box, other: _Box) -> _Box | None:
    sides = dict(one.sides)
    for name, values in other.sides.items():
        known = sides.get(name)
        sides[name] = values if known is None else known.intersection(values)
        if known is not None and sides[name].is_empty:
            return None
    return _Box(sides, one.exact and other.exact)


def _simple(box: _Box, room: int) -> Iterator[Conjunct]:
    """The box, cut into constraints that are simple; where that would be too many, a wider one that is not exact."""
    exact = box.exact
    choices: list[list[tuple[str, Constraint | None]]] = []
    for name, values in sorted(box.sides.items(), key=lambda side: len(side[1].numbers) + len(side[1].strings)):
        options = list(_options(values))
        if len(options) > room:
            test = _one_test(values)
            exact = exact and test is not None
            options = [_wider(values) if test is None else test]
        room //= max(1, len(options))
        choices.append([(name, option) for option in options])
    for chosen in product(*choices):
        yield Conjunct({name: one for name, one in chosen if one is not None}, exact)


def _options(values: ValueSet) -> Iterator[Constraint | None]:
    if values == EVERYTHING:
        yield None
        return
    if values == PRESENT:
        yield Constraint(Kind.PRESENT)
        return
    if values.missing:
        yield Constraint(Kind.MISSING)
    if values.booleans:
        yield Constraint(Kind.BOOLEAN, min(values.booleans), max(values.booleans))
    for low, high in values.numbers:
        yield Constraint(Kind.NUMBER, low, high)
    if values.has_patterns:
        yield Constraint(Kind.TEST, test=StringTest(values.strings, values.required, values.excluded))
        return
    for start, end in values.strings:
        if end == start + "\0":
            yield Constraint(Kind.STRING, text=start)
        elif (start, end) == strings.EVERY[0]:
            yield Constraint(Kind.STRING)
        else:
            yield Constraint(Kind.TEST, test=StringTest(((start, end),), frozenset(), frozenset()))


def _one_test(values: ValueSet) -> Constraint | None:
    """Very many strings, and nothing else, are a single test of the string."""
    if values.missing or values.booleans or values.numbers or values.has_patterns:
        return None
    return Constraint(Kind.TEST, test=StringTest(values.strings, frozenset(), frozenset()))


def _wider(values: ValueSet) -> Constraint | None:
    if values.missing:
        return None
    kinds = [bool(values.booleans), bool(values.numbers), bool(values.strings)]
    if kinds == [False, True, False]:
        return Constraint(Kind.NUMBER, values.numbers[0][0], values.numbers[-1][1])
    if kinds == [False, False, True]:
        return Constraint(Kind.STRING)
    return Constraint(Kind.PRESENT)


def _with_structure(conjunct: Conjunct, subscription: Subscription) -> Conjunct:
    """Subject and structure, as constraints like any other."""
    subject, structure = subscription.subject, subscription.structure
    asked: dict[str, Constraint] = {}
    if structure is not None:
        asked |= {name: Constraint(Kind.PRESENT) for name in structure.names}
        asked |= {name: Constraint(Kind.MISSING) for name in structure.absent}
        asked[SUBJECT] = Constraint(Kind.STRING, text=structure.schema.subject)
    exact = conjunct.exact
    if subject is not None:
        exact = exact and asked.get(SUBJECT, Constraint(Kind.STRING, text=subject)).text == subject
        asked[SUBJECT] = Constraint(Kind.STRING, text=subject)
    # Where the content asks of the same attribute, the reference decides.
    exact = exact and all(conjunct.constraints.get(name, one) == one for name, one in asked.items())
    return Conjunct({**asked, **conjunct.constraints}, exact, conjunct.alone)

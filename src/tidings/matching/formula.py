"""When is a condition true? Three-valued conditions over values become two-valued formulas over sets.

`when_true` says exactly where a condition is true; inside, the same is asked of where it is false, and what is neither
is unknown. A formula is a `Within` (one attribute's value lies in a set), a `Judged` (a condition that cannot be taken
apart has an outcome), or `All` or `Any` of such.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TypeAlias

import msgspec

from tidings.matching import valuesets
from tidings.matching.reference import Scope, compare, truth, value
from tidings.matching.valuesets import EMPTY, EVERYTHING, MISSING, NUMBERS, PRESENT, STRINGS, ValueSet
from tidings.model import patterns
from tidings.model.expression import (
    SUBJECT,
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    Own,
    Rlike,
    Topic,
    ValueExpression,
    XPath,
    walk,
)

Variable = Attribute | Own


class Within(msgspec.Struct, frozen=True):
    """The variable's value lies in the set."""

    variable: Variable
    values: ValueSet


class Judged(msgspec.Struct, frozen=True):
    """The condition comes out as `outcome`; or, with `holds` False, it does not."""

    condition: Condition
    outcome: bool
    holds: bool = True


class All(msgspec.Struct, frozen=True):
    parts: "tuple[Formula, ...]"


class Any(msgspec.Struct, frozen=True):
    parts: "tuple[Formula, ...]"


Formula: TypeAlias = Within | Judged | All | Any
ALWAYS, NEVER = All(()), Any(())
_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
# The comparison that is true exactly where this one is false.
_OPPOSITE: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


def when_true(condition: Condition) -> Formula:
    return _when(condition, True)


def negation(formula: Formula) -> Formula:
    """Where the formula does not hold."""
    match formula:
        case Within(variable, values):
            return Within(variable, values.complement())
        case Judged(condition, outcome, holds):
            return Judged(condition, outcome, not holds)
        case All(parts):
            return Any(tuple(negation(part) for part in parts))
        case Any(parts):
            return All(tuple(negation(part) for part in parts))


def judgements(formula: Formula) -> Iterator[Judged]:
    """The conditions in a formula that cannot be taken apart."""
    match formula:
        case Judged():
            yield formula
        case All(parts) | Any(parts):
            for part in parts:
                yield from judgements(part)


def supposing(formula: Formula, outcome: Formula) -> Formula:
    """The formula, if each condition that cannot be taken apart came to ALWAYS, or to NEVER."""
    match formula:
        case Judged():
            return outcome
        case All(parts):
            return All(tuple(supposing(part, outcome) for part in parts))
        case Any(parts):
            return Any(tuple(supposing(part, outcome) for part in parts))
    return formula


def _when(condition: Condition, wanted: bool) -> Formula:
    match condition:
        case Constant(known):
            return ALWAYS if known is wanted else NEVER
        case And(parts):
            return (All if wanted else Any)(tuple(_when(part, wanted) for part in parts))
        case Or(parts):
            return (Any if wanted else All)(tuple(_when(part, wanted) for part in parts))
        case Not(part):
            return _when(part, not wanted)
        case Comparison(left, operator, right):
            return _comparison(folded(left), operator, folded(right), wanted)
        case Between(middle, low, high):
            return _when(And((Comparison(middle, ">=", low), Comparison(middle, "<=", high))), wanted)
        case In(one, options):
            return _membership(one, [folded(option) for option in options], wanted)
        case IsNull(one):
            return _null_test(folded(one), wanted)
        case Like(one, pattern):
            return _pattern_test(condition, folded(one), valuesets.having(patterns.like(pattern)), wanted)
        case Rlike(one, pattern):
            return _pattern_test(condition, folded(one), valuesets.having_regex(pattern), wanted)
        case Topic(pattern):
            subject = Attribute(SUBJECT)
            alternatives = tuple(Within(subject, valuesets.having(levels)) for levels in patterns.topic(pattern))
            return Any(alternatives) if wanted else All((Within(subject, STRINGS), negation(Any(alternatives))))
        case XPath():
            return Judged(condition, wanted)


def _comparison(left: ValueExpression, operator: ComparisonOperator, right: ValueExpression, wanted: bool) -> Formula:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return ALWAYS if compare(left.value, operator, right.value) is wanted else NEVER
    if isinstance(left, Constant):
        left, operator, right = right, _MIRRORED[operator], left
    if isinstance(left, Attribute | Own) and isinstance(right, Constant):
        return Within(left, valuesets.comparing(operator if wanted else _OPPOSITE[operator], right.value))
    return _judged_comparison(left, operator, right, wanted)


def _judged_comparison(
    left: ValueExpression, operator: ComparisonOperator, right: ValueExpression, wanted: bool
) -> Formula:
    """Brought to `=` or `<`, so that a comparison knows its opposite and its mirror image."""
    if operator in ("!=", ">=", "<="):
        operator, wanted = _OPPOSITE[operator], not wanted
    if operator == ">" or (operator == "=" and repr(left) > repr(right)):
        left, operator, right = right, _MIRRORED[operator], left
    judged = Comparison(left, operator, right)
    return All((*_needs(judged), Judged(judged, wanted)))


def _membership(one: ValueExpression, options: list[ValueExpression], wanted: bool) -> Formula:
    constants = [option.value for option in options if isinstance(option, Constant)]
    if not isinstance(one, Attribute | Own) or len(constants) < len(options):
        return _when(Or(tuple(Comparison(one, "=", option) for option in options)), wanted)
    equal = valuesets.one_of(constants)
    if wanted:
        return Within(one, equal)
    # False needs every comparison to be false, so there must be one kind that compares with them all.
    kinds = {valuesets.kind_of(constant) for constant in constants}
    comparable = kinds.pop() if len(kinds) == 1 else EMPTY
    return Within(one, comparable.intersection(equal.complement()))


def _null_test(one: ValueExpression, wanted: bool) -> Formula:
    if isinstance(one, Constant):
        return ALWAYS if (one.value is None) is wanted else NEVER
    if isinstance(one, Attribute | Own):
        return Within(one, MISSING if wanted else PRESENT)
    judged = Judged(IsNull(one), True, holds=wanted)  # never unknown
    return judged if wanted else All((*_needs(judged.condition), judged))


def values_where(formula: Formula) -> ValueSet | None:
    """The values for which a formula over a single variable holds, where they make one set; else None."""
    match formula:
        case Within(_, values):
            return values
        case Judged():
            return None
        case All(parts) | Any(parts):
            sets = [values_where(part) for part in parts]
            known = [one for one in sets if one is not None and not one.has_patterns]
            if len(known) < len(sets):
                return None
            if isinstance(formula, All):
                return reduce(ValueSet.intersection, known, EVERYTHING)
            return valuesets.union_of(known)


def _pattern_test(condition: Condition, one: ValueExpression, strings: ValueSet, wanted: bool) -> Formula:
    if isinstance(one, Constant):
        return ALWAYS if truth(condition, Scope()) is wanted else NEVER
    if not isinstance(one, Attribute | Own):
        return Judged(condition, wanted)
    return Within(one, strings if wanted else STRINGS.intersection(strings.complement()))


def _needs(condition: Condition) -> Iterable[Within]:
    """What a condition needs to be true or false at all: its values are there, and calculated ones are numbers."""
    calculated: set[Variable] = set()
    for node in walk(condition):
        if isinstance(node, Arithmetic | Negative | Call):
            calculated.update(below for below in walk(node) if isinstance(below, Attribute | Own))
    variables = dict.fromkeys(node for node in walk(condition) if isinstance(node, Attribute | Own))
    return [Within(one, NUMBERS if one in calculated else PRESENT) for one in variables]


def folded(expression: ValueExpression) -> ValueExpression:
    """A value without any name in it is the constant that it comes to."""
    if isinstance(expression, Constant) or any(isinstance(node, Attribute | Own) for node in walk(expression)):
        return expression
    return Constant(value(expression, Scope()))

"""Translate conditions in three-valued logic to two-valued formulas over sets of values.

`when_true` returns a formula that holds exactly where a condition is true. Internally the same is done for where it is
false; where neither formula holds, the condition is unknown. A formula is an `InSet` (the value of an attribute lies in
a set), a `ConditionOutcome` (a condition that cannot be decomposed has an outcome), or a `Conjunction` or `Disjunction`
of formulas.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TypeAlias

import msgspec

from tidings.matching import value_sets
from tidings.matching.reference import Scope, compare, truth, value
from tidings.matching.value_sets import EMPTY, EVERYTHING, MISSING, NUMBERS, PRESENT, STRINGS, ValueSet
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
    OwnContextValue,
    Rlike,
    Topic,
    ValueExpression,
    XPath,
    walk,
)

Variable = Attribute | OwnContextValue


class InSet(msgspec.Struct, frozen=True):
    """The formula that holds where the variable's value lies in the set."""

    variable: Variable
    values: ValueSet


class ConditionOutcome(msgspec.Struct, frozen=True):
    """The formula that holds where the condition's truth is `outcome`, or, with `holds` False, where it is not."""

    condition: Condition
    outcome: bool
    holds: bool = True


class Conjunction(msgspec.Struct, frozen=True):
    """The formula that holds where all parts hold; without parts, everywhere."""

    parts: "tuple[Formula, ...]"


class Disjunction(msgspec.Struct, frozen=True):
    """The formula that holds where some part holds; without parts, nowhere."""

    parts: "tuple[Formula, ...]"


Formula: TypeAlias = InSet | ConditionOutcome | Conjunction | Disjunction
ALWAYS, NEVER = Conjunction(()), Disjunction(())
_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
# Each comparison's opposite: it is true exactly where the comparison is false.
_OPPOSITE: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


def when_true(condition: Condition) -> Formula:
    """Return the formula that holds exactly where the condition is true."""
    return _formula_for(condition, True)


def negation(formula: Formula) -> Formula:
    """Return the formula that holds exactly where the given one does not."""
    match formula:
        case InSet(variable, values):
            return InSet(variable, values.complement())
        case ConditionOutcome(condition, outcome, holds):
            return ConditionOutcome(condition, outcome, not holds)
        case Conjunction(parts):
            return Disjunction(tuple(negation(part) for part in parts))
        case Disjunction(parts):
            return Conjunction(tuple(negation(part) for part in parts))


def outcomes_in(formula: Formula) -> Iterator[ConditionOutcome]:
    """Yield the `ConditionOutcome`s of a formula: its conditions that cannot be decomposed."""
    match formula:
        case ConditionOutcome():
            yield formula
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                yield from outcomes_in(part)


def with_outcomes(formula: Formula, outcome: Formula) -> Formula:
    """Return the formula with `outcome` (ALWAYS or NEVER) in place of each condition that cannot be decomposed."""
    match formula:
        case ConditionOutcome():
            return outcome
        case Conjunction(parts):
            return Conjunction(tuple(with_outcomes(part, outcome) for part in parts))
        case Disjunction(parts):
            return Disjunction(tuple(with_outcomes(part, outcome) for part in parts))
    return formula


def _formula_for(condition: Condition, outcome: bool) -> Formula:
    match condition:
        case Constant(constant):
            return ALWAYS if constant is outcome else NEVER
        case And(parts):
            return (Conjunction if outcome else Disjunction)(tuple(_formula_for(part, outcome) for part in parts))
        case Or(parts):
            return (Disjunction if outcome else Conjunction)(tuple(_formula_for(part, outcome) for part in parts))
        case Not(part):
            return _formula_for(part, not outcome)
        case Comparison(left, operator, right):
            return _comparison(folded(left), operator, folded(right), outcome)
        case Between(middle, low, high):
            return _formula_for(And((Comparison(middle, ">=", low), Comparison(middle, "<=", high))), outcome)
        case In(operand, options):
            return _membership(operand, [folded(option) for option in options], outcome)
        case IsNull(operand):
            return _null_test(folded(operand), outcome)
        case Like(operand, pattern):
            return _pattern_test(condition, folded(operand), value_sets.having(patterns.parse_like(pattern)), outcome)
        case Rlike(operand, pattern):
            return _pattern_test(condition, folded(operand), value_sets.having_regex(pattern), outcome)
        case Topic(pattern):
            subject = Attribute(SUBJECT)
            alternatives = tuple(InSet(subject, value_sets.having(levels)) for levels in patterns.parse_topic(pattern))
            return (
                Disjunction(alternatives)
                if outcome
                else Conjunction((InSet(subject, STRINGS), negation(Disjunction(alternatives))))
            )
        case XPath():
            return ConditionOutcome(condition, outcome)


def _comparison(left: ValueExpression, operator: ComparisonOperator, right: ValueExpression, outcome: bool) -> Formula:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return ALWAYS if compare(left.value, operator, right.value) is outcome else NEVER
    if isinstance(left, Constant):
        left, operator, right = right, _MIRRORED[operator], left
    if isinstance(left, Attribute | OwnContextValue) and isinstance(right, Constant):
        return InSet(left, value_sets.comparing(operator if outcome else _OPPOSITE[operator], right.value))
    return _comparison_outcome(left, operator, right, outcome)


def _comparison_outcome(
    left: ValueExpression, operator: ComparisonOperator, right: ValueExpression, outcome: bool
) -> Formula:
    """Return the outcome of a comparison that cannot be decomposed, rewritten with `=` or `<`.

    In this normal form a comparison, its opposite and its mirror image refer to the same condition.
    """
    if operator in ("!=", ">=", "<="):
        operator, outcome = _OPPOSITE[operator], not outcome
    if operator == ">" or (operator == "=" and repr(left) > repr(right)):
        left, operator, right = right, _MIRRORED[operator], left
    normal_form = Comparison(left, operator, right)
    return Conjunction((*_preconditions(normal_form), ConditionOutcome(normal_form, outcome)))


def _membership(operand: ValueExpression, options: list[ValueExpression], outcome: bool) -> Formula:
    constants = [option.value for option in options if isinstance(option, Constant)]
    if not isinstance(operand, Attribute | OwnContextValue) or len(constants) < len(options):
        return _formula_for(Or(tuple(Comparison(operand, "=", option) for option in options)), outcome)
    equal = value_sets.one_of(constants)
    if outcome:
        return InSet(operand, equal)
    # IN is false only if every comparison is false, so one kind must compare with all constants.
    kinds = {value_sets.kind_of(constant) for constant in constants}
    comparable = kinds.pop() if len(kinds) == 1 else EMPTY
    return InSet(operand, comparable.intersection(equal.complement()))


def _null_test(operand: ValueExpression, outcome: bool) -> Formula:
    if isinstance(operand, Constant):
        return ALWAYS if (operand.value is None) is outcome else NEVER
    if isinstance(operand, Attribute | OwnContextValue):
        return InSet(operand, MISSING if outcome else PRESENT)
    condition_outcome = ConditionOutcome(IsNull(operand), True, holds=outcome)  # never unknown
    return (
        condition_outcome if outcome else Conjunction((*_preconditions(condition_outcome.condition), condition_outcome))
    )


def values_where(formula: Formula) -> ValueSet | None:
    """Return the values for which a formula over a single variable holds; None if they do not form one plain set."""
    match formula:
        case InSet(_, values):
            return values
        case ConditionOutcome():
            return None
        case Conjunction(parts) | Disjunction(parts):
            sets = [values_where(part) for part in parts]
            plain_sets = [values for values in sets if values is not None and not values.has_patterns]
            if len(plain_sets) < len(sets):
                return None
            if isinstance(formula, Conjunction):
                return reduce(ValueSet.intersection, plain_sets, EVERYTHING)
            return value_sets.union_of(plain_sets)


def _pattern_test(condition: Condition, operand: ValueExpression, strings: ValueSet, outcome: bool) -> Formula:
    if isinstance(operand, Constant):
        return ALWAYS if truth(condition, Scope()) is outcome else NEVER
    if not isinstance(operand, Attribute | OwnContextValue):
        return ConditionOutcome(condition, outcome)
    return InSet(operand, strings if outcome else STRINGS.intersection(strings.complement()))


def _preconditions(condition: Condition) -> Iterable[InSet]:
    """Return the formulas that must hold for a condition to be true or false.

    Its values must be present, and those in arithmetic must be numbers.
    """
    numeric: set[Variable] = set()
    for node in walk(condition):
        if isinstance(node, Arithmetic | Negative | Call):
            numeric.update(inner for inner in walk(node) if isinstance(inner, Attribute | OwnContextValue))
    variables = dict.fromkeys(node for node in walk(condition) if isinstance(node, Attribute | OwnContextValue))
    return [InSet(variable, NUMBERS if variable in numeric else PRESENT) for variable in variables]


def folded(expression: ValueExpression) -> ValueExpression:
    """Return the constant that an expression without variables evaluates to; any other expression unchanged."""
    if isinstance(expression, Constant) or any(
        isinstance(node, Attribute | OwnContextValue) for node in walk(expression)
    ):
        return expression
    return Constant(value(expression, Scope()))

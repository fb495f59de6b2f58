"""Convert sets of values back to conditions, in the form that a person would write; used for merged filters."""

from tidings.matching import numbers, strings
from tidings.matching.numbers import Number
from tidings.matching.value_sets import EVERYTHING, PRESENT, ValueSet
from tidings.model.expression import (
    FALSE,
    TRUE,
    Attribute,
    Between,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    OwnContextValue,
    Rlike,
    Topic,
    XPath,
    all_of,
    any_of,
    walk,
)
from tidings.model.limits import (
    MAX_FILTER_CHARACTERS,
    MAX_FILTER_PATTERNS,
    MAX_FILTER_PREDICATES,
    MAX_IN_VALUES,
    MAX_PATTERN_CHARACTERS,
)
from tidings.model.patterns import escape_like
from tidings.model.printer import format_expression

Variable = Attribute | OwnContextValue


def condition_for(variable: Variable, values: ValueSet) -> Condition:
    """Return a condition on the variable that is true exactly for these values.

    Raises `ValueError` for a set with patterns: merging keeps the original conditions of such a set.
    """
    if values.has_patterns:
        raise ValueError("sets with patterns are kept as they were written")
    if values == EVERYTHING:
        return TRUE
    if values == PRESENT:
        return Not(IsNull(variable))
    conditions: list[Condition] = [IsNull(variable)] if values.missing else []
    if values.booleans:
        conditions.append(
            _equals_any(variable, [Constant(boolean) for boolean in sorted(values.booleans, reverse=True)])
        )
    conditions.extend(_numbers(variable, values.numbers))
    conditions.extend(_strings(variable, values.strings))
    return any_of(conditions) if conditions else FALSE


def _numbers(variable: Variable, intervals: numbers.NumberSet) -> list[Condition]:
    points = [Constant(_as_integer(low)) for low, high in intervals if low == high]
    gaps = numbers.complement(intervals)
    if len(intervals) > 1 and gaps and all(low == high for low, high in gaps):
        return [_equals_none(variable, [Constant(_as_integer(low)) for low, _ in gaps])]
    conditions: list[Condition] = [_equals_any(variable, points)] if points else []
    return conditions + [_range(variable, low, high) for low, high in intervals if low < high]


def _range(variable: Variable, low: Number, high: Number) -> Condition:
    lower = _bound_comparison(variable, low, numbers.before(low), ">=", ">")
    upper = _bound_comparison(variable, high, numbers.after(high), "<=", "<")
    if lower is None and upper is None:
        return Comparison(variable, ">=", Constant(numbers.LEAST))
    if lower is None or upper is None:
        return lower or upper or TRUE
    if lower.operator == ">=" and upper.operator == "<=":
        return Between(variable, lower.right, upper.right)
    return all_of([lower, upper])


def _bound_comparison(
    variable: Variable, closed: Number, opened: Number | None, at: str, beyond: str
) -> Comparison | None:
    """Return the comparison for one end of an interval, None if the interval is open at that end.

    Of the closed and the open form (`x <= 4.999999999999999`, `x < 5`) it chooses the one that is shorter to write.
    """
    if opened is None:
        return None
    shorter = len(repr(opened)) < len(repr(closed))
    operator, bound = (beyond, opened) if shorter else (at, closed)
    return Comparison(variable, operator, Constant(_as_integer(bound)))  # type: ignore[arg-type]


def _as_integer(number: Number) -> Number:
    """Write a float with an integral value as an int (3.0 as 3); both compare the same."""
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number


def _strings(variable: Variable, intervals: strings.StringSet) -> list[Condition]:
    points = [Constant(low) for low, high in intervals if high == low + "\0"]
    gaps = strings.complement(intervals)
    if len(intervals) > 1 and gaps and all(high == low + "\0" for low, high in gaps):
        return [_equals_none(variable, [Constant(low) for low, _ in gaps])]
    conditions: list[Condition] = [_equals_any(variable, points)] if points else []
    return conditions + [_interval_condition(variable, low, high) for low, high in intervals if high != low + "\0"]


def _interval_condition(variable: Variable, low: str, high: str | None) -> Condition:
    prefix = escape_like(low) + "%"
    if low and high == strings.after_prefix(low) and len(prefix) <= MAX_PATTERN_CHARACTERS:
        return Like(variable, prefix)
    conditions: list[Condition] = []
    if low.endswith("\0"):
        conditions.append(Comparison(variable, ">", Constant(low[:-1])))
    elif low or high is None:
        conditions.append(Comparison(variable, ">=", Constant(low)))
    if high is not None:
        inclusive = high.endswith("\0")
        conditions.append(Comparison(variable, "<=" if inclusive else "<", Constant(high[:-1] if inclusive else high)))
    return all_of(conditions)


def is_within_limits(condition: Condition) -> bool:
    """Return whether a filter of this condition respects the limits on filters, so that it can be parsed again."""
    nodes = list(walk(condition))
    predicates = [node for node in nodes if isinstance(node, Comparison | Between | In | Like | Rlike | IsNull)]
    patterns = [node for node in nodes if isinstance(node, Like | Rlike | Topic | XPath)]
    return (
        len(predicates) + len(patterns) <= MAX_FILTER_PREDICATES
        and len(patterns) <= MAX_FILTER_PATTERNS
        and all(len(node.options) <= MAX_IN_VALUES for node in nodes if isinstance(node, In))
        and len(format_expression(condition)) <= MAX_FILTER_CHARACTERS
    )


def _equals_any(variable: Variable, constants: list[Constant]) -> Condition:
    return Comparison(variable, "=", constants[0]) if len(constants) == 1 else In(variable, tuple(constants))


def _equals_none(variable: Variable, constants: list[Constant]) -> Condition:
    return Comparison(variable, "!=", constants[0]) if len(constants) == 1 else Not(In(variable, tuple(constants)))

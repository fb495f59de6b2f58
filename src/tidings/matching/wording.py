"""Sets of values, said as a condition again: what `merge` found, in words that a person would have used."""

from tidings.matching import numbers, strings
from tidings.matching.numbers import Number
from tidings.matching.valuesets import EVERYTHING, PRESENT, ValueSet
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
    Own,
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
from tidings.model.patterns import literally
from tidings.model.text import written

Variable = Attribute | Own


def condition_for(variable: Variable, values: ValueSet) -> Condition:
    """A condition that is true exactly for these values; they must not have patterns."""
    if values.has_patterns:
        raise ValueError("sets with patterns are kept as they were written")
    if values == EVERYTHING:
        return TRUE
    if values == PRESENT:
        return Not(IsNull(variable))
    words: list[Condition] = [IsNull(variable)] if values.missing else []
    if values.booleans:
        words.append(_one_of(variable, [Constant(one) for one in sorted(values.booleans, reverse=True)]))
    words.extend(_numbers(variable, values.numbers))
    words.extend(_strings(variable, values.strings))
    return any_of(words) if words else FALSE


def _numbers(variable: Variable, intervals: numbers.NumberSet) -> list[Condition]:
    points = [Constant(_plain(low)) for low, high in intervals if low == high]
    gaps = numbers.complement(intervals)
    if len(intervals) > 1 and gaps and all(low == high for low, high in gaps):
        return [_none_of(variable, [Constant(_plain(low)) for low, _ in gaps])]
    words: list[Condition] = [_one_of(variable, points)] if points else []
    return words + [_range(variable, low, high) for low, high in intervals if low < high]


def _range(variable: Variable, low: Number, high: Number) -> Condition:
    lower = _end(variable, low, numbers.before(low), ">=", ">")
    upper = _end(variable, high, numbers.after(high), "<=", "<")
    if lower is None and upper is None:
        return Comparison(variable, ">=", Constant(numbers.LEAST))
    if lower is None or upper is None:
        return lower or upper or TRUE
    if lower.operator == ">=" and upper.operator == "<=":
        return Between(variable, lower.right, upper.right)
    return all_of([lower, upper])


def _end(variable: Variable, closed: Number, opened: Number | None, at: str, beyond: str) -> Comparison | None:
    """`x <= 4.999999999999999` is `x < 5`: whichever is shorter to say. No end at all has no word."""
    if opened is None:
        return None
    shorter = len(repr(opened)) < len(repr(closed))
    operator, bound = (beyond, opened) if shorter else (at, closed)
    return Comparison(variable, operator, Constant(_plain(bound)))  # type: ignore[arg-type]


def _plain(number: Number) -> Number:
    """3.0 is said as 3; it compares the same."""
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number


def _strings(variable: Variable, intervals: strings.StringSet) -> list[Condition]:
    points = [Constant(low) for low, high in intervals if high == low + "\0"]
    gaps = strings.complement(intervals)
    if len(intervals) > 1 and gaps and all(high == low + "\0" for low, high in gaps):
        return [_none_of(variable, [Constant(low) for low, _ in gaps])]
    words: list[Condition] = [_one_of(variable, points)] if points else []
    return words + [_stretch(variable, low, high) for low, high in intervals if high != low + "\0"]


def _stretch(variable: Variable, low: str, high: str | None) -> Condition:
    prefix = literally(low) + "%"
    if low and high == strings.after_prefix(low) and len(prefix) <= MAX_PATTERN_CHARACTERS:
        return Like(variable, prefix)
    words: list[Condition] = []
    if low.endswith("\0"):
        words.append(Comparison(variable, ">", Constant(low[:-1])))
    elif low or high is None:
        words.append(Comparison(variable, ">=", Constant(low)))
    if high is not None:
        inclusive = high.endswith("\0")
        words.append(Comparison(variable, "<=" if inclusive else "<", Constant(high[:-1] if inclusive else high)))
    return all_of(words)


def is_within_limits(condition: Condition) -> bool:
    """Whether a filter of this condition can be written and read."""
    nodes = list(walk(condition))
    predicates = [node for node in nodes if isinstance(node, Comparison | Between | In | Like | Rlike | IsNull)]
    patterns = [node for node in nodes if isinstance(node, Like | Rlike | Topic | XPath)]
    return (
        len(predicates) + len(patterns) <= MAX_FILTER_PREDICATES
        and len(patterns) <= MAX_FILTER_PATTERNS
        and all(len(node.options) <= MAX_IN_VALUES for node in nodes if isinstance(node, In))
        and len(written(condition)) <= MAX_FILTER_CHARACTERS
    )


def _one_of(variable: Variable, constants: list[Constant]) -> Condition:
    return Comparison(variable, "=", constants[0]) if len(constants) == 1 else In(variable, tuple(constants))


def _none_of(variable: Variable, constants: list[Constant]) -> Condition:
    return Comparison(variable, "!=", constants[0]) if len(constants) == 1 else Not(In(variable, tuple(constants)))

"""Parse the bracket notation of PADRES: `[class,eq,'stock'],[price,>,10]`."""

from collections.abc import Callable

from tidings.language.words import WordReader, did_you_mean
from tidings.model.errors import FilterError
from tidings.model.expression import (
    Attribute,
    Comparison,
    ComparisonOperator,
    Condition,
    IsNull,
    Like,
    Not,
    all_of,
)
from tidings.model.limits import MAX_PATTERN_CHARACTERS
from tidings.model.patterns import escape_like

_COMPARISONS: dict[str, ComparisonOperator] = {
    "eq": "=",
    "=": "=",
    "neq": "!=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "str-lt": "<",
    "str-le": "<=",
    "str-gt": ">",
    "str-ge": ">=",
}
_TEXTUAL: dict[str, Callable[[str], str]] = {
    "str-prefix": lambda text: f"{text}%",
    "str-postfix": lambda text: f"%{text}",
    "str-suffix": lambda text: f"%{text}",
    "str-contains": lambda text: f"%{text}%",
}
_PRESENT = "isPresent"
OPERATORS = (*_COMPARISONS, *_TEXTUAL, _PRESENT)


def parse(text: str) -> Condition:
    """Parse a filter in PADRES' notation; raise `FilterError` if it is not valid."""
    words = WordReader(text)
    predicates: list[Condition] = []
    while words.more():
        if predicates:
            words.sign(",", "predicates are separated by commas")
        words.count_predicate()
        words.sign("[", "a predicate is [name,operator,value]")
        predicates.append(_predicate(words))
        words.sign("]", "a predicate has three parts, [name,operator,value], and ends with ]")
    return all_of(predicates)


def _predicate(words: WordReader) -> Condition:
    attribute = Attribute(words.name())
    words.sign(",", "a predicate is [name,operator,value]")
    start = words.position
    operator = words.operator(OPERATORS)
    if operator == _PRESENT:
        if words.has(","):  # PADRES requires a value here, which has no meaning
            words.value("a value")
        return Not(IsNull(attribute))
    if not operator:
        word = words.word("an operator")[0]
        hint = did_you_mean(word, OPERATORS) or f"; there are {', '.join(OPERATORS)}"
        raise FilterError(f"there is no operator {word[:40]}{hint}", words.text, start)
    words.sign(",", f"a value is missing after {operator}")
    value = words.value("a value")
    if operator in _COMPARISONS:
        return Comparison(attribute, _COMPARISONS[operator], value)
    if not isinstance(value.value, str):
        raise FilterError(f"{operator} takes a string", words.text, start)
    words.count_pattern()
    pattern = _TEXTUAL[operator](escape_like(value.value))
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise FilterError(f"longer than MAX_PATTERN_CHARACTERS ({MAX_PATTERN_CHARACTERS:,})", words.text, start)
    return Like(attribute, pattern)

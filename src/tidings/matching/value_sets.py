"""Sets of values of one attribute: whether it may be missing, and which booleans, numbers and strings it may be.

The sets are closed under intersection. Strings are intervals, with patterns that each string must match or must not
match. Every set that a single comparison describes has a complement; not every intersection does.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidings.matching import automata, numbers, strings
from tidings.matching.numbers import NumberSet
from tidings.matching.strings import StringSet
from tidings.model.expression import ComparisonOperator
from tidings.model.patterns import Elements, Wildcard
from tidings.model.values import Value


class Regex(NamedTuple):
    """A regular expression, known only by its text: whether two of them have strings in common is not decided."""

    pattern: str


StringPattern = Elements | Regex
_BOTH = frozenset({False, True})
_NEITHER: frozenset[bool] = frozenset()


class ValueSet(NamedTuple):
    """A set of values: missing, booleans, numbers, and strings that lie in the intervals and satisfy the patterns."""

    missing: bool = False
    booleans: frozenset[bool] = _NEITHER
    numbers: NumberSet = numbers.NONE
    strings: StringSet = strings.NONE
    required: frozenset[StringPattern] = frozenset()  # patterns that each string matches
    excluded: frozenset[StringPattern] = frozenset()  # patterns that no string matches

    def intersection(self, other: "ValueSet") -> "ValueSet":
        """Return the values that are in both sets."""
        return ValueSet(
            self.missing and other.missing,
            self.booleans & other.booleans,
            numbers.intersection(self.numbers, other.numbers),
            strings.intersection(self.strings, other.strings),
            self.required | other.required,
            self.excluded | other.excluded,
        )

    def complement(self) -> "ValueSet":
        """Return the set of all other values.

        Raises `ValueError` for a set with a pattern, unless that one pattern or its opposite is all that restricts its
        strings.
        """
        if not self.has_patterns:
            others = strings.complement(self.strings)
            return ValueSet(not self.missing, _BOTH - self.booleans, numbers.complement(self.numbers), others)
        if self.strings != strings.EVERY or len(self.required) + len(self.excluded) != 1:
            raise ValueError("this set's complement is not a set of the same form")
        return ValueSet(
            not self.missing,
            _BOTH - self.booleans,
            numbers.complement(self.numbers),
            strings.EVERY,
            self.excluded,
            self.required,
        )

    @property
    def has_patterns(self) -> bool:
        """Whether patterns restrict the strings."""
        return bool(self.required or self.excluded)

    @property
    def is_empty(self) -> bool:
        """Whether the set has no value. It is exact without regular expressions; with them, False means 'perhaps'."""
        return not (self.missing or self.booleans or self.numbers or self._strings_exist())

    def _strings_exist(self) -> bool:
        if not self.strings or not self.has_patterns:
            return bool(self.strings)
        if self.required & self.excluded:
            return False
        required = frozenset(pattern for pattern in self.required if not isinstance(pattern, Regex))
        excluded = frozenset(pattern for pattern in self.excluded if not isinstance(pattern, Regex))
        return any(automata.may_exist(interval, required, excluded) for interval in self.strings)


EMPTY = ValueSet()
MISSING = ValueSet(missing=True)
NUMBERS = ValueSet(numbers=numbers.EVERY)
STRINGS = ValueSet(strings=strings.EVERY)
BOOLEANS = ValueSet(booleans=_BOTH)
PRESENT = ValueSet(False, _BOTH, numbers.EVERY, strings.EVERY)
EVERYTHING = ValueSet(True, _BOTH, numbers.EVERY, strings.EVERY)

_BY_OPERATOR: dict[ComparisonOperator, str] = {
    "=": "exactly",
    "<": "below",
    "<=": "at_most",
    ">": "above",
    ">=": "at_least",
}


def comparing(operator: ComparisonOperator, constant: Value | None) -> ValueSet:
    """Return the values whose comparison with the constant is true."""
    if constant is None:
        return EMPTY
    if isinstance(constant, bool):
        options = {"=": frozenset({constant}), "!=": frozenset({not constant})}
        return ValueSet(booleans=options.get(operator, _NEITHER))
    if operator == "!=":
        return kind_of(constant).intersection(comparing("=", constant).complement())
    if isinstance(constant, str):
        return ValueSet(strings=getattr(strings, _BY_OPERATOR[operator])(constant))
    return ValueSet(numbers=getattr(numbers, _BY_OPERATOR[operator])(constant))


def union_of(sets: Iterable[ValueSet]) -> ValueSet:
    """Return the union of sets without patterns, built in one pass, since there may be thousands.

    Raises `ValueError` if a set has patterns.
    """
    value_sets = list(sets)
    if any(values.has_patterns for values in value_sets):
        raise ValueError("sets with patterns have no union of the same form")
    return ValueSet(
        any(values.missing for values in value_sets),
        frozenset().union(*(values.booleans for values in value_sets)),
        numbers.union(tuple(interval for values in value_sets for interval in values.numbers), ()),
        strings.union(tuple(interval for values in value_sets for interval in values.strings), ()),
    )


def kind_of(constant: Value | None) -> ValueSet:
    """Return all values that compare with the constant."""
    if constant is None:
        return EMPTY
    return BOOLEANS if isinstance(constant, bool) else STRINGS if isinstance(constant, str) else NUMBERS


def one_of(constants: list[Value | None]) -> ValueSet:
    """Return the values that equal one of the constants, built in one pass, since there may be thousands."""
    points = tuple((c, c) for c in constants if isinstance(c, int | float) and not isinstance(c, bool))
    texts = tuple((c, c + "\0") for c in constants if isinstance(c, str))
    truths = frozenset(c for c in constants if isinstance(c, bool))
    return ValueSet(False, truths, numbers.union(points, ()), strings.union(texts, ()))


def having(pattern: Elements) -> ValueSet:
    """Return the strings that match a LIKE pattern; plain text and prefixes become intervals."""
    literal = "".join(element for element in pattern[:-1] if isinstance(element, str))
    if len(literal) == len(pattern) - 1:
        last = pattern[-1]
        if last is Wildcard.RUN:
            return ValueSet(strings=strings.starting_with(literal))
        if isinstance(last, str):
            return ValueSet(strings=strings.exactly(literal + last))
    if not pattern:
        return ValueSet(strings=strings.exactly(""))
    return ValueSet(strings=strings.EVERY, required=frozenset({pattern}))


def having_regex(pattern: str) -> ValueSet:
    """Return the strings that match a regular expression."""
    return ValueSet(strings=strings.EVERY, required=frozenset({Regex(pattern)}))

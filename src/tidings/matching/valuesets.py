"""What one attribute may be: missing, and which booleans, numbers and strings.

Closed under intersection. Strings are intervals that may also have to have, or not to have, a pattern; the
complement is there for everything that a single comparison can say.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidings.matching import automata, numbers, strings
from tidings.matching.numbers import NumberSet
from tidings.matching.strings import StringSet
from tidings.model.expression import ComparisonOperator
from tidings.model.patterns import Elements, Wild
from tidings.model.values import Value


class Regex(NamedTuple):
    """A pattern that is known only by its text: two different ones may or may not have strings in common."""

    pattern: str


StringPattern = Elements | Regex
_BOTH = frozenset({False, True})
_NEITHER: frozenset[bool] = frozenset()


class ValueSet(NamedTuple):
    missing: bool = False
    booleans: frozenset[bool] = _NEITHER
    numbers: NumberSet = numbers.NONE
    strings: StringSet = strings.NONE
    required: frozenset[StringPattern] = frozenset()  # patterns that each string has
    excluded: frozenset[StringPattern] = frozenset()  # patterns that no string has

    def intersection(self, other: "ValueSet") -> "ValueSet":
        return ValueSet(
            self.missing and other.missing,
            self.booleans & other.booleans,
            numbers.intersection(self.numbers, other.numbers),
            strings.intersection(self.strings, other.strings),
            self.required | other.required,
            self.excluded | other.excluded,
        )

    def complement(self) -> "ValueSet":
        """Everything else. A set with a pattern must be nothing but that pattern, or nothing but its opposite."""
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
        return bool(self.required or self.excluded)

    @property
    def is_empty(self) -> bool:
        """Exact, but for patterns that are only known by their text: with them, not empty means maybe."""
        return not (self.missing or self.booleans or self.numbers or self._strings_exist())

    def _strings_exist(self) -> bool:
        if not self.strings or not self.has_patterns:
            return bool(self.strings)
        if self.required & self.excluded:
            return False
        required = frozenset(one for one in self.required if not isinstance(one, Regex))
        excluded = frozenset(one for one in self.excluded if not isinstance(one, Regex))
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
    """The values whose comparison with the constant is true."""
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
    """Of sets without patterns; put together in one go, since there may be thousands."""
    given = list(sets)
    if any(one.has_patterns for one in given):
        raise ValueError("sets with patterns have no union of the same form")
    return ValueSet(
        any(one.missing for one in given),
        frozenset().union(*(one.booleans for one in given)),
        numbers.union(tuple(interval for one in given for interval in one.numbers), ()),
        strings.union(tuple(interval for one in given for interval in one.strings), ()),
    )


def kind_of(constant: Value | None) -> ValueSet:
    """All values that compare with the constant."""
    if constant is None:
        return EMPTY
    return BOOLEANS if isinstance(constant, bool) else STRINGS if isinstance(constant, str) else NUMBERS


def one_of(constants: list[Value | None]) -> ValueSet:
    """The values that equal one of the constants; put together in one go, since there may be thousands."""
    points = tuple((c, c) for c in constants if isinstance(c, int | float) and not isinstance(c, bool))
    texts = tuple((c, c + "\0") for c in constants if isinstance(c, str))
    truths = frozenset(c for c in constants if isinstance(c, bool))
    return ValueSet(False, truths, numbers.union(points, ()), strings.union(texts, ()))


def having(pattern: Elements) -> ValueSet:
    """The strings that are what the pattern describes; plain text and prefixes are intervals."""
    literal = "".join(element for element in pattern[:-1] if isinstance(element, str))
    if len(literal) == len(pattern) - 1:
        last = pattern[-1]
        if last is Wild.RUN:
            return ValueSet(strings=strings.starting_with(literal))
        if isinstance(last, str):
            return ValueSet(strings=strings.exactly(literal + last))
    if not pattern:
        return ValueSet(strings=strings.exactly(""))
    return ValueSet(strings=strings.EVERY, required=frozenset({pattern}))


def having_regex(pattern: str) -> ValueSet:
    return ValueSet(strings=strings.EVERY, required=frozenset({Regex(pattern)}))

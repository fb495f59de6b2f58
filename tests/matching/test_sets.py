"""Sets of numbers and strings: the algebra is exact, on a domain where every number has a next one."""

from functools import reduce
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import floats, integers, strings
from tidings.matching import automata, numbers
from tidings.matching import strings as stringsets
from tidings.matching.numbers import GREATEST, LEAST, Number, NumberSet
from tidings.matching.reference import like
from tidings.matching.strings import StringSet
from tidings.model.limits import MAX_INTEGER, MAX_PATTERN_STEPS, MIN_INTEGER
from tidings.model.patterns import Elements, Wildcard
from tidings.model.patterns import parse_like as like_elements

EDGES = [
    0,
    1,
    -1,
    2**53 - 1,
    2**53,
    2**53 + 1,
    -(2**53),
    -(2**53) - 1,
    MAX_INTEGER,
    MIN_INTEGER,
    2.0**63,
    1e300,
    5e-324,
]


@examples(600, 50_000)
@given(st.one_of(integers, floats, st.sampled_from(EDGES)))
def test_every_number_has_a_next_one_and_comes_back(number: Number) -> None:
    after, before = numbers.after(number), numbers.before(number)
    assert (after is None) == (number == GREATEST)
    assert (before is None) == (number == LEAST)
    if after is not None:
        assert after > number
        assert numbers.before(after) == number
    if before is not None:
        assert before < number
        assert numbers.after(before) == number


def test_nothing_lies_between_large_neighbours() -> None:
    assert numbers.after(2**53) == 2**53 + 1  # an int: no float lies there
    assert numbers.after(2**53 - 1) == 2.0**53
    assert numbers.after(MAX_INTEGER) == 2.0**63
    assert numbers.before(2.0**63) == MAX_INTEGER
    assert numbers.intersection(numbers.above(2**53), numbers.below(2**53 + 1)) == ()


def number_sets() -> st.SearchStrategy[NumberSet]:
    bounds = st.one_of(st.integers(-4, 4), st.sampled_from(EDGES))
    one = st.tuples(bounds, bounds).map(lambda ends: ((min(ends), max(ends)),))
    return st.lists(one, max_size=3).map(lambda sets: reduce(numbers.union, sets, numbers.NONE))


def string_sets() -> st.SearchStrategy[StringSet]:
    makers = [stringsets.exactly, stringsets.below, stringsets.above, stringsets.at_least, stringsets.at_most]
    one = st.tuples(st.sampled_from([*makers, stringsets.starting_with]), strings).map(lambda pair: pair[0](pair[1]))
    return st.lists(one, max_size=3).map(lambda sets: reduce(stringsets.union, sets, stringsets.NONE))


def in_numbers(number: Number, values: NumberSet) -> bool:
    return any(low <= number <= high for low, high in values)


def in_strings(text: str, values: StringSet) -> bool:
    return any(low <= text and (high is None or text < high) for low, high in values)


@examples(400, 10_000)
@given(number_sets(), number_sets(), st.one_of(st.integers(-5, 5), st.sampled_from(EDGES), floats))
def test_the_algebra_of_numbers(one: NumberSet, other: NumberSet, number: Number) -> None:
    a, b = in_numbers(number, one), in_numbers(number, other)
    assert in_numbers(number, numbers.union(one, other)) == (a or b)
    assert in_numbers(number, numbers.intersection(one, other)) == (a and b)
    assert in_numbers(number, numbers.complement(one)) == (not a)
    assert numbers.complement(numbers.complement(one)) == one
    assert numbers.intersection(one, numbers.complement(one)) == ()
    assert numbers.union(one, numbers.complement(one)) == numbers.EVERY


@examples(400, 20_000)
@given(string_sets(), string_sets(), strings)
def test_the_algebra_of_strings(one: StringSet, other: StringSet, text: str) -> None:
    a, b = in_strings(text, one), in_strings(text, other)
    assert in_strings(text, stringsets.union(one, other)) == (a or b)
    assert in_strings(text, stringsets.intersection(one, other)) == (a and b)
    assert in_strings(text, stringsets.complement(one)) == (not a)
    assert stringsets.complement(stringsets.complement(one)) == one
    assert stringsets.union(one, stringsets.complement(one)) == stringsets.EVERY


@examples(250, 10_000)
@given(strings, strings)
def test_prefixes_are_intervals(prefix: str, text: str) -> None:
    assert in_strings(text, stringsets.starting_with(prefix)) == text.startswith(prefix)
    assert in_strings(prefix + text, stringsets.starting_with(prefix))


def test_prefixes_at_the_end_of_the_alphabet() -> None:
    assert stringsets.starting_with("\U0010ffff") == (("\U0010ffff", None),)
    assert stringsets.starting_with("a\U0010ffff") == (("a\U0010ffff", "b"),)
    assert stringsets.starting_with("\ud7ff") == (("\ud7ff", "\ue000"),)


SHORT = ["".join(letters) for length in range(6) for letters in product("ab/", repeat=length)]
elements = st.lists(st.sampled_from(["a", "b", "/", Wildcard.ANY, Wildcard.RUN, Wildcard.LEVEL]), max_size=3).map(tuple)


@examples(300, 10_000)
@given(
    st.tuples(st.sampled_from(["", "a", "ab", "b"]), st.sampled_from([None, "a", "ab", "b", "ba"])),
    st.frozensets(elements, max_size=2),
    st.frozensets(elements, max_size=2),
)
def test_the_search_for_a_string_is_exact(
    interval: tuple[str, str | None], required: frozenset[Elements], excluded: frozenset[Elements]
) -> None:
    """Against all strings of up to five letters; what only longer or other letters can show is followed up by hand."""
    low, high = interval
    if high is not None and low >= high:
        return
    found = any(
        low <= text
        and (high is None or text < high)
        and all(like(text, one) for one in required)
        and not any(like(text, one) for one in excluded)
        for text in [*SHORT, *(text + "c" for text in SHORT), *("\0" + text for text in SHORT), "c" * 7, "a\0", "ab\0"]
    )
    answer = automata.may_exist(interval, required, excluded)
    assert answer or not found, "a string exists and was not seen"
    if not excluded:  # then a shortest string is short, and all of them were tried
        assert answer == found


@pytest.mark.parametrize(
    ("required", "excluded", "expected"),
    [
        (["%ab%", "%ba%"], [], True),
        (["%x"], ["%x%"], False),
        (["%"], ["%_%"], True),  # only the empty string
        (["_%"], ["%_"], False),
        (["%a%"], ["%ab%", "%a"], True),
        (["a%b", "%c%"], ["a%c%b"], False),
        (["__"], ["a_", "_a"], True),
        (["%a%a%a%"], ["%a%a%"], False),
        (["%a%a%"], ["%a%a%a%"], True),
        (["%é%"], ["%e%"], True),
    ],
)
def test_patterns_by_hand(required: list[str], excluded: list[str], expected: bool) -> None:
    wanted, unwanted = frozenset(map(like_elements, required)), frozenset(map(like_elements, excluded))
    assert automata.may_exist(("", None), wanted, unwanted) is expected


def test_a_search_that_would_grow_too_large_ends_with_a_cautious_yes() -> None:
    words = [f"%{letter}{'_' * 12}%" for letter in "abcdef"]
    nothing = frozenset(map(like_elements, ["%y", "%z", *words]))  # it would have to end with both
    assert automata.may_exist(("", None), nothing, frozenset()) is True
    assert MAX_PATTERN_STEPS < 100_000

"""Covering and overlap: a table of relations, soundness on everything, exactness by brute force, and limits."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import conditions
from tidings import ContextFilter, Filter, Relation
from tidings.matching.covering import covers, overlaps, relation
from tidings.matching.numbers import after, before
from tidings.matching.reference import Scope, truth
from tidings.model.expression import (
    Attribute,
    Between,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Rlike,
    all_of,
    any_of,
    walk,
)
from tidings.model.filter import FilterValue
from tidings.model.values import Value

MIRROR = {Relation.COVERS: Relation.COVERED, Relation.COVERED: Relation.COVERS}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # equality
        ("a = 1", "a = 1", "equal"),
        ("a = 1", "a = 1.0", "equal"),
        ("a = 1", "a = 2", "disjoint"),
        ("a = 1", "a = '1'", "disjoint"),
        ("a = 1", "a = TRUE", "disjoint"),
        ("a = 1", "b = 1", "overlaps"),
        ("a = 1", "a = 1 and b = 2", "covers"),
        ("TRUE", "a = 1", "covers"),
        ("a in (1, 2)", "a = 1", "covers"),
        ("a in (1, 2)", "a in (2, 3)", "overlaps"),
        ("a in (1, 2)", "a = 1 or a = 2", "equal"),
        ("a in (1, 'x')", "a = 'x'", "covers"),
        # not equal
        ("a != 1", "a = 1", "disjoint"),
        ("a != 1", "a = 2", "covers"),
        ("a != 1", "a = 'x'", "disjoint"),
        ("a != 1", "a > 1", "covers"),
        ("a != 1", "a < 1 or a > 1", "equal"),
        ("a != 1", "a != 2", "overlaps"),
        ("a not in (1, 2)", "a != 1 and a != 2", "equal"),
        ("a != TRUE", "a = FALSE", "equal"),
        ("a is not null", "a != 1", "covers"),
        ("a != 1 or a = 1", "a is not null", "covered"),
        # ranges
        ("a > 3", "a > 5", "covers"),
        ("a >= 3", "a > 3", "covers"),
        ("a > 3", "a < 3", "disjoint"),
        ("a >= 3", "a <= 3", "overlaps"),
        ("a > 3", "a < 5", "overlaps"),
        ("a between 1 and 5", "a >= 1 and a <= 5", "equal"),
        ("a between 1 and 5", "a in (1, 2, 5)", "covers"),
        ("a between 1 and 3 or a between 2 and 5", "a between 1 and 5", "equal"),
        ("a between 1 and 2 or a between 3 and 5", "a between 1 and 5", "covered"),
        ("a > 3 and b > 3", "a > 4 and b > 4", "covers"),
        ("a > 3 and b > 5", "a > 5 and b > 3", "overlaps"),
        ("a > 3", "a > 3.0", "equal"),
        ("a > 9007199254740992", "a >= 9007199254740993", "equal"),
        ("a > 9007199254740992.0 and a < 9007199254740993", "FALSE", "equal"),
        ("not a > 3", "a <= 3", "equal"),
        ("a > 3 or a <= 3", "a is not null", "covered"),
        # strings in order
        ("a >= 'b'", "a like 'b%'", "covers"),
        ("a like 'b%'", "a >= 'b' and a < 'c'", "equal"),
        ("a < 'b'", "a like 'b%'", "disjoint"),
        # prefix
        ("a like 'ab%'", "a like 'abc%'", "covers"),
        ("a like 'ab%'", "a = 'abc'", "covers"),
        ("a like 'ab%'", "a like 'ac%'", "disjoint"),
        ("a like 'ab%'", "a = 'ab'", "covers"),
        # suffix
        ("a like '%yz'", "a like '%xyz'", "covers"),
        ("a like '%yz'", "a like '%xz'", "disjoint"),
        ("a like '%yz'", "a = 'xyz'", "covers"),
        ("a like '%yz'", "a like 'ab%'", "overlaps"),
        # contains
        ("a like '%b%'", "a like '%abc%'", "covers"),
        ("a like '%b%'", "a like 'b%'", "covers"),
        ("a like '%b%'", "a like '%b'", "covers"),
        ("a like '%b%'", "a like '%c%'", "overlaps"),
        ("a like '%b%'", "a = 'xyz'", "disjoint"),
        ("a like '%b%'", "a not like '%b%'", "disjoint"),
        ("a like '%a%' or a not like '%a%'", "a >= ''", "equal"),
        ("a like 'a%' and a like '%z'", "a like 'a%z'", "equal"),
        ("a like 'x_'", "a like 'x%'", "covered"),
        ("a like 'x_' and a like '_y'", "a = 'xy'", "equal"),
        ("a like '50\\%'", "a = '50%'", "equal"),
        # null tests
        ("a is null", "a is not null", "disjoint"),
        ("a is null or a is not null", "TRUE", "equal"),
        ("a is null", "a = 1", "disjoint"),
        ("not a is null", "a is not null", "equal"),
        ("a is null and b = 1", "b = 1", "covered"),
        # OR and NOT in all places
        ("a = 1 or b = 2", "a = 1", "covers"),
        ("(a = 1 or b = 2) and c = 3", "a = 1 and c = 3", "covers"),
        ("not (a = 1 and b = 2)", "a = 2 and b = 2", "covers"),
        ("not (a = 1 and b = 2)", "a != 1 or b != 2", "equal"),
        ("a = 1 and (b = 2 or b = 3)", "a = 1 and b = 2 or a = 1 and b = 3", "equal"),
        ("a > 0 and (b > 0 or b <= 0)", "a > 0 and b is null", "disjoint"),
        # constants, folded
        ("a > 2 + 3", "a > 5", "equal"),
        ("5 < a", "a > 5", "equal"),
        ("a = NULL", "FALSE", "equal"),
        ("1 = 1", "TRUE", "equal"),
        ("'x' like 'x%'", "TRUE", "equal"),
        ("a > 1 / 0", "FALSE", "equal"),
        # topics
        ("topic('/a/*')", "$subject = '/a/b'", "covers"),
        ("topic('/a/#')", "topic('/a/*')", "covers"),
        ("topic('/a/#')", "$subject = '/a'", "covers"),
        ("topic('/a/*')", "topic('/*/b')", "overlaps"),
        ("topic('/a/*')", "topic('/b/#')", "disjoint"),
        ("topic('/a/*')", "topic('/a/*/c')", "disjoint"),
        ("topic('#')", "$subject is not null", "equal"),
        # what cannot be taken apart: known to itself, careful with the rest
        ("a rlike 'x'", "a rlike 'x'", "equal"),
        ("a rlike 'x'", "a rlike 'x' and b = 1", "covers"),
        ("a rlike 'x'", "a rlike 'y'", "overlaps"),
        ("a rlike 'x'", "a not rlike 'x'", "disjoint"),
        ("a rlike 'x'", "a = 1", "disjoint"),
        ("a rlike 'x'", "a is null", "disjoint"),
        ("xpath('/a')", "xpath('/a')", "equal"),
        ("xpath('/a')", "not xpath('/a')", "disjoint"),
        ("a + b > 3", "a + b > 3", "equal"),
        ("a + b > 3", "a + b <= 3", "disjoint"),
        ("a + b > 3", "a is null", "disjoint"),
        ("a + b > 3", "a = 'x'", "disjoint"),
        ("a < b", "a < b and c = 1", "covers"),
        ("a < b", "not a < b", "disjoint"),
        ("a < b", "b > a", "equal"),
        ("a = b", "b != a", "disjoint"),
        ("a + 1 < b", "a + 2 < b", "overlaps"),
        ("a + b is null", "not a + b is null", "disjoint"),
    ],
)
def test_relations(one: str, other: str, expected: str) -> None:
    first, second = Filter.parse(one), Filter.parse(other)
    assert first.relation(second).value == expected
    assert second.relation(first) is MIRROR.get(Relation(expected), Relation(expected))
    assert first.covers(second) is (expected in ("equal", "covers"))
    # A filter that nothing matches is covered by all, and overlaps none.
    assert first.overlaps(second) is (expected != "disjoint" and not covers(Filter.parse("FALSE"), first))


def test_own_context_is_known_like_any_value() -> None:
    parse = ContextFilter.parse
    assert parse("x > 3").covers(parse("x > 5 and this.role = 'medic'"))
    assert parse("this.role in ('medic', 'police')").covers(parse("this.role = 'medic'"))
    assert not parse("this.role = 'medic'").overlaps(parse("this.role = 'police'"))
    near = parse("x between this.x - 20 and this.x + 20")
    assert near.covers(near)
    assert near.covers(parse("x between this.x - 20 and this.x + 20 and y = 1"))
    assert not near.covers(parse("x between this.x - 10 and this.x + 10"))  # true, but beyond what is decided


# Exactness: over few constants, the values where anything can change are few, and all of them can be tried.

NUMBERS: list[int | float] = [1, 2, 2.5, 2**53, 2**53 + 1]
TEXTS = ["", "a", "ab", "b"]
CONSTANTS: list[Value] = [*NUMBERS, *TEXTS, True, False]
LIKES = ["a%", "%b", "%a%", "_", "a_%", "%", "ab"]


@st.composite
def decidable(draw: st.DrawFn) -> Condition:
    def predicate() -> Condition:
        attribute = Attribute(draw(st.sampled_from(["a", "b"])))
        constant = st.sampled_from([Constant(one) for one in CONSTANTS])
        match draw(st.integers(0, 5)):
            case 0 | 1:
                operator: Any = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
                return Comparison(attribute, operator, draw(constant))
            case 2:
                return Between(attribute, draw(constant), draw(constant))
            case 3:
                return In(attribute, tuple(draw(st.lists(constant, min_size=1, max_size=3))))
            case 4:
                return Like(attribute, draw(st.sampled_from(LIKES)))
            case _:
                return IsNull(attribute)

    def literal() -> Condition:
        one = predicate()
        return Not(one) if draw(st.booleans()) else one

    alternatives = [all_of([literal() for _ in range(draw(st.integers(1, 3)))]) for _ in range(draw(st.integers(1, 2)))]
    whole = any_of(alternatives)
    return Not(whole) if draw(st.integers(0, 4)) == 0 else whole


CANDIDATES: list[Value | None] = [
    None,
    True,
    False,
    *dict.fromkeys(value for n in NUMBERS for value in (n, before(n), after(n)) if value is not None),
    *["".join(letters) for length in range(4) for letters in product("ab", repeat=length)],
    *["z", "az", "za", "abz", "zab", "\0", "a\0", "ab\0", "b\0", "\0a", "\0b", "\0ab", "\0ba", "\0aa", "\0bb"],
]


@st.composite
def decidable_pair(draw: st.DrawFn) -> tuple[Condition, Condition]:
    one = draw(decidable())
    if draw(st.integers(0, 3)) == 0:  # a near relative, so that covering is not rare
        return one, all_of([one, draw(decidable())])
    return one, draw(decidable())


@st.composite
def events_near(draw: st.DrawFn, one: Condition, other: Condition) -> dict[str, Value]:
    """Values that the two filters themselves name, and their neighbours: others hardly ever match anything."""
    nodes = [*walk(one), *walk(other)]
    names = sorted({node.name for node in nodes if isinstance(node, Attribute) and not node.name.startswith("$")})
    known: list[Value] = [True, False, 0, "a"]
    for node in nodes:
        if isinstance(node, Constant) and node.value is not None:
            known.append(node.value)
            if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                known.extend(n for n in (before(node.value), after(node.value)) if n is not None)
        elif isinstance(node, Like | Rlike):
            known.extend([node.pattern.replace("%", "").replace("_", "x"), node.pattern])
    return {name: draw(st.sampled_from(known)) for name in names if draw(st.integers(0, 5))}


@examples(60, 1_200)
@given(st.data())
def test_no_event_contradicts_them(data: st.DataObject) -> None:
    one, other = data.draw(st.one_of(st.tuples(conditions(), conditions()), decidable_pair()))
    events = data.draw(st.lists(events_near(one, other), min_size=4, max_size=8))
    f, g = FilterValue(one), FilterValue(other)
    f_covers_g, f_overlaps_g = covers(f, g), overlaps(f, g)
    for attributes in events:
        scope = Scope(attributes, subject="/a/b", payload=b"<a/>")
        in_f, in_g = truth(one, scope) is True, truth(other, scope) is True
        assert not (f_covers_g and in_g and not in_f), (str(f), str(g), attributes)
        assert f_overlaps_g or not (in_f and in_g), (str(f), str(g), attributes)


@examples(15, 1200)
@given(decidable_pair())
def test_covers_and_overlaps_are_exact_where_they_can_be(pair: tuple[Condition, Condition]) -> None:
    one, other = pair
    f, g = FilterValue(one), FilterValue(other)
    in_f = in_g = both = only_g = False
    for a, b in product(CANDIDATES, repeat=2):
        scope = Scope({name: value for name, value in (("a", a), ("b", b)) if value is not None})
        in_f, in_g = truth(one, scope) is True, truth(other, scope) is True
        both = both or (in_f and in_g)
        only_g = only_g or (in_g and not in_f)
        if both and only_g:
            break
    assert overlaps(f, g) == both, (str(f), str(g))
    assert covers(f, g) == (not only_g), (str(f), str(g))


class TestLaws:
    @examples(120, 3_000)
    @given(conditions())
    def test_everything_covers_itself(self, condition: Condition) -> None:
        one = FilterValue(condition)
        double = FilterValue(Not(Not(condition)))  # not the same text: decided, not just compared
        assert covers(one, double)
        assert covers(double, one)
        assert relation(one, one) is Relation.EQUAL

    @examples(70, 3_000)
    @given(conditions(), conditions())
    def test_parts_and_wholes(self, one: Condition, other: Condition) -> None:
        both, either = FilterValue(all_of([one, other])), FilterValue(any_of([one, other]))
        assert covers(FilterValue(one), both)
        assert covers(either, FilterValue(one))
        assert not overlaps(FilterValue(one), FilterValue(Not(one)))


def test_choices_that_share_nothing_do_not_hide_each_other() -> None:
    core = "(y != 1 and z != 1) or (y != 2 and z != 2) or (y != 3 and z != 3)"
    extra = " or ".join(f"(a{i} = 1 and b{i} = 1)" for i in range(20))
    wanted = Filter.parse("y > 0 and z > 0")
    assert Filter.parse(f"{core} or {extra}").covers(wanted)
    assert Filter.parse(f"{extra} or {core}").covers(wanted)


def test_a_pattern_among_many_is_still_seen() -> None:
    others = "".join(f" and s like '%{letter}%'" for letter in "ghijklmnpqs")
    assert Filter.parse("s like '%foo%'").covers(Filter.parse(f"s like '%foobar%'{others}"))


def test_work_is_bounded_and_the_answer_then_cautious() -> None:
    # A chessboard: to prove that it is covered, every corner would have to be looked at.
    colours = " and ".join(f"(a{i} = 1 or b{i} = 1 or c{i} = 1)" for i in range(40))
    apart = " and ".join(f"(a{i} = 2 or b{i} = 2 or c{i} = 2)" for i in range(40))
    hard = Filter.parse(f"{colours} and {apart} and (x = 1 or y = 1) and (x = 2 or y = 2)")
    pigeons = " and ".join(f"({' or '.join(f'p{i} = {j}' for j in range(7))})" for i in range(8))
    holes = " and ".join(f"(p{i} != {k} or p{j} != {k})" for i in range(8) for j in range(i) for k in range(7))
    impossible = Filter.parse(f"{pigeons} and {holes}")  # eight pigeons, seven holes
    assert hard.overlaps(hard)
    assert impossible.overlaps(impossible)  # it cannot be, but finding out would take too long
    assert not Filter.parse("FALSE").covers(impossible)

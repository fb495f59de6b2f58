"""Merging: perfect merging changes nothing but the number; imperfect merging adds no more than was allowed."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matching.test_covering import CANDIDATES, decidable
from tests.sizes import examples, variants
from tests.strategies import conditions, contents, values
from tidings import Filter, merge
from tidings.matching.formula import values_where, when_true
from tidings.matching.reference import Scope, truth
from tidings.matching.to_condition import condition_for
from tidings.model.expression import Attribute, Condition
from tidings.model.filter import FilterValue
from tidings.model.values import Value


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ([], []),
        (["a = 1"], ["a = 1"]),
        (["a = 1", "a = 1"], ["a = 1"]),
        (["a = 1 and b > 3", "a = 2 and b > 3", "a = 3 and b > 3"], ["a IN (1, 2, 3) AND b > 3"]),
        (["a < 5", "a >= 5 and a <= 9"], ["a <= 9"]),
        (["a between 1 and 3", "a between 2 and 5"], ["a BETWEEN 1 AND 5"]),
        (["a between 1 and 2", "a between 4 and 5"], ["a BETWEEN 1 AND 2 OR a BETWEEN 4 AND 5"]),
        (["a < 3", "a > 3"], ["a != 3"]),
        (["a < 3", "a > 5"], ["a < 3 OR a > 5"]),
        (["a = 'x' and b = 1", "a like 'x%' and b = 1"], ["a LIKE 'x%' AND b = 1"]),
        (["a like '%x'", "a like '%y'"], ["a LIKE '%x' OR a LIKE '%y'"]),
        (["a = TRUE", "a = FALSE"], ["a IN (TRUE, FALSE)"]),
        (["a is null", "a is not null"], ["TRUE"]),
        (["a = 1", "a = 1 and b = 2"], ["a = 1"]),
        (["a > 1 and b > 1", "a > 2 and b > 2"], ["a > 1 AND b > 1"]),
        (["a = 1 or b = 2", "b = 2"], ["a = 1 OR b = 2"]),
        (["a = 1 and b = 1", "a = 2 and b = 2"], ["a = 1 AND b = 1", "a = 2 AND b = 2"]),
        (
            ["a = 1 and b = 1", "a = 1 and b = 2", "a = 2 and b = 1", "a = 2 and b = 2"],
            ["b IN (1, 2) AND a IN (1, 2)"],
        ),
        (["a + b > 3 and c = 1", "a + b > 3 and c = 2"], ["c IN (1, 2) AND a + b > 3"]),
        (["a > 'm'", "a <= 'm'"], ["a >= ''"]),
        (["a != 'x'", "a = 'x'"], ["a >= ''"]),
        (["topic('/a/*') and b = 1", "topic('/a/*') and b = 2"], ["b IN (1, 2) AND topic('/a/*')"]),
        (["a = NULL", "a = 1"], ["a = 1"]),
    ],
)
def test_perfect_merging(given: list[str], merged: list[str]) -> None:
    assert [str(one) for one in merge(Filter.parse(text) for text in given)] == merged


@examples(66, 1_500)
@given(st.lists(conditions(), min_size=1, max_size=4), st.lists(contents, min_size=1, max_size=6))
def test_merging_changes_nothing_that_matches(given: list[Condition], events: list[dict[str, Value]]) -> None:
    merged = merge(FilterValue(one) for one in given)
    for attributes in events:
        scope = Scope(attributes, subject="/a/b", payload=b"<a/>")
        before = any(truth(one, scope) is True for one in given)
        assert any(truth(one.expression, scope) is True for one in merged) == before


@examples(29, 700)
@given(st.lists(decidable(), min_size=2, max_size=5))
def test_merging_changes_nothing_on_all_values_that_matter(given: list[Condition]) -> None:
    merged = merge(FilterValue(one) for one in given)
    assert len(merged) <= len(given)
    for a, b in product(CANDIDATES[::2], CANDIDATES[1::2]):
        scope = Scope({name: value for name, value in (("a", a), ("b", b)) if value is not None})
        before = any(truth(one, scope) is True for one in given)
        assert any(truth(one.expression, scope) is True for one in merged) == before


@examples(250, 5_000)
@given(decidable(), values)
def test_sets_are_said_exactly(condition: Condition, value: Value) -> None:
    """A set of values, put into words and read back, is the same set; those with patterns are never put into words."""
    named = {"a": Attribute("a"), "b": Attribute("a")}
    from tidings.language import parse_content

    one = parse_content(str(FilterValue(condition)).replace("b ", "a "))
    found = values_where(when_true(one))
    if found is not None and not found.has_patterns:
        said = condition_for(named["a"], found)
        assert values_where(when_true(said)) == found, str(FilterValue(said))
        assert (truth(said, Scope({"a": value})) is True) == (truth(one, Scope({"a": value})) is True)


def box(low_a: float, high_a: float, low_b: float, high_b: float) -> Filter:
    return Filter.parse(f"a between {low_a} and {high_a} and b between {low_b} and {high_b}")


@pytest.mark.parametrize(
    "texts",
    [
        [f"x = {i}" for i in range(3_000)],
        [f"x between {2 * i} and {2 * i + 0.5}" for i in range(1_100)],
        [f"s like '%a{i}%'" for i in range(150)],
        [f"s = '{'a' * 2_000}' and n > 1", f"s > '{'a' * 2_000}' and s < '{'a' * 1_999 + 'b'}' and n > 1"],
        [f"s = '{letter * 8_000}'" for letter in "abcdefghij"],
    ],
    ids=["points", "ranges", "patterns", "long prefix", "long strings"],
)
def test_what_is_merged_can_be_written_and_read(texts: list[str]) -> None:
    given = [Filter.parse(text) for text in texts]
    merged = merge(given)
    assert len(merged) <= len(given)
    for one in merged:
        assert Filter.parse(str(one)) == one
    assert all(any(one.covers(other) for one in merged) for other in given[:20])


class TestImperfectMerging:
    def test_boxes_that_nearly_touch_become_one(self) -> None:
        near = [box(0.0, 10.0, 0.0, 10.0), box(10.5, 20.0, 0.0, 10.0)]
        assert len(merge(near)) == 1  # they differ in one attribute: perfectly, with the gap kept out
        near = [box(0.0, 10.0, 0.0, 10.0), box(9.0, 20.0, 0.5, 10.0)]
        assert len(merge(near)) == 2
        assert [str(one) for one in merge(near, added=0.05)] == ["a BETWEEN 0 AND 20 AND b BETWEEN 0 AND 10"]

    def test_boxes_far_apart_stay_two(self) -> None:
        far = [box(0.0, 1.0, 0.0, 1.0), box(9.0, 10.0, 9.0, 10.0)]
        assert len(merge(far, added=0.5)) == 2

    def test_open_ends_merge_too(self) -> None:
        opened = [Filter.parse("a > 5 and b between 0 and 10"), Filter.parse("a > 5.1 and b between 1 and 11")]
        assert [str(one) for one in merge(opened, added=0.3)] == ["a > 5 AND b BETWEEN 0 AND 11"]

    @pytest.mark.parametrize("bound", variants(1, [0.2, 0.05, 0.5]))
    def test_the_bound_holds_by_measure(self, bound: float) -> None:
        random = Random(7)
        corners = [(random.uniform(0, 60), random.uniform(0, 60)) for _ in range(60)]
        boxes = [box(x, x + random.uniform(5, 40), y, y + random.uniform(5, 40)) for x, y in corners]
        merged = merge(boxes, added=bound)
        assert len(merged) < len(boxes)
        for one in merged:
            points = [{"a": random.uniform(0, 100), "b": random.uniform(0, 100)} for _ in range(3_000)]
            inside = [point for point in points if one.matches(point)]
            wanted = [point for point in inside if any(other.matches(point) for other in boxes)]
            assert len(inside) - len(wanted) <= (bound + 0.08) * len(inside)  # 0.08: the sample's own error
        for other in boxes:
            assert any(one.covers(other) for one in merged)

    def test_the_widest_numbers_do_not_overflow(self) -> None:
        wide = "x between -1.7e308 and 1.7e308 and y between 0 and 1"
        other = "x between -1.6e308 and 1.7e308 and y between 1000 and 1001"
        assert len(merge([Filter.parse(wide), Filter.parse(other)], added=0.01)) == 2

    def test_a_share_is_a_share(self) -> None:
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            merge([], added=1.0)

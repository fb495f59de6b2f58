"""A bound filter asks of others what the filter asked from within a context."""

import pytest
from hypothesis import example, given

from tests.sizes import examples
from tests.strategies import conditions, contents
from tidings import ContextFilter
from tidings.matching.reference import matches_context
from tidings.model import filter as values
from tidings.model.expression import Condition, OwnContextValue, walk
from tidings.model.values import Context
from tidings.routing.strategy import bound

contexts = contents.map(Context)
NEAR = ContextFilter.parse("distance(x, y, this.x, this.y) < this.reach + 1 AND NOT (role IN (this.role, 'admin'))")


@given(conditions(context=True), contexts, contexts)
@example(NEAR.expression, Context({"x": 0, "y": 0, "reach": 2}), Context({"x": 1, "y": 1, "role": "guest"}))
@example(NEAR.expression, Context({"x": 0, "y": 0, "reach": 2, "role": "nurse"}), Context({"x": 1, "y": 1, "role": ""}))
@examples(94, 3_000)
def test_a_bound_filter_needs_no_context_of_its_own(asked: Condition, this: Context, other: Context) -> None:
    wanted = values.ContextFilterValue(asked)
    assert matches_context(bound(wanted, this), other, {}) == matches_context(wanted, other, this)


@given(conditions(context=True), contexts)
@examples(79, 2_000)
def test_only_what_the_context_lacks_is_left_open(asked: Condition, this: Context) -> None:
    wanted = values.ContextFilterValue(asked)
    left = {node.name for node in walk(bound(wanted, this).expression) if isinstance(node, OwnContextValue)}
    assert left == wanted.own_names - this.keys()
    assert bound(wanted, this).names == wanted.names


@pytest.mark.parametrize(
    ("text", "this", "expected"),
    [
        ("speed < this.speed", {"speed": 3}, "speed < 3"),
        ("speed < this.speed", {"speed": 3.0}, "speed < 3.0"),
        ("speed < this.speed", {}, "speed < this.speed"),
        ("a BETWEEN -this.r AND this.r", {"r": -2}, "a BETWEEN -(-2) AND -2"),
        ("this.role = role OR this.on = on", {"role": "it's", "on": True}, "'it''s' = role OR TRUE = on"),
        ("this.x IS NULL AND this.y LIKE 'a%'", {"y": "ab"}, "this.x IS NULL AND 'ab' LIKE 'a%'"),
        ("this.name RLIKE '^a' AND NOT this.x + 1 = x", {"x": 1, "name": 2}, "2 RLIKE '^a' AND NOT 1 + 1 = x"),
    ],
)
def test_own_names_become_constants(text: str, this: dict[str, object], expected: str) -> None:
    assert bound(ContextFilter.parse(text), Context(this)) == ContextFilter.parse(expected)


def test_equal_numbers_of_another_kind_are_bound_apart() -> None:
    wanted = ContextFilter.parse("a < this.a")
    assert [str(bound(wanted, Context({"a": one}))) for one in (1, 1.0, True)] == ["a < 1", "a < 1.0", "a < TRUE"]


@pytest.mark.parametrize("this", [{}, {"speed": 1}])
def test_a_filter_with_nothing_to_bind_comes_back_as_it_is(this: dict[str, object]) -> None:
    wanted = ContextFilter.parse("speed > 3 AND role = this.role")
    assert bound(wanted, Context(this)) is wanted


@pytest.mark.parametrize("kind", [ContextFilter, values.ContextFilterValue])
def test_a_bound_filter_is_of_the_class_that_was_given(kind: type[values.ContextFilterValue]) -> None:
    assert type(bound(kind(NEAR.expression), Context({"x": 1}))) is kind

"""The specification's own examples: three-valued logic, exact numbers, arithmetic, contexts both ways, structure."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import conditions, contents
from tidings import AttributeFilter, Context, ContextFilter, Event, Filter, Schema, Subscription, uuid7
from tidings.language import parse_content, parse_context
from tidings.matching.reference import Scope, due, geo_distance, like, truth
from tidings.model.expression import And, Condition, IsNull, Not, Or
from tidings.model.patterns import Elements, Wildcard
from tidings.model.values import Value

BIG = 2**53


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        # missing values and kinds that do not compare
        ("a = 1", {}, None),
        ("a != 1", {}, None),
        ("a = '1'", {"a": 1}, None),
        ("a != '1'", {"a": 1}, None),
        ("a < '1'", {"a": 1}, None),
        ("a = TRUE", {"a": 1}, None),
        ("a = 1", {"a": True}, None),
        ("a = b", {"a": 1}, None),
        ("a = NULL", {"a": 1}, None),
        ("NULL = NULL", {}, None),
        ("NULL", {}, None),
        # booleans are equal or not, and have no order
        ("a = TRUE", {"a": True}, True),
        ("a != TRUE", {"a": False}, True),
        ("a > FALSE", {"a": True}, None),
        ("a BETWEEN FALSE AND TRUE", {"a": True}, None),
        ("a", {"a": True}, True),
        ("a", {"a": False}, False),
        ("a", {"a": 1}, None),
        ("not a", {}, None),
        # numbers are exact across int and float
        ("a = 1.0", {"a": 1}, True),
        ("a = 9007199254740992.0", {"a": BIG + 1}, False),
        ("a > 9007199254740992.0", {"a": BIG + 1}, True),
        ("a = 9007199254740993", {"a": float(BIG)}, False),
        ("a < 9223372036854775807", {"a": float(2**63)}, False),
        ("a = 0", {"a": -0.0}, True),
        ("a > 0.1 and a < 0.3", {"a": 0.2}, True),
        # strings by code point
        ("a > 'Z'", {"a": "a"}, True),
        ("a > '\uffff'", {"a": "\U0001f600"}, True),
        ("a < 'b'", {"a": "B"}, True),
        ("a = 'x'", {"a": "x "}, False),
        # the logic of unknowns
        ("a = 1 and b = 1", {"b": 2}, False),
        ("a = 1 and b = 1", {"b": 1}, None),
        ("a = 1 or b = 1", {"b": 1}, True),
        ("a = 1 or b = 1", {"b": 2}, None),
        ("not a = 1", {}, None),
        ("a between 1 and b", {"a": 0}, False),
        ("a between 1 and b", {"a": 2}, None),
        ("a not between 1 and 3", {"a": 5}, True),
        ("a between 3 and 1", {"a": 2}, False),
        ("a in (1, b)", {"a": 1}, True),
        ("a in (1, b)", {"a": 2}, None),
        ("a in (1, 'x')", {"a": 2}, None),
        ("a not in (1, 'x')", {"a": 2}, None),
        ("a in (1, 'x')", {"a": "x"}, True),
        ("a not in (1, 2)", {"a": 3}, True),
        ("a is null", {}, True),
        ("a is not null", {}, False),
        ("a is not null", {"a": False}, True),
        ("a + 1 is null", {"a": "x"}, True),
        # patterns
        ("a like 'x%'", {"a": "xyz"}, True),
        ("a like '_'", {"a": "\U0001f600"}, True),
        ("a like '_'", {"a": ""}, False),
        ("a like '%'", {"a": ""}, True),
        ("a like '%%'", {"a": "x\ny"}, True),
        ("a like '50\\%'", {"a": "50%"}, True),
        ("a like '50\\%'", {"a": "50x"}, False),
        ("a like '\\\\'", {"a": "\\"}, True),
        ("a like 'A'", {"a": "a"}, False),
        ("a like '%a%b%'", {"a": "xxaxxbxx"}, True),
        ("a like '%ab'", {"a": "aab"}, True),
        ("a like 'x'", {"a": 5}, None),
        ("a not like 'x'", {"a": 5}, None),
        ("a rlike 'b+'", {"a": "abbc"}, True),
        ("a rlike '^b'", {"a": "ab"}, False),
        ("a rlike 'x'", {}, None),
        ("a rlike '.'", {"a": "\U0001f600"}, True),
        # arithmetic
        ("a + 1 = 3", {"a": 2}, True),
        ("a / 2 = 3.5", {"a": 7}, True),
        ("a / 0 = 1", {"a": 1}, None),
        ("a % 0 = 1", {"a": 1}, None),
        ("a / 0.0 = 1", {"a": 1}, None),
        ("a % 3 = -1", {"a": -7}, True),
        ("a % -3 = 1", {"a": 7}, True),
        ("a % 2.5 = -1.5", {"a": -6.5}, True),
        ("a + 1 > 0", {"a": 2**63 - 1}, None),
        ("a - 1 < 0", {"a": -(2**63)}, None),
        ("a * 2 > 0", {"a": 2**62}, None),
        ("-a > 0", {"a": -(2**63)}, None),
        ("-a = -2.5", {"a": 2.5}, True),
        ("a * 2 > 0", {"a": 1e308}, None),
        ("a + 'x' = 3", {"a": 1}, None),
        ("a + TRUE = 2", {"a": 1}, None),
        ("a + 0.5 = 1.5", {"a": 1}, True),
        ("a + 0.0 = 9007199254740992", {"a": BIG + 1}, True),  # int meets float: in double
        ("TRUE", {}, True),
        ("FALSE", {"a": 1}, False),
        ("", {}, True),
    ],
)
def test_truth(text: str, attributes: dict[str, Value], expected: bool | None) -> None:
    assert truth(parse_content(text), Scope(attributes)) is expected


def test_a_filter_matches_only_where_it_is_true() -> None:
    assert Filter.parse("a = 1").matches({"a": 1})
    assert not Filter.parse("a = 1").matches({})
    assert not Filter.parse("not a = 1").matches({})
    assert not Filter.parse("a = 1 or not a = 1").matches({"a": None})


def test_strict_matching_wants_exactly_the_filters_attributes() -> None:
    report = Filter.parse("class = 'report' and d1 > 10 and $publisher is null")
    assert report.strictly_matches({"class": "report", "d1": 11})
    assert not report.strictly_matches({"class": "report", "d1": 11, "d2": 1})
    assert not report.strictly_matches({"class": "report", "d1": 9})
    assert not Filter.parse("a = 1 or b = 2").strictly_matches({"a": 1})
    assert Filter.parse("").strictly_matches({})
    assert not Filter.parse("").strictly_matches({"a": 1})


def as_regex(elements: Elements) -> str:
    wild = {Wildcard.ANY: ".", Wildcard.RUN: ".*", Wildcard.LEVEL: "[^/]*"}
    return "".join(wild[one] if isinstance(one, Wildcard) else re.escape(one) for one in elements)


@examples(400, 20_000)
@given(st.lists(st.sampled_from(["a", "b", "/", *Wildcard]), max_size=7).map(tuple), st.text("ab/", max_size=9))
def test_patterns_mean_what_a_regular_expression_would(elements: Elements, text: str) -> None:
    assert like(text, elements) == bool(re.fullmatch(as_regex(elements), text, re.DOTALL))


@examples(67, 2_500)
@given(conditions(), conditions(), contents)
def test_de_morgan_and_the_laws_of_null(one: Condition, other: Condition, attributes: dict[str, Value]) -> None:
    scope = Scope(attributes)

    def same(left: Condition, right: Condition) -> bool:
        return truth(left, scope) is truth(right, scope)

    assert same(Not(And((one, other))), Or((Not(one), Not(other))))
    assert same(Not(Or((one, other))), And((Not(one), Not(other))))
    assert same(Not(Not(one)), one)
    assert same(And((one, other)), And((other, one)))
    assert same(And((one, Or((one, other)))), one)
    first = truth(one, scope)
    excluded_middle = truth(Or((one, Not(one))), scope)
    assert excluded_middle is (None if first is None else True)
    assert truth(And((one, Not(one))), scope) is (None if first is None else False)


@examples(150, 3_000)
@given(conditions(), contents)
def test_null_tests_are_never_unknown(condition: Condition, attributes: dict[str, Value]) -> None:
    from tidings.model.expression import walk

    for node in walk(condition):
        if isinstance(node, IsNull):
            assert truth(node, Scope(attributes)) is not None


class TestContexts:
    def test_the_subscribers_box_moves_with_it(self) -> None:
        near = ContextFilter.parse("x between this.x - 20 and this.x + 20")
        assert near.matches({"x": 5.0}, this={"x": 10.0})
        assert not near.matches({"x": 5.0}, this={"x": 30.0})
        assert not near.matches({"x": 5.0}, this={})
        assert not near.matches({}, this={"x": 10.0})

    @pytest.mark.parametrize(
        ("text", "other", "own", "expected"),
        [
            ("distance(x, y, this.x, this.y) <= 5", {"x": 3, "y": 4}, {"x": 0, "y": 0}, True),
            ("distance(x, y, this.x, this.y) < 5", {"x": 3, "y": 4}, {"x": 0, "y": 0}, False),
            ("distance(x, y, this.x, this.y) < 5", {"x": 3}, {"x": 0, "y": 0}, None),
            ("distance(x, 0, 0, 0) < 5", {"x": "3"}, {}, None),
            ("distance(x, 0, -1e308, 0) > 5", {"x": 1e308}, {}, None),
            ("geo_distance(lat, lon, this.lat, this.lon) < 1000", {"lat": 48.137, "lon": 11.575},
             {"lat": 48.14, "lon": 11.58}, True),
            ("geo_distance(lat, 0, 0, 0) > 0", {"lat": 91}, {}, None),
            ("geo_distance(0, 179.9, 0, lon) < 30000", {"lon": -179.9}, {}, True),
            ("role = this.role", {"role": "medic"}, {"role": "medic"}, True),
            ("this.battery > 0.2", {}, {"battery": 0.1}, False),
        ],
    )  # fmt: skip
    def test_functions_and_own_values(
        self, text: str, other: dict[str, Value], own: dict[str, Value], expected: bool | None
    ) -> None:
        assert truth(parse_context(text), Scope(other, own)) is expected

    def test_a_quarter_of_the_sphere(self) -> None:
        assert geo_distance(0, 0, 90, 0) == pytest.approx(10_007_557, rel=1e-6)
        assert geo_distance(0, 0, 0, 180) == pytest.approx(20_015_115, rel=1e-6)
        assert geo_distance(52.5, 13.4, 52.5, 13.4) == 0


LOOP = Schema("Loop", {"li": int, "ts": int, "lo": str})


def event(**given: Any) -> Event:
    chosen = {"attributes": {"msg": "accident"}, "context": {"x": 12.0}, **given}
    return Event.of(chosen.pop("attributes"), id=uuid7(0, bytes(10)), publisher="cam-1", timestamp=0, **chosen)


class TestDue:
    """Subject, structure, content, and both contexts: each alone can stop a notification."""

    near = ContextFilter.parse("x between this.x - 20 and this.x + 20")
    cars = Subscription(id="s", subscriber="car-1", content=Filter.parse("msg = 'accident'"), publishers=near)
    here = Context.of({"x": 10.0, "role": "car"})

    def test_when_everything_agrees(self) -> None:
        assert due(self.cars, event(), self.here)
        assert due(self.cars, event(subscribers=ContextFilter.parse("role = 'car' and x < this.x")), self.here)

    def test_content_stops(self) -> None:
        assert not due(self.cars, event(attributes={"msg": "jam"}), self.here)

    def test_the_publishers_context_stops(self) -> None:
        assert not due(self.cars, event(context={"x": 100.0}), self.here)
        assert not due(self.cars, event(context={}), self.here)

    def test_the_subscribers_context_stops(self) -> None:
        assert not due(self.cars, event(subscribers=ContextFilter.parse("role = 'medic'")), self.here)
        assert not due(self.cars, event(), Context.of({"x": 50.0}))

    def test_subject_and_structure_stop(self) -> None:
        both = Subscription(id="s", subscriber="c", subject="Loop", structure=AttributeFilter(LOOP, {"li"}, {"lo"}))
        assert due(both, event(subject="Loop", attributes={"li": 1, "ts": 2}), Context())
        assert not due(both, event(subject="Other", attributes={"li": 1}), Context())
        assert not due(both, event(attributes={"li": 1}), Context())
        assert not due(both, event(subject="Loop", attributes={"ts": 2}), Context())
        assert not due(both, event(subject="Loop", attributes={"li": 1, "lo": "x"}), Context())

    def test_system_names_look_at_the_event_itself(self) -> None:
        mine = Subscription(
            id="s", subscriber="c", content=Filter.parse("$publisher like 'cam%' and $payload rlike 'x'")
        )
        assert due(mine, event(payload=b"axb"), Context())
        assert not due(mine, event(), Context())

"""How far context filters reach: never less than the reference says."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import conditions, floats, integers
from tidings import ContextFilter
from tidings.matching.index.kernels.grid import ROUNDING
from tidings.matching.index.spatial.groups import DistanceBound, distance_bound_of
from tidings.matching.reference import geo_distance, is_number, matches_context
from tidings.model.expression import (
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    Constant,
    FunctionName,
    Negative,
    OwnContextValue,
    ValueExpression,
    all_of,
)
from tidings.model.filter import ContextFilterValue
from tidings.model.values import Value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x between this.x - 20 and this.x + 20", DistanceBound(("x",), False, 20.0)),
        ("x between this.x - 2 * 10 and 20 + this.x", DistanceBound(("x",), False, 20.0)),
        ("this.x between x - 5 and x + 7", DistanceBound(("x",), False, 7.0)),
        ("x >= this.x - 3 and this.x > x - 4.5", DistanceBound(("x",), False, 4.5)),
        ("x - this.x <= 5 and this.x - x <= 3", DistanceBound(("x",), False, 5.0)),
        ("x - this.x between -5 and 3", DistanceBound(("x",), False, 5.0)),
        ("-5 <= x - this.x and 6 >= x - this.x", DistanceBound(("x",), False, 6.0)),
        ("-x between -this.x - 1 and -this.x + 1", DistanceBound(("x",), False, 1.0)),
        ("x = this.x + 4", DistanceBound(("x",), False, 4.0)),
        ("x >= this.x and x <= this.x + 5", DistanceBound(("x",), False, 5.0)),
        (
            "y between this.y - 1 and this.y + 1 and x between this.x - 2 and this.x + 2",
            DistanceBound(("x", "y"), False, 2.0),
        ),
        (
            "a > this.a and x - this.x between 0 and 1 and y - this.y between 0 and 1 and h - this.h between 0 and 9",
            DistanceBound(("x", "y"), False, 1.0),
        ),
        ("distance(x, y, this.x, this.y) <= 20 and role = 'medic'", DistanceBound(("x", "y"), False, 20.0)),
        ("20 > distance(this.x, this.y, x, y)", DistanceBound(("x", "y"), False, 20.0)),
        ("distance(x, y, this.x, this.y) between 1 and 2", DistanceBound(("x", "y"), False, 2.0)),
        ("distance(x, y, this.x + 3, this.y) < 2", DistanceBound(("x", "y"), False, 5.0)),
        ("distance(x, 0, this.x, 0) < 2", DistanceBound(("x",), False, 2.0)),
        (
            "geo_distance(lat, lon, this.lat, this.lon) < 20000 and role = 'medic'",
            DistanceBound(("lat", "lon"), True, 20000.0),
        ),
        ("1000 >= geo_distance(this.b, this.a, b, a)", DistanceBound(("b", "a"), True, 1000.0)),
        ("geo_distance(lat, lon, this.lat, this.lon) <= -1", DistanceBound(("lat", "lon"), True, -1.0)),
    ],
)
def test_reaches(text: str, expected: DistanceBound) -> None:
    assert distance_bound_of(ContextFilter.parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x <= this.x + 5",
        "x between this.y - 1 and this.y + 1",
        "x between 1 and 2",
        "x between this.x - this.r and this.x + this.r",
        "x between this.x - 1 and this.x + 1 or role = 'medic'",
        "not x between this.x - 1 and this.x + 1",
        "x != this.x + 1",
        "x between this.x and this.x",  # true of equal strings, too
        "x = this.x",
        "x + x between this.x + x - 1 and this.x + x + 1",
        "2 * x between this.x - 1 and this.x + 1",
        "distance(x, y, this.y, this.x) < 3",
        "distance(x, y, this.x, this.y) > 3",
        "distance(x, y, this.x, this.y) < this.r",
        "geo_distance(lat, lon, this.lat, 0) < 3",
        "geo_distance(lat, lon, this.lat, this.lon) < 'a'",
        "x between this.x " + "+ 1 " * 20 + "and this.x + 30",  # more rounding than a grid allows for
    ],
)
def test_what_has_no_reach(text: str) -> None:
    assert distance_bound_of(ContextFilter.parse(text)) is None


def test_large_constants_leave_their_rounding_behind() -> None:
    reach = distance_bound_of(ContextFilter.parse("x + 1e300 - 1e300 between this.x - 5 and this.x + 5"))
    assert reach is not None
    assert reach.radius > 1e280
    reach = distance_bound_of(ContextFilter.parse("x between this.x - 9007199254740993 and this.x + 9007199254740993"))
    assert reach is not None
    assert reach.radius >= 2**53 + 1


numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.1, 0.5, 1e16, 2**53 + 1]), integers, floats)
leaves: st.SearchStrategy[ValueExpression] = st.one_of(
    st.sampled_from("xy").map(Attribute), st.sampled_from("xy").map(OwnContextValue), numbers.map(Constant)
)


@st.composite
def sums(draw: st.DrawFn) -> ValueExpression:
    """Mostly a name and a constant, since that is where reaches come from."""
    made: ValueExpression = draw(leaves)
    for _ in range(draw(st.integers(0, 2))):
        made = (
            Negative(made)
            if draw(st.integers(0, 5)) == 0
            else Arithmetic(made, draw(st.sampled_from("+-")), draw(leaves))
        )
    return made


@st.composite
def parts(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from("xy"))
    ways: list[tuple[ValueExpression, ValueExpression]] = [
        (Attribute(name), OwnContextValue(name)),
        (OwnContextValue(name), Attribute(name)),
    ]
    here, there = draw(st.sampled_from(ways))
    low, high = Constant(draw(numbers)), Constant(draw(numbers))
    match draw(st.integers(0, 6)):
        case 6:
            return Between(here, there, there)
        case 0 | 1:
            return Between(here, Arithmetic(there, "-", low), Arithmetic(there, "+", high))
        case 2:
            return Between(Arithmetic(here, "-", there), low, high)
        case 3:
            return Comparison(draw(sums()), draw(st.sampled_from(["<", "<=", "=", ">", ">="])), draw(sums()))
        case 4:
            function: FunctionName = draw(st.sampled_from(["distance", "geo_distance"]))
            points = [Attribute("x"), Attribute("y")], [OwnContextValue("x"), OwnContextValue("y")]
            first, second = points if draw(st.booleans()) else reversed(points)
            return Comparison(Call(function, (*first, *second)), draw(st.sampled_from(["<", "<="])), high)
        case _:
            return draw(conditions(context=True))


def is_within(reach: DistanceBound, other: dict[str, Value], own: dict[str, Value]) -> bool:
    pairs = [(other[name], own[name]) for name in reach.names]
    assert all(is_number(one) and is_number(two) for one, two in pairs)
    if reach.geo:
        metres = geo_distance(pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1])
        return metres is not None and metres <= reach.radius
    largest = max(abs(float(one)) for one, _ in pairs)
    leeway = ROUNDING * (largest + reach.radius) + 1e-150
    return all(abs(float(one) - float(two)) <= reach.radius + leeway for one, two in pairs)


@examples(130, 4_000)
@given(st.data())
def test_where_a_filter_is_true_the_other_is_within_reach(data: st.DataObject) -> None:
    condition = all_of(data.draw(st.lists(parts(), min_size=1, max_size=2)))
    wanted = ContextFilterValue(condition)
    reach = distance_bound_of(wanted)
    assume(reach is not None)
    assert reach is not None
    assert list(reach.names) == sorted(reach.names) or reach.geo
    own: dict[str, Value] = {}
    other: dict[str, Value] = {}
    for name in "xy":
        if data.draw(st.integers(0, 5)) == 0:
            own[name] = other[name] = "a"
            continue
        own[name] = base = data.draw(numbers)
        # At the edges: the own value shifted by as much as the filter allows, by a little less or a little more.
        there = float(base) + data.draw(st.sampled_from([1, 1.05, 0.95, 0])) * reach.radius * data.draw(
            st.sampled_from([1, -1])
        )
        choices = [there, math.nextafter(there, math.inf), math.nextafter(there, -math.inf), base]
        other[name] = data.draw(st.sampled_from([one for one in choices if math.isfinite(one)]))
    if matches_context(wanted, other, own):
        assert is_within(reach, other, own)

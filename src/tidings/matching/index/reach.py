"""How far a context filter can reach: what it says of the distance between the other party and oneself."""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tidings.matching.formula import folded
from tidings.matching.reference import is_number
from tidings.model.expression import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    Negative,
    Own,
    ValueExpression,
)
from tidings.model.filter import ContextFilter
from tidings.model.limits import MAX_CACHED_PATTERNS

_MANY = 16  # operations in a comparison, with whose rounding grids do not reckon any more
_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Reach(NamedTuple):
    """Where the filter is true, each of the names differs by at most `radius` from one's own value of that name.

    With `geo` the names are a latitude and a longitude, and the radius is in metres along the sphere. All of the
    values are numbers on both sides then. What rounding can do to the filter's own arithmetic comes on top, in
    proportion to the values and the radius: `cells.ROUNDING`.
    """

    names: tuple[str, ...]
    geo: bool
    radius: float


@lru_cache(MAX_CACHED_PATTERNS)
def reach_of(filter: ContextFilter) -> Reach | None:  # noqa: A002 - the model's own word
    """The reach that the filter's parts give it together; None where nothing in it bounds one."""
    comparisons = list(_comparisons(filter.expression))
    return _on_the_sphere(comparisons) or _in_the_plane(comparisons)


class _Difference(NamedTuple):
    """`sign * (other.name - own.name) + rest`. The weight is what the constants add up to, whatever their signs."""

    name: str
    sign: int
    rest: Fraction
    weight: Fraction
    numeric: bool  # it has a value only if both are numbers


class _Bounds:
    """What is known of `other.name - own.name`."""

    def __init__(self) -> None:
        self.low: Fraction | None = None
        self.high: Fraction | None = None
        self.weight = Fraction(0)
        self.numeric = False

    def add(self, difference: _Difference, operator: ComparisonOperator) -> None:
        """The difference compares so with 0."""
        limit = -difference.rest * difference.sign
        if difference.sign < 0:
            operator = _MIRRORED[operator]
        if operator in ("<", "<=", "="):
            self.high = limit if self.high is None else min(self.high, limit)
        if operator in (">", ">=", "="):
            self.low = limit if self.low is None else max(self.low, limit)
        self.weight = max(self.weight, difference.weight)
        self.numeric = self.numeric or difference.numeric

    @property
    def radius(self) -> Fraction | None:
        # Strings have an order too: without arithmetic or a constant somewhere the values need not be numbers.
        if self.low is None or self.high is None or not self.numeric:
            return None
        radius = max(abs(self.low), abs(self.high))
        # Large constants that cancel each other out leave their rounding behind.
        return radius if self.weight <= 8 * radius else radius + self.weight / 2**44


def _in_the_plane(comparisons: list[Comparison]) -> Reach | None:
    bounds: dict[str, _Bounds] = {}
    for one in comparisons:
        for difference, operator in _differences(one):
            bounds.setdefault(difference.name, _Bounds()).add(difference, operator)
    # The first two as written, since people name x and y before what else they ask for.
    found = [(name, radius) for name, known in bounds.items() if (radius := known.radius) is not None][:2]
    if not found:
        return None
    return Reach(tuple(sorted(name for name, _ in found)), False, _rounded_up(max(radius for _, radius in found)))


def _on_the_sphere(comparisons: list[Comparison]) -> Reach | None:
    found: dict[tuple[str, ...], Fraction] = {}
    for one in comparisons:
        asked = _call_within(one, "geo_distance")
        if asked is None:
            continue
        (lat1, lon1, lat2, lon2), radius = asked
        names = tuple(name for pair in ((lat1, lat2), (lon1, lon2)) if (name := _same_name(*pair)) is not None)
        if len(names) == 2:
            found[names] = min(radius, found.get(names, radius))
    for names, radius in found.items():
        return Reach(names, True, _rounded_up(radius))
    return None


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    """What all must be true for the condition to be."""
    match condition:
        case And(parts):
            for part in parts:
                yield from _comparisons(part)
        case Between(middle, low, high):
            yield Comparison(middle, ">=", low)
            yield Comparison(middle, "<=", high)
        case Comparison(_, operator) if operator != "!=":
            yield condition


def _differences(one: Comparison) -> Iterator[tuple[_Difference, ComparisonOperator]]:
    """What a comparison says of differences, as comparisons with 0."""
    asked = _call_within(one, "distance")
    if asked is None:
        numeric = not (isinstance(one.left, Attribute | Own) and isinstance(one.right, Attribute | Own))
        difference = _difference(one.left, one.right, numeric)
        if difference is not None:
            yield difference, one.operator
        return
    (x1, y1, x2, y2), radius = asked
    for here, there in ((x1, x2), (y1, y2)):
        difference = _difference(here, there, True)
        if difference is not None:
            weight = difference.weight + abs(radius)
            yield difference._replace(rest=difference.rest - radius, weight=weight), "<="
            yield difference._replace(rest=difference.rest + radius, weight=weight), ">="


def _call_within(one: Comparison, function: str) -> tuple[tuple[ValueExpression, ...], Fraction] | None:
    """The arguments of a call that the comparison bounds from above, and the bound."""
    for call, operator, bound in ((one.left, one.operator, one.right), (one.right, _MIRRORED[one.operator], one.left)):
        if isinstance(call, Call) and call.function == function and operator in ("<", "<=", "="):
            radius = _number(bound)
            return None if radius is None else (call.arguments, radius)
    return None


def _same_name(one: ValueExpression, two: ValueExpression) -> str | None:
    match one, two:
        case (Attribute(name), Own(own)) | (Own(own), Attribute(name)) if name == own and not name.startswith("$"):
            return name
    return None


def _difference(left: ValueExpression, right: ValueExpression, numeric: bool) -> _Difference | None:
    """`left - right`, if it comes to a difference of two values of the same name and a constant."""
    found: list[tuple[ValueExpression, int]] = []
    if not _terms(left, 1, found) or not _terms(right, -1, found) or len(found) > _MANY:
        return None
    names = [(one, sign) for one, sign in found if isinstance(one, Attribute | Own)]
    numbers = [sign * number for one, sign in found if (number := _number(one)) is not None]
    # Each once: what is added and taken off again would leave its rounding behind.
    if len(names) != 2 or len(names) + len(numbers) != len(found) or names[0][1] == names[1][1]:
        return None
    name = _same_name(names[0][0], names[1][0])
    if name is None:
        return None
    sign = names[0][1] if isinstance(names[0][0], Attribute) else names[1][1]
    return _Difference(name, sign, sum(numbers, Fraction(0)), sum(map(abs, numbers), Fraction(0)), numeric)


def _terms(node: ValueExpression, sign: int, found: list[tuple[ValueExpression, int]]) -> bool:
    """The summands with their signs; whether the value is a sum, and one of not too many."""
    match folded(node):
        case Arithmetic(left, ("+" | "-") as operator, right) if len(found) <= _MANY:
            return _terms(left, sign, found) and _terms(right, sign if operator == "+" else -sign, found)
        case Negative(operand) if len(found) <= _MANY:
            return _terms(operand, -sign, found)
        case Attribute() | Own() | Constant() as leaf:
            found.append((leaf, sign))
            return True
    return False


def _number(node: ValueExpression) -> Fraction | None:
    known = folded(node)
    return Fraction(known.value) if isinstance(known, Constant) and is_number(known.value) else None


def _rounded_up(radius: Fraction) -> float:
    try:
        nearest = float(radius)
    except OverflowError:
        return math.copysign(math.inf, radius)
    return nearest if nearest >= radius else math.nextafter(nearest, math.inf)

"""The spatial groups of an index: which exist, and which subscription belongs to which.

A subscription belongs to a group if its `publishers` filter bounds the difference between the publisher's and the
subscriber's own value of one or two names, as `distance(x, y, this.x, this.y) < 10` does. `distance_bound_of` derives
that bound from the filter; all subscriptions with bounds on the same names share a group.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tidings.matching.formula import folded
from tidings.matching.index.bulk_load import Predicate
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.spatial.group import SpatialGroup
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
    OwnContextValue,
    ValueExpression,
)
from tidings.model.filter import ContextFilterValue
from tidings.model.limits import MAX_CACHED_PATTERNS, MAX_SPATIAL_GROUPS


class GroupedSubscriptions(Protocol):
    """The client and the spatial group at each position. `PositionTable` says what each of these is."""

    clients: npt.NDArray[np.int32]
    spatial_groups: npt.NDArray[np.int32]


class ClientPlaces(Protocol):
    """Where clients are. `Contexts` says what each of these does."""

    def place(self, row: int, names: tuple[str, ...]) -> tuple[float, ...] | None: ...
    def places(self, rows: npt.NDArray[np.int64], names: tuple[str, ...]) -> npt.NDArray[np.float64]: ...


class SpatialGroups:
    """The spatial groups by number; the number 0 means no group.

    Callers that change something hold the index's lock; `values` may be called without it.
    """

    def __init__(self, subscriptions: GroupedSubscriptions, contexts: ClientPlaces) -> None:
        self._subscriptions = subscriptions
        self._contexts = contexts
        self._groups: dict[int, SpatialGroup] = {}  # replaced as a whole, so that `values` needs no lock
        self._subscriptions_by_client: Counter[int] = (
            Counter()
        )  # how many subscriptions in groups each client's row has

    def __len__(self) -> int:
        return len(self._groups)

    def values(self) -> Iterable[SpatialGroup]:
        """Return all groups."""
        return self._groups.values()

    def find(self, publishers: ContextFilterValue | None, program: int) -> tuple[int, float]:
        """Return the number of the group for subscriptions with this filter, and its radius; 0 if it belongs to none.

        A group that is missing is created, up to MAX_SPATIAL_GROUPS.
        """
        bound = None if publishers is None or program < 0 else distance_bound_of(publishers)
        if bound is None:
            return 0, 0.0
        for number, group in self._groups.items():
            if (group.names, group.geo) == (bound.names, bound.geo):
                return number, bound.radius
        if len(self._groups) == MAX_SPATIAL_GROUPS:
            return 0, 0.0
        number = 1 + max(self._groups, default=0)
        self._groups = {**self._groups, number: SpatialGroup(bound.names, bound.geo)}
        return number, bound.radius

    def assign(self, position: int, number: int) -> None:
        """Assign a subscription to a group; `put` or `put_many` must follow."""
        self._subscriptions.spatial_groups[position] = number
        self._subscriptions_by_client[int(self._subscriptions.clients[position])] += 1

    def put(self, position: int, conjuncts: list[tuple[int, list[Predicate]]], attributes: int, radius: float) -> None:
        """Add the content of a subscription, which has been assigned, to its group.

        Args:
            position: The subscription's position.
            conjuncts: For each of its conjuncts the flags and the predicates.
            attributes: How many attributes the index knows.
            radius: The radius that `find` returned.
        """
        client, group = (
            int(self._subscriptions.clients[position]),
            self._groups[int(self._subscriptions.spatial_groups[position])],
        )
        group.put(position, conjuncts, attributes, client, radius, self._contexts.place(client, group.names))

    def put_many(
        self, positions: npt.NDArray[np.int32], conjuncts: Conjuncts, attributes: int, radii: dict[int, float]
    ) -> None:
        """Add the content of all those of many subscriptions that have been assigned to groups.

        Args:
            positions: The positions of the subscriptions.
            conjuncts: The conjuncts of all of them.
            attributes: How many attributes the index knows.
            radii: The radius of each position that is assigned to a group.
        """
        subscriptions = self._subscriptions
        group_of_position, group_of_conjunct = (
            subscriptions.spatial_groups[positions],
            subscriptions.spatial_groups[conjuncts.owner >> 2],
        )
        for number in np.unique(group_of_position[group_of_position > 0]).tolist():
            group = self._groups[number]
            group.put_many(conjuncts.select(group_of_conjunct == number), attributes)
            for position in positions[group_of_position == number].tolist():
                client = int(subscriptions.clients[position])
                group.place(position, client, radii[position], self._contexts.place(client, group.names))

    def remove(self, position: int) -> None:
        """Remove a subscription from its group, and the group if it is empty then."""
        number, client = int(self._subscriptions.spatial_groups[position]), int(self._subscriptions.clients[position])
        self._groups[number].remove(position)
        if not len(self._groups[number]):
            self._groups = {other: group for other, group in self._groups.items() if other != number}
        self._subscriptions_by_client[client] -= 1
        if not self._subscriptions_by_client[client]:
            del self._subscriptions_by_client[client]

    def update_place(self, row: int) -> None:
        """Update the place of a client in all groups after a change of its context."""
        if row in self._subscriptions_by_client:
            for group in self._groups.values():
                group.move(row, self._contexts.place(row, group.names))

    def update_places(self, rows: npt.NDArray[np.int64]) -> None:
        """Update the places of many clients in all groups after changes of their contexts."""
        for group in self._groups.values():
            group.move_many(rows.astype(np.int32), self._contexts.places(rows, group.names))

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], list[Any]]:
        """Return all groups as arrays and JSON values."""
        arrays = {
            f"near{number}_{name}": array
            for number, group in self._groups.items()
            for name, array in group.saved().items()
        }
        return arrays, [[number, group.names, group.geo] for number, group in self._groups.items()]

    def restore(
        self,
        array: Callable[[str], npt.NDArray[Any]],
        names_from: Callable[[str], Iterable[str]],
        facts: list[Any],
        attributes: int,
    ) -> None:
        """Load the groups that `saved` returned; the table of positions must have been loaded before.

        Args:
            array: Returns the array of a name.
            names_from: Returns the names of arrays that begin with a prefix.
            facts: The JSON values.
            attributes: How many attributes the index knows.
        """
        for number, names, geo in facts:
            prefix = f"near{number}_"
            arrays = {name.removeprefix(prefix): array(name) for name in names_from(prefix)}
            self._groups[number] = SpatialGroup.of(tuple(names), geo, arrays, attributes)
        self._subscriptions_by_client.update(
            self._subscriptions.clients[self._subscriptions.spatial_groups > 0].tolist()
        )


_MAX_TERMS = 16  # operations in a comparison above which ROUNDING no longer bounds the rounding error
_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class DistanceBound(NamedTuple):
    """A bound that a filter implies: where it is true, each name's values on both sides differ by at most `radius`.

    With `geo` the names are a latitude and a longitude, and the radius is in metres along the sphere. The values are
    then numbers on both sides. The rounding of the filter's own arithmetic comes on top, in proportion to the values
    and the radius: see `kernels.grid.ROUNDING`.
    """

    names: tuple[str, ...]
    geo: bool
    radius: float


@lru_cache(MAX_CACHED_PATTERNS)
def distance_bound_of(filter: ContextFilterValue) -> DistanceBound | None:  # noqa: A002 - the model's own word
    """Return the distance bound that a context filter implies; None if it implies none."""
    comparisons = list(_comparisons(filter.expression))
    return _on_the_sphere(comparisons) or _in_the_plane(comparisons)


class _Difference(NamedTuple):
    """The term `sign * (other.name - own.name) + rest`; `weight` is the sum of its constants' absolute values."""

    name: str
    sign: int
    rest: Fraction
    weight: Fraction
    numeric: bool  # whether it is NULL unless both values are numbers


class _Bounds:
    """Lower and upper bounds of `other.name - own.name`."""

    def __init__(self) -> None:
        self.low: Fraction | None = None
        self.high: Fraction | None = None
        self.weight = Fraction(0)
        self.numeric = False

    def add(self, difference: _Difference, operator: ComparisonOperator) -> None:
        """Add the bound that follows from `difference operator 0`."""
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
        """The largest absolute difference within the bounds.

        It is None if there is none, or if the values need not be numbers.
        """
        # Strings are ordered as well: without arithmetic or a constant the values need not be numbers.
        if self.low is None or self.high is None or not self.numeric:
            return None
        radius = max(abs(self.low), abs(self.high))
        # Large constants that cancel each other out still leave their rounding errors.
        return radius if self.weight <= 8 * radius else radius + self.weight / 2**44


def _in_the_plane(comparisons: list[Comparison]) -> DistanceBound | None:
    bounds: dict[str, _Bounds] = {}
    for comparison in comparisons:
        for difference, operator in _differences(comparison):
            bounds.setdefault(difference.name, _Bounds()).add(difference, operator)
    # The first two as written, since people write x and y before other conditions.
    radii = [(name, radius) for name, name_bounds in bounds.items() if (radius := name_bounds.radius) is not None][:2]
    if not radii:
        return None
    return DistanceBound(
        tuple(sorted(name for name, _ in radii)), False, _rounded_up(max(radius for _, radius in radii))
    )


def _on_the_sphere(comparisons: list[Comparison]) -> DistanceBound | None:
    radii: dict[tuple[str, ...], Fraction] = {}
    for comparison in comparisons:
        call = _call_within(comparison, "geo_distance")
        if call is None:
            continue
        (lat1, lon1, lat2, lon2), radius = call
        names = tuple(name for pair in ((lat1, lat2), (lon1, lon2)) if (name := _same_name(*pair)) is not None)
        if len(names) == 2:
            radii[names] = min(radius, radii.get(names, radius))
    for names, radius in radii.items():
        return DistanceBound(names, True, _rounded_up(radius))
    return None


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield comparisons that must all be true for the condition to be true."""
    match condition:
        case And(parts):
            for part in parts:
                yield from _comparisons(part)
        case Between(middle, low, high):
            yield Comparison(middle, ">=", low)
            yield Comparison(middle, "<=", high)
        case Comparison(_, operator) if operator != "!=":
            yield condition


def _differences(comparison: Comparison) -> Iterator[tuple[_Difference, ComparisonOperator]]:
    """Yield what a comparison says of differences between both parties, as comparisons with 0."""
    call = _call_within(comparison, "distance")
    if call is None:
        numeric = not (
            isinstance(comparison.left, Attribute | OwnContextValue)
            and isinstance(comparison.right, Attribute | OwnContextValue)
        )
        difference = _difference(comparison.left, comparison.right, numeric)
        if difference is not None:
            yield difference, comparison.operator
        return
    (x1, y1, x2, y2), radius = call
    for here, there in ((x1, x2), (y1, y2)):
        difference = _difference(here, there, True)
        if difference is not None:
            weight = difference.weight + abs(radius)
            yield difference._replace(rest=difference.rest - radius, weight=weight), "<="
            yield difference._replace(rest=difference.rest + radius, weight=weight), ">="


def _call_within(comparison: Comparison, function: str) -> tuple[tuple[ValueExpression, ...], Fraction] | None:
    """Return the arguments of a call of the function and the comparison's upper bound of it; None if there is none."""
    for call, operator, bound in (
        (comparison.left, comparison.operator, comparison.right),
        (comparison.right, _MIRRORED[comparison.operator], comparison.left),
    ):
        if isinstance(call, Call) and call.function == function and operator in ("<", "<=", "="):
            radius = _number(bound)
            return None if radius is None else (call.arguments, radius)
    return None


def _same_name(left: ValueExpression, right: ValueExpression) -> str | None:
    """Return the name if one expression is the other party's value of it and the other is one's own; else None."""
    match left, right:
        case (Attribute(name), OwnContextValue(own)) | (OwnContextValue(own), Attribute(name)) if (
            name == own and not name.startswith("$")
        ):
            return name
    return None


def _difference(left: ValueExpression, right: ValueExpression, numeric: bool) -> _Difference | None:
    """Return `left - right` if it is a difference of both parties' values of one name plus a constant; else None."""
    terms: list[tuple[ValueExpression, int]] = []
    if not _terms(left, 1, terms) or not _terms(right, -1, terms) or len(terms) > _MAX_TERMS:
        return None
    names = [(term, sign) for term, sign in terms if isinstance(term, Attribute | OwnContextValue)]
    numbers = [sign * number for term, sign in terms if (number := _number(term)) is not None]
    # Each value once: one that is added and subtracted again would leave its rounding error.
    if len(names) != 2 or len(names) + len(numbers) != len(terms) or names[0][1] == names[1][1]:
        return None
    name = _same_name(names[0][0], names[1][0])
    if name is None:
        return None
    sign = names[0][1] if isinstance(names[0][0], Attribute) else names[1][1]
    return _Difference(name, sign, sum(numbers, Fraction(0)), sum(map(abs, numbers), Fraction(0)), numeric)


def _terms(node: ValueExpression, sign: int, terms: list[tuple[ValueExpression, int]]) -> bool:
    """Collect the summands of a value with their signs; return False if it is no sum, or one of too many terms."""
    match folded(node):
        case Arithmetic(left, ("+" | "-") as operator, right) if len(terms) <= _MAX_TERMS:
            return _terms(left, sign, terms) and _terms(right, sign if operator == "+" else -sign, terms)
        case Negative(operand) if len(terms) <= _MAX_TERMS:
            return _terms(operand, -sign, terms)
        case Attribute() | OwnContextValue() | Constant() as leaf:
            terms.append((leaf, sign))
            return True
    return False


def _number(node: ValueExpression) -> Fraction | None:
    expression = folded(node)
    return Fraction(expression.value) if isinstance(expression, Constant) and is_number(expression.value) else None


def _rounded_up(radius: Fraction) -> float:
    try:
        nearest = float(radius)
    except OverflowError:
        return math.copysign(math.inf, radius)
    return nearest if nearest >= radius else math.nextafter(nearest, math.inf)

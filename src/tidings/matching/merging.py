"""Merge filters: find fewer filters that match the same events, or slightly more.

A conjunction is represented as a box: a set of values for each attribute, and the conditions that cannot be decomposed.
Boxes that differ in one attribute only merge perfectly, into the union of their values; boxes that differ in several
may merge imperfectly, into the box around both, if that adds little volume.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from tidings.matching.formula import Variable, negation, values_where, when_true
from tidings.matching.numbers import GREATEST, LEAST
from tidings.matching.satisfiability import Budget, satisfiable
from tidings.matching.to_condition import condition_for, is_within_limits
from tidings.matching.value_sets import ValueSet, union_of
from tidings.model.expression import (
    TRUE,
    And,
    Attribute,
    Condition,
    Or,
    OwnContextValue,
    Topic,
    XPath,
    all_of,
    any_of,
    walk,
)
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_MERGED_INTERVALS, MAX_MERGING_STEPS

# A box's extent in one attribute: a set of values, or the filter's own conditions.
Side = ValueSet | frozenset[Condition]


class _Box(msgspec.Struct, frozen=True):
    """A conjunction of conditions, by attribute, and the filters that it replaces."""

    sides: dict[Variable, Side]
    rest: frozenset[Condition]
    sources: tuple[FilterValue, ...]  # the filters that the box replaces; a single one is returned unchanged
    filled: float = 1.0  # a lower bound of the share of the volume that the sources match; merging added the rest


def merge(filters: Iterable[FilterValue], added: float = 0.0) -> list[FilterValue]:
    """Return as few filters as can be found that together match what the given filters match.

    With `added` above 0, boxes may also merge imperfectly: at most that share of a merged box's volume may be new.
    Volume is measured over numeric attributes, between the outermost bounds that the filters name; an open end reaches
    a little beyond these.
    """
    return [merged for merged, _ in merge_with_sources(filters, added)]


def merge_with_sources(
    filters: Iterable[FilterValue], added: float = 0.0
) -> list[tuple[FilterValue, tuple[FilterValue, ...]]]:
    """Merge filters as `merge` does; return each result with the given filters that it replaces.

    A given filter that another one covers is in no list. Raises `ValueError` if `added` is not in [0, 1).
    """
    if not 0 <= added < 1:
        raise ValueError("added is a share of volume: at least 0 and below 1")
    boxes = _merge_perfectly([_box(filter_value) for filter_value in filters])
    if added:
        boxes = _merge_imperfectly(boxes, added)
    return [merged for box in _uncovered(boxes) for merged in _as_filters(box)]


def _box(filter_value: FilterValue) -> _Box:
    parts = filter_value.expression.parts if isinstance(filter_value.expression, And) else (filter_value.expression,)
    by_variable: dict[Variable, list[Condition]] = {}
    rest: set[Condition] = set()
    for part in parts:
        nodes = list(walk(part))
        variables = {node for node in nodes if isinstance(node, Attribute | OwnContextValue)}
        if len(variables) == 1 and not any(isinstance(node, Topic | XPath) for node in nodes):
            by_variable.setdefault(variables.pop(), []).append(part)
        elif part != TRUE:
            rest.add(part)
    sides = {variable: _side(conditions) for variable, conditions in by_variable.items()}
    return _Box(sides, frozenset(rest), (filter_value,))


def _side(conditions: list[Condition]) -> Side:
    values = values_where(when_true(all_of(conditions)))
    return frozenset(conditions) if values is None or values.has_patterns else values


def _as_filters(box: _Box) -> list[tuple[FilterValue, tuple[FilterValue, ...]]]:
    """Return the box as one filter, or its sources if that filter would exceed the limits of a filter's length."""
    if len(box.sources) > 1:
        parts = [_condition(variable, side) for variable, side in box.sides.items()]
        merged = FilterValue(all_of([*parts, *sorted(box.rest, key=repr)]))
        if is_within_limits(merged.expression):
            return [(merged, box.sources)]
    return [(source, (source,)) for source in box.sources]


def _condition(variable: Variable, side: Side) -> Condition:
    if isinstance(side, ValueSet):
        return condition_for(variable, side)
    return all_of(sorted(side, key=repr))


def _merge_perfectly(boxes: list[_Box]) -> list[_Box]:
    merged = True
    while merged:
        merged = False
        for variable in dict.fromkeys(variable for box in boxes for variable in box.sides):
            groups: dict[object, list[_Box]] = {}
            for box in boxes:
                groups.setdefault(_key_without(box, variable), []).append(box)
            if len(groups) < len(boxes):
                fewer = [box for group in groups.values() for box in _merge_along(group, variable)]
                merged = merged or len(fewer) < len(boxes)
                boxes = fewer
        boxes = list({_key_without(box, None): box for box in reversed(boxes)}.values())[::-1]
    return boxes


def _key_without(box: _Box, variable: Variable | None) -> object:
    return frozenset((name, side) for name, side in box.sides.items() if name != variable), box.rest


def _merge_along(group: list[_Box], variable: Variable) -> list[_Box]:
    """Merge boxes that differ in this variable only.

    The result has more than one box if the union would have too many intervals.
    """
    unrestricted = [box for box in group if variable not in box.sides]
    if unrestricted:
        return unrestricted[:1]  # a box without a condition on the variable contains all the others
    merged, members, intervals = [], [group[0]], _interval_count(group[0].sides[variable])
    for box in group[1:]:
        intervals += _interval_count(box.sides[variable])
        if intervals > MAX_MERGED_INTERVALS:
            merged.append(_merged_box(members, variable))
            members, intervals = [], _interval_count(box.sides[variable])
        members.append(box)
    return [*merged, _merged_box(members, variable)]


def _merged_box(members: list[_Box], variable: Variable) -> _Box:
    first = members[0]
    if len(members) == 1:
        return first
    others = {name: side for name, side in first.sides.items() if name != variable}
    sources = tuple(source for box in members for source in box.sources)
    return _Box({variable: _union(variable, [box.sides[variable] for box in members]), **others}, first.rest, sources)


def _interval_count(side: Side) -> int:
    return len(side.numbers) + len(side.strings) if isinstance(side, ValueSet) else len(side)


def _union(variable: Variable, sides: Sequence[Side]) -> Side:
    sets = [side for side in sides if isinstance(side, ValueSet)]
    if len(sets) == len(sides):
        return union_of(sets)
    return frozenset({any_of(dict.fromkeys(_condition(variable, side) for side in sides))})


def _uncovered(boxes: list[_Box]) -> list[_Box]:
    """Drop the boxes that another one covers; of equal ones the first stays.

    When the budget is spent, covered boxes remain in the result, which does no harm.
    """
    budget = Budget(MAX_MERGING_STEPS)
    uncovered: list[_Box] = []
    for box in boxes:
        if not any(_covers(other, box, budget) for other in uncovered):
            uncovered = [other for other in uncovered if not _covers(box, other, budget)]
            uncovered.append(box)
    return uncovered


def _covers(outer: _Box, inner: _Box, budget: Budget) -> bool:
    if not budget.spend(1 + len(outer.sides)):
        return False
    if not outer.rest <= inner.rest:
        return bool(outer.rest) and _covers_by_search(outer, inner, budget)
    for variable, side in outer.sides.items():
        inner_side = inner.sides.get(variable)
        if inner_side is None:
            return False
        if inner_side != side and not _subset(inner_side, side):
            return False
    return True


def _covers_by_search(outer: _Box, inner: _Box, budget: Budget) -> bool:
    """Decide by search whether a filter that contains an OR covers another; False for a filter without one."""
    if not any(isinstance(condition, Or) for condition in outer.rest):
        return False
    conditions = [all_of([*(_condition(*side) for side in box.sides.items()), *box.rest]) for box in (outer, inner)]
    return not satisfiable(when_true(conditions[1]), negation(when_true(conditions[0])), budget=budget)


def _subset(inner: Side, outer: Side) -> bool:
    if not (isinstance(inner, ValueSet) and isinstance(outer, ValueSet)):
        return False
    return inner.intersection(outer.complement()).is_empty


# Imperfect merging


def _merge_imperfectly(boxes: list[_Box], added: float) -> list[_Box]:
    groups: dict[object, list[_Box]] = {}
    for box in boxes:
        # Only boxes that agree in everything but their numeric sides can have a box around them.
        non_numeric_sides = frozenset((variable, side) for variable, side in box.sides.items() if not _is_numeric(side))
        groups.setdefault((frozenset(box.sides), non_numeric_sides, box.rest), []).append(box)
    return [box for group in groups.values() for box in _merge_group(group, added)]


def _merge_group(group: list[_Box], added: float) -> list[_Box]:
    bounds = {variable: _bounds(group, variable) for variable, side in group[0].sides.items() if _is_numeric(side)}
    merged: list[_Box] = []
    for box in group:
        candidates = [(_bounding_box(box, other, bounds), other) for other in merged]
        best = max(candidates, key=lambda pair: pair[0].filled, default=None)
        if best is not None and 1 - best[0].filled <= added:
            merged[next(i for i, merged_box in enumerate(merged) if merged_box is best[1])] = best[0]
        else:
            merged.append(box)
    return merged


def _bounding_box(left: _Box, right: _Box, bounds: dict[Variable, tuple[float, float]]) -> _Box:
    """Return the box around both, with a lower bound of the share of its volume that their sources match."""
    sides = dict(left.sides)
    left_share = right_share = common_share = 1.0
    for variable, (low, high) in bounds.items():
        left_side, right_side = left.sides[variable], right.sides[variable]
        if not (isinstance(left_side, ValueSet) and isinstance(right_side, ValueSet)):
            raise TypeError("bounds name numeric sides only")
        ends = [*left_side.numbers, *right_side.numbers]
        hull = ValueSet(numbers=((min(end[0] for end in ends), max(end[1] for end in ends)),))
        sides[variable] = hull
        hull_length = _length(hull, low, high)
        if hull_length > 0:
            left_share *= _length(left_side, low, high) / hull_length
            right_share *= _length(right_side, low, high) / hull_length
            common_share *= _length(left_side.intersection(right_side), low, high) / hull_length
    filled = left_share * left.filled + right_share * right.filled - common_share
    filled = max(0.0, min(1.0, filled)) if math.isfinite(filled) else 0.0
    return _Box(sides, left.rest, (*left.sources, *right.sources), filled)


def _is_numeric(side: Side) -> bool:
    return isinstance(side, ValueSet) and bool(side.numbers) and side == ValueSet(numbers=side.numbers)


def _bounds(group: list[_Box], variable: Variable) -> tuple[float, float]:
    """Return the bounds within which volume is measured along a variable.

    They are halved, as all lengths here are: the distance between two floats may exceed the largest float.
    """
    ends = [end for box in group for interval in box.sides[variable].numbers for end in interval]  # type: ignore[union-attr]
    finite = [float(end) / 2 for end in ends if end not in (LEAST, GREATEST)] or [0.0]
    margin = (max(finite) - min(finite)) or 1.0
    return min(finite) - margin * (LEAST in ends), max(finite) + margin * (GREATEST in ends)


def _length(values: ValueSet, low: float, high: float) -> float:
    return math.fsum(max(0.0, min(float(end) / 2, high) - max(float(start) / 2, low)) for start, end in values.numbers)

"""Fewer filters that say the same, or nearly.

A conjunction is seen as a box: a set of values for each attribute, and whatever cannot be taken apart. Boxes that
differ in one attribute only merge perfectly into the union; boxes that differ in several may merge into the box
around both, if what that adds is little.
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce

import msgspec

from tidings.matching.formula import Variable, negation, values_where, when_true
from tidings.matching.numbers import GREATEST, LEAST
from tidings.matching.satisfiability import satisfiable
from tidings.matching.valuesets import ValueSet
from tidings.matching.wording import condition_for
from tidings.model.expression import TRUE, And, Attribute, Condition, Not, Or, Own, Topic, XPath, all_of, any_of, walk
from tidings.model.filter import Filter

Side = ValueSet | frozenset[Condition]  # a box's extent in one attribute: as values, or in the words of its filter


class _Box(msgspec.Struct, frozen=True):
    sides: dict[Variable, Side]
    rest: frozenset[Condition]
    source: Filter | None  # the filter itself, as long as it is unchanged
    filled: float = 1.0  # the least share of the box that was asked for; the remainder was added by merging


def merge(filters: Iterable[Filter], added: float = 0.0) -> list[Filter]:
    """As few filters as can be found that together match what the given ones match.

    With `added` above 0 boxes may also merge imperfectly, where at most that share of the merged box's volume is
    new. Volume is measured over numeric attributes, between the outermost bounds that the filters name; an open end
    reaches a little beyond.
    """
    if not 0 <= added < 1:
        raise ValueError("added is a share of volume: at least 0 and below 1")
    boxes = _merge_perfectly([_box(one) for one in filters])
    if added:
        boxes = _merge_nearly(boxes, added)
    return _uncovered([box.source or _said(box) for box in boxes])


def _box(one: Filter) -> _Box:
    parts = one.expression.parts if isinstance(one.expression, And) else (one.expression,)
    by_variable: dict[Variable, list[Condition]] = {}
    rest: set[Condition] = set()
    for part in parts:
        nodes = list(walk(part))
        variables = {node for node in nodes if isinstance(node, Attribute | Own)}
        if len(variables) == 1 and not any(isinstance(node, Topic | XPath) for node in nodes):
            by_variable.setdefault(variables.pop(), []).append(part)
        elif part != TRUE:
            rest.add(part)
    sides = {variable: _side(conditions) for variable, conditions in by_variable.items()}
    return _Box(sides, frozenset(rest), one)


def _side(conditions: list[Condition]) -> Side:
    values = values_where(when_true(all_of(conditions)))
    return frozenset(conditions) if values is None or values.has_patterns else values


def _said(box: _Box) -> Filter:
    parts = [_condition(variable, side) for variable, side in box.sides.items()]
    return Filter(all_of([*parts, *sorted(box.rest, key=repr)]))


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
                groups.setdefault(_without(box, variable), []).append(box)
            if len(groups) < len(boxes):
                boxes = [_united(group, variable) if len(group) > 1 else group[0] for group in groups.values()]
                merged = True
        if len(boxes) > len(distinct := {_without(box, None): box for box in boxes}):
            boxes = list(distinct.values())
    return boxes


def _without(box: _Box, variable: Variable | None) -> object:
    return frozenset((one, side) for one, side in box.sides.items() if one != variable), box.rest


def _united(group: list[_Box], variable: Variable) -> _Box:
    """One box for several that differ in this variable only; without the variable where one of them did not ask."""
    first = group[0]
    filled = min(box.filled for box in group)
    given = [box.sides[variable] for box in group if variable in box.sides]
    others = {one: side for one, side in first.sides.items() if one != variable}
    if len(given) < len(group):
        free = next(box for box in group if variable not in box.sides)
        return _Box(others, first.rest, free.source, filled)
    return _Box({variable: _union(variable, given), **others}, first.rest, None, filled)


def _union(variable: Variable, sides: Sequence[Side]) -> Side:
    sets = [side for side in sides if isinstance(side, ValueSet)]
    if len(sets) == len(sides):
        return reduce(ValueSet.union, sets)
    return frozenset({any_of(dict.fromkeys(_condition(variable, side) for side in sides))})


def _uncovered(filters: list[Filter]) -> list[Filter]:
    """Without those that another one covers; of equal ones the first stays."""
    kept: list[Filter] = []
    for one in filters:
        if not any(_covers(other, one) for other in kept):
            kept = [other for other in kept if not _covers(one, other)]
            kept.append(one)
    return kept


def _covers(outer: Filter, inner: Filter) -> bool:
    # Cheap to refuse: a conjunction that asks about more attributes than the other does not cover it.
    if not (outer.names <= inner.names or any(isinstance(node, Or | Not) for node in walk(outer.expression))):
        return False
    return not satisfiable(when_true(inner.expression), negation(when_true(outer.expression)))


# Imperfect merging


def _merge_nearly(boxes: list[_Box], added: float) -> list[_Box]:
    groups: dict[object, list[_Box]] = {}
    for box in boxes:
        # Only boxes that are the same in everything but numbers can have a box around them.
        fixed = frozenset((one, side) for one, side in box.sides.items() if not _is_numeric(side))
        groups.setdefault((frozenset(box.sides), fixed, box.rest), []).append(box)
    return [box for group in groups.values() for box in _merge_group(group, added)]


def _merge_group(group: list[_Box], added: float) -> list[_Box]:
    bounds = {one: _bounds(group, one) for one, side in group[0].sides.items() if _is_numeric(side)}
    kept: list[_Box] = []
    for box in group:
        candidates = [(_around(box, other, bounds), other) for other in kept]
        best = max(candidates, key=lambda pair: pair[0].filled, default=None)
        if best is not None and 1 - best[0].filled <= added:
            kept[next(i for i, one in enumerate(kept) if one is best[1])] = best[0]
        else:
            kept.append(box)
    return kept


def _around(one: _Box, other: _Box, bounds: dict[Variable, tuple[float, float]]) -> _Box:
    """The box around both, and how much of it, at the least, was asked for."""
    sides = dict(one.sides)
    first = second = both = 1.0
    for variable, (low, high) in bounds.items():
        mine, theirs = one.sides[variable], other.sides[variable]
        if not (isinstance(mine, ValueSet) and isinstance(theirs, ValueSet)):
            raise TypeError("bounds name numeric sides only")
        ends = [*mine.numbers, *theirs.numbers]
        hull = ValueSet(numbers=((min(end[0] for end in ends), max(end[1] for end in ends)),))
        sides[variable] = hull
        whole = _length(hull, low, high)
        if whole > 0:
            first *= _length(mine, low, high) / whole
            second *= _length(theirs, low, high) / whole
            both *= _length(mine.intersection(theirs), low, high) / whole
    filled = max(0.0, min(1.0, first * one.filled + second * other.filled - both))
    return _Box(sides, one.rest, None, filled)


def _is_numeric(side: Side) -> bool:
    return isinstance(side, ValueSet) and bool(side.numbers) and side == ValueSet(numbers=side.numbers)


def _bounds(group: list[_Box], variable: Variable) -> tuple[float, float]:
    ends = [end for box in group for interval in box.sides[variable].numbers for end in interval]  # type: ignore[union-attr]
    finite = [float(end) for end in ends if end not in (LEAST, GREATEST)] or [0.0]
    margin = (max(finite) - min(finite)) or 1.0
    return min(finite) - margin * (LEAST in ends), max(finite) + margin * (GREATEST in ends)


def _length(values: ValueSet, low: float, high: float) -> float:
    return math.fsum(max(0.0, min(float(end), high) - max(float(start), low)) for start, end in values.numbers)

"""Fewer filters that say the same, or nearly.

A conjunction is seen as a box: a set of values for each attribute, and whatever cannot be taken apart. Boxes that
differ in one attribute only merge perfectly into the union; boxes that differ in several may merge into the box
around both, if what that adds is little.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from tidings.matching.formula import Variable, negation, values_where, when_true
from tidings.matching.numbers import GREATEST, LEAST
from tidings.matching.satisfiability import Budget, satisfiable
from tidings.matching.valuesets import ValueSet, union_of
from tidings.matching.wording import condition_for, is_within_limits
from tidings.model.expression import TRUE, And, Attribute, Condition, Or, Own, Topic, XPath, all_of, any_of, walk
from tidings.model.filter import Filter
from tidings.model.limits import MAX_MERGED_INTERVALS, MAX_MERGING_STEPS

Side = ValueSet | frozenset[Condition]  # a box's extent in one attribute: as values, or in the words of its filter


class _Box(msgspec.Struct, frozen=True):
    sides: dict[Variable, Side]
    rest: frozenset[Condition]
    sources: tuple[Filter, ...]  # the filters that it stands for; a single one is said in its own words
    filled: float = 1.0  # the least share of the box that was asked for; the remainder was added by merging


def merge(filters: Iterable[Filter], added: float = 0.0) -> list[Filter]:
    """As few filters as can be found that together match what the given ones match.

    With `added` above 0 boxes may also merge imperfectly, where at most that share of the merged box's volume is
    new. Volume is measured over numeric attributes, between the outermost bounds that the filters name; an open end
    reaches a little beyond.
    """
    return [one for one, _ in merge_with_sources(filters, added)]


def merge_with_sources(filters: Iterable[Filter], added: float = 0.0) -> list[tuple[Filter, tuple[Filter, ...]]]:
    """The same, each with the given filters that it was made of; one that others made needless is not among them."""
    if not 0 <= added < 1:
        raise ValueError("added is a share of volume: at least 0 and below 1")
    boxes = _merge_perfectly([_box(one) for one in filters])
    if added:
        boxes = _merge_nearly(boxes, added)
    return [said for box in _uncovered(boxes) for said in _said(box)]


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
    return _Box(sides, frozenset(rest), (one,))


def _side(conditions: list[Condition]) -> Side:
    values = values_where(when_true(all_of(conditions)))
    return frozenset(conditions) if values is None or values.has_patterns else values


def _said(box: _Box) -> list[tuple[Filter, tuple[Filter, ...]]]:
    """The box as a filter; or the filters that it stands for, where one would be longer than a filter may be."""
    if len(box.sources) > 1:
        parts = [_condition(variable, side) for variable, side in box.sides.items()]
        said = Filter(all_of([*parts, *sorted(box.rest, key=repr)]))
        if is_within_limits(said.expression):
            return [(said, box.sources)]
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
                groups.setdefault(_without(box, variable), []).append(box)
            if len(groups) < len(boxes):
                fewer = [box for group in groups.values() for box in _united(group, variable)]
                merged = merged or len(fewer) < len(boxes)
                boxes = fewer
        boxes = list({_without(box, None): box for box in reversed(boxes)}.values())[::-1]
    return boxes


def _without(box: _Box, variable: Variable | None) -> object:
    return frozenset((one, side) for one, side in box.sides.items() if one != variable), box.rest


def _united(group: list[_Box], variable: Variable) -> list[_Box]:
    """One box for several that differ in this variable only; a few, where the union would have very many pieces."""
    free = [box for box in group if variable not in box.sides]
    if free:
        return free[:1]  # whoever does not ask holds all the others
    united, members, pieces = [], [group[0]], _pieces(group[0].sides[variable])
    for box in group[1:]:
        pieces += _pieces(box.sides[variable])
        if pieces > MAX_MERGED_INTERVALS:
            united.append(_as_one(members, variable))
            members, pieces = [], _pieces(box.sides[variable])
        members.append(box)
    return [*united, _as_one(members, variable)]


def _as_one(members: list[_Box], variable: Variable) -> _Box:
    first = members[0]
    if len(members) == 1:
        return first
    others = {one: side for one, side in first.sides.items() if one != variable}
    sources = tuple(source for box in members for source in box.sources)
    return _Box({variable: _union(variable, [box.sides[variable] for box in members]), **others}, first.rest, sources)


def _pieces(side: Side) -> int:
    return len(side.numbers) + len(side.strings) if isinstance(side, ValueSet) else len(side)


def _union(variable: Variable, sides: Sequence[Side]) -> Side:
    sets = [side for side in sides if isinstance(side, ValueSet)]
    if len(sets) == len(sides):
        return union_of(sets)
    return frozenset({any_of(dict.fromkeys(_condition(variable, side) for side in sides))})


def _uncovered(boxes: list[_Box]) -> list[_Box]:
    """Without those that another one covers; of equal ones the first stays. As far as the budget goes: a covered filter
    that stays does no harm."""
    budget = Budget(MAX_MERGING_STEPS)
    kept: list[_Box] = []
    for one in boxes:
        if not any(_covers(other, one, budget) for other in kept):
            kept = [other for other in kept if not _covers(one, other, budget)]
            kept.append(one)
    return kept


def _covers(outer: _Box, inner: _Box, budget: Budget) -> bool:
    if not budget.spend(1 + len(outer.sides)):
        return False
    if not outer.rest <= inner.rest:
        return bool(outer.rest) and _covers_by_search(outer, inner, budget)
    for variable, side in outer.sides.items():
        within = inner.sides.get(variable)
        if within is None:
            return False
        if within != side and not _subset(within, side):
            return False
    return True


def _covers_by_search(outer: _Box, inner: _Box, budget: Budget) -> bool:
    """For what is no box: an OR may cover what does not look like it."""
    if not any(isinstance(condition, Or) for condition in outer.rest):
        return False
    conditions = [all_of([*(_condition(*side) for side in box.sides.items()), *box.rest]) for box in (outer, inner)]
    return not satisfiable(when_true(conditions[1]), negation(when_true(conditions[0])), budget=budget)


def _subset(inner: Side, outer: Side) -> bool:
    if not (isinstance(inner, ValueSet) and isinstance(outer, ValueSet)):
        return False
    return inner.intersection(outer.complement()).is_empty


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
    filled = first * one.filled + second * other.filled - both
    filled = max(0.0, min(1.0, filled)) if math.isfinite(filled) else 0.0
    return _Box(sides, one.rest, (*one.sources, *other.sources), filled)


def _is_numeric(side: Side) -> bool:
    return isinstance(side, ValueSet) and bool(side.numbers) and side == ValueSet(numbers=side.numbers)


def _bounds(group: list[_Box], variable: Variable) -> tuple[float, float]:
    """In halves, as all lengths here are: the distance between two floats may be more than a float can be."""
    ends = [end for box in group for interval in box.sides[variable].numbers for end in interval]  # type: ignore[union-attr]
    finite = [float(end) / 2 for end in ends if end not in (LEAST, GREATEST)] or [0.0]
    margin = (max(finite) - min(finite)) or 1.0
    return min(finite) - margin * (LEAST in ends), max(finite) + margin * (GREATEST in ends)


def _length(values: ValueSet, low: float, high: float) -> float:
    return math.fsum(max(0.0, min(float(end) / 2, high) - max(float(start) / 2, low)) for start, end in values.numbers)

"""Many subscriptions at once: from literals straight to arrays, where their filters have a shape that was met before.

Filters of one shape differ in their literals only. The first one of a shape is read with all care, and what it says
of each literal becomes a `Plan`; for those that follow, the literals alone are put in place, all in one go.
"""

from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from tidings.matching.index.columns import Columns
from tidings.matching.index.conjuncts import Kind, conjuncts_for
from tidings.matching.index.kernels import EXACT_FLOAT, LARGEST
from tidings.matching.index.layout import PREDICATE
from tidings.matching.index.segment import Conjuncts
from tidings.model.expression import And, Attribute, Between, Comparison, Condition, Constant, Expression
from tidings.model.subscription import Subscription

Predicate = tuple[float, float, int, int, int]
_EQUAL, _BELOW, _AT_MOST, _ABOVE, _AT_LEAST, _BETWEEN = range(6)
_OPERATORS = {"=": _EQUAL, "<": _BELOW, "<=": _AT_MOST, ">": _ABOVE, ">=": _AT_LEAST}


class _Side(NamedTuple):
    """What a filter of the shape asks of one attribute."""

    name: str
    kind: Kind
    operator: int
    slot: int  # of its literal, or its first
    sign: float
    last_sign: float = 1.0  # of the second


Plan = tuple[_Side, ...]


def plan_of(condition: Condition, literals: list[str]) -> Plan | None:
    """What filters of this one's shape say of their literals; None if it takes more than putting them in place."""
    sides: list[_Side] = []
    slot = 0
    for part in condition.parts if isinstance(condition, And) else (condition,):
        match part:
            case Comparison(Attribute(name), operator, Constant(str())) if operator == "=":
                sides.append(_Side(name, Kind.STRING, _EQUAL, slot, 1.0))
                slot += 1
            case Comparison(Attribute(name), operator, Constant() as given) if operator in _OPERATORS:
                sign = 0.0 if name.startswith("$") else _sign(given, literals, slot)  # those are never numbers
                sides.append(_Side(name, Kind.NUMBER, _OPERATORS[operator], slot, sign))
                slot += 1
            case Between(Attribute(name), Constant() as low, Constant() as high):
                signs = _sign(low, literals, slot), 0.0 if name.startswith("$") else _sign(high, literals, slot + 1)
                sides.append(_Side(name, Kind.NUMBER, _BETWEEN, slot, *signs))
                slot += 2
            case _:
                return None
    if slot != len(literals) or len({side.name for side in sides}) < len(sides):
        return None
    return None if any(side.sign * side.last_sign == 0 for side in sides) else tuple(sides)


def _sign(given: Expression, literals: list[str], slot: int) -> float:
    """1 or -1, as the constant is the literal or its opposite; 0 if that cannot be told."""
    value = given.value if isinstance(given, Constant) else None
    if type(value) not in (int, float) or not value or slot >= len(literals) or literals[slot][0] == "'":
        return 0.0
    written = float(literals[slot])
    return 1.0 if value == written else -1.0 if value == -written else 0.0


def predicates_of(plan: Plan, literals: list[str], columns: Columns) -> list[Predicate] | None:
    """The predicates of a single filter that follows a plan; None if it needs the careful way."""
    values = _values(plan, literals, columns)
    if values is None:
        return None
    found, at = [], 0
    for side in plan:
        what, low = columns.number(side.name) * 8 + side.kind, values[at]
        high, at = (values[at + 1], at + 2) if side.operator == _BETWEEN else (low, at + 1)
        if side.operator in (_BELOW, _AT_MOST):
            low, high = -LARGEST, nextafter(high, -inf) if side.operator == _BELOW else high
        elif side.operator in (_ABOVE, _AT_LEAST):
            low, high = nextafter(low, inf) if side.operator == _ABOVE else low, LARGEST
        found.append((low, high, what, 0, 0))
    return found


def _values(plan: Plan, literals: list[str], columns: Columns) -> list[float] | None:
    """The literals as numbers; strings as their codes."""
    values: list[float] = []
    for side in plan:
        written = literals[side.slot]
        if side.kind is Kind.STRING:
            values.append(columns.code(side.name, written[1:-1].replace("''", "'")))
            continue
        low = float(written) * side.sign
        if not -EXACT_FLOAT < low < EXACT_FLOAT:
            return None
        values.append(low + 0.0)
        if side.operator == _BETWEEN:
            high = float(literals[side.slot + 1]) * side.last_sign
            if not low <= high < EXACT_FLOAT:
                return None
            values.append(high + 0.0)
    return values


class Bulk:
    """Conjuncts on their way into the index; rows are numbered by the caller."""

    def __init__(self, columns: Columns) -> None:
        self.has_residuals = False
        self._columns = columns
        self._plans: list[Plan] = []
        self._sides: list[tuple[int, int, int]] = []  # of all plans: what, operator, which of the plan's literals
        self._starts: list[int] = []  # of each plan among them
        self._planned: list[int] = []  # rows, and for each its plan and its first literal
        self._plan: list[int] = []
        self._first: list[int] = []
        self._literals: list[float] = []
        self._rows: list[int] = []  # conjuncts that came one by one
        self._flags: list[int] = []
        self._lengths: list[int] = []
        self._predicates: list[Predicate] = []

    def plan(self, plan: Plan) -> int:
        """A number for the plan."""
        self._plans.append(plan)
        self._starts.append(len(self._sides))
        literal = 0
        for side in plan:
            self._sides.append((self._columns.number(side.name) * 8 + side.kind, side.operator, literal))
            literal += 2 if side.operator == _BETWEEN else 1
        return len(self._plans) - 1

    def fill(self, row: int, number: int, literals: list[str]) -> bool:
        """Takes a filter that follows a plan; whether it could: some literals need the careful way."""
        values = _values(self._plans[number], literals, self._columns)
        if values is None:
            return False
        self._planned.append(row)
        self._plan.append(number)
        self._first.append(len(self._literals))
        self._literals += values
        return True

    def take(self, row: int, subscription: Subscription) -> None:
        """Takes a subscription as it is."""
        for one in conjuncts_for(subscription):
            predicates = self._columns.predicates(one)
            self._rows.append(row)
            self._flags.append(one.flags)
            self._lengths.append(len(predicates))
            self._predicates += predicates
            self.has_residuals = self.has_residuals or not one.exact

    def conjuncts(self, positions: np.ndarray) -> Conjuncts:
        """All of them, for the subscriptions that stand at these positions by row."""
        lengths, predicates = self._filled()
        lengths = np.concatenate([lengths, np.array(self._lengths, np.int64)])
        first = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=first[1:])
        owner = positions[np.array(self._planned + self._rows, np.int64)] << 2
        owner[len(self._planned) :] |= np.array(self._flags, np.int32)
        return Conjuncts(owner, first, np.concatenate([predicates, np.array(self._predicates, PREDICATE)]))

    def _filled(self) -> tuple[np.ndarray, np.ndarray]:
        """The predicates of all that follow plans: how many each has, and the predicates."""
        if not self._planned:
            return np.empty(0, np.int64), np.empty(0, PREDICATE)
        what, operator, literal = np.array(self._sides, np.int32).reshape(-1, 3).T
        plan = np.array(self._plan, np.int64)
        lengths = np.array([len(one) for one in self._plans], np.int64)[plan]
        first = np.cumsum(lengths) - lengths
        side = np.repeat(np.array(self._starts, np.int64)[plan] - first, lengths) + np.arange(lengths.sum())
        at = np.repeat(np.array(self._first, np.int64), lengths) + literal[side]
        values = np.array([*self._literals, 0.0])
        low, asked = values[at], operator[side]
        high = np.where(asked == _BETWEEN, values[at + 1], low)
        found = np.zeros(len(side), PREDICATE)
        found["what"] = what[side]
        found["low"] = np.where(asked == _ABOVE, np.nextafter(low, np.inf), low)
        found["low"][(asked == _BELOW) | (asked == _AT_MOST)] = -LARGEST
        found["high"] = np.where(asked == _BELOW, np.nextafter(low, -np.inf), high)
        found["high"][(asked == _ABOVE) | (asked == _AT_LEAST)] = LARGEST
        return lengths, found

"""Load many subscriptions at once: if a filter has a known shape, its literals go straight into arrays.

Filters of one shape differ in their literals only. The first one of a shape is parsed and analysed; the result is a
`Plan`, which says what each literal means. For the filters that follow, only the literals are converted, all in one
vectorised pass.
"""

from math import inf, nextafter
from typing import NamedTuple, Protocol

import numpy as np

from tidings.matching.index.conjuncts import Conjunct, ConstraintKind, conjuncts_for
from tidings.matching.index.kernels.layout import PREDICATE
from tidings.matching.index.kernels.match import EXACT_FLOAT, LARGEST
from tidings.matching.index.segment import Conjuncts
from tidings.model.expression import And, Attribute, Between, Comparison, Condition, Constant, Expression
from tidings.model.subscription import Subscription

Predicate = tuple[float, float, int, int, int]
_EQUAL, _BELOW, _AT_MOST, _ABOVE, _AT_LEAST, _BETWEEN = range(6)
_OPERATORS = {"=": _EQUAL, "<": _BELOW, "<=": _AT_MOST, ">": _ABOVE, ">=": _AT_LEAST}


class FilterEncoder(Protocol):
    """Numbers what filters mention. `Columns` says what each of these does."""

    def number(self, name: str) -> int: ...
    def code(self, name: str, text: str) -> int: ...
    def predicates(self, conjunct: Conjunct) -> list[Predicate]: ...


class _Side(NamedTuple):
    """The constraint of filters of a shape on one attribute."""

    name: str
    kind: ConstraintKind
    operator: int
    slot: int  # the number of its literal, or of the first of two
    sign: float
    last_sign: float = 1.0  # the sign of the second literal


Plan = tuple[_Side, ...]


def plan_of(condition: Condition, literals: list[str]) -> Plan | None:
    """Return the plan for filters of this condition's shape; None if their literals cannot simply be put in place.

    `literals` are those of the condition's text, as written.
    """
    sides: list[_Side] = []
    slot = 0
    for part in condition.parts if isinstance(condition, And) else (condition,):
        match part:
            case Comparison(Attribute(name), operator, Constant(str())) if operator == "=":
                sides.append(_Side(name, ConstraintKind.STRING, _EQUAL, slot, 1.0))
                slot += 1
            case Comparison(Attribute(name), operator, Constant() as constant) if operator in _OPERATORS:
                # System attributes are never numbers.
                sign = 0.0 if name.startswith("$") else _sign(constant, literals, slot)
                sides.append(_Side(name, ConstraintKind.NUMBER, _OPERATORS[operator], slot, sign))
                slot += 1
            case Between(Attribute(name), Constant() as low, Constant() as high):
                signs = _sign(low, literals, slot), 0.0 if name.startswith("$") else _sign(high, literals, slot + 1)
                sides.append(_Side(name, ConstraintKind.NUMBER, _BETWEEN, slot, *signs))
                slot += 2
            case _:
                return None
    if slot != len(literals) or len({side.name for side in sides}) < len(sides):
        return None
    return None if any(side.sign * side.last_sign == 0 for side in sides) else tuple(sides)


def _sign(expression: Expression, literals: list[str], slot: int) -> float:
    """Return 1 or -1 if the constant is the literal or its opposite; 0 if that cannot be decided."""
    value = expression.value if isinstance(expression, Constant) else None
    if type(value) not in (int, float) or not value or slot >= len(literals) or literals[slot][0] == "'":
        return 0.0
    written = float(literals[slot])
    return 1.0 if value == written else -1.0 if value == -written else 0.0


def predicates_of(plan: Plan, literals: list[str], columns: FilterEncoder) -> list[Predicate] | None:
    """Return the predicates of a filter that follows a plan; None if it has to be parsed instead."""
    values = _values(plan, literals, columns)
    if values is None:
        return None
    predicates, at = [], 0
    for side in plan:
        what, low = columns.number(side.name) * 8 + side.kind, values[at]
        high, at = (values[at + 1], at + 2) if side.operator == _BETWEEN else (low, at + 1)
        if side.operator in (_BELOW, _AT_MOST):
            low, high = -LARGEST, nextafter(high, -inf) if side.operator == _BELOW else high
        elif side.operator in (_ABOVE, _AT_LEAST):
            low, high = nextafter(low, inf) if side.operator == _ABOVE else low, LARGEST
        predicates.append((low, high, what, 0, 0))
    return predicates


def _values(plan: Plan, literals: list[str], columns: FilterEncoder) -> list[float] | None:
    """Return the literals as numbers, and strings as their codes.

    Returns None if a number is not exact as a float, or if the bounds of a BETWEEN are out of order.
    """
    values: list[float] = []
    for side in plan:
        written = literals[side.slot]
        if side.kind is ConstraintKind.STRING:
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


class BulkLoad:
    """Collects the conjuncts of many subscriptions for the index; the caller numbers the subscriptions as rows."""

    def __init__(self, columns: FilterEncoder) -> None:
        self.has_residuals = False
        self._columns = columns
        self._plans: list[Plan] = []
        # For each side of each plan: `what`, the operator, the number of its first literal within the plan.
        self._sides: list[tuple[int, int, int]] = []
        self._starts: list[int] = []  # the first side of each plan
        # Rows with filters that follow plans; below, the plan and the first literal of each.
        self._planned: list[int] = []
        self._plan: list[int] = []
        self._first: list[int] = []
        self._literals: list[float] = []
        self._rows: list[int] = []  # rows of the conjuncts that were encoded one by one
        self._flags: list[int] = []
        self._lengths: list[int] = []
        self._predicates: list[Predicate] = []

    def plan(self, plan: Plan) -> int:
        """Register a plan; return its number."""
        self._plans.append(plan)
        self._starts.append(len(self._sides))
        literal = 0
        for side in plan:
            self._sides.append((self._columns.number(side.name) * 8 + side.kind, side.operator, literal))
            literal += 2 if side.operator == _BETWEEN else 1
        return len(self._plans) - 1

    def add_planned(self, row: int, number: int, literals: list[str]) -> bool:
        """Add a filter that follows the plan of this number; return False if it has to be parsed instead."""
        values = _values(self._plans[number], literals, self._columns)
        if values is None:
            return False
        self._planned.append(row)
        self._plan.append(number)
        self._first.append(len(self._literals))
        self._literals += values
        return True

    def add(self, row: int, subscription: Subscription) -> None:
        """Add a subscription that is parsed already."""
        for conjunct in conjuncts_for(subscription):
            predicates = self._columns.predicates(conjunct)
            self._rows.append(row)
            self._flags.append(conjunct.flags)
            self._lengths.append(len(predicates))
            self._predicates += predicates
            self.has_residuals = self.has_residuals or not conjunct.exact

    def conjuncts(self, positions: np.ndarray) -> Conjuncts:
        """Return all conjuncts, with row i's subscription at `positions[i]`."""
        lengths, predicates = self._filled()
        lengths = np.concatenate([lengths, np.array(self._lengths, np.int64)])
        first = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=first[1:])
        owner = positions[np.array(self._planned + self._rows, np.int64)] << 2
        owner[len(self._planned) :] |= np.array(self._flags, np.int32)
        return Conjuncts(owner, first, np.concatenate([predicates, np.array(self._predicates, PREDICATE)]))

    def _filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicates of all filters that follow plans, and how many each filter has."""
        if not self._planned:
            return np.empty(0, np.int64), np.empty(0, PREDICATE)
        what, operator, literal = np.array(self._sides, np.int32).reshape(-1, 3).T
        plan = np.array(self._plan, np.int64)
        lengths = np.array([len(plan_sides) for plan_sides in self._plans], np.int64)[plan]
        first = np.cumsum(lengths) - lengths
        side = np.repeat(np.array(self._starts, np.int64)[plan] - first, lengths) + np.arange(lengths.sum())
        at = np.repeat(np.array(self._first, np.int64), lengths) + literal[side]
        values = np.array([*self._literals, 0.0])
        low, operators = values[at], operator[side]
        high = np.where(operators == _BETWEEN, values[at + 1], low)
        predicates = np.zeros(len(side), PREDICATE)
        predicates["what"] = what[side]
        predicates["low"] = np.where(operators == _ABOVE, np.nextafter(low, np.inf), low)
        predicates["low"][(operators == _BELOW) | (operators == _AT_MOST)] = -LARGEST
        predicates["high"] = np.where(operators == _BELOW, np.nextafter(low, -np.inf), high)
        predicates["high"][(operators == _ABOVE) | (operators == _AT_LEAST)] = LARGEST
        return lengths, predicates

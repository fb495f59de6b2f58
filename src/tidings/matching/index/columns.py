"""From names and values to the numbers that kernels work on: attributes, strings that filters mention, string tests."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidings.matching.index.conjuncts import Conjunct, Constraint, Kind
from tidings.matching.index.kernels import Events
from tidings.matching.index.stringtests import StringTests
from tidings.matching.numbers import Number
from tidings.model.values import Value

NO_TESTS = np.empty((0, 0), np.int32)


def split_number(number: Number) -> tuple[float, int]:
    """A float, and the small integer that it lost: compared in this order, pairs compare as the numbers do."""
    nearest = float(number)
    return nearest, (number - int(nearest) if isinstance(number, int) else 0)


class _Column:
    """One attribute: the strings that filters compare it with, and the tests that they make of it."""

    __slots__ = ("codes", "tests")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.tests: StringTests | None = None


class Columns:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.test_count = 0
        self._columns: list[_Column] = []

    def __len__(self) -> int:
        return len(self._columns)

    def predicates(self, conjunct: Conjunct) -> list[tuple[float, float, int, int, int]]:
        """A conjunct's constraints as rows of PREDICATE; new names, strings and tests are taken in."""
        return [self._predicate(self._column(name), one) for name, one in conjunct.constraints.items()]

    def _column(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            self._columns.append(_Column())
            number = self.numbers[name] = len(self._columns) - 1
        return number

    def _predicate(self, attribute: int, constraint: Constraint) -> tuple[float, float, int, int, int]:
        what = attribute * 8 + constraint.kind
        column = self._columns[attribute]
        match constraint.kind:
            case Kind.NUMBER | Kind.BOOLEAN:
                (low, low_rest), (high, high_rest) = split_number(constraint.low), split_number(constraint.high)
                return low, high, what, low_rest, high_rest
            case Kind.STRING:
                code = -1 if constraint.text is None else column.codes.setdefault(constraint.text, len(column.codes))
                return code, code, what, 0, 0
            case Kind.TEST if constraint.test is not None:
                column.tests = column.tests or StringTests()
                number = column.tests.number(constraint.test, self.test_count)
                self.test_count = max(self.test_count, number + 1)
                return number, number, what, 0, 0
        return 0.0, 0.0, what, 0, 0

    def encode(self, event: Mapping[str, Value | None]) -> Events:
        """One event, for the kernels; names that no filter mentions are passed over."""
        attributes, kinds, fs, rs = [], [], [], []
        tests: list[int] = []
        members: list[Any] = []
        numbers, columns = self.numbers, self._columns
        for name, value in event.items():
            attribute = numbers.get(name)
            if attribute is None or value is None:
                continue
            kind = type(value)
            attributes.append(attribute)
            passed = -1
            if kind is float:
                kinds.append(1)
                fs.append(value)
                rs.append(0)
            elif kind is int:
                nearest = float(value)
                kinds.append(1)
                fs.append(nearest)
                rs.append(value - int(nearest))  # type: ignore[operator]
            elif kind is str:
                column = columns[attribute]
                kinds.append(2)
                fs.append(column.codes.get(value, -1))  # type: ignore[arg-type]
                rs.append(0)
                if column.tests is not None:
                    passed = len(members)
                    members.append(column.tests.passed_by(value))  # type: ignore[arg-type]
            else:
                kinds.append(3)
                fs.append(float(value))
                rs.append(0)
            tests.append(passed)
        size = (len(attributes), 1)
        first = np.zeros(len(members) + 1, np.int32)
        if members:
            np.cumsum([len(one) for one in members], out=first[1:])
        return Events(
            np.array(attributes, np.int32),
            np.array(kinds, np.uint8).reshape(size),
            np.array(fs, np.float64).reshape(size),
            np.array(rs, np.int16).reshape(size),
            np.array(tests, np.int32).reshape(size) if members else NO_TESTS,
            first,
            np.concatenate(members) if members else np.empty(0, np.int32),
        )



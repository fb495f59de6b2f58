"""Number the attributes, string constants and string tests of filters; encode filters and events with the numbers."""

from array import array as buffer
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.index.conjuncts import Conjunct, Constraint, ConstraintKind, StringTest
from tidings.matching.index.kernels.layout import PREDICATE
from tidings.matching.index.kernels.match import BOOLEAN, NUMBER, STRING
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.string_tests import StringTests, share_of
from tidings.matching.numbers import Number
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_INTEGER, MAX_STRING_CHARACTERS, MIN_INTEGER

NO_TESTS = np.empty((0, 0), np.int32)
_NOTHING_LOST = np.empty((0, 0), np.int16)


def split_number(number: Number) -> tuple[float, int]:
    """Split a number into its nearest float and the small integer that the float loses.

    Such pairs compare in lexicographic order exactly as the numbers do.
    """
    nearest = float(number)
    return nearest, (number - int(nearest) if isinstance(number, int) else 0)


_NO_MEMBERS = np.empty(0, np.int32)


class EncodedEvents(NamedTuple):
    """A batch of events as arrays: a row for each attribute and a column for each event."""

    attribute: Any  # the attribute's number for each row
    kind: Any
    f: Any
    r: Any  # what integers lost as floats; without rows if none lost anything
    tests: Any  # for each value the number of a list of string tests that it passes; without rows if there are none
    test_first: Any  # where each list begins in `test_members`; one more at the end
    test_members: Any

    def one(self, e: int) -> tuple[Any, Any]:
        """Return a single event in the form that `Columns.encode` returns."""
        there = np.flatnonzero(self.kind[:, e])
        values = np.zeros(1 + 4 * len(there))
        values[1::4], values[2::4], values[3::4] = self.attribute[there], self.kind[there, e], self.f[there, e]
        if len(self.r):
            values[4::4] = self.r[there, e]
        if not len(self.tests):
            return values, _NO_MEMBERS
        lists = [self.test_members[self.test_first[t] : self.test_first[t + 1]] for t in self.tests[there, e] if t >= 0]
        return values, np.concatenate([_NO_MEMBERS, *lists])

    def in_order(self, order: Any) -> "EncodedEvents":
        """Return the events in another order, transposed: a row for each event, so that its values lie together."""
        kind, f = np.ascontiguousarray(self.kind[:, order].T), np.ascontiguousarray(self.f[:, order].T)
        r = np.ascontiguousarray(self.r[:, order].T) if len(self.r) else self.r
        tests = np.ascontiguousarray(self.tests[:, order].T) if len(self.tests) else self.tests
        return self._replace(kind=kind, f=f, r=r, tests=tests)


class NotPlain(Exception):  # noqa: N818 - never leaves the index
    """A value that is not one of the four plain types, or exceeds their limits."""


class AttributeColumn:
    """One attribute: the strings that filters compare it with, and their string tests on it."""

    __slots__ = ("codes", "tests")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.tests: StringTests | None = None


class Columns:
    """The attributes, strings and string tests that filters mention, each with a number.

    It encodes conjuncts, which adds what they mention, and events, which adds nothing.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.test_count = 0
        self._string_count = 0
        self.asks_system = False  # whether some filter mentions $subject, $payload or $publisher
        self._columns: list[AttributeColumn] = []

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def size(self) -> int:
        """How many names, strings and tests have a number."""
        return len(self._columns) + self._string_count + self.test_count

    def compacted(self, parts: list[Conjuncts]) -> tuple["Columns", list[Conjuncts]]:
        """Return columns with only what these conjuncts mention, and the conjuncts with their numbers there."""
        columns = Columns()
        names = list(self.numbers)
        preds = np.concatenate([np.empty(0, PREDICATE), *(part.pred for part in parts)])
        order = np.argsort(preds["what"], kind="stable")
        ends = np.flatnonzero(np.diff(preds["what"][order], append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            of_attribute, begin = order[begin:end], end
            attribute, kind = divmod(int(preds["what"][of_attribute[0]]), 8)
            number = columns.number(names[attribute])
            preds["what"][of_attribute] = number * 8 + kind
            if kind in (STRING, ConstraintKind.TEST):
                used_numbers, places = np.unique(preds["low"][of_attribute], return_inverse=True)
                new_numbers = self._copy_strings_or_tests(used_numbers.tolist(), kind, attribute, columns, number)
                preds["low"][of_attribute] = np.array(new_numbers)[places]
                if kind == STRING:
                    preds["high"][of_attribute] = preds["low"][of_attribute]
        ends = np.cumsum([len(part.pred) for part in parts]).tolist()
        return columns, [
            part._replace(pred=preds[end - len(part.pred) : end]) for part, end in zip(parts, ends, strict=True)
        ]

    def _copy_strings_or_tests(
        self, used_numbers: list[float], kind: int, attribute: int, columns: "Columns", number: int
    ) -> list[int]:
        """Add strings or tests of an attribute to other columns; return their numbers there."""
        column, name = self._columns[attribute], list(columns.numbers)[number]
        if kind == STRING:
            texts = list(column.codes)
            return [-1 if code < 0 else columns.code(name, texts[int(code)]) for code in used_numbers]
        assert column.tests is not None  # noqa: S101 - there is a predicate with one of them
        tests = {old: test for test, old in column.tests.items()}
        return [columns.test(number, tests[int(old)]) for old in used_numbers]

    def saved(self) -> dict[str, Any]:
        """Return the names, strings and tests as JSON values."""
        columns = [
            {"name": name, "strings": list(column.codes), "tests": column.tests.saved() if column.tests else None}
            for name, column in zip(self.numbers, self._columns, strict=True)
        ]
        return {"columns": columns, "tests": self.test_count}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Return the columns that `saved` returned."""
        columns = cls()
        for saved_column in saved["columns"]:
            column = columns._columns[columns.number(saved_column["name"])]
            column.codes = {text: code for code, text in enumerate(saved_column["strings"])}
            columns._string_count += len(column.codes)
            column.tests = None if saved_column["tests"] is None else StringTests.of(saved_column["tests"])
        columns.test_count = saved["tests"]
        return columns

    def predicates(self, conjunct: Conjunct) -> list[tuple[float, float, int, int, int]]:
        """Return a conjunct's constraints as rows of PREDICATE; new names, strings and tests are added."""
        return [self._predicate(self.number(name), constraint) for name, constraint in conjunct.constraints.items()]

    def code(self, name: str, text: str) -> int:
        """Return the number of a string that a filter compares the attribute with; a new string is added."""
        return self._code(self._columns[self.number(name)], text)

    def _code(self, column: AttributeColumn, text: str) -> int:
        code = column.codes.get(text)
        if code is None:
            code = column.codes[text] = len(column.codes)
            self._string_count += 1
        return code

    def test(self, attribute: int, test: StringTest) -> int:
        """Return the number of a filter's test on the attribute; a new test is added."""
        column = self._columns[attribute]
        column.tests = column.tests or StringTests()
        if test not in column.tests:
            self.test_count += 1  # first, so that the scratch memory of a concurrent match has room for the new test
        return column.tests.number(test, self.test_count - 1)

    def number(self, name: str) -> int:
        """Return the number of an attribute; a new name is added."""
        number = self.numbers.get(name)
        if number is None:
            self._columns.append(AttributeColumn())
            number = self.numbers[name] = len(self._columns) - 1
            self.asks_system = self.asks_system or is_system_name(name)
        return number

    def _predicate(self, attribute: int, constraint: Constraint) -> tuple[float, float, int, int, int]:
        what = attribute * 8 + constraint.kind
        column = self._columns[attribute]
        match constraint.kind:
            case ConstraintKind.NUMBER | ConstraintKind.BOOLEAN:
                (low, low_rest), (high, high_rest) = split_number(constraint.low), split_number(constraint.high)
                return low, high, what, low_rest, high_rest
            case ConstraintKind.STRING:
                code = -1 if constraint.text is None else self._code(column, constraint.text)
                return code, code, what, 0, 0
            case ConstraintKind.TEST if constraint.test is not None:
                number = self.test(attribute, constraint.test)
                return number, share_of(constraint.test), what, 0, 0
        return 0.0, 0.0, what, 0, 0

    def system(self) -> Any:
        """Return for each attribute whether it is a system attribute; the additional entry at the end is 0.

        That entry stands for all names that no filter mentions.
        """
        flags = np.zeros(len(self) + 1, np.uint8)
        if self.asks_system:
            flags[[number for name, number in self.numbers.items() if is_system_name(name)]] = 1
        return flags

    def column(self, attribute: int) -> AttributeColumn:
        """Return the strings and tests of an attribute."""
        return self._columns[attribute]

    def known_predicate(self, attribute: int, constraint: Constraint) -> tuple[float, float, int, int, int]:
        """Return a constraint as a row of PREDICATE without adding anything; an unknown string has the code -2."""
        what = attribute * 8 + constraint.kind
        match constraint.kind:
            case ConstraintKind.NUMBER | ConstraintKind.BOOLEAN:
                (low, low_rest), (high, high_rest) = split_number(constraint.low), split_number(constraint.high)
                return low, high, what, low_rest, high_rest
            case ConstraintKind.STRING:
                codes: Mapping[str, int] = self._columns[attribute].codes if attribute < len(self) else {}
                code = -1 if constraint.text is None else codes.get(constraint.text, -2)
                return code, code, what, 0, 0
        return 0.0, 0.0, what, 0, 0

    def encode(self, event: Mapping[str, Any]) -> tuple[Any, Any]:
        """Encode one event for the kernels; return its values and the string tests that it passes.

        The values are: the count of floats; attribute and value of each float; then attribute, kind, number and rest of
        each other value. Names that no filter mentions are left out.

        Raises `NotPlain` for a value that `Attributes` has to check or convert first.
        """
        values, tests = self._encode_as_list(event)
        return np.frombuffer(buffer("d", values)), tests

    def _encode_as_list(self, event: Mapping[str, Any]) -> tuple[list[float], Any]:
        """Encode one event as `encode` does, with the values as a list."""
        plain: list[float] = [0.0]
        others: list[float] = []
        tests: Any = _NO_MEMBERS
        numbers = self.numbers
        for name, value in event.items():
            attribute = numbers.get(name)
            if attribute is None or value is None:
                continue
            kind = type(value)
            if kind is float and value - value == 0.0:  # finite
                plain += (attribute, value)
            elif kind is int and MIN_INTEGER <= value <= MAX_INTEGER:
                nearest = float(value)
                others += (attribute, NUMBER, nearest, value - int(nearest))
            elif kind is bool:
                others += (attribute, BOOLEAN, value, 0)
            elif (kind is str and len(value) <= MAX_STRING_CHARACTERS) or is_system_text(name, value):
                column, text = self._columns[attribute], value if kind is str else str.__str__(value)
                others += (attribute, STRING, column.codes.get(text, -1), 0)
                if column.tests is not None:
                    passed = column.tests.passed_by(text)
                    tests = passed if tests is _NO_MEMBERS else np.concatenate([tests, passed])
            else:
                raise NotPlain(name)
        plain[0] = len(plain) >> 1
        return plain + others if others else plain, tests

    def encode_rows(self, rows: Sequence[Mapping[str, Any]]) -> EncodedEvents:
        """Encode a batch of events that are given as mappings."""
        listed: list[float] = []
        lengths: list[int] = []
        passing: list[tuple[int, Any]] = []  # events that pass string tests
        for e, row in enumerate(rows):
            row_values, passed = self._encode_as_list(row)
            listed += row_values
            lengths.append(len(row_values))
            if passed is not _NO_MEMBERS and len(passed):
                passing.append((e, passed))
        values, sizes = np.frombuffer(buffer("d", listed)), np.array(lengths, np.int64)
        first = np.cumsum(sizes) - sizes
        numbers = values[first].astype(np.int64)  # for each event, the count of floats
        plain, plain_event = _steps(first + 1, numbers, 2)
        other, other_event = _steps(first + 1 + 2 * numbers, (sizes - 1 - 2 * numbers) // 4, 4)
        plain_attribute, other_attribute = values[plain].astype(np.int32), values[other].astype(np.int32)
        attributes = np.unique(np.concatenate([plain_attribute, other_attribute]))
        size = (len(attributes), len(rows))
        kind, f, r = np.zeros(size, np.uint8), np.zeros(size), _NOTHING_LOST
        at = np.searchsorted(attributes, plain_attribute), plain_event
        kind[at], f[at] = NUMBER, values[plain + 1]
        at = np.searchsorted(attributes, other_attribute), other_event
        kind[at], f[at] = values[other + 1], values[other + 2]
        lost = values[other + 3]
        if lost.any():
            r = np.zeros(size, np.int16)
            r[at] = lost
        tests, members = NO_TESTS, _Members()
        for e, passed in passing:
            if tests is NO_TESTS:
                tests = np.full(size, -1, np.int32)
            # A test's number also identifies its attribute, so any row in which the event has a value will do.
            tests[at[0][np.searchsorted(other_event, e)], e] = members.add(passed)
        return EncodedEvents(attributes, kind, f, r, tests, *members.arrays())

    def encode_table(self, table: Mapping[str, pa.Array], rows: int) -> EncodedEvents:
        """Encode a batch of events that are given as columns.

        Raises `InvalidValueError` for a column whose type or values no attribute can have.
        """
        known_columns = [(self.numbers[name], name, array) for name, array in table.items() if name in self.numbers]
        size = (len(known_columns), rows)
        kind, f, r = np.zeros(size, np.uint8), np.zeros(size), _NOTHING_LOST
        tests, members = NO_TESTS, _Members()
        for c, (attribute, name, array) in enumerate(known_columns):
            passed, lost = self._encode_column(attribute, name, array, kind[c], f[c], members)
            if lost is not None:
                r = np.zeros(size, np.int16) if r is _NOTHING_LOST else r
                r[c] = lost
            if passed is not None:
                tests = np.full(size, -1, np.int32) if tests is NO_TESTS else tests
                tests[c] = passed
        attributes = np.array([attribute for attribute, _, _ in known_columns], np.int32)
        return EncodedEvents(attributes, kind, f, r, tests, *members.arrays())

    def _encode_column(
        self, attribute: int, name: str, array: pa.Array, kind: Any, f: Any, members: "_Members"
    ) -> tuple[Any | None, Any | None]:
        """Encode a column: write the kind of each value into `kind`, and the value as a number into `f`.

        Returns for each value the list of string tests that it passes, and what it lost as a float; None where there is
        nothing.
        """
        valid = np.asarray(pc.is_valid(array))
        if pa.types.is_dictionary(array.type) and not pa.types.is_string(array.type.value_type):
            array = array.dictionary_decode()
        if pa.types.is_null(array.type):
            return None, None
        if pa.types.is_boolean(array.type):
            kind[:], f[:] = np.where(valid, BOOLEAN, 0), np.asarray(array.fill_null(False))
        elif pa.types.is_integer(array.type):
            values = np.asarray(whole_numbers(name, array))
            f[:], kind[:] = values, valid
            if len(values) and (values.max() > 2**53 or values.min() < -(2**53)):
                return None, _lost(values, f)
        elif pa.types.is_floating(array.type):
            f[:] = np.asarray(array.cast(pa.float64()).fill_null(0.0))
            kind[:] = valid
            if not np.isfinite(f).all():
                raise InvalidValueError(f"{name}: has numbers that are not finite; they must be null instead")
        elif (
            pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_dictionary(array.type)
        ):
            return self._encode_strings(attribute, name, array, kind, f, members), None
        else:
            raise InvalidValueError(f"{name}: a column is of booleans, numbers or strings, not {array.type}")
        return None, None

    def _encode_strings(
        self, attribute: int, name: str, array: pa.Array, kind: Any, f: Any, members: "_Members"
    ) -> Any | None:
        encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        column = self._columns[attribute]
        distinct = encoded.dictionary.to_pylist()
        longest = max(map(len, filter(None, distinct)), default=0)
        if longest > MAX_STRING_CHARACTERS and not is_system_name(name):
            raise InvalidValueError(f"{name}: longer than {MAX_STRING_CHARACTERS} characters (MAX_STRING_CHARACTERS)")
        places = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
        codes = np.array([column.codes.get(text, -1) for text in distinct] + [-1], np.float64)
        f[:] = codes[places]
        kind[:] = np.where(places >= 0, 2, 0)
        if column.tests is None:
            return None
        passed = np.array([members.add(column.tests.passed_by(text)) for text in distinct] + [-1], np.int32)
        return passed[places]


def is_system_name(name: str) -> bool:
    """Return whether a name is the system's, such as `$subject`."""
    return name.startswith("$")


def is_system_text(name: Any, value: Any) -> bool:
    """Return whether this is `$subject`, `$publisher` or the text of `$payload`.

    Each has a length limit of its own; they are not checked as attributes are, since `Attributes` refuses names that
    begin with `$`.
    """
    return isinstance(value, str) and is_system_name(name)


def whole_numbers(name: str, array: pa.Array) -> pa.Array:
    """Return a column of integers as 64-bit integers, 0 for null; raise `InvalidValueError` if one does not fit."""
    try:
        return array.cast(pa.int64()).fill_null(0)
    except pa.ArrowInvalid:
        raise InvalidValueError(f"{name}: has integers that do not fit into 64 bits with a sign") from None


def _steps(first: Any, counts: Any, step: int) -> tuple[Any, Any]:
    """Return, for each event, `counts` indices from `first` on, `step` apart; and the event of each index."""
    event = np.repeat(np.arange(len(first)), counts)
    within = np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first[event] + step * within, event


class _Members:
    """Lists of string tests, concatenated."""

    def __init__(self) -> None:
        self._lists: list[Any] = []

    def add(self, members: Any) -> int:
        """Append a list; return its number."""
        self._lists.append(members)
        return len(self._lists) - 1

    def arrays(self) -> tuple[Any, Any]:
        """Return where each list begins, and the members of all lists."""
        first = np.zeros(len(self._lists) + 1, np.int32)
        np.cumsum([len(members) for members in self._lists], out=first[1:])
        return first, np.concatenate(self._lists) if self._lists else np.empty(0, np.int32)


def _lost(values: Any, nearest: Any) -> Any:
    """Return what 64-bit integers lost when they became floats."""
    exact = np.where(nearest >= 2.0**63, 0.0, nearest).astype(np.int64)
    return np.where(nearest >= 2.0**63, (values - (2**63 - 1)) - 1, values - exact).astype(np.int16)

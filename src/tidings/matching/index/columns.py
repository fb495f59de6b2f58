"""From names and values to the numbers that kernels work on: attributes, strings that filters mention, string tests."""

from array import array as buffer
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.index.conjuncts import Conjunct, Constraint, Kind, StringTest
from tidings.matching.index.kernels import BOOLEAN, NUMBER, STRING
from tidings.matching.index.layout import PREDICATE
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.stringtests import StringTests, share_of
from tidings.matching.numbers import Number
from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_INTEGER, MAX_STRING_CHARACTERS, MIN_INTEGER

NO_TESTS = np.empty((0, 0), np.int32)
_NOTHING_LOST = np.empty((0, 0), np.int16)


def split_number(number: Number) -> tuple[float, int]:
    """A float, and the small integer that it lost: compared in this order, pairs compare as the numbers do."""
    nearest = float(number)
    return nearest, (number - int(nearest) if isinstance(number, int) else 0)


_NO_MEMBERS = np.empty(0, np.int32)


class Events(NamedTuple):
    """A batch of events: a row an attribute, a column an event."""

    attribute: Any  # of each row
    kind: Any
    f: Any
    r: Any  # no rows at all if no number lost anything when it became a float
    tests: Any  # the string tests that a value passes, as numbers of lists; no rows if there are none
    test_first: Any  # a list's first member in `test_members`; one more at the end
    test_members: Any

    def one(self, e: int) -> tuple[Any, Any]:
        """A single event, as `Columns.encode` makes it."""
        there = np.flatnonzero(self.kind[:, e])
        values = np.zeros(1 + 4 * len(there))
        values[1::4], values[2::4], values[3::4] = self.attribute[there], self.kind[there, e], self.f[there, e]
        if len(self.r):
            values[4::4] = self.r[there, e]
        if not len(self.tests):
            return values, _NO_MEMBERS
        lists = [self.test_members[self.test_first[t] : self.test_first[t + 1]] for t in self.tests[there, e] if t >= 0]
        return values, np.concatenate([_NO_MEMBERS, *lists])

    def in_order(self, order: Any) -> "Events":
        """The events in another order, and a row an event: what one event says lies together."""
        kind, f = np.ascontiguousarray(self.kind[:, order].T), np.ascontiguousarray(self.f[:, order].T)
        r = np.ascontiguousarray(self.r[:, order].T) if len(self.r) else self.r
        tests = np.ascontiguousarray(self.tests[:, order].T) if len(self.tests) else self.tests
        return self._replace(kind=kind, f=f, r=r, tests=tests)


class NotPlain(Exception):  # noqa: N818 - never leaves the index
    """A value that is not one of the four plain types, or not within their limits."""


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
        self._string_count = 0
        self.asks_system = False  # whether some filter speaks of $subject, $payload or $publisher
        self._columns: list[_Column] = []

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def size(self) -> int:
        """How much was mentioned: names, strings and tests."""
        return len(self._columns) + self._string_count + self.test_count

    def renewed(self, parts: list[Conjuncts]) -> tuple["Columns", list[Conjuncts]]:
        """Columns of what these conjuncts mention alone, and the conjuncts with the numbers that it has there."""
        made = Columns()
        names = list(self.numbers)
        preds = np.concatenate([np.empty(0, PREDICATE), *(part.pred for part in parts)])
        order = np.argsort(preds["what"], kind="stable")
        ends = np.flatnonzero(np.diff(preds["what"][order], append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            mine, begin = order[begin:end], end
            attribute, kind = divmod(int(preds["what"][mine[0]]), 8)
            number = made.number(names[attribute])
            preds["what"][mine] = number * 8 + kind
            if kind in (STRING, Kind.TEST):
                used, places = np.unique(preds["low"][mine], return_inverse=True)
                new = self._handed_on(used.tolist(), kind, attribute, made, number)
                preds["low"][mine] = np.array(new)[places]
                if kind == STRING:
                    preds["high"][mine] = preds["low"][mine]
        ends = np.cumsum([len(part.pred) for part in parts]).tolist()
        return made, [
            part._replace(pred=preds[end - len(part.pred) : end]) for part, end in zip(parts, ends, strict=True)
        ]

    def _handed_on(self, used: list[float], kind: int, attribute: int, made: "Columns", number: int) -> list[int]:
        """Strings or tests of an attribute, taken over by other columns: their numbers there."""
        column, name = self._columns[attribute], list(made.numbers)[number]
        if kind == STRING:
            texts = list(column.codes)
            return [-1 if code < 0 else made.code(name, texts[int(code)]) for code in used]
        assert column.tests is not None  # noqa: S101 - there is a predicate with one of them
        tests = {old: test for test, old in column.tests.items()}
        return [made.test(number, tests[int(old)]) for old in used]

    def saved(self) -> dict[str, Any]:
        """What a filter has mentioned, in a form that JSON can carry."""
        columns = [
            {"name": name, "strings": list(column.codes), "tests": column.tests.saved() if column.tests else None}
            for name, column in zip(self.numbers, self._columns, strict=True)
        ]
        return {"columns": columns, "tests": self.test_count}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """What `saved` gave."""
        made = cls()
        for given in saved["columns"]:
            column = made._columns[made.number(given["name"])]
            column.codes = {text: code for code, text in enumerate(given["strings"])}
            made._string_count += len(column.codes)
            column.tests = None if given["tests"] is None else StringTests.of(given["tests"])
        made.test_count = saved["tests"]
        return made

    def predicates(self, conjunct: Conjunct) -> list[tuple[float, float, int, int, int]]:
        """A conjunct's constraints as rows of PREDICATE; new names, strings and tests are taken in."""
        return [self._predicate(self.number(name), one) for name, one in conjunct.constraints.items()]

    def code(self, name: str, text: str) -> int:
        """The number of a string that a filter compares the attribute with."""
        return self._code(self._columns[self.number(name)], text)

    def _code(self, column: _Column, text: str) -> int:
        known = column.codes.get(text)
        if known is None:
            known = column.codes[text] = len(column.codes)
            self._string_count += 1
        return known

    def test(self, attribute: int, test: StringTest) -> int:
        """The number of a test that a filter makes of the attribute."""
        column = self._columns[attribute]
        column.tests = column.tests or StringTests()
        if test not in column.tests:
            self.test_count += 1  # before it is there: whoever matches meanwhile has room for all that a string passes
        return column.tests.number(test, self.test_count - 1)

    def number(self, name: str) -> int:
        """The number of an attribute; a new one for a name that no filter has mentioned yet."""
        number = self.numbers.get(name)
        if number is None:
            self._columns.append(_Column())
            number = self.numbers[name] = len(self._columns) - 1
            self.asks_system = self.asks_system or is_system_name(name)
        return number

    def _predicate(self, attribute: int, constraint: Constraint) -> tuple[float, float, int, int, int]:
        what = attribute * 8 + constraint.kind
        column = self._columns[attribute]
        match constraint.kind:
            case Kind.NUMBER | Kind.BOOLEAN:
                (low, low_rest), (high, high_rest) = split_number(constraint.low), split_number(constraint.high)
                return low, high, what, low_rest, high_rest
            case Kind.STRING:
                code = -1 if constraint.text is None else self._code(column, constraint.text)
                return code, code, what, 0, 0
            case Kind.TEST if constraint.test is not None:
                number = self.test(attribute, constraint.test)
                return number, share_of(constraint.test), what, 0, 0
        return 0.0, 0.0, what, 0, 0

    def system(self) -> Any:
        """For each attribute whether it is the system's own; one more at the end for names that no filter mentions."""
        found = np.zeros(len(self) + 1, np.uint8)
        if self.asks_system:
            found[[number for name, number in self.numbers.items() if is_system_name(name)]] = 1
        return found

    def column(self, attribute: int) -> "_Column":
        return self._columns[attribute]

    def known_predicate(self, attribute: int, constraint: Constraint) -> tuple[float, float, int, int, int]:
        """A constraint as a row of PREDICATE; nothing is taken in. A string that no filter mentions is -2."""
        what = attribute * 8 + constraint.kind
        match constraint.kind:
            case Kind.NUMBER | Kind.BOOLEAN:
                (low, low_rest), (high, high_rest) = split_number(constraint.low), split_number(constraint.high)
                return low, high, what, low_rest, high_rest
            case Kind.STRING:
                known: Mapping[str, int] = self._columns[attribute].codes if attribute < len(self) else {}
                code = -1 if constraint.text is None else known.get(constraint.text, -2)
                return code, code, what, 0, 0
        return 0.0, 0.0, what, 0, 0

    def encode(self, event: Mapping[str, Any]) -> tuple[Any, Any]:
        """One event, for the kernels: how many numbers there are that floats hold as they are; attribute and number of
        each; then attribute, kind, number and rest of the other values. And the string tests that were passed.
        Names that no filter mentions are passed over.

        Raises `NotPlain` for a value that has to go through the door of `Attributes` first.
        """
        values, tests = self._listed(event)
        return np.frombuffer(buffer("d", values)), tests

    def _listed(self, event: Mapping[str, Any]) -> tuple[list[float], Any]:
        """The same, as a list."""
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

    def encode_rows(self, rows: Sequence[Mapping[str, Any]]) -> Events:
        """A batch of events that each bring their own names."""
        listed: list[float] = []
        lengths: list[int] = []
        passing: list[tuple[int, Any]] = []  # events that have passed string tests
        for e, row in enumerate(rows):
            mine, passed = self._listed(row)
            listed += mine
            lengths.append(len(mine))
            if passed is not _NO_MEMBERS and len(passed):
                passing.append((e, passed))
        values, sizes = np.frombuffer(buffer("d", listed)), np.array(lengths, np.int64)
        first = np.cumsum(sizes) - sizes
        numbers = values[first].astype(np.int64)  # of each event, that floats hold as they are
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
            # Whose value passed them is in the test's own number: any row will do that the event has.
            tests[at[0][np.searchsorted(other_event, e)], e] = members.add(passed)
        return Events(attributes, kind, f, r, tests, *members.arrays())

    def encode_table(self, table: Mapping[str, pa.Array], rows: int) -> Events:
        """A batch: columns whose names some filter mentions, as arrays of the kernels' kinds."""
        chosen = [(self.numbers[name], name, array) for name, array in table.items() if name in self.numbers]
        size = (len(chosen), rows)
        kind, f, r = np.zeros(size, np.uint8), np.zeros(size), _NOTHING_LOST
        tests, members = NO_TESTS, _Members()
        for c, (attribute, name, array) in enumerate(chosen):
            passed, lost = self._encode_column(attribute, name, array, kind[c], f[c], members)
            if lost is not None:
                r = np.zeros(size, np.int16) if r is _NOTHING_LOST else r
                r[c] = lost
            if passed is not None:
                tests = np.full(size, -1, np.int32) if tests is NO_TESTS else tests
                tests[c] = passed
        attributes = np.array([attribute for attribute, _, _ in chosen], np.int32)
        return Events(attributes, kind, f, r, tests, *members.arrays())

    def _encode_column(
        self, attribute: int, name: str, array: pa.Array, kind: Any, f: Any, members: "_Members"
    ) -> tuple[Any | None, Any | None]:
        """Writes kinds and numbers; the lists of string tests passed, and what the numbers lost, if anything."""
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
    return name.startswith("$")


def is_system_text(name: Any, value: Any) -> bool:
    """Whether this is `$subject`, `$publisher` or the text of `$payload`. Each has a length limit of its own; they are
    not checked as attributes are, since `Attributes` refuses names that begin with `$`.
    """
    return isinstance(value, str) and is_system_name(name)


def whole_numbers(name: str, array: pa.Array) -> pa.Array:
    """A column of integers as 64-bit ones, 0 for null."""
    try:
        return array.cast(pa.int64()).fill_null(0)
    except pa.ArrowInvalid:
        raise InvalidValueError(f"{name}: has integers that do not fit into 64 bits with a sign") from None


def _steps(first: Any, counts: Any, step: int) -> tuple[Any, Any]:
    """So many places from the first on, a step apart, of each event; and the event of each."""
    event = np.repeat(np.arange(len(first)), counts)
    within = np.arange(len(event)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first[event] + step * within, event


class _Members:
    """Lists of string tests, one after the other."""

    def __init__(self) -> None:
        self._lists: list[Any] = []

    def add(self, members: Any) -> int:
        self._lists.append(members)
        return len(self._lists) - 1

    def arrays(self) -> tuple[Any, Any]:
        first = np.zeros(len(self._lists) + 1, np.int32)
        np.cumsum([len(one) for one in self._lists], out=first[1:])
        return first, np.concatenate(self._lists) if self._lists else np.empty(0, np.int32)


def _lost(values: Any, nearest: Any) -> Any:
    """What 64-bit integers lost when they became floats."""
    exact = np.where(nearest >= 2.0**63, 0.0, nearest).astype(np.int64)
    return np.where(nearest >= 2.0**63, (values - (2**63 - 1)) - 1, values - exact).astype(np.int16)

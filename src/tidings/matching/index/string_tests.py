"""String tests: prefixes, suffixes, substrings, and all other conditions on strings except equality.

Which tests a string passes is evaluated once for each distinct string, and cached. Prefixes, suffixes and substrings
are looked up by their length, so that the cost of a new string depends on how long it is, not on how many tests there
are.

One thread may add tests while others evaluate. The cache is therefore never emptied but replaced, after the new test is
in place: a concurrent evaluation that missed the new test writes its result into the old cache, which is read no more.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidings.matching.index.conjuncts import StringTest
from tidings.matching.reference import like
from tidings.matching.strings import EVERY, StringSet, after_prefix
from tidings.matching.value_sets import Regex, StringPattern
from tidings.model import patterns
from tidings.model.limits import MAX_CACHED_STRINGS
from tidings.model.patterns import Elements, Wildcard

Numbers = npt.NDArray[np.int32]
_OTHER, _PREFIX, _SUFFIX, _INSIDE = range(4)
_LETTERS, _PLACES = 12.0, 8  # assumed numbers of common letters, and of places where a substring may stand
_CACHE_BYTES_MAX = 256 * MAX_CACHED_STRINGS  # the cache's limit in characters and bytes of numbers
_FEW_SUBSTRINGS = 256  # substrings of one length up to which searching each is faster than looking up every slice


class StringTests:
    """The string tests of one attribute; the caller numbers them, across all attributes."""

    def __init__(self) -> None:
        self._numbers: dict[StringTest, int] = {}
        self._prefixes: dict[int, dict[str, list[int]]] = {}  # by length, then by text
        self._suffixes: dict[int, dict[str, list[int]]] = {}
        self._inside: dict[int, dict[str, list[int]]] = {}
        self._others: list[tuple[int, StringTest]] = []
        self._passed_tests = _PassedTests()

    @property
    def cache(self) -> "_PassedTests":
        """The results for recent strings; adding a test replaces it by an empty one."""
        return self._passed_tests

    def saved(self) -> list[Any]:
        """Return the tests with their numbers, as JSON values."""
        return [[number, _saved_test(test)] for test, number in self._numbers.items()]

    @classmethod
    def of(cls, saved: list[Any]) -> Self:
        """Return the tests that `saved` returned."""
        tests = cls()
        for number, test in saved:
            tests.number(_loaded_test(test), number)
        return tests

    def __contains__(self, test: StringTest) -> bool:
        return test in self._numbers

    def number(self, test: StringTest, following: int) -> int:
        """Return the number of a test; a new test gets the number `following`."""
        number = self._numbers.get(test)
        if number is not None:
            return number
        self._numbers[test] = following
        lookup, text = self._lookup_for(test)
        if lookup is None:
            self._others.append((following, test))
        else:
            lookup.setdefault(len(text), {}).setdefault(text, []).append(following)
        self._passed_tests = _PassedTests()
        return following

    def items(self) -> Iterable[tuple[StringTest, int]]:
        """Return all tests with their numbers."""
        return self._numbers.items()

    def all(self) -> list[int]:
        """Return the numbers of all tests."""
        return list(self._numbers.values())

    def passed_by(self, text: str) -> Numbers:
        """Return the numbers of the tests that a string passes, ascending."""
        passed = self._passed_tests  # read before the tests are: see the module's docstring
        numbers = passed.get(text)
        if numbers is None:
            numbers = np.array(sorted(self._evaluate(text)), np.int32)
            passed.put(text, numbers)
        return numbers

    def passed_but_for_regexes(self, text: str) -> list[int]:
        """Return the numbers of the tests that a string passes if regular expressions in tests are ignored.

        Covering ignores them as well. A number may occur twice.
        """
        left_out = [number for number, test in self._others if passes(_without_regexes(test), text)]
        return [*self.passed_by(text).tolist(), *left_out]

    def _lookup_for(self, test: StringTest) -> tuple[dict[int, dict[str, list[int]]] | None, str]:
        form, text = _form(test)
        return {_PREFIX: self._prefixes, _SUFFIX: self._suffixes, _INSIDE: self._inside}.get(form), text

    def _evaluate(self, text: str) -> set[int]:
        passed: set[int] = set()
        # Lists, since a dict cannot be iterated while another thread adds to it.
        for length, tests_by_text in list(self._prefixes.items()):
            passed.update(tests_by_text.get(text[:length], ()))
        for length, tests_by_text in list(self._suffixes.items()):
            if length <= len(text):
                passed.update(tests_by_text.get(text[len(text) - length :], ()))
        for length, tests_by_text in list(self._inside.items()):
            if len(tests_by_text) <= _FEW_SUBSTRINGS:
                for word in list(tests_by_text):
                    if word in text:
                        passed.update(tests_by_text[word])
                continue
            for start in range(len(text) - length + 1):
                passed.update(tests_by_text.get(text[start : start + length], ()))
        passed.update(number for number, test in self._others if passes(test, text))
        return passed


class _PassedTests:
    """A cache of the tests that strings passed; when it is full, the oldest strings are evicted."""

    def __init__(self) -> None:
        self._passed_by_text: OrderedDict[str, Numbers] = OrderedDict()
        self.size = 0  # characters, and bytes of numbers
        self._lock = threading.Lock()
        self.get = self._passed_by_text.get

    def __len__(self) -> int:
        return len(self._passed_by_text)

    def items(self) -> list[tuple[str, Numbers]]:
        """Return each string with the numbers of the tests that it passed, the oldest first."""
        with self._lock:
            return list(self._passed_by_text.items())

    def put(self, text: str, numbers: Numbers) -> None:
        """Add a string's result and evict the oldest strings if the cache is too large."""
        with self._lock:
            if text in self._passed_by_text:  # another thread has added it meanwhile
                return
            self._passed_by_text[text] = numbers
            self.size += len(text) + numbers.nbytes
            while len(self._passed_by_text) > MAX_CACHED_STRINGS or self.size > _CACHE_BYTES_MAX:
                oldest, forgotten = self._passed_by_text.popitem(last=False)
                self.size -= len(oldest) + forgotten.nbytes


def share_of(test: StringTest) -> float:
    """Estimate from the letters of a test which share of strings passes it."""
    form, text = _form(test)
    if form == _OTHER:
        return 1.0
    return min(1.0, (_PLACES if form == _INSIDE else 1) * _LETTERS ** -len(text))


def _form(test: StringTest) -> tuple[int, str]:
    """Return the form of a test (prefix, suffix, substring, other) and the text that it looks for."""
    if not test.required and not test.excluded and len(test.intervals) == 1:
        start, end = test.intervals[0]
        return (_PREFIX, start) if start and end == after_prefix(start) else (_OTHER, "")
    if test.intervals != EVERY or test.excluded or len(test.required) != 1:
        return _OTHER, ""
    (pattern,) = test.required
    if isinstance(pattern, Regex):
        return _OTHER, ""
    middle = "".join(element for element in pattern[1:-1] if isinstance(element, str))
    if pattern[0] is not Wildcard.RUN or len(middle) != len(pattern) - 2:
        return _OTHER, ""
    if pattern[-1] is Wildcard.RUN:
        return _INSIDE, middle
    return (_SUFFIX, middle + pattern[-1]) if isinstance(pattern[-1], str) else (_OTHER, "")


def passes(test: StringTest, text: str) -> bool:
    """Return whether a string passes a test, by definition: it evaluates every part."""
    return (
        _lies_in(text, test.intervals)
        and all(_has(text, pattern) for pattern in test.required)
        and not any(_has(text, pattern) for pattern in test.excluded)
    )


def _lies_in(text: str, intervals: StringSet) -> bool:
    """Return whether a string lies in one of the intervals, by bisection, since there may be thousands."""
    at = bisect_right(intervals, text, key=itemgetter(0)) - 1
    if at < 0:
        return False
    end = intervals[at][1]
    return end is None or text < end


def witness(test: StringTest) -> str | None:
    """Return a string that passes the test, if one is easily found; else None."""
    candidates = [start for start, _ in test.intervals]
    candidates += [_shortest(pattern) for pattern in test.required if not isinstance(pattern, Regex)]
    return next((text for text in candidates if passes(test, text)), None)


def _without_regexes(test: StringTest) -> StringTest:
    others = (
        frozenset(pattern for pattern in string_patterns if not isinstance(pattern, Regex))
        for string_patterns in (test.required, test.excluded)
    )
    return StringTest(test.intervals, *others)


def _shortest(pattern: Elements) -> str:
    return "".join(
        element if isinstance(element, str) else "a" if element is Wildcard.ANY else "" for element in pattern
    )


def _has(text: str, pattern: StringPattern) -> bool:
    if isinstance(pattern, Regex):
        return patterns.compile_regex(pattern.pattern).search(text) is not None
    elements: Elements = pattern
    return like(text, elements)


def _saved_test(test: StringTest) -> list[Any]:
    return [
        test.intervals,
        *(
            [_saved_pattern(pattern) for pattern in string_patterns]
            for string_patterns in (test.required, test.excluded)
        ),
    ]


def _loaded_test(saved: list[Any]) -> StringTest:
    intervals, required, excluded = saved
    patterns_of = (
        frozenset(_loaded_pattern(pattern) for pattern in string_patterns) for string_patterns in (required, excluded)
    )
    return StringTest(tuple((start, end) for start, end in intervals), *patterns_of)


def _saved_pattern(pattern: StringPattern) -> Any:
    if isinstance(pattern, Regex):
        return pattern.pattern
    return [[element.name] if isinstance(element, Wildcard) else element for element in pattern]


def _loaded_pattern(saved: Any) -> StringPattern:
    if isinstance(saved, str):
        return Regex(saved)
    return tuple(element if isinstance(element, str) else Wildcard[element[0]] for element in saved)

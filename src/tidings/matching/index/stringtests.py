"""String tests: prefixes, suffixes, words inside, and anything else that is asked of strings beside equality.

Which tests a string passes is found out once for each distinct string and remembered. Prefixes, suffixes and words
are looked up by their length, so that the cost of a new string depends on how long it is, not on how many tests
there are.

One thread may add tests while others ask. What is remembered is therefore never emptied but replaced, after the new
test is in place: whoever was still finding out remembers it where nobody looks any more.
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
from tidings.matching.valuesets import Regex, StringPattern
from tidings.model import patterns
from tidings.model.limits import MAX_CACHED_STRINGS
from tidings.model.patterns import Elements, Wild

Numbers = npt.NDArray[np.int32]
_OTHER, _PREFIX, _SUFFIX, _INSIDE = range(4)
_LETTERS, _PLACES = 12.0, 8  # how many letters are common, and in how many places a text may stand: guesses
_ROOM = 256 * MAX_CACHED_STRINGS  # characters, and bytes of numbers, that are remembered whatever strings are like
_FEW = 256  # words of one length that are sought one by one sooner than by cutting the string at every place


class StringTests:
    """The tests of one attribute. Their numbers are given out by the caller, who counts over all attributes."""

    def __init__(self) -> None:
        self._numbers: dict[StringTest, int] = {}
        self._prefixes: dict[int, dict[str, list[int]]] = {}  # by length
        self._suffixes: dict[int, dict[str, list[int]]] = {}
        self._inside: dict[int, dict[str, list[int]]] = {}
        self._others: list[tuple[int, StringTest]] = []
        self._passed = _Passed()

    @property
    def cache(self) -> "_Passed":
        """The results for the last strings; adding a test empties it."""
        return self._passed

    def saved(self) -> list[Any]:
        """The tests with their numbers, in a form that JSON can carry."""
        return [[number, _saved_test(test)] for test, number in self._numbers.items()]

    @classmethod
    def of(cls, saved: list[Any]) -> Self:
        """What `saved` gave."""
        made = cls()
        for number, test in saved:
            made.number(_loaded_test(test), number)
        return made

    def __contains__(self, test: StringTest) -> bool:
        return test in self._numbers

    def number(self, test: StringTest, following: int) -> int:
        """The number of a test: the one that it has, or `following` if it is new."""
        known = self._numbers.get(test)
        if known is not None:
            return known
        self._numbers[test] = following
        home, text = self._home(test)
        if home is None:
            self._others.append((following, test))
        else:
            home.setdefault(len(text), {}).setdefault(text, []).append(following)
        self._passed = _Passed()
        return following

    def items(self) -> Iterable[tuple[StringTest, int]]:
        """All tests, with their numbers."""
        return self._numbers.items()

    def all(self) -> list[int]:
        """The numbers of all tests."""
        return list(self._numbers.values())

    def passed_by(self, text: str) -> Numbers:
        """The numbers of the tests that a string passes."""
        passed = self._passed  # before looking at the tests: see above
        known = passed.get(text)
        if known is None:
            known = np.array(sorted(self._found(text)), np.int32)
            passed.put(text, known)
        return known

    def passed_but_for_regexes(self, text: str) -> list[int]:
        """The same for tests whose regular expressions are left out of account, as covering does not look into them."""
        left_out = [number for number, test in self._others if passes(_without_regexes(test), text)]
        return [*self.passed_by(text).tolist(), *left_out]

    def _home(self, test: StringTest) -> tuple[dict[int, dict[str, list[int]]] | None, str]:
        form, text = _form(test)
        return {_PREFIX: self._prefixes, _SUFFIX: self._suffixes, _INSIDE: self._inside}.get(form), text

    def _found(self, text: str) -> set[int]:
        found: set[int] = set()
        # Lists, since a dict that another thread adds to cannot be gone through.
        for length, known in list(self._prefixes.items()):
            found.update(known.get(text[:length], ()))
        for length, known in list(self._suffixes.items()):
            if length <= len(text):
                found.update(known.get(text[len(text) - length :], ()))
        for length, known in list(self._inside.items()):
            if len(known) <= _FEW:
                for word in list(known):
                    if word in text:
                        found.update(known[word])
                continue
            for start in range(len(text) - length + 1):
                found.update(known.get(text[start : start + length], ()))
        found.update(number for number, test in self._others if passes(test, text))
        return found


class _Passed:
    """The tests that strings passed: as many strings as there is room for, the oldest go first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Numbers] = OrderedDict()
        self.size = 0  # characters, and bytes of numbers
        self._changing = threading.Lock()
        self.get = self._known.get

    def __len__(self) -> int:
        return len(self._known)

    def items(self) -> list[tuple[str, Numbers]]:
        """Each string with the numbers of the tests that it passed, the oldest first."""
        with self._changing:
            return list(self._known.items())

    def put(self, text: str, numbers: Numbers) -> None:
        with self._changing:
            if text in self._known:  # another thread was faster
                return
            self._known[text] = numbers
            self.size += len(text) + numbers.nbytes
            while len(self._known) > MAX_CACHED_STRINGS or self.size > _ROOM:
                oldest, forgotten = self._known.popitem(last=False)
                self.size -= len(oldest) + forgotten.nbytes


def share_of(test: StringTest) -> float:
    """How many of the strings that come may pass the test: a guess from its letters."""
    form, text = _form(test)
    if form == _OTHER:
        return 1.0
    return min(1.0, (_PLACES if form == _INSIDE else 1) * _LETTERS ** -len(text))


def _form(test: StringTest) -> tuple[int, str]:
    """What the test asks, if it is simple, and the text that it looks for."""
    if not test.required and not test.excluded and len(test.intervals) == 1:
        start, end = test.intervals[0]
        return (_PREFIX, start) if start and end == after_prefix(start) else (_OTHER, "")
    if test.intervals != EVERY or test.excluded or len(test.required) != 1:
        return _OTHER, ""
    (pattern,) = test.required
    if isinstance(pattern, Regex):
        return _OTHER, ""
    middle = "".join(one for one in pattern[1:-1] if isinstance(one, str))
    if pattern[0] is not Wild.RUN or len(middle) != len(pattern) - 2:
        return _OTHER, ""
    if pattern[-1] is Wild.RUN:
        return _INSIDE, middle
    return (_SUFFIX, middle + pattern[-1]) if isinstance(pattern[-1], str) else (_OTHER, "")


def passes(test: StringTest, text: str) -> bool:
    """What a test means."""
    return (
        _lies_in(text, test.intervals)
        and all(_has(text, one) for one in test.required)
        and not any(_has(text, one) for one in test.excluded)
    )


def _lies_in(text: str, intervals: StringSet) -> bool:
    """They rise, and there may be thousands."""
    at = bisect_right(intervals, text, key=itemgetter(0)) - 1
    if at < 0:
        return False
    end = intervals[at][1]
    return end is None or text < end


def witness(test: StringTest) -> str | None:
    """A string that passes the test, where one is easily found."""
    guesses = [start for start, _ in test.intervals]
    guesses += [_shortest(one) for one in test.required if not isinstance(one, Regex)]
    return next((text for text in guesses if passes(test, text)), None)


def _without_regexes(test: StringTest) -> StringTest:
    kept = (frozenset(one for one in ones if not isinstance(one, Regex)) for ones in (test.required, test.excluded))
    return StringTest(test.intervals, *kept)


def _shortest(pattern: Elements) -> str:
    return "".join(one if isinstance(one, str) else "a" if one is Wild.ANY else "" for one in pattern)


def _has(text: str, pattern: StringPattern) -> bool:
    if isinstance(pattern, Regex):
        return patterns.regex(pattern.pattern).search(text) is not None
    elements: Elements = pattern
    return like(text, elements)


def _saved_test(test: StringTest) -> list[Any]:
    return [test.intervals, *([_saved_pattern(one) for one in ones] for ones in (test.required, test.excluded))]


def _loaded_test(saved: list[Any]) -> StringTest:
    intervals, required, excluded = saved
    patterns_of = (frozenset(_loaded_pattern(one) for one in ones) for ones in (required, excluded))
    return StringTest(tuple((start, end) for start, end in intervals), *patterns_of)


def _saved_pattern(pattern: StringPattern) -> Any:
    if isinstance(pattern, Regex):
        return pattern.pattern
    return [[one.name] if isinstance(one, Wild) else one for one in pattern]


def _loaded_pattern(saved: Any) -> StringPattern:
    if isinstance(saved, str):
        return Regex(saved)
    return tuple(one if isinstance(one, str) else Wild[one[0]] for one in saved)

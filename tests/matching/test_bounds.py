"""Nothing that fits the limits makes matching, comparing or merging slow: work is counted, not timed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tidings import Filter, merge

P = Filter.parse
MANY = "".join(chr(0x4E00 + i) for i in range(1_000))  # a thousand different characters


def calls_of(work: Callable[[], Any]) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def points(numbers: Any) -> str:
    return ", ".join(map(str, numbers))


def dnf(extra: str) -> Filter:
    return P(" or ".join(f"(a = {i} and b > {i}{extra})" for i in range(300)))


CASES: dict[str, Callable[[], Any]] = {
    "like, a thousand characters": lambda: P(f"s like '%{MANY}%'").matches({"s": "a" * 8_000}),
    "like, nearly everywhere": lambda: P("s like '%" + "a_" * 500 + "b%'").matches({"s": "a" * 8_000}),
    "like, many runs": lambda: P("s like '" + "%a" * 511 + "'").matches({"s": "a" * 8_000}),
    "topic, long levels": lambda: P("/*/*/*/*/*/b", "topic").matches({}, subject="/" + "a/" * 500),
    "regex, a long payload": lambda: P("[ab]*a[ab]{500}c", "regex").matches({}, payload=b"ab" * 1_000_000),
    "in covers in": lambda: P(f"x in ({points(range(4_096))})").covers(P(f"x in ({points(range(0, 8_192, 2))})")),
    "not in covers in": lambda: P(f"x not in ({points(range(4_096))})").covers(P(f"x in ({points(range(4_096))})")),
    "patterns of a thousand characters": lambda: P(f"s like '%{MANY}%'").overlaps(P("s like '%q'")),
    "dnf covers dnf": lambda: dnf("").covers(dnf(" and c = 1")),
    "merge boxes": lambda: merge([P(f"x between {i} and {i + 3} and y > {i % 7} and z != {i}") for i in range(500)]),
    "merge points": lambda: merge([P(f"x = {i}") for i in range(3_000)]),
    "merge patterns": lambda: merge([P(f"s like '%a{i}%' and x > {i}") for i in range(300)]),
}


@pytest.mark.parametrize("case", CASES)
def test_work_is_bounded(case: str) -> None:
    assert calls_of(CASES[case]) < 5_000_000

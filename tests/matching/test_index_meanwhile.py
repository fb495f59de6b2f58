"""One thread changes the index while others match: they find what was there before or after, and nothing else."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import tidings as td
from tidings import Filter
from tidings.matching.index.conjuncts import StringTest, conjuncts_of
from tidings.matching.index.stringtests import StringTests


@contextmanager
def matching(match: Callable[[], object]) -> Iterator[list[int]]:
    """Two threads that match all the time, and switch as often as can be; how many times they did."""
    stop, errors, times = threading.Event(), list[str](), [0, 0]

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                match()
                times[number] += 1
        except BaseException:  # noqa: BLE001 - whatever it is, the test has failed
            errors.append(traceback.format_exc())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
    try:
        for thread in threads:
            thread.start()
        yield times
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    assert not errors, errors[0]
    assert min(times) > 0


def test_who_stays_is_found_while_others_come_and_go() -> None:
    """Whatever is added, flushed, merged, removed and rebuilt meanwhile."""
    index = td.Index()
    staying = {f"stays{i}" for i in range(300)}
    for i, id in enumerate(sorted(staying)):  # noqa: A001
        index.add(id, f"n > 0 and m{i % 7} is null or k = {i}")

    def match() -> None:
        assert staying <= index.match({"n": 1, "s": "xyz"})

    with matching(match):
        for i in range(1_500):
            index.add(f"goes{i}", f"n = {i % 5} and a{i % 900} > {i} or s like '%{i}%'")
            if i % 3:
                index.remove(f"goes{i}")


class Meanwhile(str):
    """A string while which is looked at something happens."""

    __slots__ = ("happens",)
    happens: Callable[[], object]

    def __contains__(self, word: str) -> bool:
        self.happens()
        return super().__contains__(word)


def string_test(text: str) -> StringTest:
    (only,) = conjuncts_of(Filter.parse(text).expression)
    test = only.constraints["s"].test
    assert test is not None
    return test


@pytest.mark.parametrize("pattern", ["%y%", "%xy%", "x%"])  # of a kind and length that there is, and of others
def test_a_string_test_that_comes_while_a_string_is_tested_is_not_forgotten(pattern: str) -> None:
    tests, text = StringTests(), Meanwhile("xyz")
    tests.number(string_test("s like '%z%'"), 0)
    text.happens = lambda: tests.number(string_test(f"s like '{pattern}'"), 1)
    tests.passed_by(text)
    assert tests.passed_by(text).tolist() == [0, 1]

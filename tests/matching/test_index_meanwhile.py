"""One thread changes the index while others match: they find what was there before or after, and nothing else."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
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
        except BaseException:
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


def test_who_is_replaced_is_found_as_it_was_or_as_it_is() -> None:
    """Also where it asks for names that nobody had asked for when the match began."""
    index, names = td.Index(), [f"a{i}" for i in range(600)]
    index.add("s", "a0 = 1")
    event = dict.fromkeys(names, 1)

    def match() -> None:
        assert "s" in index.match(event)

    with matching(match):
        for name in names:
            index.add("s", f"{name} = 1")


def test_who_is_removed_is_not_found_in_spite_of_its_filter() -> None:
    index = td.Index()
    index.add("other", "n > 1", publishers="x = 1")

    def match() -> None:
        assert index.match({"n": 1}, context={"x": 2}) == set()

    with matching(match):
        for _ in range(3_000):
            index.add("s", "n > 0", publishers="x = 1")
            index.remove("s")


def test_batches_go_on_while_others_come_and_go() -> None:
    index = td.Index()
    index.add("stays", "n > 0")
    table = pa.table({"n": [1] * 20})

    def match() -> None:
        found = index.match_batch(table)["subscription"].to_pylist()
        assert found.count("stays") == 20
        assert {one[:4] for one in found} <= {"stay", "goes"}

    with matching(match):
        for i in range(3_000):
            index.add(f"goes{i}", "n > 0")
            index.remove(f"goes{i}")

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
from tidings.matching.index.batch import EventBatch
from tidings.matching.index.columns import Columns, EncodedEvents
from tidings.matching.index.conjuncts import StringTest, conjuncts_of
from tidings.matching.index.string_tests import StringTests


@contextmanager
def matching(match: Callable[[], object]) -> Iterator[None]:
    """Two threads that match all the time, and switch as often as can be."""
    begun, done, errors = threading.Barrier(3), threading.Event(), list[str]()

    def work() -> None:
        begun.wait()
        try:
            while not done.is_set():
                match()
        except BaseException:
            errors.append(traceback.format_exc())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        begun.wait()
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    assert not errors, errors[0]


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
    """While someone looks for a word in it, something happens."""

    __slots__ = ("happens",)
    happens: Callable[[], object]

    def __contains__(self, word: str) -> bool:  # type: ignore[override]
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


def test_a_batch_that_was_disturbed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, whose events keep their numbers."""
    index, encoded = td.Index(), EventBatch.encoded
    index.add("s", "n = 1")
    index.add("box", "n < 3", subscriber="car", publishers="x between this.x - 1 and this.x + 1")
    index.set_context("car", {"x": 5})

    def disturbed(batch: EventBatch, columns: Columns) -> EncodedEvents:
        found = encoded(batch, columns)
        monkeypatch.undo()
        index.add("s", "m = 1 and n > 0")
        return found

    monkeypatch.setattr(EventBatch, "encoded", disturbed)
    rows = 1_000
    table = pa.table(
        {"n": [i % 5 for i in range(rows)], "m": [1] * rows, "context": [{"x": i % 7} for i in range(rows)]}
    )
    found = index.match_batch(table).to_pydict()
    expected = {(i, "s") for i in range(rows) if i % 5} | {(i, "box") for i in range(rows) if i % 5 < 3 and i % 7 >= 4}
    assert set(zip(found["event"], found["subscription"], strict=True)) == expected
    assert len(found["event"]) == len(expected)


def test_ids_that_are_listed_while_another_one_comes_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index, array = td.Index(), pa.array
    index.add("first", "n > 0")

    def disturbed(*given: object) -> pa.Array:
        made = array(*given)
        monkeypatch.undo()
        index.add("second", "n > 0")
        return made

    monkeypatch.setattr(pa, "array", disturbed)
    index.parts.position_table.ids()
    assert index.parts.position_table.ids().to_pylist() == ["first", "second"]


def test_threads_that_have_ended_leave_no_memory_behind() -> None:
    index = td.Index()
    index.add("s", "n > 0")
    for _ in range(20):
        thread = threading.Thread(target=index.match, args=[{"n": 1}])
        thread.start()
        thread.join()
    assert len(index.parts.matcher.threads) == 1
    assert index.stats().matches == 20


def test_an_index_is_put_in_order_while_others_come_and_go() -> None:
    index = td.Index()
    staying = {f"stays{i}" for i in range(1_500)}
    for i, id in enumerate(sorted(staying)):  # noqa: A001
        index.add(id, f"n > 0 and m{i % 7} is null or k = {i}")

    def match() -> None:
        assert staying <= index.match({"n": 1, "s": "xyz"})

    with matching(match):
        for i in range(300):
            index.add(f"goes{i}", f"n = {i % 5} and a{i % 90} > {i} or s like '%{i}%'")
            if i % 3:
                index.remove(f"goes{i}")
            if i % 20 == 0:
                index.tidy()


@pytest.mark.parametrize("merged", [False, True])  # meanwhile, by what came
def test_what_changes_while_an_index_is_put_in_order_counts(merged: bool) -> None:
    index = td.Index()
    for i in range(1_100):
        index.add(f"s{i}", f"n >= {i}")
    store = index.parts.store
    sources = store.begin_merge()
    assert len(sources) == 2
    assert store.begin_merge() == []  # one at a time
    ordered = store.merge(sources)
    index.remove("s1")
    index.remove("s1090")
    index.add("s2", "n < 0")
    for i in range(2_000 if merged else 10):
        index.add(f"t{i}", f"n = {i}")
    expected = index.match({"n": 1_200})
    before = len(store.segments)
    store.end_merge(sources, ordered)
    assert index.match({"n": 1_200}) == expected
    assert {"s0", "s1099"} <= expected
    assert expected.isdisjoint({"s1", "s1090", "s2"})
    assert (len(store.segments) == before) == merged


def test_an_index_knows_when_to_put_itself_in_order() -> None:
    index = td.Index()
    for i in range(3_000):
        index.add(f"s{i}", f"n >= {i}")
    assert not index.is_untidy
    for _ in range(2_000):
        index.match_positions({"n": -1})
    assert index.is_untidy
    index.tidy()
    assert not index.is_untidy
    assert index.stats().segments == 1
    for _ in range(2_000):
        index.match_positions({"n": -1})
    assert not index.is_untidy

"""What nobody would send who means well: the index answers rightly, in bounded memory, and stays on its feet."""

import json
import math
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidings as td
from tests.sizes import sized
from tidings import Attributes, FilterError, InvalidValueError
from tidings.matching.index import string_tests
from tidings.matching.reference import Scope, truth
from tidings.model.expression import Attribute, Comparison, Constant
from tidings.model.filter import FilterValue
from tidings.model.limits import (
    MAX_ATTRIBUTES,
    MAX_CACHED_STRINGS,
    MAX_CONJUNCTS,
    MAX_IN_VALUES,
    MAX_INTEGER,
    MAX_NAME_CHARACTERS,
    MAX_STRING_CHARACTERS,
    MIN_INTEGER,
)

MANY = sized(20_000, 100_000)
PATTERNS = sized(200, 1_000)
ENDLESS = sized(500, 5_000)
MEGABYTE = 1 << 20


def index_of(contents: list[str]) -> td.Index:
    """The subscription s7 has the content number 7."""
    index = td.Index()
    index.add_many(pa.table({"id": [f"s{i}" for i in range(len(contents))], "content": contents}))
    return index


def numbers(index: td.Index, event: dict[str, Any], **about: Any) -> list[int]:
    return sorted(int(name[1:]) for name in index.match(event, **about))


def pairs(index: td.Index, table: pa.Table) -> set[tuple[int, int]]:
    found = index.match_batch(table)
    return {
        (e, int(name[1:]))
        for e, name in zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)
    }


def by_reference(contents: list[str], event: dict[str, Any]) -> list[int]:
    scope = Scope(Attributes.of(event))
    return [i for i, text in enumerate(contents) if truth(td.Filter.parse(text).expression, scope) is True]


@contextmanager
def no_more_than(megabytes: float) -> Iterator[None]:
    """What is left behind at the end."""
    tracemalloc.start()
    try:
        yield
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < megabytes * MEGABYTE


class TestManyOfAKind:
    def test_all_the_same(self) -> None:
        index = index_of(["class = 'a' AND n > 3"] * MANY)
        assert len(index.match_positions({"class": "a", "n": 4})) == MANY
        assert len(index.match_positions({"class": "a", "n": 3})) == 0
        for i in range(0, MANY, 10):
            index.remove(f"s{i}")
        assert numbers(index, {"class": "a", "n": 4}) == [i for i in range(MANY) if i % 10]
        assert index.match_batch(pa.table({"class": ["a", "b", "a"], "n": [4, 4, None]})).num_rows == MANY * 9 // 10
        assert index.stats().array_bytes < 64 * MANY

    def test_all_the_same_one_by_one_and_gone_again(self) -> None:
        index = td.Index()
        for i in range(3_000):
            index.add(f"s{i}", "n BETWEEN 1 AND 2")
        assert len(index.match_positions({"n": 1})) == 3_000
        for i in range(3_000):
            index.remove(f"s{i}")
        assert index.match({"n": 1}) == set()
        assert index.stats().conjuncts == 0

    def test_an_attribute_each(self) -> None:
        index, many = td.Index(), 40_000  # more than a word of blocks
        contents = (FilterValue(Comparison(Attribute(f"a{i}"), ">=", Constant(i % 7))) for i in range(many))
        index.put_many([td.Subscription(id=f"s{i}", subscriber="ann", content=one) for i, one in enumerate(contents)])
        asked = range(0, many, many // 100)
        event: dict[str, Any] = {f"a{i}": i % 5 for i in asked}
        wanted = [i for i in asked if i % 5 >= i % 7]
        assert numbers(index, event) == wanted
        assert numbers(index, {f"a{i}": 9 for i in range(MAX_ATTRIBUTES)}) == list(range(MAX_ATTRIBUTES))
        table = pa.table({name: [value, None] for name, value in event.items()})
        assert pairs(index, table) == {(0, i) for i in wanted}
        index.add("s1000000", "yet_another = 1")
        assert numbers(index, {**event, "yet_another": 1}) == [*wanted, 1_000_000]

    @pytest.mark.parametrize("many", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
    def test_a_value_each(self, many: int) -> None:
        index = index_of([f"n = {i}" for i in range(many)])
        assert numbers(index, {"n": many - 1}) == [many - 1]
        assert numbers(index, {"n": 12_345.0}) == [12_345]
        assert numbers(index, {"n": many}) == numbers(index, {"n": 0.5}) == numbers(index, {"n": "1"}) == []
        found = index.match_batch(pa.table({"n": np.arange(0, 2 * many, 5)}))
        assert found["subscription"].to_pylist() == [f"s{i}" for i in range(0, many, 5)]

    def test_a_string_each(self) -> None:
        index = index_of([f"c = 'value {i}'" for i in range(50_000)])
        assert numbers(index, {"c": "value 49999"}) == [49_999]
        assert numbers(index, {"c": "value 50000"}) == numbers(index, {"c": 49_999}) == []
        values = [f"value {i}" for i in range(49_990, 50_010)]
        assert pairs(index, pa.table({"c": values})) == {(e, 49_990 + e) for e in range(10)}

    def test_skewed_and_constant_data(self) -> None:
        bounds = [0.0] * 9_000 + [10.0**i for i in range(-300, 300, 2)]
        index = index_of([f"n >= {bound!r}" for bound in bounds])
        for value in (-1.0, -0.0, 0, 5e-324, 1e-300, 1.0, 1e17, 1.7e308):
            assert len(index.match_positions({"n": value})) == sum(value >= bound for bound in bounds)
        values = [-1.0, 0.0, 1e-300, 1.0, 1e17, 1.7e308] * 20
        counts = np.bincount(index.match_batch(pa.table({"n": values}))["event"].to_numpy(), minlength=len(values))
        assert counts.tolist() == [sum(value >= bound for bound in bounds) for value in values]


class TestManyAlternatives:
    @pytest.mark.parametrize("more", [0, 1])
    def test_as_many_as_there_may_be_and_one_more(self, more: int) -> None:
        width = MAX_CONJUNCTS + more
        contents = [" OR ".join(f"a{j} = {i + j}" for j in range(width)) for i in range(1_500)]
        index = index_of(contents)
        event = {f"a{j}": 700 + 2 * j for j in range(width)}
        assert numbers(index, event) == list(range(700, 700 + width))
        assert numbers(index, {f"a{width - 1}": 100 + width - 1}) == [100]
        assert numbers(index, {"a0": "700"}) == []
        table = pa.table({name: [value, None] for name, value in event.items()})
        assert pairs(index, table) == {(0, i) for i in range(700, 700 + width)}

    def test_products_of_alternatives(self) -> None:
        contents = [" AND ".join(f"(a{j} = {i} OR b{j} = {i})" for j in range(10)) for i in range(200)]
        index = index_of(contents)
        event = {f"{'ab'[j % 2]}{j}": 7 for j in range(10)}
        assert numbers(index, event) == [7]
        del event["a0"]
        assert numbers(index, event) == []

    def test_enormous_lists(self) -> None:
        listed = ", ".join(str(3 * i) for i in range(MAX_IN_VALUES))
        texts = [f"n IN ({listed})", f"n NOT IN ({listed})", f"n IN ({listed}) AND m = 1"]
        index = index_of(texts)
        for event in ({"n": 3 * 4000, "m": 1}, {"n": 3 * 4000 + 1, "m": 1}, {"n": "3"}, {"m": 1}):
            assert numbers(index, event) == by_reference(texts, event)
        with pytest.raises(FilterError, match="MAX_IN_VALUES"):
            index.add("s", f"n IN ({listed}, -1)")

    def test_what_contradicts_itself_matches_nothing(self) -> None:
        texts = [
            "n > 3 AND n < 3",
            "n = 1 AND n = 2",
            "c = 'a' AND c = 'b'",
            "n IS NULL AND n = 1",
            "n BETWEEN 3 AND 2",
        ]
        index = index_of(texts * 1_000)
        events: list[dict[str, Any]] = [{}, {"n": 1}, {"n": 3}, {"n": 2.5}, {"c": "a"}, {"c": "b", "n": 2}]
        assert [numbers(index, event) for event in events] == [[]] * len(events)
        assert index.match_batch(pa.table({"n": [1, 2, 3], "c": ["a", "b", None]})).num_rows == 0
        index.remove("s0")
        index.add("s1", "n = 1")
        assert numbers(index, {"n": 1}) == [1]


class TestNothing:
    def test_an_index_without_subscriptions(self) -> None:
        index = td.Index()
        assert index.match({}) == index.match({"a": 1, "b": "x"}, context={"x": 1}) == set()
        for table in (pa.table({}), pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": [1, None]})):
            assert index.match_batch(table).to_pylist() == []
        assert index.set_contexts(pa.table({"client": pa.array([], pa.string())})) == 0
        index.add_many(pa.table({"id": pa.array([], pa.string()), "content": pa.array([], pa.string())}))
        assert len(index) == 0

    @pytest.mark.parametrize("built", [False, True])
    def test_batches_without_rows_or_known_columns(self, built: bool) -> None:
        index = td.Index()
        index.add("s0", "a = 1")
        index.add("s1", "b IS NULL")
        index.add("s2", "")
        if built:
            index.parts.store.flushed_segments()
        assert index.match_batch(pa.table({"a": pa.array([], pa.int64())})).num_rows == 0
        assert pairs(index, pa.table({"unheard_of": [1, 2]})) == {(0, 1), (0, 2), (1, 1), (1, 2)}
        assert pairs(index, pa.table({"attributes": ["{}"]})) == {(0, 1), (0, 2)}
        assert numbers(index, {}) == numbers(index, {"unheard_of": "x"}) == [1, 2]

    def test_nulls_everywhere(self) -> None:
        texts = [
            "a = 1",
            "c LIKE 'x%'",
            "a IS NULL",
            "c IS NULL AND d IS NULL",
            "NOT c = 'x'",
            "d",
            "c != 'x' OR a > 0",
        ]
        index = index_of(texts)
        index.add("s90", "", subscriber="ann", publishers="x = this.x")
        index.add("s91", "", subscriber="ann", publishers="distance(x, y, this.x, this.y) < 5")
        index.add("s92", "", subscriber="ann", publishers="x IS NULL")
        index.set_context("ann", {"x": None, "y": None})
        types = {"a": pa.int64(), "c": pa.string(), "d": pa.bool_()}
        place = pa.struct([("x", pa.float64()), ("y", pa.float64())])
        wanted = {(e, i) for e in range(100) for i in (2, 3, 92)}
        for columns in (
            {name: pa.nulls(100, kind) for name, kind in types.items()},
            {name: pa.nulls(100) for name in types},
            {"c": pa.nulls(100, pa.large_string())},
            {"c": pa.nulls(100, pa.dictionary(pa.int32(), pa.string()))},
            {"attributes": pa.nulls(100, pa.string())},
            {"attributes": pa.nulls(100, pa.map_(pa.string(), pa.int64()))},
            {"attributes": pa.array([json.dumps({"a": None, "c": None})] * 100)},
        ):
            for context in (pa.nulls(100, place), pa.nulls(100, pa.string()), pa.array([{"x": None}] * 100, place)):
                assert pairs(index, pa.table({**columns, "context": context})) == wanted, columns
        assert numbers(index, {"a": None, "c": None, "d": None}, context={"x": None}) == [2, 3, 92]
        nothing = pa.table({"client": ["ann", "bob"], "x": pa.nulls(2), "y": pa.nulls(2, pa.float64())})
        index.set_contexts(nothing)
        assert numbers(index, {"a": 1}, context={}) == [0, 3, 6, 92]


class TestMuch:
    def test_more_matches_than_any_buffer_holds(self) -> None:
        index = index_of(["n > 0"] * 30_000)
        for i in range(500):
            index.add(f"s{30_000 + i}", "n + 0 > 0 OR n = 1")  # some of them by way of the reference
        assert numbers(index, {"n": 1}) == list(range(30_500))
        found = index.match_batch(pa.table({"n": [1.0] * 45 + [-1.0] + [1.0] * 45}))
        assert found.num_rows == 90 * 30_500
        assert 45 not in found["event"].to_pylist()

    def test_strings_as_long_as_they_may_be(self) -> None:
        long = "x" * (MAX_STRING_CHARACTERS - 1)
        texts = [f"c = '{long}y'", f"c = '{long}z'", f"c LIKE '{long[:1000]}%'", "c LIKE '%y'", "c > 'x'", "length > 1"]
        index = index_of(texts)
        assert numbers(index, {"c": long + "y"}) == by_reference(texts, {"c": long + "y"}) == [0, 2, 3, 4]
        assert pairs(index, pa.table({"c": [long + "z", long]})) == {(0, 1), (0, 2), (0, 4), (1, 2), (1, 4)}
        with pytest.raises(InvalidValueError, match="MAX_STRING_CHARACTERS"):
            index.match({"c": long + "yy"})
        with pytest.raises(InvalidValueError, match="MAX_STRING_CHARACTERS"):
            index.match_batch(pa.table({"c": ["x", long + "yy"]}))

    def test_thousands_of_patterns(self) -> None:
        shapes = ("c LIKE 'p{i}%'", "c LIKE '%s{i}'", "c LIKE '%m{i}.%'", "c LIKE 'p{i}%s{i}'", "c RLIKE '^p{i}[^0-9]'")
        texts = [shape.format(i=i) for i in range(PATTERNS) for shape in shapes]
        index = index_of(texts)
        for event in ({"c": "p7-m7.s7"}, {"c": "p77m5.s997"}, {"c": ""}, {"c": "p"}, {"c": 7}):
            assert numbers(index, event) == by_reference(texts, event)
        values = [f"p{i} m{i}. s{i}" for i in range(0, PATTERNS, PATTERNS // 20)]
        wanted = {(e, i) for e, value in enumerate(values) for i in by_reference(texts, {"c": value})}
        assert pairs(index, pa.table({"c": values})) == wanted

    def test_words_of_every_length_in_a_long_string(self) -> None:
        words = ["ab" * (n // 2) + "c" * (n % 2) for n in range(1, 1_000, 5)]
        index = index_of([f"c LIKE '%{word}%'" for word in words])
        assert numbers(index, {"c": "ab" * (MAX_STRING_CHARACTERS // 2)}) == list(range(1, 200, 2))
        for n in range(1_000):  # so many of one length that they are sought in another way
            index.add(f"s{1_000 + n}", f"c LIKE '%{n:04}%'")
        assert numbers(index, {"c": "-0123456-ababab"}) == [1, 1_123]

    def test_endless_strings_leave_nothing_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither many short ones, nor long ones, nor ones that pass many tests."""
        monkeypatch.setattr(string_tests, "_CACHE_BYTES_MAX", MEGABYTE)
        index = index_of(["c = 'a'", "c LIKE 'x%'", "d LIKE '%y'", *(f"e LIKE '{'z' * i}%'" for i in range(1, 200))])
        index.match_batch(pa.table({"c": [f"x{i}" for i in range(MAX_CACHED_STRINGS)]}))
        with no_more_than(10):
            for i in range(ENDLESS):
                index.match({"c": f"x{i}", "unheard_of": f"{i}"})
                index.match({"d": f"{i:08}" * (MAX_STRING_CHARACTERS // 8)})
                index.match({"e": "z" * 200 + str(i)})
            index.match_batch(pa.table({"c": [f"y{i}" for i in range(10_000)], "unheard_of": ["x"] * 10_000}))
        columns = index.parts.columns
        for attribute in range(len(columns)):
            tests = columns.column(attribute).tests
            assert tests is not None
            assert len(tests.cache) <= MAX_CACHED_STRINGS
            assert sum(len(text) + found.nbytes for text, found in tests.cache.items()) == tests.cache.size <= MEGABYTE
        assert numbers(index, {"c": "xa"}) == [1]

    def test_endless_contexts_and_filters_leave_nothing_behind(self) -> None:
        index = td.Index()
        index.add("s0", "", subscriber="ann", publishers="zone = this.zone")
        with no_more_than(30):
            for i in range(2_000):
                index.set_context("ann", {"zone": f"zone {i}", f"name{i}": i})
                index.match({}, context={"zone": f"other {i}"}, subscribers=f"zone = 'zone {i}' AND n > {i}")
        assert index.match({}, context={"zone": "zone 1999"}) == {"s0"}


class TestOddities:
    @pytest.mark.parametrize("built", [False, True])
    def test_integers_at_the_edges_beside_floats_of_their_size(self, built: bool) -> None:
        rounded = random.Random(1).sample(range(2**62, 2**63 - 1), 20)
        whole = [MIN_INTEGER, MIN_INTEGER + 1, -(2**53) - 1, -(2**53), -1, 0, 2**53, 2**53 + 1, MAX_INTEGER - 1]
        whole += [MAX_INTEGER, *rounded]
        floats = [-0.0, 0.0, 5e-324, -(2.0**63), 2.0**63, math.nextafter(2.0**63, 0), 2.0**53, 1.7976931348623157e308]
        values: list[int | float] = [*whole, *floats, *map(float, rounded)]
        operators = ("=", "<", "<=", ">", ">=", "!=")
        contents = [f"n {operator} {value!r}" for operator in operators for value in values if value != MIN_INTEGER]
        index = index_of(contents) if built else td.Index()
        if not built:
            for i, text in enumerate(contents):
                index.add(f"s{i}", text)
        for value in values:
            assert numbers(index, {"n": value}) == by_reference(contents, {"n": value}), value
        for kind, given in ((pa.int64(), whole), (pa.float64(), [*floats, *map(float, rounded)])):
            wanted = {(e, i) for e, value in enumerate(given) for i in by_reference(contents, {"n": value})}
            assert pairs(index, pa.table({"n": pa.array(given, kind)})) == wanted

    def test_numbers_that_are_none_are_refused(self) -> None:
        index = index_of(["n > 3"])
        for value in (math.nan, math.inf, -math.inf, MAX_INTEGER + 1, MIN_INTEGER - 1):
            with pytest.raises(InvalidValueError):
                index.match({"n": value})
        with pytest.raises(InvalidValueError):
            index.match_batch(pa.table({"n": [1.0, math.inf]}))
        with pytest.raises(InvalidValueError):
            index.match_batch(pa.table({"n": pa.array([2**64 - 1], pa.uint64())}))
        assert numbers(index, {"n": 4}) == [0]

    def test_names_and_strings_in_odd_letters(self) -> None:
        odd = [
            "é",
            "e\u0301",
            "\U0001f600",
            "\u200b",
            "ß",
            "SS",
            "ﬃ",
            "١",
            "\ufeffa",
            "a\u0000b",
            "‮abc",
            "\uffff",
            "\U0010ffff",
        ]
        texts = [f"`名{i}` = '{text}' OR c = '{text}'" for i, text in enumerate(odd)]
        index = index_of(texts)
        for i, text in enumerate(odd):
            assert numbers(index, {f"名{i}": text}) == numbers(index, {"c": text}) == [i]
        assert pairs(index, pa.table({"c": odd})) == {(i, i) for i in range(len(odd))}
        prefixes = index_of([f"c LIKE '{text}%'" for text in odd])
        for text in odd:
            event = {"c": text + "x"}
            assert numbers(prefixes, event) == [i for i, one in enumerate(odd) if event["c"].startswith(one)]

    def test_names_as_long_as_they_may_be(self) -> None:
        name = "n" * MAX_NAME_CHARACTERS
        index = index_of([f"{name} = 1", f"{name[1:]} = 1"])
        assert numbers(index, {name: 1}) == [0]
        with pytest.raises(FilterError):
            index.add("s", f"{name}n = 1")

    def test_rows_that_cannot_be_read_leave_everything_as_it_was(self) -> None:
        index = index_of(["n = 1"] * 100)
        for bad in ("n =", "n = " + "(" * 100, "a" * 70_000, "n = 'unfinished"):
            with pytest.raises((FilterError, InvalidValueError)):
                index.add_many(pa.table({"id": ["t0", "t1"], "content": ["n = 1", bad]}))
        assert len(index) == len(index.match({"n": 1})) == 100

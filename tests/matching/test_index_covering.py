"""Covering queries of the index against the question put to every single subscription."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings as td
from tests.matching.test_index import subscriptions
from tests.sizes import examples
from tests.strategies import conditions
from tidings import AttributeFilter, ContextFilter, Filter, Schema, Subscription
from tidings.matching import covering
from tidings.model.filter import FilterValue

S = Schema("S", {"a": int, "b": int, "c": str})


def check(index: td.Index, asked: FilterValue) -> None:
    everyone = index.subscriptions()
    wide = {one.id for one in everyone if covering.covers(one.content, asked)}
    assert index.covering(asked) == wide, str(asked)
    narrow = {one.id for one in everyone if covering.covers(asked, one.content)}
    assert index.covered_by(asked) == narrow, str(asked)


# Filters that have to do with each other: few names, few values, every kind of constraint.
parts = st.sampled_from(
    [
        "a = 1", "a = 2", "a > 0", "a >= 1", "a between 1 and 2", "a < 2", "a != 1", "a in (1, 2)", "a = 'x'", "a",
        "not a", "a is null", "a is not null", "a = 9007199254740993", "a >= 9007199254740992", "a < 9007199254740993",
        "b = 1", "b = 0.0", "b between 0 and 9", "b <= 9", "b is null", "b is not null", "b in (1, 'x', TRUE)",
        "s = 'x'", "s = 'xy'", "s = ''", "s in ('x', 'y')", "s like 'x%'", "s like '%y'", "s like 'xy%'", "s like '%%'",
        "s like '_'", "s != 'x'", "s > 'x'", "s < 'xy'", "s >= '' ", "s is not null", "s rlike '^x'", "s not like 'x%'",
        "not s rlike '^x'", "s < 'x' or s >= 'x'", "a = 1 or a = 2", "a <= 1 or a > 1", "a < 1 and a > 1",
        "a + b > 2", "not (a + b > 2)", "a < b", "a + b > 2 or b = 1", "s is null or s is not null",
        "$subject = '/a'", "$subject is not null", "$subject is null", "$subject like '/a%'", "$subject > 5",
        "$publisher = 'p'", "$publisher != 'p'", "c = 1 or d = 1", "TRUE", "FALSE", "new = 1", "new is null",
        "(a = 1 or b = 1) and (s = 'x' or b = 2)", "a in (" + ",".join(map(str, range(-40, 40))) + ")",
    ]
)  # fmt: skip


@st.composite
def related(draw: st.DrawFn) -> Filter:
    chosen = draw(st.lists(parts, min_size=1, max_size=3))
    joined = " and ".join(f"({part})" for part in chosen)
    if draw(st.integers(0, 5)) == 0:
        joined += f" or ({draw(parts)})"
    return Filter.parse(joined)


@st.composite
def related_subscriptions(draw: st.DrawFn) -> Subscription:
    near = ContextFilter.parse("x between this.x - 1 and this.x + 1")
    structure = draw(st.sampled_from([None, None, None, AttributeFilter(S, {"a"}, {"c"}), AttributeFilter(S, {"b"})]))
    return Subscription(
        id=draw(st.integers(0, 40).map("s{}".format)),
        subscriber="ann",
        content=draw(related()),
        subject=draw(st.sampled_from([None, None, None, "/a", "S"])),
        structure=structure,
        publishers=draw(st.sampled_from([None, None, near])),
    )


def filled(given: list[Subscription], late: list[Subscription], removed: list[str]) -> td.Index:
    """Some in segments, some in the buffer, some replaced, some removed."""
    index = td.Index()
    for one in given:
        index.put(one)
    index.parts.store.flushed_segments()
    for group in index.parts.spatial_groups.values():
        group.store.flushed_segments()
    for one in late:
        index.put(one)
    for name in removed:
        if name in index:
            index.remove(name)
    return index


@examples(31, 1_300)
@given(
    st.lists(related_subscriptions(), max_size=25),
    st.lists(related_subscriptions(), max_size=8),
    st.lists(st.integers(0, 40).map("s{}".format), max_size=5),
    st.lists(related(), min_size=1, max_size=4),
)
def test_related_filters(
    given: list[Subscription], late: list[Subscription], removed: list[str], asked: list[Filter]
) -> None:
    index = filled(given, late, removed)
    for one in asked:
        check(index, one)
    for subscription in index.subscriptions():
        check(index, subscription.content)


@examples(11, 400)
@given(
    st.lists(subscriptions(st.integers(0, 20).map("s{}".format)), max_size=15),
    st.lists(subscriptions(st.integers(0, 20).map("s{}".format)), max_size=5),
    st.lists(conditions().map(FilterValue), min_size=1, max_size=4),
)
def test_any_filters(given: list[Subscription], late: list[Subscription], asked: list[FilterValue]) -> None:
    index = filled(given, late, ["s1"])
    for one in [*asked, *(subscription.content for subscription in index.subscriptions())]:
        check(index, one)


@examples(30, 500)
@given(st.lists(related_subscriptions(), max_size=25), st.lists(related(), min_size=1, max_size=4))
def test_many_at_once_and_from_a_file(
    tmp_path_factory: pytest.TempPathFactory, given: list[Subscription], asked: list[Filter]
) -> None:
    index = td.Index()
    index.put_many(given)
    folder = tmp_path_factory.mktemp("index")
    index.save(folder)
    loaded = td.Index.load(folder)
    for one in asked:
        check(index, one)
        check(loaded, one)
        index.add("late", "a < 1 and a > 1")
        loaded.add("late", "FALSE")


def test_texts_with_subjects() -> None:
    index = td.Index()
    table = {"id": ["s", "t", "u"], "content": ["a > 1", "a > 1", "TRUE"], "subject": ["/a", None, "/b"]}
    index.add_many(pa.table({name: pa.array(column, pa.string()) for name, column in table.items()}))
    assert index.covering("a = 2") == {"s", "t", "u"}
    assert index.covering("b = 2") == {"u"}
    assert index.covered_by("a > 0") == {"s", "t"}


def test_never_and_always() -> None:
    index = td.Index()
    for name, text in {"never": "a < 1 and a > 1", "always": "TRUE", "judged": "a + b > 2 and not a + b > 2"}.items():
        index.add(name, text)
    assert index.covering("a > 1 and a < 1") == {"never", "always", "judged"}
    assert index.covering("a = 1") == {"always"}
    assert index.covered_by("c = 1") == {"never", "judged"}
    assert index.covered_by("FALSE") == {"never", "judged"}
    assert index.covered_by("TRUE") == {"never", "always", "judged"}
    index.remove("never")
    assert index.covered_by("c = 1") == {"judged"}


def test_a_pattern_that_leaves_nothing_is_taken_as_if_it_left_something() -> None:
    index = td.Index()
    index.add("s", "s = 'x' and s not rlike '^x'")
    check(index, Filter.parse("s = 'x'"))
    assert index.covered_by("s = 'x' or a = 1") == {"s"}


def test_a_question_leaves_nothing_behind() -> None:
    index = td.Index()
    index.add("s", "a = 'x' and b like '%y%'")
    before = index.parts.columns.saved()
    index.covering("a = 'new' and b like 'new%' and c = 1")
    index.covered_by("a = 'new' and b like 'new%' and c = 1")
    assert index.parts.columns.saved() == before


class TestFewAreAsked:
    """How often `covers` is asked in an index of some thousand."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        calls = [0]
        covers: Callable[[FilterValue, FilterValue], bool] = covering.covers

        def counted(f: FilterValue, g: FilterValue) -> bool:
            calls[0] += 1
            return covers(f, g)

        monkeypatch.setattr(covering, "covers", counted)
        return calls

    def index(self) -> td.Index:
        texts = [f"class = 'c{i % 7}' and n between {i % 50} and {i % 50 + 5}" for i in range(3_000)]
        texts += [f"name like 'p{i}%' and n > {i % 9}" for i in range(1_000)]
        index = td.Index()
        index.add_many(pa.table({"id": [f"s{i}" for i in range(len(texts))], "content": texts}))
        for i in range(700):
            index.add(f"b{i}", f"class = 'c{i % 7}' and n > {i}")
        return index

    def test_plain_questions_are_answered_without_it(self, calls: list[int]) -> None:
        index = self.index()
        found = index.covering("class = 'c3' and n between 18 and 20 and other = 1")
        assert {one for one in found if one.startswith("s")} == {
            f"s{i}" for i in range(3_000) if i % 7 == 3 and i % 50 <= 18 and i % 50 + 5 >= 20
        }
        assert {one for one in found if one.startswith("b")} == {f"b{i}" for i in range(18) if i % 7 == 3}
        assert index.covered_by("class = 'c3' and n > 600") == {f"b{i}" for i in range(600, 700) if i % 7 == 3}
        assert calls[0] == 0

    def test_conditions_that_cannot_be_taken_apart_do_not_hide_the_rest(self, calls: list[int]) -> None:
        index = self.index()
        for i in range(500):
            index.add(f"r{i}", f"n + {i} > 5 and class = 'c{i % 7}' and m = {i}")
        assert index.covering("class = 'c3' and n + 3 > 5 and m = 3") == {"r3"}
        assert index.covered_by("class = 'c3' and m = 3") == {"r3"}
        assert index.covered_by("class = 'c3' and n + 3 > 5") == {"r3"}
        assert calls[0] < 100

    def test_patterns_are_asked_for_few(self, calls: list[int]) -> None:
        index = self.index()
        assert index.covering("name = 'p77x' and n = 100") == {"s3077", "s3007"}
        assert index.covered_by("name like 'p77%'") == {"s3077", *(f"s{i}" for i in range(3770, 3780))}
        assert calls[0] < 20

"""A test that very many subscriptions share, beside one that is selective, costs nobody anything: the index looks them
up by the selective one, whatever the shared one is. What is counted is work, the candidates that events meet."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

import tidings as td
from tests.sizes import sized

MANY = sized(800, 5_000)
EVENTS = 20
Way = Callable[[td.Index, "list[dict[str, Any]]"], None]

SHARED = {
    "nothing": {"content": ""},
    "equality": {"content": "class = 'a'"},
    "equality of numbers": {"content": "m = 5"},
    "boolean": {"content": "flag"},
    "in": {"content": "class IN ('a', 'b')"},
    "in very many": {"content": "m IN (" + ", ".join(map(str, range(100))) + ")"},
    "range": {"content": "m > 3"},
    "between": {"content": "m BETWEEN 3 AND 8"},
    "inside": {"content": "name LIKE '%-shared-by-everyone-%'"},
    "prefix": {"content": "name LIKE 'the-shared%'"},
    "suffix": {"content": "name LIKE '%-everyone-here'"},
    "pattern": {"content": "name LIKE 'the%shared_by%here'"},
    "regular expression": {"content": "name RLIKE 'shared.*here$'"},
    "null": {"content": "nothing IS NULL"},
    "not null": {"content": "name IS NOT NULL"},
    "unequal": {"content": "m != 4"},
    "unlike": {"content": "name NOT LIKE '%-other-%'"},
    "calculation": {"content": "m + 1 > 2"},
    "topic": {"content": "topic('/news/sports/football/#')"},
    "subject": {"content": "", "subject": "/news/sports/football/today"},
    "publisher": {"content": "$publisher LIKE 'publisher-of-news%'"},
    "context": {"content": "", "publishers": "x > this.x"},
    "neighbourhood": {"content": "", "publishers": "x BETWEEN this.x - 5 AND this.x + 5"},
}
SELECTIVE = {
    "equality of numbers": "n = {i}",
    "equality of strings": "user = 'u-{i}'",
    "in": "n IN ({i}, -{i})",
    "prefix": "user LIKE 'u-{i}%'",
    "suffix": "user LIKE '%-{i}'",
    "inside": "user LIKE '%u-{i}%'",
}
EVENT = {"class": "a", "m": 5, "flag": True, "name": "the-shared-by-everyone-here"}
ABOUT = {"subject": "/news/sports/football/today", "publisher": "publisher-of-news-1", "context": {"x": 3}}


def one_by_one(index: td.Index, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        index.add(**row)
    for store in (index.parts.store, *(group.store for group in index.parts.spatial_groups.values())):
        store.flushed_segments()  # what came last would be looked at one by one


def at_once(index: td.Index, rows: list[dict[str, Any]]) -> None:
    index.add_many(pa.Table.from_pylist(rows))


WAYS: dict[str, Way] = {"one by one": one_by_one, "at once": at_once}


def subscriptions(shared: dict[str, str], selective: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    content = shared["content"]
    return [
        {
            **shared,
            "id": f"s{i}",
            "subscriber": "reader",
            "content": (content + " AND " if content else "") + selective.format(i=i),
        }
        for i in numbers
    ]


def index_of(add: Way, *parts: list[dict[str, Any]]) -> td.Index:
    index = td.Index()
    index.set_context("reader", {"x": 1})
    for rows in parts:
        add(index, rows)
    return index


def candidates(index: td.Index, numbers: Iterable[int], found: int = 1) -> float:
    """How many an event meets, on average. Each is an event that concerns the subscription of its number."""
    before, count = index.stats().candidates, 0
    for i in numbers:
        matches = index.match({**EVENT, "n": i, "user": f"u-{i}"}, **ABOUT)
        assert (f"s{i}" in matches) == bool(found)
        count += 1
    return (index.stats().candidates - before) / count


def spread(first: int, last: int) -> range:
    return range(first, last, (last - first) // EVENTS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shared", SHARED)
def test_whatever_is_shared_costs_nothing(shared: str, way: str) -> None:
    index = index_of(WAYS[way], subscriptions(SHARED[shared], SELECTIVE["equality of numbers"], range(MANY)))
    # As many alternatives as the shared test has, in each of a few segments.
    assert candidates(index, spread(0, MANY)) <= 8


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("selective", SELECTIVE)
@pytest.mark.parametrize("shared", ["equality", "inside"])
def test_whatever_is_selective_finds_them(shared: str, selective: str, way: str) -> None:
    alone = index_of(WAYS[way], subscriptions(SHARED["nothing"], SELECTIVE[selective], range(MANY)))
    index = index_of(WAYS[way], subscriptions(SHARED[shared], SELECTIVE[selective], range(MANY)))
    numbers = spread(MANY // 2, MANY)
    assert candidates(index, numbers) <= candidates(alone, numbers) + 1


@pytest.mark.parametrize("way", WAYS)
def test_a_test_that_becomes_popular_later_costs_nothing(way: str) -> None:
    rare = [
        {**row, "content": row["content"].replace("everyone", f"nobody-{i}")}
        for i, row in enumerate(subscriptions(SHARED["inside"], "n = {i}", range(MANY)))
    ]
    popular = subscriptions(SHARED["inside"], "n = {i}", range(MANY, 2 * MANY))
    index = index_of(WAYS[way], rare, popular)
    assert candidates(index, spread(MANY, 2 * MANY)) <= 8
    # Those who came first are still found by what is rare about them.
    assert candidates(index, spread(0, MANY), found=0) <= 8


@pytest.mark.parametrize("way", WAYS)
def test_a_popular_test_costs_nothing_after_most_have_left(way: str) -> None:
    index = index_of(WAYS[way], subscriptions(SHARED["inside"], "n = {i}", range(MANY)))
    for i in range(MANY // 10, MANY):
        index.remove(f"s{i}")
    assert candidates(index, spread(0, MANY // 10)) <= 8
    assert candidates(index, spread(MANY // 10, MANY), found=0) <= 8


def test_every_one_has_a_name_of_its_own_to_be_found_by() -> None:
    rows = subscriptions(SHARED["inside"], "own{i} = 1", range(500))
    index = index_of(at_once, rows)
    before = index.stats().candidates
    for i in range(0, 500, 25):
        assert index.match({**EVENT, f"own{i}": 1}) == {f"s{i}"}
    assert index.stats().candidates - before <= 20


def test_a_test_without_anything_beside_it_still_keeps_other_events_away() -> None:
    index = index_of(at_once, subscriptions(SHARED["inside"], "n > 0", range(MANY)))
    before = index.stats().candidates
    assert index.match({"name": "something-else", "n": 5}) == set()
    assert index.stats().candidates == before
    assert len(index.match({**EVENT, "n": 5})) == MANY

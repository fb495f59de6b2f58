"""Subscriptions for events nearby, where very many are near, or one client has very many."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidings as td
from tidings.matching.index.spatial.group import PredicatePool

BOX = "x between this.x - 5 and this.x + 5 and y between this.y - 5 and this.y + 5"
HIDDEN_BOX = f"({BOX}) or x < -1e300"  # the same to those who look at each context


def indexes(contents: list[str], clients: list[str], places: dict[str, dict[str, float]]) -> list[td.Index]:
    made = []
    for box in (BOX, HIDDEN_BOX):
        index = td.Index()
        names = [f"s{i}" for i in range(len(contents))]
        table = {"id": names, "content": contents, "subscriber": clients, "publishers": [box] * len(names)}
        index.add_many(pa.table(table))
        for client, place in places.items():
            index.set_context(client, place)
        made.append(index)
    return made


def agree(given: list[td.Index], events: list[dict[str, Any]], contexts: list[dict[str, float]]) -> None:
    """Several times, since what was found tells where to look first."""
    boxes, plain = given
    pairs = list(zip(events, contexts, strict=True))
    table = pa.Table.from_pylist([{**event, "context": context} for event, context in pairs])
    expected = [plain.match(event, context=context) for event, context in pairs]
    assert any(expected)
    for _ in range(3):
        assert [boxes.match(event, context=context) for event, context in pairs] == expected
        for index in given:
            found: list[set[str]] = [set() for _ in events]
            for pair in index.match_batch(table).to_pylist():
                found[pair["event"]].add(pair["subscription"])
            assert found == expected


EVENTS = [{"level": level} for level in (0, 10, 999, 10, -1, 500, 1_400, 20)]
CONTEXTS = [{"x": x, "y": 0.5} for x in (0.0, 5.0, 0.0, 100.0, 0.0, 1e9, 3.0, 100.0)]


@pytest.mark.parametrize("content", ["level >= {}", "level = {}"])
def test_a_crowd(content: str) -> None:
    """More than are looked at before the content is asked; and some elsewhere."""
    contents = [content.format(i) for i in range(1_500)]
    clients = [f"c{i}" for i in range(1_500)]
    places = {name: {"x": 100.0 * (i % 5 == 0), "y": i / 1_500} for i, name in enumerate(clients)}
    agree(indexes(contents, clients, places), EVENTS, CONTEXTS)


def test_a_crowd_that_was_saved(tmp_path: Path) -> None:
    contents, clients = [f"level >= {i}" for i in range(500)], [f"c{i}" for i in range(500)]
    places = {name: {"x": 100.0 * (i % 5 == 0), "y": i / 500} for i, name in enumerate(clients)}
    loaded = []
    for number, index in enumerate(indexes(contents, clients, places)):
        index.save(tmp_path / str(number))
        loaded.append(td.Index.load(tmp_path / str(number)))
    agree(loaded, EVENTS, CONTEXTS)


def test_what_was_saved_is_of_the_kind_that_kernels_take(tmp_path: Path) -> None:
    """Numba tells aligned records from others only if no array of them came before: mostly, but not at a start."""
    pool = PredicatePool()
    pool.put(3, [(0, [(1.0, 2.0, 8, 0, 0)])])
    for name, array in pool.saved().items():
        np.save(tmp_path / name, array)
    found = PredicatePool.of(*(np.load(tmp_path / f"{name}.npy") for name in pool.saved()))
    assert (found.preds.dtype.isalignedstruct, found.ends.tolist()) == (True, pool.ends.tolist())


def test_very_many_subscriptions_of_a_client() -> None:
    contents = [f"level >= {i % 700}" for i in range(3_000)]
    clients = [f"c{i % 3}" for i in range(3_000)]
    places = {f"c{i}": {"x": float(i), "y": 0.0} for i in range(3)}
    agree(indexes(contents, clients, places), EVENTS, CONTEXTS)


def test_what_no_event_has_is_passed_over() -> None:
    """The last ones have nothing to check, not even a place where it could be."""
    contents = ["level >= 0"] * 300 + ["level > 1 and level < 0"] * 2_000
    clients = [f"c{i}" for i in range(2_300)]
    places = {name: {"x": float(i % 40), "y": 0.0} for i, name in enumerate(clients)}
    agree(indexes(contents, clients, places), EVENTS, CONTEXTS)


def test_a_context_within_a_context_has_a_place_too() -> None:
    index = td.Index()
    index.add("near", "level > 1", subscriber="ann", publishers="at.x between this.at.x - 5 and this.at.x + 5")
    index.set_context("ann", {"at": {"x": 1.0}})
    assert index.match({"level": 2}, context={"at": {"x": 3}}) == {"near"}
    assert index.match({"level": 2}, context={"at": {"x": 30.0}}) == set()
    for x, expected in ((3, ["near"]), (30, [])):
        batch = pa.Table.from_pylist([{"level": 2, "context": {"at": {"x": x}}}])
        assert index.match_batch(batch)["subscription"].to_pylist() == expected

"""Benchmarks run on little, and what they are measured on has the properties that it claims. Speed is not tested."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import everything
from benchmarks.matching import moving
from benchmarks.overlay import routing
from benchmarks.workloads import moving_workload, range_workload, string_workload, workload

from tests.cli.command import as_json, run
from tidings.cli import measurement
from tidings.engine import Engine
from tidings.engine.operations import Subscribe
from tidings.text_index import Index, subscription_of

BENCHES = [
    *("start", "language", "covering", "match", "ranges", "strings", "contexts", "grid", "moving", "growth", "add"),
    *("engine", "hub", "trimming", "forwarding", "routing", "resubscribing", "roaming", "simulation", "sealing", "all"),
]
NETWORK = ["--brokers", "4", "--clients", "8", "--subscriptions", "3"]
SMALL = [*NETWORK, "--events", "20"]
DRAWN = ("match", "contexts", "grid", "growth", "trimming", "forwarding", "routing", "roaming")
UNITS = {"s", "ms", "us", "ns", "us an event", "events/s", "rows/s", "times", "bytes a subscription", "bytes", "MB"} | {
    *("packets", "messages a change", "messages a move", "messages/s"),
}


@pytest.fixture
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks how fast anything was, so garbage may stay: to collect it takes longer than all that is measured."""
    monkeypatch.setattr(measurement, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.mark.process
@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        (["language", "--count", "40"], 2),
        (["covering", "--count", "4"], 3),
        (["start", "--rounds", "1"], 3),
        (["match", "--count", "300"], 12),
        (["ranges", "--count", "300"], 1),
        (["strings", "--count", "100"], 2),
        (["contexts", "--count", "100"], 19),
        (["grid", "--count", "300"], 6),
        (["moving", "--count", "300", "--changes", "600", "--events", "120"], 6),
        (["growth", "--count", "300"], 4),
        (["keys", "--members", "20", "--requests", "3"], 6),
        (["add", "--count", "300"], 4),
        (["trimming"], 9),
        (["trust", "--count", "2"], 12),
        (["hub", "--count", "20"], 6),
        (["engine", "--count", "300"], 14),
        (["forwarding", *SMALL, "--contexts", "20", "--rounds", "1", "--varied"], 14),
        (["forwarding", *SMALL, "--contexts", "20", "--contexts", "80", "--rounds", "1", "--publications"], 26),
        (["routing", *NETWORK, "--contexts", "50", "--trials", "4"], 6),
        (["resubscribing", "--brokers", "3", "--subscribers", "9", "--changes", "9", "--rounds", "1"], 20),
        (["roaming", "--moves", "20", "--publishers", "1"], 9),
        (["simulation", "--brokers", "8", "--clients", "110", "--events", "30"], 9),
        (["sealing", "--size", "100", "--count", "3"], 28),
    ],
)
def test_benchmarks_measure_and_draw(arguments: list[str], measured: int, tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    draws = arguments[0] in DRAWN
    found = as_json("bench", *arguments, *(["--plot", str(picture)] if draws else []))
    assert len(found) == measured
    assert all(one["unit"] in UNITS for one in found)
    # Who subscribes to nothing yet sets its context for nothing.
    assert all(one["value"] > 0 or one["beside"] == routing.FREE for one in found)
    assert picture.exists() == draws
    assert not draws or picture.read_bytes().startswith(b"\x89PNG")


def test_without_json_there_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    measurement.report(
        [measurement.Measurement("a", 1234.5, "us", "2 us"), measurement.Measurement("b", 0.01234, "s")], as_json=False
    )
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["what", "measured", "goal", "beside", "it"],
        ["a", "1,234", "us", "2", "us"],
        ["b", "0.0123", "s"],
    ]
    assert run("bench", "add", "--count", "10").stdout.startswith("what")


def test_all_of_them_say_whose_each_number_is(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in BENCHES if name != "all"]
    for name in names:
        module = getattr(everything, name)
        monkeypatch.setattr(module, "measure", lambda *_: [measurement.Measurement("one", 1, "s")])
    assert [one.name for one in everything.measure(10)] == [f"{name}: one" for name in names]


def share_that_matches(slots: Any, rows: Any) -> float:
    return sum(len(workload.answer(slots, row)) for row in rows) / len(rows) / len(slots[0])


@pytest.mark.parametrize(("width", "share"), [(0.755, 0.01), (0.25, 0.001), (0.0875, 0.0001)])
def test_workload_w_matches_as_often_as_its_width_says(width: float, share: float) -> None:
    slots = workload.subscriptions(20_000, width=width)
    assert share_that_matches(slots, workload.events(300)) == pytest.approx(share, rel=0.25)


def test_ranges_match_as_often_as_they_say_however_many_there_are() -> None:
    slots, rows = range_workload.subscriptions(20_000), range_workload.events(400)
    asked = (slots[0] >= 0).sum(axis=1)
    for count in (2, 3, 4):
        some = tuple(one[asked == count] for one in slots)
        assert share_that_matches(some, rows) == pytest.approx(range_workload.SELECTIVITY, rel=0.2)
    assert not any("=" in text for text in workload.texts(*slots))


def test_strings_have_the_values_and_matches_that_they_say() -> None:
    given, events = string_workload.subscriptions(10_000), string_workload.events(50_000)
    for name in ("s0", "s1", "s2"):
        assert 9_900 <= len(set(events[name].to_pylist())) <= string_workload.VALUES
        assert len(set(string_workload.distinct_events(20_000)[name].to_pylist())) == 20_000
    few = events.slice(0, 200).to_pylist()
    found = sum(len(string_workload.answer(given, event)) for event in few)
    assert found / len(few) / 10_000 == pytest.approx(0.0002, rel=0.5)


def test_a_tenth_matches_what_moves_by_its_content_and_the_box_is_found_hidden_or_not() -> None:
    count, events = 3_000, moving_workload.events(300)
    found = {}
    for publishers in (None, moving_workload.BOX, moving_workload.HIDDEN_BOX):
        index = Index()
        index.add_many(moving_workload.subscriptions(count, publishers))
        index.set_contexts(moving_workload.everyone(count))
        found[publishers] = index.match_batch(events).num_rows / 300 / count
    assert found[None] == pytest.approx(0.1, rel=0.1)
    assert found[moving_workload.BOX] == pytest.approx(0.00016, rel=0.4)
    assert found[moving_workload.BOX] == found[moving_workload.HIDDEN_BOX]


def test_the_index_finds_what_looking_at_everyone_finds() -> None:
    slots, rows = range_workload.subscriptions(3_000), range_workload.events(30)
    index = Index()
    index.add_many(workload.loadable(*slots, chunk=1_000))
    for row, event in zip(rows, workload.dicts(rows), strict=True):
        assert sorted(index.match_positions(event).tolist()) == workload.answer(slots, row).tolist()
    given, events = string_workload.subscriptions(3_000), string_workload.events(30).to_pylist()
    index = Index()
    index.add_many(pa.table({"id": [f"s{i}" for i in range(3_000)], "content": string_workload.texts(given)}))
    for event in events:
        assert sorted(index.match_positions(event).tolist()) == string_workload.answer(given, event)


@pytest.mark.parametrize(
    "made",
    [
        lambda seed: workload.loadable(*workload.subscriptions(50, seed)),
        lambda seed: workload.table(workload.events(50, seed)),
        lambda seed: workload.loadable(*range_workload.subscriptions(50, seed)),
        lambda seed: workload.table(range_workload.events(50, seed)),
        lambda seed: pa.table({"text": string_workload.texts(string_workload.subscriptions(50, seed))}),
        lambda seed: string_workload.events(50, seed),
        lambda seed: string_workload.distinct_events(50, seed),
        lambda seed: moving_workload.subscriptions(50, moving_workload.BOX, seed=seed),
        lambda seed: moving_workload.events(50, seed),
        lambda seed: moving_workload.everyone(50, seed),
        lambda seed: moving_workload.moves(50, 10, seed),
        lambda seed: moving.traffic(10, 50, 20, seed),
    ],
)
def test_the_same_seed_gives_the_same_data(made: Callable[[int], pa.Table]) -> None:
    assert made(1).equals(made(1))
    assert not made(1).equals(made(2))


def test_contexts_as_texts_and_structs_say_the_same() -> None:
    subscriptions = moving_workload.subscriptions(200, moving_workload.BOX)
    found = []
    structs = moving.traffic(200, 5_000, 1_000)
    for given in (structs, moving.with_texts(structs)):
        engine = Engine()
        for row in subscriptions.to_pylist():
            engine.handle(Subscribe(subscription_of(row)), 0)
        batch = engine.batch(given)
        assert not batch.rejected.num_rows
        assert batch.matches.num_rows > 10
        found.append((batch.matches, engine.contexts))
    assert found[0] == found[1]


def test_texts_in_chunks_are_the_texts() -> None:
    slots = workload.subscriptions(25)
    assert workload.loadable(*slots, chunk=10)["content"].to_pylist() == workload.texts(*slots)
    assert np.all(slots[0][:, 0] == 0)

"""Scenarios: what a file may say, how mistakes in it are named, and what comes of running one."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings import InvalidValueError
from tidings.routing import STRATEGIES
from tidings.simulation.checking.steps import Moves, Publishes, SetsContext
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Restart, Slow
from tidings.simulation.rng import seeded_random
from tidings.simulation.scenario import Run, Scenario, ScenarioOutcome, read
from tidings.simulation.scenario.clients import ClientGroup
from tidings.simulation.scenario.overlay import OverlaySpec
from tidings.simulation.scenario.run import schedule
from tidings.simulation.scenario.values import OneOf, draw_value, fill_template

FILE = """\
seed = 3
[overlay]
topology = "line"
brokers = 3

[[clients]]
name = "pub"
brokers = ["b1"]
context = {x = [0, 9]}
advertisements = [{content = "n >= 0", publisher_context = ["x"], subscriber_context = ["x"]}]

[[clients]]
name = "sub"
count = 4
context = {x = [0, 9]}
subscriptions = [{content = "n > {least}", publishers = "x >= 0", values = {least = [0, 3]}}]
context_changes = 2.0

[workload]
seconds = 4.0
settle_every = 1.0

[[workload.publications]]
by = "pub"
per_second = 10.0
attributes = {n = [0, 5], word = ["a", "b", "c"]}
subscribers = "x > 2"

[[faults]]
at = 1.5
cut = ["b1", "b2"]

[[faults]]
at = 2.5
heal = ["b1", "b2"]
"""


def scenario_of(tmp_path: Path, text: str = FILE, **changed: Any) -> Scenario:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return read(path, **changed)


def outcome_of(tmp_path: Path, text: str = FILE, **changed: Any) -> ScenarioOutcome:
    return Run(scenario_of(tmp_path, text, **changed)).finish()


# Running


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_scenario_runs_with_every_strategy_and_nothing_goes_wrong(tmp_path: Path, strategy: str) -> None:
    outcome = outcome_of(tmp_path, strategy=strategy)
    assert (outcome.strategy, outcome.brokers, outcome.clients) == (strategy, 3, 5)
    assert (outcome.published, outcome.refused, outcome.faults) == (40, 0, 2)
    assert outcome.is_checked
    assert outcome.violations == []
    assert outcome.closing == 1
    assert outcome.delivered > 0
    assert outcome.workload["Publish"].messages == sum(link.publications for link in outcome.links)
    assert outcome.settle_seconds > 0.2  # the broken link was noticed, and tables made anew


def test_the_same_seed_gives_the_same_trace_and_another_seed_another(tmp_path: Path) -> None:
    first, again, other = outcome_of(tmp_path), outcome_of(tmp_path), outcome_of(tmp_path, seed=4)
    assert first == again
    assert first.trace != other.trace


def test_checking_changes_nothing_but_the_verdict(tmp_path: Path) -> None:
    text = FILE.replace("settle_every = 1.0", "check = false")
    run = Run(scenario_of(tmp_path, text))
    unchecked, checked = run.finish(), outcome_of(tmp_path, FILE.replace("settle_every = 1.0", "check = true"))
    assert not unchecked.is_checked
    assert unchecked.closing == 0
    assert checked.closing == 1
    assert unchecked == msgspec.structs.replace(checked, is_checked=False, closing=0)
    assert unchecked.delivered == sum(len(run.world.notifications(name)) for name in run.world.clients)


def test_faults_that_the_file_leaves_are_made_good_at_the_end(tmp_path: Path) -> None:
    text = FILE[: FILE.rindex("[[faults]]")] + '[[faults]]\nat = 2.0\ncrash = "b2"\n'
    run = Run(scenario_of(tmp_path, text))
    outcome = run.finish()
    assert outcome.violations == []
    assert all(broker.is_up for broker in run.world.brokers.values())
    assert outcome.tables == outcome_of(tmp_path, FILE[: FILE.index("[[faults]]")]).tables


def test_publications_of_clients_whose_broker_is_down_are_refused_and_counted(tmp_path: Path) -> None:
    text = FILE[: FILE.index("[[faults]]")] + '[[faults]]\nat = 1.0\ncrash = "b1"\n'
    outcome = outcome_of(tmp_path, text)
    assert outcome.refused == outcome.away > 0
    assert outcome.published + outcome.refused == 40


def test_reasons_of_refusals_are_told(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, FILE.replace("n >= 0", "n >= 3"))
    assert outcome.refused == sum(outcome.reasons.values()) > 0
    assert outcome.away == 0
    assert all("advertise" in reason for reason in outcome.reasons)


def test_progress_is_told_in_seconds_of_the_workload(tmp_path: Path) -> None:
    seen: list[float] = []
    Run(scenario_of(tmp_path)).finish(seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 4.0


# What is drawn


@examples(100, 1000)
@given(st.integers(-5, 5), st.integers(0, 5), st.integers(0, 2**32))
def test_a_list_of_two_numbers_is_a_range(low: int, span: int, seed: int) -> None:
    chance = seeded_random(seed, "test")
    whole, real = draw_value([low, low + span], chance), draw_value([float(low), low + span], chance)
    assert type(whole) is int
    assert type(real) is float
    assert low <= whole <= low + span
    assert low <= real <= low + span
    assert draw_value(OneOf(one_of=[low, low + span]), chance) in (low, low + span)
    assert draw_value([low, "text"], chance) in (low, "text")
    assert draw_value(low, chance) == low


def test_values_are_written_into_filters_as_the_language_does() -> None:
    values: dict[str, bool | int | float | str] = {"name": "O'Hara", "yes": True, "less": -1}
    assert fill_template("a = {name} and b = {yes} and c > {less} and d rlike 'x{2}'", values) == (
        "a = 'O''Hara' and b = TRUE and c > -1 and d rlike 'x{2}'"
    )


@examples(50, 500)
@given(st.integers(1, 30), st.integers(1, 12))
def test_clients_are_spread_evenly(count: int, brokers: int) -> None:
    names = tuple(f"b{number}" for number in range(brokers))
    homes = ClientGroup(name="c", count=count).homes(names, seeded_random(0, "test"))
    most = [homes.count(name) for name in names]
    assert sum(most) == count
    assert max(most) - min(most) <= 1


def test_listed_brokers_are_taken_in_turn() -> None:
    group = ClientGroup(name="c", count=3, brokers=["b2", "b5"])
    assert group.homes(("b1", "b2", "b5"), seeded_random(0, "test")) == ["b2", "b5", "b2"]
    assert group.names() == ["c-1", "c-2", "c-3"]


def test_more_of_one_kind_does_not_change_another(tmp_path: Path) -> None:
    few = scenario_of(tmp_path)
    many = scenario_of(tmp_path, FILE.replace("context_changes = 2.0", "context_changes = 20.0\nmoves = 1.0"))
    drawn_few, drawn_many = schedule(few, few.topology), schedule(many, many.topology)
    assert [one for one in drawn_few if isinstance(one.step, Publishes)] == [
        one for one in drawn_many if isinstance(one.step, Publishes)
    ]
    assert sum(isinstance(one.step, SetsContext) for one in drawn_many) == 80
    assert sum(isinstance(one.step, Moves) for one in drawn_many) == 4


def test_faults_as_written(tmp_path: Path) -> None:
    written = {
        'crash = "b1"': Crash(1.0, "b1"),
        'restart = "b1"': Restart(1.0, "b1"),
        'cut = ["b1", "b2"]': Cut(1.0, "b1", "b2"),
        'one_way = ["b2", "b1"]': Cut(1.0, "b2", "b1", one_way=True),
        'heal = ["b1", "b2"]': Heal(1.0, "b1", "b2"),
        'slow = ["b1", "b2"]\nfactor = 3.0': Slow(1.0, "b1", "b2", 3.0),
        'slow = ["b2", "b1"]': Slow(1.0, "b2", "b1", 10.0),
        'lossy = ["b2", "b1"]': Lossy(1.0, "b2", "b1", 0.3, 0.0, 0.0),
        'lossy = ["b1", "b2"]\nloss = 0.2\nreordering = 0.1': Lossy(1.0, "b1", "b2", 0.2, 0.0, 0.1),
    }
    text = FILE[: FILE.index("[[faults]]")] + "".join(f"[[faults]]\nat = 1.0\n{one}\n" for one in written)
    scenario = scenario_of(tmp_path, text)
    made = [fault for one in scenario.faults for fault in one.made(scenario.topology, 0, 4.0)]
    assert made == list(written.values())


def test_drawn_faults_are_within_the_workload(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, FILE + '[[faults]]\ndrawn = 3\nkinds = ["crash"]\n')
    found = scenario.faults[-1].made(scenario.topology, 5, 4.0)
    assert sum(isinstance(one, Crash) for one in found) == 3
    assert all(isinstance(one, Crash | Restart) and 0 <= one.at <= 4 for one in found)


# Overlays


@pytest.mark.parametrize(
    ("said", "edges"),
    [
        ({"topology": "line", "brokers": 3}, [("b1", "b2"), ("b2", "b3")]),
        ({"topology": "star", "brokers": 3}, [("b1", "b2"), ("b1", "b3")]),
        ({"topology": "ring", "brokers": 3}, [("b1", "b2"), ("b2", "b3"), ("b3", "b1")]),
        ({"topology": "tree", "brokers": 4, "branches": 3}, [("b1", "b2"), ("b1", "b3"), ("b1", "b4")]),
        ({"topology": "random", "brokers": 2, "degree": 2}, [("b1", "b2")]),
        ({"links": [["n", "m"], ["m", "o"]]}, [("n", "m"), ("m", "o")]),
    ],
)
def test_shapes(said: dict[str, Any], edges: list[tuple[str, str]]) -> None:
    made = msgspec.convert(said, OverlaySpec).made(0)
    assert [edge[:2] for edge in made.edges] == edges
    assert {edge.cost for edge in made.edges} == {1}


def test_costs_are_drawn_unless_a_link_names_its_own() -> None:
    overlay = OverlaySpec(links=[["a", "b", 9], ["b", "c"], ["c", "d"], ["d", "e"]], costs=[2, 5])
    costs = [edge.cost for edge in overlay.made(1).edges]
    assert costs[0] == 9
    assert all(2 <= cost <= 5 for cost in costs[1:])
    assert overlay.made(1) == overlay.made(1)
    assert len({tuple(edge.cost for edge in overlay.made(seed).edges) for seed in range(5)}) > 1


def test_links_come_from_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("one,other,cost\nb1,b2,3\n\nb2, b3, 4\n")
    scenario = scenario_of(tmp_path, FILE.replace('topology = "line"\nbrokers = 3', 'file = "links.csv"'))
    assert [tuple(edge) for edge in scenario.topology.edges] == [("b1", "b2", 3), ("b2", "b3", 4)]


# Mistakes


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ('"line"', '"lime"', 3, "overlay.topology: 'lime' is none of line, star, ring, tree, random"),
        ("brokers = 3", "broker = 3", 4, "overlay.broker: there is no such key"),
        ("brokers = 3\n", "\n", 2, "overlay.brokers: is missing"),
        ("brokers = 3", "brokers = 0", 4, "overlay.brokers: must be at least 1"),
        ("brokers = 3", 'brokers = 3\nlinks = [["b1", "b2"]]', 2, "one of the three"),
        ("brokers = 3", "brokers = 3\nloss = 2.0", 5, "overlay.loss: from 0 to 1"),
        ("brokers = 3", 'brokers = 3\nstrategy = "none"', 5, "overlay.strategy: 'none' is none of advertisement"),
        ("brokers = 3", "brokers = 3\ncosts = [0, 4]", 5, "overlay.costs: whole numbers from 1 on"),
        ('name = "sub"', 'name = "pub"', 6, "clients: two groups have the same name"),
        ('["b1"]\n', '["b9"]\n', 8, "clients[0].brokers: there is no broker 'b9'"),
        ('["b1"]\n', '"around"\n', 8, "clients[0].brokers: 'evenly', 'random' or a list of brokers"),
        ("x = [0, 9]}\nadv", "x = [9, 0]}\nadv", 9, "clients[0].context: x is a range from 0 to 9; the lower number"),
        ("x = [0, 9]}\nadv", "x = []}\nadv", 9, "clients[0].context: x has no values to choose from"),
        ("n > {least}", "n > > 3", 16, "clients[1].subscriptions[0].content: "),
        ("n > {least}", "n > {lest}", 16, "clients[1].subscriptions[0].content: {lest} is none of `values`"),
        ('"x >= 0"', '"x >"', 16, "clients[1].subscriptions[0].publishers: "),
        ('by = "pub"', 'by = "nobody"', 24, "workload.publications[0].by: 'nobody' is none of the groups"),
        ("per_second = 10.0", "per_second = 0", 25, "workload.publications[0].per_second: must be more than 0"),
        ('"x > 2"', '"x ? 2"', 27, "workload.publications[0].subscribers: "),
        ("seconds = 4.0", "seconds = -1.0", 20, "workload.seconds: must be more than 0"),
        ('cut = ["b1", "b2"]', 'cut = ["b1", "b3"]', 31, "faults[0].cut: b1 and b3 are not linked"),
        ('cut = ["b1", "b2"]', 'crash = "b8"', 31, "faults[0].crash: there is no broker 'b8'"),
        ('cut = ["b1", "b2"]', 'cut = ["b1"]', 31, "faults[0].cut: expected `array` of length 2"),
        ("at = 1.5\n", "\n", 29, "faults[0].at: must be the second at which it happens"),
        ("at = 1.5", "at = 1.5\nloss = 0.5", 31, "faults[0].loss: goes with lossy, not with cut"),
        ("at = 1.5", 'at = 1.5\ncrash = "b1"', 29, "a fault is one of cut, one_way"),
        ("seed = 3", "seed = 'x'", 1, "seed: expected `int`, got `str`"),
        ("seed = 3", "seed = ", 1, "Invalid value"),
    ],
)
def test_mistakes_are_named_by_line(tmp_path: Path, before: str, after: str, line: int, told: str) -> None:
    assert before in FILE
    with pytest.raises(InvalidValueError) as caught:
        scenario_of(tmp_path, FILE.replace(before, after, 1))
    assert str(caught.value).startswith(f"{tmp_path}/scenario.toml:{line}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("b1,b2\nb1\n", "links.csv:2: a link is two brokers"),
        ("b1,b2,dear\n", "links.csv:1: the cost of a link is a whole number from 1 on, not 'dear'"),
        ("one,other\n", "links.csv: names no links"),
        ("b1,b1\n", "scenario.toml:2: overlay: b1 cannot be linked to itself"),
        (None, "links.csv: No such file"),
    ],
)
def test_mistakes_in_a_file_of_links(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "links.csv").write_text(text)
    with pytest.raises(InvalidValueError) as caught:
        scenario_of(tmp_path, FILE.replace('topology = "line"\nbrokers = 3', 'file = "links.csv"'))
    assert told in str(caught.value)


def test_an_advertisement_without_names_offers_all_of_them(tmp_path: Path) -> None:
    listed, left_out, none = (
        outcome_of(tmp_path, FILE.replace('publisher_context = ["x"], ', offer)).delivered
        for offer in ('publisher_context = ["x"], ', "", "publisher_context = [], ")
    )
    assert listed == left_out > none

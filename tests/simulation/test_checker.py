"""The checker sees what goes wrong: here it is made to go wrong, one thing at a time."""

from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from tidings.engine.matcher import NaiveMatcher
from tidings.simulation import World
from tidings.simulation.checking.checker import Checker
from tidings.simulation.checking.history import History, RoutingState
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unsubscribes,
)
from tidings.simulation.faults import Crash, Cut, Heal, Restart
from tidings.simulation.reduction import report
from tidings.simulation.step_file import read
from tidings.simulation.topologies import line

HOMES = {"pub": "b1", "sub": "b3"}


def watched(strategy: str = "advertisement", *, resends: bool = True) -> tuple[World, Checker]:
    """A publisher that has advertised, and a subscriber that has subscribed, at the ends of a line."""
    world = World(line(3), strategy=strategy, matcher=NaiveMatcher, resends=resends)
    for name, broker in HOMES.items():
        world.client(name, broker)
    checker = Checker(world, strategy, lambda step: step.apply(world))
    checker.take_all([Advertises("pub", "ad"), Subscribes("sub", "s", "n > 1"), Settles()])
    return world, checker


def kinds(checker: Checker) -> list[str]:
    return [one.kind for one in checker.violations]


def deafen(world: World, name: str) -> None:
    """Nothing that the client is told arrives from now on."""
    world.clients[name].notified = Mock()  # type: ignore[method-assign]


def test_all_is_well_if_nothing_is_tampered_with() -> None:
    _, checker = watched()
    assert checker.take_all([Publishes("pub", {"n": 2}), Publishes("pub", {"n": 1}), Settles()]) == []


def test_what_must_be_told_and_is_not_is_lost() -> None:
    world, checker = watched()
    deafen(world, "sub")
    (found,) = checker.take_all([Publishes("pub", {"n": 2}), Settles()])
    assert found.kind == "lost"
    assert "sub was not told of pub's event 1 {'n': 2}, subscription s" in str(found)


@pytest.mark.parametrize(
    "meanwhile",
    [
        [Subscribes("sub", "s", "n > 5")],
        [Unsubscribes("sub", "s")],
        [Unsubscribes("sub", "s"), Subscribes("sub", "s", "n > 1")],
        [Leaves("sub"), Returns("sub")],
        [Moves("sub", "b2")],
        [Moves("pub", "b2")],
        [Advertises("pub", "ad", "n > 1")],
        [Cut(0, "b2", "b3")],
        [Crash(0, "b2"), Restart(0, "b2")],
    ],
    ids=str,
)
def test_what_is_concurrent_with_a_change_may_be_told_or_not(meanwhile: list[Step]) -> None:
    for is_deaf in (True, False):
        world, checker = watched()
        if is_deaf:
            deafen(world, "sub")
        assert checker.take_all([Publishes("pub", {"n": 2}), *meanwhile, Settles()]) == []


def test_a_change_under_which_it_is_due_all_the_same_is_no_excuse() -> None:
    world, checker = watched()
    deafen(world, "sub")
    checker.take_all(
        [Publishes("pub", {"n": 7}), Subscribes("sub", "s", "n > 5"), SetsContext("sub", {"x": 1}), Settles()]
    )
    assert kinds(checker) == ["lost"]


def test_what_was_not_advertised_all_the_time_need_not_be_told_elsewhere() -> None:
    for strategy, expected in (("advertisement", []), ("asf", ["lost"])):
        world, checker = watched(strategy)
        checker.take(Subscribes("sub", "s", "n > 1", "x is null"))  # the advertisement does not offer x
        checker.take(Settles())
        deafen(world, "sub")
        checker.take_all([Publishes("pub", {"n": 2}), Settles()])
        assert kinds(checker) == expected


def test_nothing_must_be_told_across_a_cut() -> None:
    world, checker = watched(resends=False)
    assert checker.take_all([Cut(0, "b2", "b3"), Settles(), Publishes("pub", {"n": 2}), Settles()]) == []
    assert world.notifications("sub") == []
    assert checker.take_all([Heal(0, "b2", "b3"), Settles(), Publishes("pub", {"n": 3}), Settles()]) == []
    assert len(world.notifications("sub")) == 1


def again(world: World, **changed: Any) -> None:
    """The subscriber is told once more of the last thing that it was told of, or of something like it."""
    note = world.notifications("sub")[-1]
    world.clients["sub"].notifications.append(msgspec.structs.replace(note, **changed))


def test_what_is_told_twice_is_found() -> None:
    world, checker = watched()
    checker.take_all([Publishes("pub", {"n": 2}), Settles()])
    again(world)
    assert [one.kind for one in checker.take_all([Settles()])] == ["twice"]


def test_what_nobody_asked_for_is_undue() -> None:
    world, checker = watched()
    checker.take_all([Subscribes("sub", "other", "n > 9"), Settles(), Publishes("pub", {"n": 2}), Settles()])
    again(world, subscription="other")
    assert [one.kind for one in checker.take_all([Settles()])] == ["undue"]


def test_what_nobody_published_is_undue() -> None:
    world, checker = watched()
    checker.take_all([Publishes("pub", {"n": 2}), Settles()])
    event = msgspec.structs.replace(world.notifications("sub")[-1].event, id=world.new_event_id())
    again(world, event=event)
    assert [one.kind for one in checker.take_all([Settles()])] == ["undue"]


def test_what_was_changed_on_its_way_is_found() -> None:
    world, checker = watched()
    checker.take(Publishes("pub", {"n": 2}))
    world.settle()
    note = world.clients["sub"].notifications.pop()
    world.clients["sub"].notifications.append(msgspec.structs.replace(note, attributes={"n": 3}))
    assert [one.kind for one in checker.take_all([Settles()])] == ["altered"]


def test_what_comes_behind_a_later_event_of_its_publisher_is_found() -> None:
    world, checker = watched()
    checker.take_all([Publishes("pub", {"n": 2}), Publishes("pub", {"n": 3})])
    world.settle()
    world.clients["sub"].notifications.reverse()
    assert [one.kind for one in checker.take_all([Settles()])] == ["order"]


def test_what_a_durable_subscription_is_owed_is_there_when_its_client_is_back() -> None:
    away: list[Step] = [
        Subscribes("sub", "d", "n > 1", durable="mine"),
        Settles(),
        Leaves("sub"),
        Settles(),
        Publishes("pub", {"n": 2}),
        Settles(),
        Crash(0, "b3"),
        Settles(),
        Restart(0, "b3"),
        Settles(),
    ]
    for resends in (True, False):
        world, checker = watched(resends=resends)
        assert checker.take_all([*away, Returns("sub"), Settles()]) == []
        assert [note.subscription for note in world.notifications("sub")] == ["d"]
        world, checker = watched(resends=resends)
        checker.take_all(away)
        deafen(world, "sub")
        found = checker.take_all([Returns("sub"), Settles()])
        assert {one.kind for one in found} == {"lost"}


@pytest.mark.parametrize(
    "meanwhile",
    [
        [Cut(0, "b2", "b3"), Publishes("pub", {"n": 2}), Settles(), Heal(0, "b2", "b3")],
        [Publishes("pub", {"n": 2}), Crash(0, "b2"), Settles(), Restart(0, "b2")],
        [Publishes("pub", {"n": 2}), Moves("sub", "b2")],
        [Publishes("pub", {"n": 2}), Moves("pub", "b2")],
        [Leaves("sub"), Crash(0, "b3"), Publishes("pub", {"n": 2}), Settles(), Restart(0, "b3"), Returns("sub")],
    ],
    ids=str,
)
def test_failures_and_moves_are_no_excuse_for_what_a_durable_subscription_is_promised(meanwhile: list[Step]) -> None:
    mine: list[Step] = [Subscribes("sub", "d", "n > 1", durable="mine"), Settles()]
    world, checker = watched()
    assert checker.take_all([*mine, *meanwhile, Settles()]) == []
    assert [note.subscription for note in world.notifications("sub")].count("d") == 1
    world, checker = watched()
    checker.take_all(mine)
    deafen(world, "sub")
    assert checker.take_all([*meanwhile, Settles()])[0].kind == "lost"


def test_a_durable_subscription_that_does_not_stay_is_promised_nothing() -> None:
    world, checker = watched()
    checker.take_all([Subscribes("sub", "d", "n > 1", durable="mine"), Unsubscribes("sub", "s"), Settles()])
    deafen(world, "sub")
    cut: list[Step] = [Cut(0, "b2", "b3"), Publishes("pub", {"n": 2}), Settles()]
    assert checker.take_all([*cut, Unsubscribes("sub", "d"), Heal(0, "b2", "b3"), Settles()]) == []


def test_events_of_a_publisher_that_has_moved_may_come_late_to_a_durable_subscription() -> None:
    moved: list[Step] = [Moves("pub", "b2"), Settles()]
    expectations: list[tuple[list[Step], list[str]]] = [([], ["order"]), (moved, [])]
    for steps, expected in expectations:
        world, checker = watched()
        checker.take_all([Unsubscribes("sub", "s"), Subscribes("sub", "d", durable="mine"), Settles()])
        checker.take_all([Publishes("pub", {"n": 2}), Publishes("pub", {"n": 3}), *steps])
        world.settle()
        world.clients["sub"].notifications.reverse()
        checker._checked_counts["sub"] = 0
        checker._notified.clear()
        checker._last_sequences.clear()
        assert [one.kind for one in checker.take_all([Settles()])] == expected


def test_what_a_client_says_while_its_broker_is_down_counts_when_it_is_heard() -> None:
    _, checker = watched()
    steps: list[Step] = [
        *(Subscribes("sub", "d", "n > 1", durable="mine"), Settles()),
        *(Crash(0, "b3"), Subscribes("sub", "d", "n > 8", durable="mine"), Settles()),
        Restart(0, "b3"),
        *(Publishes("pub", {"n": 2}), Settles()),
    ]
    assert checker.take_all(steps) == []
    assert checker.unreached_clients() == []


def test_brokers_that_know_different_things_are_told_apart() -> None:
    world, _ = watched("spcf")
    other, checker = watched("spcf")
    checker.take_all([SetsContext("pub", {"x": 1}), Settles()])
    one, two = (RoutingState.of(each.broker("b2").engine) for each in (world, other))
    assert one.differences(one) == []
    assert {line.split()[0] for line in one.differences(two)} >= {"announced", "content"}


def test_a_history_that_goes_wrong_says_how_to_do_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.engine.overlay.convergence.Convergence._sweep", lambda overlay, turn: [])
    steps: tuple[Step, ...] = (
        Subscribes("sub", "s", "n > 1"),
        Advertises("pub", "ad"),
        Settles(),
        SetsContext("pub", {"x": 1}),
        Cut(0, "b2", "b3"),
        Settles(),
        Unsubscribes("sub", "s"),
        Publishes("pub", {"n": 1}),
    )
    history = History(topology=line(3), homes=HOMES, steps=steps)
    text = report(history)
    assert text is not None
    assert text.startswith("tables: b1: filters s: ")
    file = read(text.split("FILE.steps`:\n")[1])
    small = file.history
    assert small.violations()[0].kind == file.expect == "tables"
    assert len(small.steps) < len(steps)
    assert not any(isinstance(step, Publishes | SetsContext) for step in small.steps)

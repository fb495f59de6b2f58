"""A link: once and in order over a network that promises neither, and down at both ends or at none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.engine.operations import Travelling, Unsubscribe
from tidings.simulation.clock import SECOND, SimulatedClock
from tidings.simulation.counters import LinkTally
from tidings.simulation.link import HEARTBEAT, PATIENCE, SimulatedLink
from tidings.simulation.network import Conditions, NetworkPath
from tidings.simulation.rng import seeded_random

DOWN = (PATIENCE + 2) * HEARTBEAT  # after so long a silence is noticed


class Listener:
    """The shell of a broker that writes down what its link tells it."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def joined(self, neighbour: str, cost: int) -> None:
        self.heard.append("up")

    def left(self, neighbour: str) -> None:
        self.heard.append("down")

    def received(self, neighbour: str, operation: Travelling) -> None:
        assert isinstance(operation, Unsubscribe)
        self.heard.append(operation.id)

    @property
    def taken(self) -> list[str]:
        return [one for one in self.heard if one not in ("up", "down")]


class Pair:
    """Two brokers, `a` and `b`, and the link between them."""

    def __init__(self, seed: int = 0, **conditions: float) -> None:
        self.clock = SimulatedClock()
        chance = seeded_random(seed, "network")
        made = Conditions(jitter=500, **conditions)  # type: ignore[arg-type]
        self.there, self.back = NetworkPath(self.clock, chance, made), NetworkPath(self.clock, chance, made)
        self.link = SimulatedLink(self.clock, "a", "b", (self.there, self.back), (LinkTally(), LinkTally()), 1)
        self.a, self.b = Listener(), Listener()
        for end, listener in zip(self.link.ends, (self.a, self.b), strict=True):
            end.start(listener)
        self.link.begin()

    def send(self, end: int, *names: object) -> None:
        for name in names:
            self.link.ends[end].send(Unsubscribe("c", str(name)))

    def run(self, microseconds: int) -> None:
        self.clock.run_until(self.clock.now + microseconds)

    def set_cut(self, there: bool, back: bool) -> None:
        self.there.is_cut, self.back.is_cut = there, back
        self.link.network_changed()


@examples(60, 2000)
@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 20), st.integers(0, 20_000)), max_size=15),
)
def test_everything_arrives_once_and_in_order_whatever_the_network_does(
    seed: int, bursts: list[tuple[int, int, int]]
) -> None:
    pair = Pair(seed, loss=0.3, duplication=0.2, reordering=0.3)
    sent: tuple[list[str], list[str]] = ([], [])
    for end, count, pause in bursts:
        names = [f"{end}.{len(sent[end]) + number}" for number in range(count)]
        sent[end].extend(names)
        pair.send(end, *names)
        pair.run(pause)
    for _ in range(200):
        if pair.link.is_settled:
            break
        pair.run(SECOND // 10)
    if "down" not in pair.a.heard + pair.b.heard:  # silence for so long that it counts as broken is rare, but allowed
        assert (pair.b.taken, pair.a.taken) == sent
    else:
        assert [one for one in sent[0] if one in pair.b.taken] == pair.b.taken
        assert [one for one in sent[1] if one in pair.a.taken] == pair.a.taken


def test_a_network_that_loses_and_doubles_really_does() -> None:
    pair = Pair(loss=0.3, duplication=0.2, reordering=0.3)
    pair.send(0, *range(200))
    pair.run(SECOND)
    assert pair.there.dropped > 30
    assert pair.b.taken == [str(number) for number in range(200)]


@pytest.mark.parametrize("there", [True, False])
def test_a_cut_in_one_direction_brings_both_ends_down(there: bool) -> None:
    pair = Pair()
    pair.set_cut(there, not there)
    pair.run(DOWN)
    assert pair.a.heard == pair.b.heard == ["up", "down"]
    assert pair.link.is_settled
    pair.run(20 * SECOND)
    assert pair.a.heard == pair.b.heard == ["up", "down"]


def test_a_link_that_is_healed_comes_up_at_both_ends_and_begins_anew() -> None:
    pair = Pair()
    pair.send(0, "before")
    pair.run(SECOND)
    pair.set_cut(True, True)
    pair.send(0, "lost")
    pair.run(DOWN)
    pair.set_cut(False, False)
    assert not pair.link.is_settled
    pair.run(2 * HEARTBEAT)
    pair.send(0, "after")
    pair.run(SECOND)
    assert pair.a.heard == ["up", "down", "up"]
    assert pair.b.heard == ["up", "before", "down", "up", "after"]
    assert pair.link.is_smooth


def test_a_short_cut_is_not_noticed_and_loses_nothing() -> None:
    pair = Pair()
    pair.set_cut(True, True)
    pair.send(0, 1, 2, 3)
    pair.run(2 * HEARTBEAT)
    assert pair.b.taken == []
    pair.set_cut(False, False)
    pair.send(0, 4)
    pair.run(SECOND)
    assert pair.b.heard == ["up", "1", "2", "3", "4"]
    assert pair.a.heard == ["up"]


def test_what_is_on_its_way_when_the_network_gets_worse_keeps_its_place() -> None:
    pair = Pair(reordering=0.0)
    pair.send(0, 1, 2)
    pair.there.conditions = Conditions(latency=0, loss=0.1)
    pair.link.network_changed()
    pair.send(0, 3, 4)
    pair.run(SECOND)
    assert pair.b.taken == ["1", "2", "3", "4"]


def test_nothing_of_an_old_incarnation_is_taken_for_the_new() -> None:
    pair = Pair(latency=400_000)
    pair.send(0, "old")
    pair.link.ends[1].stop()
    pair.link.start_heartbeats()
    pair.link.ends[1].start(pair.b)
    pair.run(4 * SECOND)
    pair.send(0, "new")
    pair.run(4 * SECOND)
    assert pair.b.heard == ["up", "up", "new"]
    assert pair.a.heard == ["up", "down", "up"]


def test_a_broker_that_is_gone_is_missed() -> None:
    pair = Pair()
    pair.link.ends[1].stop()
    pair.link.start_heartbeats()
    pair.run(DOWN)
    assert pair.a.heard == ["up", "down"]
    assert pair.b.heard == ["up"]


def test_a_healthy_link_sends_no_heartbeats_that_anybody_has_to_wait_for() -> None:
    pair = Pair()
    pair.run(SECOND)
    assert pair.clock.next_time is None


@examples(60, 2000)
@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6 * SECOND)), max_size=8),
)
def test_after_any_cuts_the_link_is_up_at_both_ends_and_works(seed: int, cuts: list[tuple[bool, bool, int]]) -> None:
    pair = Pair(seed, loss=0.05)
    for there, back, pause in cuts:
        pair.set_cut(there, back)
        pair.send(0, "meanwhile")
        pair.run(pause)
    pair.set_cut(False, False)
    for way in (pair.there, pair.back):
        way.conditions = Conditions(jitter=500)
    pair.run(DOWN + 4 * HEARTBEAT)
    assert pair.link.is_settled
    assert pair.link.is_smooth
    ups = [listener.heard.count("up") - listener.heard.count("down") for listener in (pair.a, pair.b)]
    assert ups == [1, 1]
    before = len(pair.b.taken)
    pair.send(0, "x", "y")
    pair.send(1, "z")
    pair.run(SECOND)
    assert pair.b.taken[before:] == ["x", "y"]
    assert pair.a.taken == ["z"]

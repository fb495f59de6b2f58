"""Crashes, cuts and moves: what survives them, and what is there again when they are over."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.test_world import attributes, served
from tests.sizes import examples
from tidings import RefusedError
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import Unsubscribe
from tidings.simulation import World
from tidings.simulation.faults import Crash, Cut, Fault, Heal, Lossy, Restart, Slow, draw_faults
from tidings.simulation.topologies import Topology, line, random_graph, ring, tree


def test_after_a_cut_and_a_heal_events_arrive_again_without_anybody_asking() -> None:
    world = World(line(4))
    publisher, _ = served(world)
    world.cut("b2", "b3")
    world.settle()
    publisher.publish({"n": 2})
    world.settle()
    assert attributes(world, "sub") == []
    world.heal("b2", "b3")
    world.settle()
    publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]  # what was published meanwhile, too


@pytest.mark.parametrize("crashed", ["b1", "b2", "b4"])
def test_after_a_crash_and_a_restart_events_arrive_again_without_anybody_asking(crashed: str) -> None:
    world = World(line(4))
    publisher, subscriber = served(world)
    world.crash(crashed)
    world.settle()
    assert publisher.is_connected == (crashed != "b1")
    world.restart(crashed)
    world.settle()
    assert publisher.is_connected
    assert subscriber.is_connected
    publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == [{"n": 3}]


def test_a_restart_before_anybody_has_noticed_the_crash() -> None:
    world = World(line(4))
    publisher, _ = served(world)
    world.crash("b2")
    world.run(0.01)
    world.restart("b2")
    world.settle()
    publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == [{"n": 3}]


def test_publishing_is_refused_while_the_broker_is_down_and_other_wishes_wait() -> None:
    world = World(line(2))
    publisher, subscriber = served(world, "b2")
    (first,) = subscriber.subscriptions()
    world.crash("b2")
    with pytest.raises(RefusedError, match="its broker b2 is down"):
        subscriber.publish({"n": 1})
    subscriber.unsubscribe(first.id)
    subscriber.subscribe("n > 5")
    subscriber.set_context(x=1)
    world.restart("b2")
    world.settle()
    publisher.publish({"n": 3})
    publisher.publish({"n": 7}, subscribers="x = 1")
    world.settle()
    assert attributes(world, "sub") == [{"n": 7}]


def test_a_client_that_has_left_says_nothing() -> None:
    world = World(line(2))
    publisher, subscriber = served(world, "b2")
    subscriber.disconnect()
    for wish in (subscriber.publish, subscriber.subscribe):
        with pytest.raises(RefusedError, match="it has left"):
            wish()
    world.crash("b2")
    world.restart("b2")
    world.settle()
    assert not subscriber.is_connected
    publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == []


def test_durable_notifications_wait_for_their_client_through_a_crash() -> None:
    world = World(line(2))
    publisher, subscriber = served(world, "b2", durable="mine")
    subscriber.set_context(x=1)
    subscriber.disconnect()
    world.settle()
    publisher.publish({"n": 2}, subscribers="x = 1")
    world.settle()
    world.crash("b2")
    world.settle()
    world.restart("b2")
    world.settle()
    publisher.publish({"n": 3}, subscribers="x = 1")
    world.settle()
    assert attributes(world, "sub") == []
    subscriber.connect()
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]
    assert world.broker("b2").disk.waiting("sub") == []


def test_what_is_not_durable_does_not_survive_a_crash() -> None:
    world = World(line(2))
    _, subscriber = served(world, "b2")
    subscriber.subscribe("n > 8", durable="mine")
    world.crash("b2")
    world.restart("b2")
    assert [one.durable for one in world.tables("b2").subscriptions] == ["mine"]
    assert world.tables("b2").advertisements == []


def test_a_durable_notification_that_was_not_acknowledged_comes_again_and_is_told_once() -> None:
    world = World(line(1))
    publisher, _ = served(world, "b1", durable="mine")
    publisher.publish({"n": 2})
    assert attributes(world, "sub") == [{"n": 2}]
    world.crash("b1")
    world.restart("b1")
    assert len(world.broker("b1").disk.waiting("sub")) == 1
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}]
    assert world.broker("b1").disk.waiting("sub") == []


def test_what_waits_for_a_subscription_goes_with_it() -> None:
    world = World(line(1))
    publisher, subscriber = served(world, "b1", durable="mine")
    (wanted,) = subscriber.subscriptions()
    subscriber.disconnect()
    publisher.publish({"n": 2})
    world.crash("b1")
    world.restart("b1")
    world.broker("b1").unsubscribe(Unsubscribe("sub", wanted.id))
    subscriber.connect()
    world.settle()
    assert attributes(world, "sub") == []


def left_behind(world: World) -> Any:
    """A durable subscriber of b1 that has left, and two notifications that it has not got."""
    publisher, subscriber = served(world, "b1", durable="mine")
    subscriber.disconnect()
    for number in (2, 3):
        publisher.publish({"n": number})
    world.settle()
    return publisher, subscriber


def waiting(world: World) -> list[int]:
    return [len(broker.disk.waiting("sub")) for broker in world.brokers.values()]


def test_durable_notifications_follow_a_client_that_has_moved() -> None:
    world = World(line(3))
    publisher, subscriber = left_behind(world)
    assert waiting(world) == [2, 0, 0]
    subscriber.move("b3")
    world.settle()
    publisher.publish({"n": 4})
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}, {"n": 4}]
    assert waiting(world) == [0, 0, 0]
    (wanted,) = subscriber.subscriptions()
    assert world.tables("b1").hops[wanted.id] == "b2"


def test_durable_notifications_wait_until_the_way_is_free_and_follow_further() -> None:
    world = World(line(3))
    _, subscriber = left_behind(world)
    world.cut("b1", "b2")
    world.settle()
    subscriber.move("b2")
    world.settle()
    subscriber.move("b3")
    world.settle()
    assert waiting(world) == [2, 0, 0]
    world.heal("b1", "b2")
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]
    assert waiting(world) == [0, 0, 0]


@pytest.mark.parametrize("crashed", ["b1", "b2", "b3"])
@pytest.mark.parametrize("after", [0.001, 0.003, 0.005, 0.007, 0.2])
def test_durable_notifications_arrive_whoever_crashes_meanwhile(crashed: str, after: float) -> None:
    world = World(line(3))
    _, subscriber = left_behind(world)
    subscriber.move("b3")
    world.run(after)
    world.crash(crashed)
    world.run(1.0)
    world.restart(crashed)
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]
    assert waiting(world) == [0, 0, 0]


def test_a_client_that_comes_back_gets_what_has_not_followed_it() -> None:
    world = World(line(3))
    _, subscriber = left_behind(world)
    world.cut("b1", "b2")
    world.settle()
    subscriber.move("b3")
    world.settle()
    subscriber.move("b1")
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]
    world.heal("b1", "b2")
    world.settle()
    assert waiting(world) == [0, 0, 0]
    (wanted,) = subscriber.subscriptions()
    assert [world.tables(name).hops.get(wanted.id) for name in ("b1", "b3")] == ["sub", None]


def test_a_client_that_went_elsewhere_while_its_broker_was_down_is_given_up_there() -> None:
    world = World(line(3))
    publisher, subscriber = served(world, "b3", durable="mine")
    subscriber.disconnect()
    publisher.publish({"n": 2})
    world.settle()
    world.crash("b3")
    subscriber.move("b2")
    world.settle()
    world.restart("b3")
    world.settle()
    publisher.publish({"n": 3})
    world.settle()
    assert sorted(note.attributes["n"] for note in world.notifications("sub")) == [2, 3]
    assert waiting(world) == [0, 0, 0]


def test_a_client_moves_with_its_identity_its_context_and_what_it_wants() -> None:
    world = World(line(4))
    publisher, subscriber = served(world, "b4")
    subscriber.set_context(x=1)
    publisher.set_context(y=2)
    world.settle()
    first = publisher.publish({"n": 2})
    world.settle()
    subscriber.move("b2")
    assert dict(world.tables("b2").contexts["sub"]) == {"x": 1}
    publisher.move("b3")
    world.settle()
    second = publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]
    assert (first.event.sequence, second.event.sequence) == (1, 2)
    assert dict(second.event.context) == {"y": 2}
    assert (subscriber.broker, publisher.broker) == ("b2", "b3")
    (wanted,) = subscriber.subscriptions()
    assert [world.tables(name).hops.get(wanted.id) for name in ("b2", "b3", "b4")] == ["sub", "b2", None]


def test_a_client_may_move_away_from_a_broker_that_is_down_and_to_one() -> None:
    world = World(line(3))
    publisher, subscriber = served(world, "b3")
    world.crash("b3")
    subscriber.move("b2")
    world.settle()
    publisher.publish({"n": 2})
    world.settle()
    subscriber.move("b3")
    assert not subscriber.is_connected
    world.restart("b3")
    world.settle()
    publisher.publish({"n": 3})
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}, {"n": 3}]


def test_faults_come_at_their_times() -> None:
    world = World(line(3))
    world.run(1.0)
    world.schedule([Crash(0.5, "b1"), Restart(2.0, "b1"), Cut(0.25, "b2", "b3", one_way=True), Heal(3.0, "b2", "b3")])
    world.run(0.3)
    assert world.network.paths["b2", "b3"].is_cut
    assert not world.network.paths["b3", "b2"].is_cut
    assert world.broker("b1").is_up
    world.run(0.3)
    assert not world.broker("b1").is_up
    world.settle()
    assert world.broker("b1").is_up
    assert not world.network.paths["b2", "b3"].is_cut


def test_faults_can_be_written_down() -> None:
    faults: list[Fault] = [Crash(0.5, "b1"), Slow(1.0, "b1", "b2", 3.0), Lossy(1.0, "b1", "b2", 0.1)]
    assert msgspec.json.decode(msgspec.json.encode(faults), type=list[Fault]) == faults


@examples(50, 1000)
@given(st.integers(0, 1000), st.sampled_from([line(3), tree(5), random_graph(6, 3, 1)]))
def test_drawn_faults_are_those_of_the_seed_and_leave_everything_whole(seed: int, topology: Topology) -> None:
    faults = draw_faults(topology, seed, count=6, seconds=20.0)
    assert faults == draw_faults(topology, seed, count=6, seconds=20.0)
    assert list(faults) == sorted(faults, key=lambda fault: fault.at)
    crashed = {fault.broker for fault in faults if isinstance(fault, Crash)}
    for broker in crashed:
        assert isinstance([one for one in faults if getattr(one, "broker", None) == broker][-1], Restart)
    hurt = {frozenset((one.one, one.other)) for one in faults if isinstance(one, Cut | Slow | Lossy)}
    for pair in hurt:
        of_links = (one for one in faults if isinstance(one, Cut | Slow | Lossy | Heal))
        of_pair = [one for one in of_links if {one.one, one.other} == pair]
        assert isinstance(of_pair[-1], Heal)


@examples(40, 800)
@given(
    st.integers(0, 100_000),
    st.sampled_from([tree(5), ring(5), random_graph(6, 3, 1)]),
    st.sampled_from(["advertisement", "asf", "gsf", "spcf"]),
)
def test_after_drawn_faults_everybody_is_served_again(seed: int, topology: Topology, strategy: str) -> None:
    world = World(topology, seed=seed, strategy=strategy, matcher=NaiveMatcher)
    publisher, _ = served(world, "b5")
    world.schedule(draw_faults(topology, seed, count=5, seconds=15.0))
    world.run(16.0)
    world.settle()
    before = len(world.notifications("sub"))
    publisher.publish({"n": 100})
    world.settle()
    assert [note.attributes["n"] for note in world.notifications("sub")[before:]] == [100]


@examples(40, 800)
@given(
    st.integers(0, 100_000),
    st.sampled_from([tree(5), ring(5), random_graph(6, 3, 1)]),
    st.sampled_from(["advertisement", "asf", "gsf", "spcf"]),
    st.lists(
        st.tuples(st.floats(0.01, 3.0), st.sampled_from(["b1", "b2", "b3", "b4"])),
        max_size=4,
        unique_by=lambda one: one[1],
    ),
)
def test_a_durable_subscriber_that_roams_through_faults_is_served_in_the_end_and_told_nothing_twice(
    seed: int, topology: Topology, strategy: str, moves: list[tuple[float, str]]
) -> None:
    world = World(topology, seed=seed, strategy=strategy, matcher=NaiveMatcher)
    publisher, subscriber = served(world, "b5", durable="mine")
    world.schedule(draw_faults(topology, seed, count=4, seconds=10.0))
    for number, (pause, broker) in enumerate(moves):
        if publisher.is_connected:
            publisher.publish({"n": 10 + number})
        world.run(pause)
        subscriber.move(broker)
    world.run(11.0)
    world.settle()
    publisher.publish({"n": 100})
    world.settle()
    told = [note.attributes["n"] for note in world.notifications("sub")]
    assert told[-1:] == [100]
    assert len(set(told)) == len(told)
    assert not any(broker.disk.waiting("sub") for broker in world.brokers.values())

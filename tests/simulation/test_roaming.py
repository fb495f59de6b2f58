"""Roaming: clients that go from broker to broker keep who they are, their context and what they asked for durably; what
the old broker had of them goes (000, Figs. 9 to 12)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings.engine.matcher import NaiveMatcher
from tidings.matching.reference import due
from tidings.simulation import World
from tidings.simulation.topologies import Topology, line, ring, star

STRATEGIES = ("advertisement", "asf", "gsf", "spcf")
NETWORKS = {"line": line(4), "ring": ring(4), "star": star(4)}
BROKERS = ("b1", "b2", "b3", "b4")

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
everywhere = pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS)


def populated(topology: Topology, strategy: str, publisher: str, subscriber: str) -> World:
    """A publisher and a subscriber who sees those whose x is near its own, at these brokers."""
    world = World(topology, strategy=strategy, matcher=NaiveMatcher)
    pub, sub = world.client("pub", publisher), world.client("sub", subscriber)
    world.client("stays", "b2").subscribe("n > 0", id="stays")
    pub.set_context(x=5)
    pub.advertise("n > 0", publisher_context=["x"], subscriber_context=["role"], id="offer")
    sub.set_context(x=4, role="clerk")
    sub.subscribe("n > 0", publishers="x between this.x - 1 and this.x + 1", id="near")
    sub.subscribe("n > 10", durable="large", id="large")
    world.settle()
    return world


def told(world: World, client: str, subscription: str) -> list[Any]:
    return [note.attributes["n"] for note in world.notifications(client) if note.subscription == subscription]


def tables(world: World) -> dict[str, Any]:
    """What stands in the tables, without the order in which it came there."""
    found: dict[str, Any] = {}
    for name in world.brokers:
        known = world.tables(name)
        subscriptions = {one.id: str(one) for one in known.subscriptions}
        advertisements = {one.id: str(one) for one in known.advertisements}
        found[name] = known.hops, known.sent, known.contexts, subscriptions, advertisements
    return found


@each_strategy
@everywhere
def test_after_moves_tables_are_those_of_clients_that_were_there_from_the_beginning(
    topology: Topology, strategy: str
) -> None:
    world = populated(topology, strategy, "b1", "b3")
    for there in ("b4", "b2", "b1"):
        world.clients["sub"].move(there)
        world.settle()
        assert tables(world) == tables(populated(topology, strategy, "b1", there))
    for there in ("b2", "b3", "b4"):
        world.clients["pub"].move(there)
        world.settle()
        assert tables(world) == tables(populated(topology, strategy, there, "b1"))


@each_strategy
@everywhere
def test_a_subscriber_that_moves_keeps_its_context_and_its_subscriptions(topology: Topology, strategy: str) -> None:
    world = populated(topology, strategy, "b1", "b3")
    pub, sub = world.clients["pub"], world.clients["sub"]
    for number, there in enumerate(("b4", "b1", "b2"), start=1):
        sub.move(there)
        world.settle()
        pub.publish({"n": number}, subscribers="role = 'clerk'")
        pub.publish({"n": number + 20}, subscribers="role = 'guest'")
        world.settle()
    assert told(world, "sub", "near") == [1, 2, 3]
    sub.set_context(x=9, role="guest")
    world.settle()
    pub.publish({"n": 30})
    world.settle()
    assert told(world, "sub", "near") == [1, 2, 3]
    assert told(world, "sub", "large") == [30]


@each_strategy
@everywhere
def test_a_publisher_that_moves_keeps_its_name_its_context_and_its_numbers(topology: Topology, strategy: str) -> None:
    world = populated(topology, strategy, "b1", "b3")
    pub = world.clients["pub"]
    for number, there in enumerate(("b4", "b2", "b3", "b1"), start=1):
        pub.move(there)
        world.settle()
        pub.publish({"n": number})
        world.settle()
    assert told(world, "sub", "near") == told(world, "stays", "stays") == [1, 2, 3, 4]
    assert [note.event.sequence for note in world.notifications("stays")] == [1, 2, 3, 4]
    assert {note.event.publisher for note in world.notifications("stays")} == {"pub"}


@each_strategy
def test_what_is_durable_misses_nothing_while_its_client_is_on_its_way(strategy: str) -> None:
    """Events come all the time, and the client moves between two of them without waiting for anything."""
    world = populated(line(4), strategy, "b1", "b3")
    pub, sub = world.clients["pub"], world.clients["sub"]
    for number in range(11, 41):
        pub.publish({"n": number})
        world.run(0.0007)
        if number % 6 == 0:
            sub.move(BROKERS[number % 4])
    world.settle()
    assert sorted(told(world, "sub", "large")) == list(range(11, 41))


@each_strategy
def test_after_a_partition_the_old_broker_gives_up_and_hands_over(strategy: str) -> None:
    world = populated(line(4), strategy, "b1", "b2")
    pub, sub = world.clients["pub"], world.clients["sub"]
    sub.disconnect()
    world.settle()
    pub.publish({"n": 11})  # waits at b2
    world.settle()
    world.cut("b2", "b3")
    world.settle()
    sub.move("b4")  # of which b2 cannot hear
    world.settle()
    pub.publish({"n": 12})
    world.settle()
    assert told(world, "sub", "large") == []
    assert world.tables("b2").hops["large"] == "sub"
    assert [note.attributes["n"] for note in world.broker("b2").disk.waiting("sub")] == [11, 12]
    world.heal("b2", "b3")
    world.settle()
    assert told(world, "sub", "large") == [11, 12]
    assert [world.broker(name).disk.waiting("sub") for name in BROKERS] == [[]] * 4
    assert world.tables("b4").hops["large"] == "sub"
    assert world.tables("b2").hops.get("large") != "sub"
    pub.publish({"n": 13})
    world.settle()
    assert told(world, "sub", "large") == [11, 12, 13]


@each_strategy
def test_a_publisher_that_moves_across_a_partition_is_at_its_new_broker_only_once_it_heals(strategy: str) -> None:
    world = populated(line(4), strategy, "b2", "b4")
    pub = world.clients["pub"]
    world.cut("b2", "b3")
    world.settle()
    pub.move("b3")
    world.settle()
    pub.publish({"n": 1})
    world.settle()
    assert told(world, "sub", "near") == [1]
    assert told(world, "stays", "stays") == []
    world.heal("b2", "b3")
    world.settle()
    pub.publish({"n": 2})
    world.settle()
    assert (told(world, "sub", "near"), told(world, "stays", "stays")) == ([1, 2], [1, 2])
    assert tables(world) == tables(populated(line(4), strategy, "b3", "b4"))


# Seconds after a failure: before it is noticed, between that and the new tables, and after these.
AROUND_NEW_TABLES = (3.4, 3.51, 3.6, 3.7, 3.8)


@each_strategy
@pytest.mark.parametrize("later", AROUND_NEW_TABLES)
def test_a_subscriber_that_moves_while_its_broker_is_down_is_told_by_its_new_context(
    strategy: str, later: float
) -> None:
    world = roaming(strategy, "b2")
    sub = world.clients["sub"]
    world.crash("b2")
    world.run(later)
    sub.move("b3")
    world.settle()
    sub.set_context(x=5, role="clerk")
    world.settle()
    world.clients["pub"].publish({"n": 11})
    world.settle()
    assert (told(world, "sub", "near"), told(world, "sub", "large")) == ([11], [11])
    world.restart("b2")
    world.settle()
    fresh = roaming(strategy, "b3", x=5)
    assert tables(world) == tables(fresh)


@each_strategy
@pytest.mark.parametrize("later", AROUND_NEW_TABLES)
def test_a_subscriber_that_moves_while_a_link_of_its_broker_is_down_leaves_nothing_behind(
    strategy: str, later: float
) -> None:
    world = roaming(strategy, "b2")
    world.cut("b1", "b2")
    world.run(later)
    world.clients["sub"].move("b1")
    world.settle()
    world.clients["sub"].set_context(x=6, role="clerk")
    world.heal("b1", "b2")
    world.settle()
    assert tables(world) == tables(roaming(strategy, "b1", x=6))


@each_strategy
def test_a_subscriber_that_moves_and_is_back_at_once_leaves_nothing_behind(strategy: str) -> None:
    world = roaming(strategy, "b2")
    world.clients["sub"].move("b3")
    world.clients["sub"].move("b2")
    world.settle()
    assert tables(world) == tables(roaming(strategy, "b2"))


def roaming(strategy: str, broker: str, x: int = 1) -> World:
    """A publisher at b1, and a subscriber that asks durably for what is published near it, on a ring."""
    world = World(ring(3), strategy=strategy, matcher=NaiveMatcher)
    pub, sub = world.client("pub", "b1"), world.client("sub", broker)
    pub.set_context(x=5)
    pub.advertise("n > 0", publisher_context=["x"], subscriber_context=["role"], id="offer")
    sub.set_context(x=x, role="clerk")
    sub.subscribe("n > 0", publishers="x between this.x - 1 and this.x + 1", durable="near", id="near")
    sub.subscribe("n > 10", durable="large", id="large")
    world.settle()
    return world


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["pub", "sub"]), st.sampled_from(BROKERS)),
        st.tuples(st.just("context"), st.integers(2, 8)),
        st.tuples(st.just("publish"), st.sampled_from([None, "role = 'clerk'", "x = this.x", "x is null"])),
    ),
    min_size=3,
    max_size=12,
)


@each_strategy
@examples(25, 500)
@given(st.sampled_from(list(NETWORKS.values())), _STEPS)
def test_wherever_clients_go_they_are_told_what_the_reference_says(
    strategy: str, topology: Topology, steps: list[tuple[str, Any]]
) -> None:
    world = populated(topology, strategy, "b1", "b3")
    pub, sub = world.clients["pub"], world.clients["sub"]
    for kind, what in steps:
        match kind:
            case "context":
                sub.set_context(x=what, role="clerk")
            case "publish":
                before = len(sub.notifications)
                event = pub.publish({"n": 15}, subscribers=what).event
                world.settle()
                got = sorted(note.subscription for note in sub.notifications[before:])
                assert got == sorted(one.id for one in sub.subscriptions() if due(one, event, sub.context))
            case _:
                world.clients[kind].move(what)
        world.settle()

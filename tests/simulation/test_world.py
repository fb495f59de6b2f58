"""A world as a whole: what its clients are told, when it is at rest, and what faults do to it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_overlay_agrees import CONTENTS, HOME, POLICIES, PUBLISHERS, SUBSCRIBERS
from tests.sizes import examples
from tidings import InvalidValueError, RefusedError
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import SetPolicy
from tidings.matching.reference import due
from tidings.model.errors import UnsettledError
from tidings.policy import policies
from tidings.simulation import World
from tidings.simulation.clock import SECOND
from tidings.simulation.topologies import Topology, line, star


def attributes(world: World, client: str) -> list[dict[str, Any]]:
    return [dict(note.attributes) for note in world.notifications(client)]


def served(world: World, there: str = "b4", **wanted: Any) -> Any:
    """A publisher at b1 and a subscriber at the other end, once they know of each other."""
    publisher, subscriber = world.client("pub", "b1"), world.client("sub", there)
    publisher.advertise("n >= 0")
    subscriber.subscribe("n > 1", **wanted)
    world.settle()
    return publisher, subscriber


_clients, _numbers = st.sampled_from(sorted(HOME)), st.integers(0, 3)
_operations = st.one_of(
    st.tuples(
        st.just("subscribe"), _clients, st.integers(0, 2), *map(st.sampled_from, (CONTENTS, PUBLISHERS, POLICIES))
    ),
    st.tuples(st.just("unsubscribe"), _clients, st.integers(0, 2)),
    st.tuples(st.just("context"), _clients, st.fixed_dictionaries({}, optional={"x": _numbers})),
    st.tuples(st.just("leave"), _clients),
    st.tuples(
        st.just("publish"),
        _clients,
        st.fixed_dictionaries({"a": _numbers}, optional={"b": _numbers}),
        st.sampled_from(SUBSCRIBERS),
    ),
)


@examples(60, 1500)
@given(
    st.sampled_from([line(4), star(4)]),
    st.sampled_from([{}, {"loss": 0.2, "duplication": 0.1, "reordering": 0.2}]),
    st.lists(_operations, min_size=5, max_size=20),
)
def test_a_world_and_the_reference_agree(
    topology: Topology, network: dict[str, float], operations: list[tuple[Any, ...]]
) -> None:
    world = World(topology, matcher=NaiveMatcher, **network)  # type: ignore[arg-type]
    clients = {name: world.client(name, broker) for name, broker in HOME.items()}
    for kind, name, *more in operations:
        client = clients[name]
        match kind:
            case "subscribe":
                number, content, publishers, policy = more
                client.subscribe(content, publishers=publishers, policy=policy, id=f"{name}{number}")
            case "unsubscribe":
                if f"{name}{more[0]}" in {one.id for one in client.subscriptions()}:
                    client.unsubscribe(f"{name}{more[0]}")
            case "context":
                client.set_context(more[0])
            case "leave":
                client.disconnect()
                client.connect()
            case "publish":
                if not client.advertisements():
                    client.advertise("true", publisher_context=["x"])
                world.settle()
                before = {one: len(world.notifications(one)) for one in clients}
                event = client.publish(more[0], subscribers=more[1]).event
                world.settle()
                got = sorted(
                    note.subscription for one, count in before.items() for note in world.notifications(one)[count:]
                )
                expected = sorted(
                    wanted.id
                    for one in clients.values()
                    for wanted in one.subscriptions()
                    if due(wanted, event, one.context)
                )
                assert got == expected
        world.settle()


def test_a_line_of_four_carries_events_in_the_order_of_their_publisher() -> None:
    world = World(line(4), loss=0.1, reordering=0.2)
    publisher, _ = served(world)
    for number in range(50):
        publisher.publish({"n": number})
    world.settle()
    notes = world.notifications("sub")
    assert [note.attributes["n"] for note in notes] == list(range(2, 50))
    assert [note.event.sequence for note in notes] == list(range(3, 51))


def test_the_context_of_a_publisher_travels_with_its_events() -> None:
    world = World(line(2))
    publisher, subscriber = world.client("pub", "b1"), world.client("sub", "b2")
    publisher.set_context(x=1, y=2)
    publisher.set_context(y=None, z=3, merge=True)
    publisher.advertise(publisher_context=["x", "z"])
    subscriber.set_context(x=1)
    subscriber.subscribe(publishers="x = this.x and z = 3")
    world.settle()
    publisher.publish({"n": 1})
    publisher.set_context(x=2, z=3)
    publisher.publish({"n": 2})
    world.settle()
    assert attributes(world, "sub") == [{"n": 1}]
    assert dict(world.notifications("sub")[0].event.context) == {"x": 1, "z": 3}


def test_a_client_that_lets_another_set_its_context() -> None:
    world = World(line(2))
    publisher, car, phone = world.client("pub", "b1"), world.client("car", "b2"), world.client("phone", "b2")
    publisher.advertise()
    car.subscribe()
    with pytest.raises(RefusedError, match="does not let"):
        phone.set_context({"x": 1}, of="car")
    car.let_set_context(phone)
    phone.set_context({"x": 1}, of="car")
    world.settle()
    publisher.publish({"n": 1}, subscribers="x = 1")
    world.settle()
    assert attributes(world, "car") == [{"n": 1}]
    assert dict(car.context) == {"x": 1}


def test_what_a_broker_refuses_is_refused_to_the_client() -> None:
    world = World(line(2))
    world.client("one", "b1").subscribe(id="taken")
    with pytest.raises(RefusedError, match="taken"):
        world.client("two", "b1").subscribe(id="taken")
    assert [one.reason for one in world.broker("b1").rejected] == [
        "the id taken is taken; choose another one, or leave it out"
    ]
    with pytest.raises(InvalidValueError, match="is at b1; move"):
        world.client("one", "b2")
    with pytest.raises(InvalidValueError, match="name of a broker"):
        world.client("b1", "b2")
    with pytest.raises(InvalidValueError, match="no broker"):
        world.client("three", "b9")


def test_one_broker_may_be_set_up_differently() -> None:
    world = World(line(2), settings={"b2": {"advertisements_required": False}})
    world.client("two", "b2").publish({"n": 1})
    with pytest.raises(RefusedError):
        world.client("one", "b1").publish({"n": 1})


FRIENDS = """PolicyStatement { On(Publication) {
    If {AuthenticateReceiver(friends)} Then {} Elseif {} Then {BlockMessage()} } }"""


@pytest.mark.parametrize("trust", [{"friends": ["ann"]}, lambda party, group: (party, group) == ("ann", "friends")])
def test_questions_of_trust_are_answered_after_a_while(trust: Any) -> None:
    world = World(line(1), trust=trust)
    publisher = world.client("pub", "b1")
    publisher.advertise(policy=FRIENDS)
    for name in ("ann", "bob"):
        world.client(name, "b1").subscribe()
    publisher.publish({"n": 1})
    assert attributes(world, "ann") == []
    assert not world.is_quiet
    world.settle()
    assert attributes(world, "ann") == [{"n": 1}]
    assert attributes(world, "bob") == []


@pytest.mark.parametrize("end", ["crash", "leave"])
def test_what_was_accepted_before_an_answer_came_is_decided_later(end: str) -> None:
    """The broker crashes, or its receivers leave: whoever belongs to the group gets it once, and nobody else."""
    world = World(line(1), trust={"friends": ["ann"]})
    publisher = world.client("pub", "b1")
    publisher.advertise(policy=FRIENDS)
    receivers = [world.client(name, "b1") for name in ("ann", "bob")]
    for one in receivers:
        one.subscribe(durable="all")
    publisher.publish({"n": 1})
    publisher.publish({"n": 2})
    if end == "crash":
        world.crash("b1")
        world.restart("b1")
    else:
        for one in receivers:
            one.disconnect()
        world.run(1)
        for one in receivers:
            one.connect()
    world.settle()
    assert attributes(world, "ann") == [{"n": 1}, {"n": 2}]
    assert attributes(world, "bob") == []


def test_an_operator_sets_a_policy_at_one_broker() -> None:
    world = World(line(2))
    publisher, subscriber = served(world, "b2")
    (wanted,) = subscriber.subscriptions()
    world.do("b2", SetPolicy("b2", wanted.id, str(policies.remove("secret"))))
    publisher.publish({"n": 2, "secret": 1})
    world.settle()
    assert attributes(world, "sub") == [{"n": 2}]


def test_a_world_that_cannot_settle_says_what_moves() -> None:
    world = World(line(2), latency=10.0)
    world.client("pub", "b1").advertise()
    with pytest.raises(UnsettledError, match=r"not settled after 1 s: LinkEnd\.receive_operation"):
        world.settle(limit=1.0)
    assert not world.is_quiet
    world.settle()
    assert world.is_quiet


def test_settling_waits_for_links_to_find_out() -> None:
    world = World(line(2))
    world.settle()
    world.cut("b1", "b2", one_way=True)
    assert not world.is_quiet
    world.settle()
    assert not world.broker("b1").engine.state.links.neighbours
    assert not world.broker("b2").engine.state.links.neighbours
    world.heal("b1", "b2")
    world.settle()
    assert list(world.broker("b1").engine.state.links.neighbours) == ["b2"]
    assert list(world.broker("b2").engine.state.links.neighbours) == ["b1"]


def test_a_slow_link_delays_and_a_narrow_one_queues() -> None:
    def taken(world: World) -> int:
        publisher, _ = served(world, "b2")
        start = world.now
        for _ in range(10):
            publisher.publish({"n": 5}, payload=bytes(10_000))
        world.settle()
        assert len(world.notifications("sub")) == 10
        return world.now - start

    slow = World(line(2), jitter=0.0, resends=False)
    slow.slow("b1", "b2", 100)
    assert taken(World(line(2), jitter=0.0, resends=False)) == 1_000
    assert taken(slow) == 100_000
    assert taken(World(line(2), jitter=0.0, resends=False, bandwidth=1_000_000)) > 100_000


def test_publications_of_the_same_moment_have_ids_of_their_own_that_sort() -> None:
    world = World(line(1))
    client = world.client("pub", "b1")
    events = [client.publish({"n": number}).event for number in range(20)]
    world.run(1.0)
    events.append(client.publish({"n": 20}).event)
    assert [event.id for event in sorted(events, key=lambda event: event.id)] == [event.id for event in events]
    assert len({event.id for event in events}) == 21
    assert {event.id.version for event in events} == {7}
    assert events[-1].timestamp == world.now == SECOND


def test_counts_are_of_operations_by_type_and_direction() -> None:
    world = World(line(3), count_bytes=True, loss=0.2)
    publisher, _ = served(world, "b3")
    before = world.counters.counts()
    for _ in range(3):
        publisher.publish({"n": 7})
    world.settle()
    sent = world.counters.counts() - before
    assert sent.by_kind() == {"Publish": 6, "Settle": 2}
    assert sent.of("Publish").by_link() == {("b1", "b2"): 3, ("b2", "b3"): 3}
    assert sent.of("Subscribe").messages == 0
    assert sent.bytes == sum(sent.bytes_by_link().values()) == sum(sent.bytes_by_kind().values())
    assert 6 * 40 < sent.of("Publish").bytes < 6 * 200
    assert before.of("Subscribe").messages == 2


def test_an_event_that_nobody_wants_goes_nowhere() -> None:
    world = World(line(3))
    publisher, _ = served(world, "b3")
    before = world.counters.counts()
    publisher.publish({"n": 1})
    world.settle()
    assert (world.counters.counts() - before).messages == 0


@pytest.mark.parametrize(("offer", "told"), [({}, 1), ({"publisher_context": None}, 1), ({"publisher_context": []}, 0)])
def test_an_advertisement_that_names_no_context_offers_all_of_it(offer: dict[str, Any], told: int) -> None:
    world = World(line(3))
    publisher, subscriber = world.client("pub", "b1"), world.client("sub", "b3")
    publisher.set_context(x=1)
    publisher.advertise("", **offer)
    subscriber.set_context(x=1)
    subscriber.subscribe("", publishers="x = this.x")
    world.settle()
    publisher.publish({"n": 1})
    world.settle()
    assert attributes(world, "sub") == [{"n": 1}] * told

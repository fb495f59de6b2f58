"""The package for tests of programs: its clock, overlays, brokers and assertions do what they say."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tidings.model.errors import InvalidValueError
from tidings.simulation.topologies import Topology
from tidings.testing import VirtualClock, assert_notified, assert_notified_async, broker, overlay

pytest_plugins = "pytester"


def test_a_virtual_clock_stands_still_until_it_is_advanced() -> None:
    clock = VirtualClock(5)
    assert (clock.now(), clock.now()) == (5, 5)
    clock.advance(1.5)
    clock.advance(-0.5)
    assert clock.now() == 1_000_005
    assert clock.entropy() != clock.entropy()
    assert VirtualClock().entropy() == VirtualClock().entropy()


def test_events_of_a_hub_have_the_time_of_its_clock() -> None:
    clock = VirtualClock()
    hub = td.Hub(clock=clock)
    sub = hub.client("ann").subscribe("n > 0")
    for _ in range(2):
        clock.advance(60)
        hub.client("bob").publish({"n": 1})
    first, second = sub.take()
    assert second.event.timestamp - first.event.timestamp == 60_000_000


def test_an_overlay_in_memory_delivers_across_brokers() -> None:
    world = overlay(3, "ring")
    camera, car = world.client("cam", "b1"), world.client("car", "b3")
    camera.advertise("n > 0")
    car.subscribe("n > 1")
    world.settle()
    for number in (1, 2):
        camera.publish({"n": number})
    world.settle()
    assert_notified(world.notifications("car"), {"n": 2})


def test_an_overlay_takes_a_shape_or_a_topology() -> None:
    assert overlay(4, "star").topology.neighbours("b1") == ["b2", "b3", "b4"]
    assert list(overlay(topology=Topology.of([("west", "east")])).brokers) == ["west", "east"]
    with pytest.raises(InvalidValueError, match="topology: 'blob' is none of line, ring, star, tree"):
        overlay(3, "blob")  # type: ignore[arg-type]


def test_a_broker_serves_stops_and_starts_again_at_its_address(tmp_path: Path) -> None:
    with broker(tmp_path / "journal") as started, td.connect_sync(started.address, name="car") as car:
        sub = car.subscribe("n > 0", durable="all")
        car.publish({"n": 1})
        assert_notified(sub, {"n": 1})
        before = started.address
        started.stop()
        started.start()
        assert started.address == before
        car.publish({"n": 2})
        assert_notified(sub, {"n": 2})


def test_a_broker_takes_the_tables_of_its_configuration() -> None:
    with broker(broker={"name": "west"}) as started:
        assert started.broker.name == "west"


def test_an_asynchronous_subscription() -> None:
    async def scenario(address: str) -> None:
        async with td.connect(address, name="car") as car:
            sub = await car.subscribe("n > 0")
            await car.publish({"n": 1})
            await assert_notified_async(sub, {"n": 1})
            with pytest.raises(AssertionError, match="expected 1 notification, got 0 notifications"):
                await assert_notified_async(sub, {"n": 2}, timeout=0.01)

    with broker() as started:
        asyncio.run(scenario(started.address))


class Notified:
    """A subscription that has these notifications."""

    def __init__(self, *attributes: dict[str, Any]) -> None:
        hub = td.Hub()
        self._inbox = hub.client("ann").subscribe("")
        for one in attributes:
            hub.client("bob").publish(one)

    def take(self, limit: int | None = None, timeout: float | None = 0) -> list[td.Notification]:
        return self._inbox.take(limit, timeout)


def test_notifications_are_returned() -> None:
    (note,) = assert_notified(Notified({"n": 1}), {"n": 1})
    assert note.event.publisher == "bob"
    assert assert_notified(Notified()) == []


def test_what_arrived_before_a_subscription_was_closed_counts() -> None:
    async def scenario(address: str) -> None:
        async with td.connect(address, name="car") as car:
            inbox = await car.subscribe("n > 0")
        assert await assert_notified_async(inbox) == []

    with td.Hub() as hub:
        inbox = hub.client("ann").subscribe("")
        hub.client("bob").publish({"n": 1})
    assert_notified(inbox, {"n": 1})
    with pytest.raises(AssertionError, match=r"missing: {'n': 2}"):
        assert_notified(inbox, {"n": 2})
    with broker() as started:
        asyncio.run(scenario(started.address))


@pytest.mark.parametrize(
    ("got", "expected", "message"),
    [
        ([{"n": 1}], [], "expected 0 notifications, got 1 notification\n  unexpected: {'n': 1}"),
        ([], [{"n": 1}], "expected 1 notification, got 0 notifications\n  missing: {'n': 1}"),
        ([{"n": 1}, {"n": 1}], [{"n": 1}], "expected 1 notification, got 2 notifications\n  unexpected: {'n': 1}"),
        (
            [{"n": 1}, {"n": 2}],
            [{"n": 2}, {"n": 1}],
            """expected 2 notifications, got 2 notifications
  in another order: [{'n': 1}, {'n': 2}]
  expected: [{'n': 2}, {'n': 1}]""",
        ),
    ],
)
def test_a_difference_is_shown(got: list[dict[str, Any]], expected: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_notified(Notified(*got), *expected, timeout=0.01)
    assert str(failed.value) == message


def test_any_order() -> None:
    assert len(assert_notified(Notified({"n": 1}, {"m": "x"}), {"m": "x"}, {"n": 1}, any_order=True)) == 2
    with pytest.raises(AssertionError, match=r"missing: {'n': 3}"):
        assert_notified(Notified({"n": 1}, {"n": 2}), {"n": 3}, {"n": 1}, any_order=True, timeout=0.01)


def test_the_fixtures_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tidings.testing.plugin"]')
    pytester.makepyfile("""
        import tidings as td
        from tidings.testing import assert_notified

        def test_hub(tidings_hub, tidings_clock):
            sub = tidings_hub.client("ann").subscribe("n > 0")
            tidings_clock.advance(5)
            tidings_hub.client("bob").publish({"n": 1})
            (note,) = assert_notified(sub, {"n": 1})
            assert note.event.timestamp == tidings_clock.now()

        def test_overlay(tidings_overlay):
            assert len(tidings_overlay(2).brokers) == 2

        def test_broker(tidings_broker):
            with td.connect_sync(tidings_broker.address, name="car") as car:
                sub = car.subscribe("n > 0")
                car.publish({"n": 1})
                assert_notified(sub, {"n": 1})
    """)
    pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider").assert_outcomes(passed=3)

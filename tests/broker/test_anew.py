"""What begins anew at a live broker: publishers that count from the beginning, and what is long past."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cases import connect, running
from tests.conformance.live import LiveDriver
from tidings.simulation.checking.steps import Advertises, Leaves, Moves, Publishes, Subscribes
from tidings.simulation.topologies import line


@pytest.fixture
def overlay() -> Iterator[LiveDriver]:
    driver = LiveDriver("gsf", line(2))
    yield driver
    driver.close()


def test_a_publisher_that_starts_anew_at_another_broker_is_heard(overlay: LiveDriver) -> None:
    overlay.take(Advertises("eve", "ad"))
    overlay.take(Subscribes("dan", "d"))
    for number in range(8):
        assert len(overlay.take(Publishes("eve", {"a": number}))) == 1
    overlay.take(Leaves("eve"))
    overlay.take(Moves("eve", "b2"))
    overlay.take(Advertises("eve", "ad"))
    [told] = overlay.take(Publishes("eve", {"a": 9}))
    assert told.sequence == 1  # by which it would seem to come behind the eighth


def test_what_was_accepted_is_replayed_whoever_advertises_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        asks = {"advertisements_required": True}
        async with running(broker=asks, journal={"folder": str(tmp_path)}) as broker:
            async with connect(broker, "ann") as ann:
                await ann.advertise("a > 0")
                receipt = await ann.publish({"a": 1})
            async with connect(broker, "bob") as bob, bob.subscribe("a = 1") as held:
                assert [note.event.id async for note in held.replay()] == [receipt.event.id]
                [why] = await bob.explain(receipt.event.id, held)
                assert why.delivered

    asyncio.run(scenario())

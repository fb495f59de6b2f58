"""One subscriber that does not read, among others that do: it alone feels it, and is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.broker.cases import Raw, connect, run, running, until
from tidings.broker.broker import Broker
from tidings.broker.net import connection
from tidings.broker.net.connection import _HIGH_WATER, Connection
from tidings.client import Client, ClientSubscription
from tidings.protocol import answers, requests
from tidings.protocol.notifications import WireNotification

PAYLOAD = bytes(8 * 1024)
QUEUE = 512 * 1024
COUNT = 2_000  # 16 MB: more than sockets and the queue hold together


async def publish(publisher: Client, count: int, begin: int = 0, payload: bytes | None = PAYLOAD) -> None:
    for start in range(begin, begin + count, 100):
        some = range(start, min(start + 100, begin + count))
        await asyncio.gather(*[publisher.publish({"n": n}, payload=payload, safe="accepted") for n in some])


async def numbers(held: ClientSubscription, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count and (more := await held.take(timeout=60)):
        got += [note.attributes["n"] for note in more]
    return got


@contextlib.asynccontextmanager
async def one_does_not_read(
    **limits: Any,
) -> AsyncIterator[tuple[Broker, Raw, list[ClientSubscription], Client, ClientSubscription]]:
    """A broker; a subscriber that does not read; some that do; a publisher; and somebody who hears of losses."""
    async with (
        running(limits={"queue_bytes": QUEUE, **limits}) as broker,
        connect(broker, "watcher") as watcher,
        connect(broker, "cam-1") as camera,
        Raw.client(broker, "lazy") as lazy,
        contextlib.AsyncExitStack() as stack,
    ):
        told = await watcher.subscribe("class = 'LostNotifications'")
        others = []
        for number in range(3):
            eager = await stack.enter_async_context(connect(broker, f"eager-{number}"))
            others.append(await eager.subscribe("n >= 0"))
        assert isinstance(await lazy.asked(requests.SubscribeRequest(1, "s", "n >= 0")), answers.RequestDone)
        yield broker, lazy, others, camera, told


def test_who_is_too_slow_loses_the_oldest_and_is_told_how_many() -> None:
    async def scenario() -> None:
        async with one_does_not_read() as (broker, lazy, others, camera, told):
            await publish(camera, COUNT)
            for other in others:
                assert await numbers(other, COUNT) == list(range(COUNT))
                assert other.lost == 0
            connection = broker.sessions["lazy"].connection
            assert connection.flow.is_stalled
            assert connection.flow.waiting_bytes <= QUEUE
            told_at = [note.attributes["count"] for note in await told.take(timeout=60)]
            assert told_at
            assert told_at == sorted(set(told_at))
            lazy.say(requests.QueryRequest(2, "stats"))
            got: list[int] = []
            lost = 0
            while len(got) + lost < COUNT:
                message = await lazy.told()
                if isinstance(message, answers.NotificationsLost):
                    lost += message.count
                    assert (message.subscription, message.total) == ("s", lost)
                    assert got == list(range(len(got)))  # the loss stands where it was: after what came before it
                elif isinstance(message, WireNotification):
                    got.append(int(message.event.attributes["n"]))
            assert lost > 0
            assert got == sorted(set(got))
            assert len(got) + lost == COUNT
            assert got[-1] == COUNT - 1
            assert broker.metrics.operations.lost == lost
            await until(lambda: not connection.flow.is_stalled)
            await publish(camera, 5, COUNT)
            assert [int((await lazy.next_note()).event.attributes["n"]) for _ in range(5)] == list(
                range(COUNT, COUNT + 5)
            )

    run(scenario())


def test_who_is_too_slow_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(slow_consumer: str) -> None:
        async with one_does_not_read(slow_consumer=slow_consumer) as (broker, _, __, camera, ___):
            await publish(camera, COUNT)
            await until(lambda: broker.metrics.operations.lost or broker.metrics.traffic.slow_disconnected)

    for slow_consumer, told in (("lose_oldest", "loses notifications"), ("disconnect", "is disconnected")):
        caplog.clear()
        run(scenario(slow_consumer))
        found = [one for one in caplog.records if one.message == f"a slow client {told}"]
        assert found
        assert all((one.levelname, vars(one)["fields"]["client"]) == ("WARNING", "lazy") for one in found)
        assert len(found) <= COUNT.bit_length()  # no flood of its own


def test_who_is_too_slow_may_be_disconnected_and_the_others_are_not() -> None:
    async def scenario() -> None:
        async with one_does_not_read(slow_consumer="disconnect") as (broker, lazy, others, camera, told):
            await publish(camera, COUNT)
            for other in others:
                assert await numbers(other, COUNT) == list(range(COUNT))
            await until(lambda: "lazy" not in broker.sessions)
            assert broker.metrics.traffic.slow_disconnected == 1
            (meta,) = await told.take(timeout=60)
            assert meta.attributes["client"] == "lazy"
            assert meta.attributes["count"] == broker.metrics.operations.lost > 0
            got = [int(one.event.attributes["n"]) for one in await lazy.end()]
            assert got == list(range(len(got)))
            assert broker.node.registry.count("lazy") == 0
            async with Raw.client(broker, "lazy", 2) as again:
                assert isinstance(await again.asked(requests.SubscribeRequest(1, "s", "n >= 0")), answers.RequestDone)

    run(scenario())


def test_who_does_not_read_for_long_is_disconnected_also_where_little_waits() -> None:
    async def scenario() -> None:
        limits = {"queue_bytes": 1024 * 1024 * 1024, "slow_consumer": "disconnect", "slow_seconds": 0.3}
        heartbeat = {"interval_ms": 100, "patience": 100}
        async with (
            running(limits=limits, heartbeat=heartbeat) as broker,
            connect(broker, "cam-1") as camera,
            Raw.client(broker, "lazy") as lazy,
        ):
            assert isinstance(await lazy.asked(requests.SubscribeRequest(1, "s")), answers.RequestDone)
            await publish(camera, COUNT)
            await until(lambda: "lazy" not in broker.sessions)
            assert broker.metrics.traffic.slow_disconnected == 1

    run(scenario())


def test_a_turn_with_very_much_for_one_client_is_bounded_too() -> None:
    async def scenario() -> None:
        async with (
            running(limits={"queue_bytes": QUEUE}) as broker,
            connect(broker, "cam-1") as camera,
            Raw.client(broker, "lazy") as lazy,
        ):
            for number in range(200):
                assert isinstance(
                    await lazy.asked(requests.SubscribeRequest(number, f"s{number}")), answers.RequestDone
                )
            connection = broker.sessions["lazy"].connection
            for _ in range(5):
                await camera.publish({"n": 1}, payload=bytes(256 * 1024))  # 50 MB of notifications each
            assert connection.flow.waiting_bytes <= QUEUE
            assert connection.is_open
            assert isinstance(connection, Connection)
            assert connection.buffered_bytes < _HIGH_WATER + 3 * 256 * 1024
            assert broker.metrics.operations.lost > 900

    run(scenario())


def test_what_waits_is_bounded_in_notifications_too() -> None:
    async def scenario() -> None:
        given = {"queue_notifications": 40, "queue_bytes": 1024 * 1024 * 1024}
        async with one_does_not_read(**given) as (broker, _, others, camera, _):
            await publish(camera, COUNT)
            for other in others:
                assert await numbers(other, COUNT) == list(range(COUNT))
            assert broker.sessions["lazy"].connection.flow.waiting_frames <= 40
            assert broker.metrics.operations.lost > 0

    run(scenario())


def test_who_does_not_read_is_not_read_either() -> None:
    async def scenario() -> None:
        async with one_does_not_read() as (broker, lazy, others, camera, _):
            await publish(camera, COUNT)
            connection = broker.sessions["lazy"].connection
            assert connection.flow.is_stalled
            assert not connection.flow.is_reading
            lazy.say(requests.SetContextRequest(7, {"x": 1}))
            await asyncio.sleep(0.05)
            assert "lazy" not in broker.node.registry.contexts
            answered = False
            while not answered:
                message = await lazy.told()
                answered = isinstance(message, answers.RequestDone) and message.request == 7
            assert connection.flow.is_reading
            assert broker.node.registry.contexts["lazy"] == {"x": 1}
            assert all(not one.closed for one in others)

    run(scenario())


@pytest.mark.parametrize("journal", [False, True])
def test_a_durable_subscription_loses_nothing_by_being_slow(tmp_path: Any, journal: bool) -> None:
    async def scenario() -> None:
        folder = {"folder": str(tmp_path)} if journal else {}
        count = 1_000
        async with (
            running(limits={"queue_bytes": QUEUE}, journal=folder) as broker,
            connect(broker, "cam-1") as camera,
            Raw.client(broker, "lazy") as lazy,
        ):
            wanted = requests.SubscribeRequest(1, "s", "n >= 0", durable="all", limit=count if not journal else 50)
            assert isinstance(await lazy.asked(wanted), answers.RequestDone)
            await publish(camera, count)
            got: list[int] = []
            while len(got) < count:
                note = await lazy.next_note()
                got.append(int(note.event.attributes["n"]))
                lazy.say(requests.AcknowledgeRequest("s", (note.event.id,)))
            assert got == list(range(count))
            assert broker.metrics.operations.lost == 0

    run(scenario())


def test_a_client_counts_what_it_lost() -> None:
    async def scenario() -> None:
        async with (
            running(limits={"queue_bytes": QUEUE}) as broker,
            connect(broker, "cam-1") as camera,
            connect(broker, "car-1") as car,
        ):
            told: list[int] = []
            held = await car.subscribe("n >= 0", limit=1, on_lost=told.append)
            await publish(camera, COUNT)
            await until(lambda: broker.metrics.operations.lost > 0)
            got: list[Any] = []
            while len(got) + held.lost < COUNT:
                got += [note.attributes["n"] for note in await held.take(timeout=60)]
            assert len(got) + held.lost == COUNT
            assert sum(told) == held.lost == broker.metrics.operations.lost
            assert got == sorted(got)
            before = held.lost
            broker.sessions["car-1"].connection.abort("cut off by the test")
            await until(lambda: car.session.connections == 2)
            await car.ask("status")
            assert held.lost == before

    run(scenario())


def test_the_others_are_told_one_by_one_while_somebody_is_full() -> None:
    async def scenario() -> None:
        async with one_does_not_read() as (broker, _, others, camera, _):
            await publish(camera, COUNT)
            for other in others:
                assert len(await numbers(other, COUNT)) == COUNT
            assert broker.sessions["lazy"].connection.flow.is_stalled
            for number in range(COUNT, COUNT + 100):
                await camera.publish({"n": number}, safe="accepted")
                for other in others:
                    assert [note.attributes["n"] for note in await other.take(timeout=60)] == [number]

    run(scenario())


def test_nothing_is_left_of_somebody_who_does_not_read_and_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LINGER", 0.2)

    async def scenario() -> None:
        async with one_does_not_read() as (broker, _, _, camera, _):
            await publish(camera, COUNT)
            stalled = broker.sessions["lazy"].connection
            assert stalled.flow.is_stalled
            before = broker.parts.admission.connections.total()
            async with Raw.client(broker, "lazy", 2):
                await until(lambda: broker.parts.admission.connections.total() == before)
                assert stalled.flow.waiting_bytes == 0
                assert not stalled.is_open

    run(scenario())

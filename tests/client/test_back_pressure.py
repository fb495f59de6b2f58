"""Who does not take what comes holds up itself, and nobody else; and never what it waits for itself."""

import asyncio
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until
from tidings.client import ClientSubscription
from tidings.client import subscription as subscriptions
from tidings.runtime.durable_inbox import DurableInbox

PAYLOAD = bytes(16 * 1024)


async def flood(publisher: td.client.Client, count: int, payload: bytes | None = PAYLOAD) -> None:
    await asyncio.gather(*[publisher.publish({"n": n}, payload=payload, safe="accepted") for n in range(count)])


async def numbers(held: ClientSubscription, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count and (more := await held.take(timeout=60)):
        got += [note.attributes["n"] for note in more]
    return got


def test_a_subscriber_that_does_not_take_stalls_only_itself() -> None:
    async def scenario() -> None:
        limits = {"queue_bytes": 64 * 1024 * 1024}
        async with (
            running(limits=limits) as broker,
            connect(broker, "lazy") as lazy,
            connect(broker, "eager") as eager,
            connect(broker, "cam-1") as camera,
        ):
            kept, taken = await lazy.subscribe("", limit=10), await eager.subscribe("")
            await flood(camera, 1_000)
            assert await numbers(taken, 1_000) == list(range(1_000))
            await until(lambda: broker.sessions["lazy"].connection.flow.is_stalled)
            assert kept.waiting < 900
            assert await numbers(kept, 1_000) == list(range(1_000))
            assert kept.lost == 0

    run(scenario())


def test_a_full_subscription_does_not_keep_answers_from_coming() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            held = await car.subscribe("", limit=1)
            await flood(camera, 200)
            await until(lambda: held.waiting >= 1)
            assert (await car.publish({"n": -1})).offset >= 0
            other = await car.subscribe("n = -2")
            await car.set_context(x=1)
            assert (await car.ask("status"))["clients"] == 2
            await other.close()
            await held.close()  # full as it is
            again = await car.subscribe("")
            await camera.publish({"n": 5})
            assert await numbers(again, 1) == [5]

    run(scenario())


def test_a_callback_that_publishes_does_not_wait_for_itself() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            answered: list[Any] = []

            async def answer(note: td.Notification) -> None:
                await car.publish({"answer": note.attributes["n"]})
                answered.append(note.attributes["n"])

            await car.subscribe("n >= 0", callback=answer, limit=2)
            await flood(camera, 300)
            await until(lambda: len(answered) == 300)
            assert answered == list(range(300))

    run(scenario())


def test_what_a_program_reads_past_while_it_waits_is_counted_where_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "MORE", 20)

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            told: list[int] = []
            held = await car.subscribe("", limit=10, on_lost=told.append)
            await flood(camera, 100, None)
            await car.ask("status")
            got = await numbers(held, 100 - held.lost)
            assert got == list(range(100 - len(got), 100))
            assert len(got) + held.lost == 100
            assert sum(told) == held.lost > 0

    run(scenario())


def test_a_durable_subscription_gets_no_more_than_may_be_unacknowledged() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("", durable="all", limit=5)
            await flood(car, 5, None)
            await until(lambda: held.waiting == 5)
            assert (await car.publish({"n": 5})).offset >= 0
            got: list[Any] = []
            while taken := await held.take(2, timeout=0.2):
                assert len(taken) <= 2
                got += [note.attributes["n"] for note in taken]
                await held.acknowledge(*taken)
            assert got[-1] == 5

    run(scenario())


def test_a_function_that_raises_where_something_was_lost_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MORE", 0)

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("", limit=1, on_lost=lambda _: 1 / 0)
            await flood(car, 20, None)
            assert (await car.publish({"n": 1})).offset >= 0
            assert held.lost > 0
            assert car.session.connections == 1

    run(scenario())


def test_a_callback_that_raises_is_called_with_the_next() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            seen: list[Any] = []

            def look(note: td.Notification) -> None:
                seen.append(note.attributes["n"])
                if note.attributes["n"] == 1:
                    raise ValueError("one")

            held = await car.subscribe("", durable="all", callback=look)
            await flood(car, 4, None)
            await until(lambda: len(seen) == 4)
            assert seen == [0, 1, 2, 3]
            inbox = broker.node.registry.subscriptions[held.id].inbox
            assert isinstance(inbox, DurableInbox)
            await until(lambda: len(inbox.taken_events()) == 1)  # what was not acknowledged comes again some day

    run(scenario())


def test_who_waits_for_room_and_does_not_use_it_holds_up_nobody() -> None:
    async def scenario() -> None:
        async with running(limits={"in_flight": 1}) as broker, connect(broker, "cam-1") as camera:
            held = await camera.subscribe("", durable="all")
            await camera.publish({"n": 0})
            [note] = await held.take(timeout=60)
            first, refused, acknowledged, last = await asyncio.gather(
                camera.publish({"n": 1}),
                camera.publish({"n": 2}, id="no id"),  # told only when it is its turn
                held.acknowledge(note),
                camera.publish({"n": 3}),
                return_exceptions=True,
            )
            assert isinstance(refused, td.InvalidValueError)
            assert acknowledged == 1
            assert isinstance(first, td.Receipt)
            assert isinstance(last, td.Receipt)

    run(scenario())

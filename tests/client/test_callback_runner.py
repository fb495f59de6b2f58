"""Callbacks: one notification after the other, without a task unless something is to be waited for."""

import asyncio
import contextvars
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until
from tidings.runtime.durable_inbox import DurableInbox

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


def test_callbacks_have_no_tasks_while_nothing_comes() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            seen: list[Any] = []
            before = len(asyncio.all_tasks())
            for n in range(20):
                await car.subscribe(f"n = {n}", callback=lambda note: seen.append(note.attributes["n"]))
            assert len(asyncio.all_tasks()) == before
            await car.publish_many({"n": n} for n in range(20))
            await until(lambda: len(seen) == 20)
            assert sorted(seen) == list(range(20))
            assert len(asyncio.all_tasks()) == before

    run(scenario())


@pytest.mark.parametrize("durable", [None, "all"])
def test_a_callback_that_waits_is_called_with_one_after_the_other(durable: str | None) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            begun: list[Any] = []
            done: list[Any] = []

            async def look(note: td.Notification) -> None:
                assert begun == done
                begun.append(note.attributes["n"])
                await asyncio.sleep(0)
                if note.attributes["n"] == 3:
                    done.append(3)
                    raise ValueError("three")
                done.append(note.attributes["n"])

            held = await car.subscribe("", callback=look, durable=durable)
            await car.publish_many({"n": n} for n in range(5))
            await until(lambda: len(done) == 5)
            await car.publish_many({"n": n} for n in range(5, 10))  # after it had nothing to do
            await until(lambda: len(done) == 10)
            assert done == list(range(10))
            if durable is not None:
                inbox = broker.node.registry.subscriptions[held.id].inbox
                assert isinstance(inbox, DurableInbox)
                await until(lambda: len(inbox.taken_events()) == 1)  # the one that raised

    run(scenario())


def test_a_callback_sees_what_its_subscriber_saw() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            seen: list[str] = []

            async def wait(_: td.Notification) -> None:
                seen.append(WHO.get())

            async def subscribe(name: str, callback: Any) -> None:
                WHO.set(name)
                await car.subscribe("", callback=callback)

            await asyncio.create_task(subscribe("plain", lambda _: seen.append(WHO.get())))
            await asyncio.create_task(subscribe("waiting", wait))
            await car.publish({"n": 1})
            await until(lambda: len(seen) == 2)
            assert sorted(seen) == ["plain", "waiting"]

    run(scenario())


def test_what_came_before_a_subscription_was_closed_is_still_handed_out() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            seen: list[Any] = []
            go_on = asyncio.Event()

            async def look(note: td.Notification) -> None:
                await go_on.wait()
                seen.append(note.attributes["n"])

            held = await car.subscribe("", callback=look)
            await car.publish_many({"n": n} for n in range(5))
            await until(lambda: held.waiting == 4)
            await held.close()
            go_on.set()
            await until(lambda: len(seen) == 5)

    run(scenario())

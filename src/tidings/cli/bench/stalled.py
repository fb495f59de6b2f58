"""One subscriber that takes nothing, among many: what the others feel of it."""

import asyncio
import time
from contextlib import AsyncExitStack

import numpy as np

from tidings.cli.bench import Measurement, steps
from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import start
from tidings.client import Client, Subscription, connect
from tidings.model.notification import Notification

_PACE = 100  # events a second for the one
_LARGE = bytes(64 << 10)  # the payload of each: sockets and queues are full within seconds
_EVERY = 5  # so many of them, there is an event for all others
_STAMP_BYTES = 8


def measure(subscribers: int, seconds: float) -> list[Measurement]:
    """First the one takes what comes, then it does not any more; the others are told the same in both."""
    with Children() as children:
        before, after, lost = asyncio.run(_compared(start(children).address, subscribers, seconds))
    others = f"{subscribers - 1:,} others"
    told = f"the broker has lost {lost:,} notifications for it"
    return [
        Measurement(f"p99 of {others}, all take what comes", before, "ms"),
        Measurement(f"p99 of {others}, one is stalled", after, "ms", "", told),
        Measurement("stalled / not", after / before, "times", "2"),
    ]


async def _compared(address: str, subscribers: int, seconds: float) -> tuple[float, float, int]:
    async with AsyncExitStack() as stack:

        async def connected(name: str) -> Client:
            return await stack.enter_async_context(connect(address, name=name))

        publisher = await connected("publisher")
        others = _Others()
        for number in range(subscribers - 1):
            client = await connected(f"c{number}")
            await client.subscribe("size = 'small'", callback=others.notified)
        one = await (await connected("one")).subscribe(limit=_PACE)
        with steps(2) as step:
            step("all take what comes")
            taking = asyncio.create_task(_take_all(one))
            await _publish(publisher, seconds)
            before = others.high()
            step("one is stalled")
            taking.cancel()
            await _publish(publisher, seconds)
            after = others.high()
        return before, after, (await publisher.ask("stats"))["lost"]


async def _publish(publisher: Client, seconds: float) -> None:
    """At a steady pace, as far as the broker takes it."""
    begin = time.monotonic()
    under_way = set()
    for number in range(int(seconds * _PACE)):
        await asyncio.sleep(begin + number / _PACE - time.monotonic())
        small = number % _EVERY == 0
        payload = time.monotonic_ns().to_bytes(_STAMP_BYTES) if small else _LARGE
        publication = publisher.publish({"size": "small" if small else "large"}, payload=payload, safe="accepted")
        task = asyncio.create_task(publication)
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)


async def _take_all(subscription: Subscription) -> None:
    async for _ in subscription:
        pass


class _Others:
    def __init__(self) -> None:
        self._took: list[int] = []  # nanoseconds

    def notified(self, note: Notification) -> None:
        self._took.append(time.monotonic_ns() - int.from_bytes(note.payload or b""))

    def high(self) -> float:
        """Milliseconds since this was asked for last: one in a hundred took longer."""
        took, self._took = self._took, []
        return float(np.percentile(took, 99)) / 1e6

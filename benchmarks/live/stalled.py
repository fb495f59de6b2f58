"""Measure how one stalled subscriber affects the latency of many others."""

import asyncio
import time
from contextlib import AsyncExitStack

import numpy as np

from benchmarks.brokers.broker_processes import start
from benchmarks.brokers.children import ChildProcesses
from tidings.cli.measurement import Measurement, steps
from tidings.client import Client, ClientSubscription, connect
from tidings.model.notification import Notification

_PACE = 100  # events per second for the stalled subscriber
_LARGE = bytes(64 << 10)  # payload of its events: fills sockets and queues within seconds
_EVERY = 5  # every so many events, one goes to all others instead
_STAMP_BYTES = 8


def measure(subscribers: int, seconds: float) -> list[Measurement]:
    """Measure the others' latency while the one subscriber takes its events, and while it does not, at the same
    load."""
    with ChildProcesses() as children:
        before, after, lost = asyncio.run(_compare(start(children).address, subscribers, seconds))
    others = f"{subscribers - 1:,} others"
    remark = f"the broker has lost {lost:,} notifications for it"
    return [
        Measurement(f"p99 of {others}, all take what comes", before, "ms"),
        Measurement(f"p99 of {others}, one is stalled", after, "ms", "", remark),
        Measurement("stalled / not", after / before, "times", "2"),
    ]


async def _compare(address: str, subscribers: int, seconds: float) -> tuple[float, float, int]:
    async with AsyncExitStack() as stack:

        async def connect_client(name: str) -> Client:
            return await stack.enter_async_context(connect(address, name=name))

        publisher = await connect_client("publisher")
        others = _Latencies()
        for number in range(subscribers - 1):
            client = await connect_client(f"c{number}")
            await client.subscribe("size = 'small'", callback=others.record)
        stalled = await (await connect_client("one")).subscribe(limit=_PACE)
        with steps(2) as step:
            step("all take what comes")
            taking = asyncio.create_task(_take_all(stalled))
            await _publish(publisher, seconds)
            before = others.take_p99_ms()
            step("one is stalled")
            taking.cancel()
            await _publish(publisher, seconds)
            after = others.take_p99_ms()
        return before, after, (await publisher.ask("stats"))["lost"]


async def _publish(publisher: Client, seconds: float) -> None:
    """Publish at a fixed rate, as far as the broker accepts events."""
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


async def _take_all(subscription: ClientSubscription) -> None:
    async for _ in subscription:
        pass


class _Latencies:
    """Latencies of the events that the other subscribers got."""

    def __init__(self) -> None:
        self._latencies_ns: list[int] = []  # nanoseconds

    def record(self, notification: Notification) -> None:
        self._latencies_ns.append(time.monotonic_ns() - int.from_bytes(notification.payload or b""))

    def take_p99_ms(self) -> float:
        """Return the 99th percentile of the latency in milliseconds since the last call."""
        latencies, self._latencies_ns = self._latencies_ns, []
        return float(np.percentile(latencies, 99)) / 1e6

"""A Tidings broker with the Tidings client: one client and one connection for all subscriptions."""

import asyncio
from collections.abc import Sequence

from benchmarks.brokers.broker_processes import address, start
from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.system import BenchPublisher, BenchSubscriber, Deliver, Progress, System
from benchmarks.brokers.workload import STAMP_BYTES, BenchEvent, Interest, Variant
from tidings.client import Client, connect
from tidings.model.notification import Notification

_AT_A_TIME = 100  # subscriptions between two checks of the time limit


class TidingsSystem(System):
    """A Tidings broker with its client as a system to measure, at one durability."""

    variants = (Variant.EQUALITY, Variant.RANGES)

    def __init__(self, safe: str) -> None:
        self.name = f"tidings with its client, {safe}"
        self._safe = safe

    def lacking(self) -> str:
        return ""

    def start(self, children: ChildProcesses) -> int:
        return start(children).port

    async def publisher(self, port: int, events: Sequence[BenchEvent], progress: Progress) -> BenchPublisher:
        client = await connect(address(port), name="publisher").__aenter__()
        return _TidingsPublisher(client, events, self._safe, progress)

    async def subscriber(self, port: int, deliver: Deliver) -> BenchSubscriber:
        client = await connect(address(port), name="subscriber").__aenter__()
        return _TidingsSubscriber(client, deliver)


class _TidingsPublisher(BenchPublisher):
    def __init__(self, client: Client, events: Sequence[BenchEvent], safe: str, progress: Progress) -> None:
        self._client, self._events, self._safe, self._progress = client, events, safe, progress
        self._loop = asyncio.get_running_loop()
        self._batch: list[tuple[int, bytes]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def publish(self, number: int, stamp: bytes) -> None:
        self._batch.append((number, stamp))

    def flush(self) -> None:
        if self._batch:
            task = self._loop.create_task(self._publish(self._batch))
            self._batch = []
            self._under_way.add(task)
            task.add_done_callback(self._on_published)

    async def close(self) -> None:
        await self._client.close()

    async def _publish(self, batch: list[tuple[int, bytes]]) -> None:
        answers = []
        for number, stamp in batch:
            event = self._events[number]
            answers.append(
                await self._client.publish_soon(event.attributes, payload=stamp + event.filling, safe=self._safe)
            )
        for answer in answers:
            await answer
            self.acknowledged += 1
            self._progress()

    def _on_published(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        task.result()


class _TidingsSubscriber(BenchSubscriber):
    def __init__(self, client: Client, deliver: Deliver) -> None:
        self._client, self._deliver = client, deliver
        self._loop = asyncio.get_running_loop()
        self._stamps: list[bytes] = []

    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        until = self._loop.time() + seconds
        subscribed = 0
        while subscribed < len(interests) and self._loop.time() < until:
            batch = interests[subscribed : subscribed + _AT_A_TIME]
            await asyncio.gather(*(self._subscribe(interest) for interest in batch))
            subscribed += len(batch)
        return subscribed

    async def close(self) -> None:
        await self._client.close()

    async def _subscribe(self, interest: Interest) -> None:
        await self._client.subscribe(interest.text, callback=self._on_notification)

    def _on_notification(self, notification: Notification) -> None:
        """Collect a notification.

        All notifications of one turn of the event loop are delivered together, as the other clients do.
        """
        if not self._stamps:
            self._loop.call_soon(self._deliver_stamps)
        self._stamps.append((notification.payload or b"")[:STAMP_BYTES])

    def _deliver_stamps(self) -> None:
        stamps, self._stamps = self._stamps, []
        self._deliver(stamps)

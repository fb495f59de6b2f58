"""Our own broker, with the client that everybody uses: all subscriptions are those of one client, on one connection."""

import asyncio
from collections.abc import Sequence

from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import address, start
from tidings.cli.bench.brokers.system import Deliver, Progress, Publisher, Subscriber, System
from tidings.cli.bench.brokers.workload import STAMP_BYTES, Event, Interest, Variant
from tidings.client import Client, connect
from tidings.model.notification import Notification

_AT_A_TIME = 100  # subscriptions, between looks at the clock


class Own(System):
    variants = (Variant.EQUALITY, Variant.RANGES)

    def __init__(self, safe: str) -> None:
        self.name = f"tidings with its client, {safe}"
        self._safe = safe

    def lacking(self) -> str:
        return ""

    def start(self, children: Children) -> int:
        return start(children).port

    async def publisher(self, port: int, events: Sequence[Event], progress: Progress) -> Publisher:
        client = await connect(address(port), name="publisher").__aenter__()
        return _OwnPublisher(client, events, self._safe, progress)

    async def subscriber(self, port: int, deliver: Deliver) -> Subscriber:
        client = await connect(address(port), name="subscriber").__aenter__()
        return _OwnSubscriber(client, deliver)


class _OwnPublisher(Publisher):
    def __init__(self, client: Client, events: Sequence[Event], safe: str, progress: Progress) -> None:
        self._client, self._events, self._safe, self._progress = client, events, safe, progress
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[int, bytes]] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def publish(self, number: int, stamp: bytes) -> None:
        self._gathered.append((number, stamp))

    def flush(self) -> None:
        if self._gathered:
            task = self._loop.create_task(self._publish(self._gathered))
            self._gathered = []
            self._under_way.add(task)
            task.add_done_callback(self._published)

    async def close(self) -> None:
        await self._client.close()

    async def _publish(self, gathered: list[tuple[int, bytes]]) -> None:
        answers = []
        for number, stamp in gathered:
            event = self._events[number]
            answers.append(
                await self._client.publish_soon(event.attributes, payload=stamp + event.filling, safe=self._safe)
            )
        for answer in answers:
            await answer
            self.acknowledged += 1
            self._progress()

    def _published(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        task.result()


class _OwnSubscriber(Subscriber):
    def __init__(self, client: Client, deliver: Deliver) -> None:
        self._client, self._deliver = client, deliver
        self._loop = asyncio.get_running_loop()
        self._come: list[bytes] = []

    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        until = self._loop.time() + seconds
        placed = 0
        while placed < len(interests) and self._loop.time() < until:
            some = interests[placed : placed + _AT_A_TIME]
            await asyncio.gather(*(self._subscribe(one) for one in some))
            placed += len(some)
        return placed

    async def close(self) -> None:
        await self._client.close()

    async def _subscribe(self, interest: Interest) -> None:
        await self._client.subscribe(interest.text, callback=self._notified)

    def _notified(self, note: Notification) -> None:
        """What comes in one turn of the loop is told at once, as it is by those that read whole packets."""
        if not self._come:
            self._loop.call_soon(self._tell)
        self._come.append((note.payload or b"")[:STAMP_BYTES])

    def _tell(self) -> None:
        come, self._come = self._come, []
        self._deliver(come)

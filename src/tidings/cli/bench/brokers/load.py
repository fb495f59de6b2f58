"""How a publisher publishes: so many at a time in flight for a while, or at a steady pace."""

import asyncio
import time
from contextlib import suppress

import msgspec

from tidings.cli.bench.brokers.system import Publisher
from tidings.cli.bench.brokers.workload import STAMP_BYTES

_PATIENCE = 20.0  # seconds that what is still under way is waited for
_BETWEEN = 0.001  # seconds between looks at what is due


class Load(msgspec.Struct, frozen=True):
    """For how many seconds, and either how many in flight or how many a second."""

    seconds: float
    window: int = 0
    pace: float = 0.0


class Carried(msgspec.Struct, frozen=True):
    """What became of a load."""

    arrived: int  # delivered, and acknowledged where there are acknowledgements
    missing: int  # for too long
    seconds: float  # until the last one arrived

    @property
    def rate(self) -> float:
        return self.arrived / self.seconds


class Driver:
    """Publishes the same events over and over; is told by the subscriber how many it has got so far."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._published = 0
        self._delivered = 0
        self._latest = 0.0
        self._is_new = asyncio.Event()

    def delivered(self, count: int) -> None:
        self._delivered = count
        self.progressed()

    def progressed(self) -> None:
        self._latest = time.monotonic()
        self._is_new.set()

    async def drive(self, publisher: Publisher, load: Load) -> Carried:
        before = self._published - self._under_way(publisher)
        begin = self._latest = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(load.seconds + _PATIENCE):
                await (self._in_flight if load.window else self._at_a_pace)(publisher, load)
                while self._under_way(publisher):
                    await self._progress()
        missing = self._under_way(publisher)
        return Carried(self._published - before - missing, missing, max(self._latest - begin, 1e-9))

    async def _in_flight(self, publisher: Publisher, load: Load) -> None:
        until = time.monotonic() + load.seconds
        while time.monotonic() < until:
            self._publish(publisher, load.window - self._under_way(publisher))
            await self._progress()

    async def _at_a_pace(self, publisher: Publisher, load: Load) -> None:
        begin, before = time.monotonic(), self._published
        while (passed := time.monotonic() - begin) < load.seconds:
            self._publish(publisher, int(passed * load.pace) + 1 - (self._published - before))
            await asyncio.sleep(_BETWEEN)

    def _publish(self, publisher: Publisher, count: int) -> None:
        for _ in range(count):
            publisher.publish(self._published % self._events, time.monotonic_ns().to_bytes(STAMP_BYTES))
            self._published += 1
        publisher.flush()

    def _under_way(self, publisher: Publisher) -> int:
        """Events that are not delivered yet, or not acknowledged where there are acknowledgements."""
        return self._published - min(self._delivered, publisher.acknowledged)

    async def _progress(self) -> None:
        self._is_new.clear()
        await self._is_new.wait()

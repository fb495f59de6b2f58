"""Publish under a load: with a fixed number of events in flight, or at a fixed rate."""

import asyncio
import time
from contextlib import suppress

import msgspec

from benchmarks.brokers.system import BenchPublisher
from benchmarks.brokers.workload import STAMP_BYTES

_PATIENCE = 20.0  # seconds to wait at the end for events in flight
_BETWEEN = 0.001  # seconds between two checks for due events


class Load(msgspec.Struct, frozen=True):
    """A load to publish under, for some seconds: with `window` events in flight, or else at `pace` events per
    second."""

    seconds: float
    window: int = 0
    pace: float = 0.0


class LoadResult(msgspec.Struct, frozen=True):
    """The outcome of a load."""

    arrived: int  # events delivered, and acknowledged if the broker acknowledges
    missing: int  # events that did not arrive in time
    seconds: float  # until the last event arrived

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.arrived / self.seconds


class LoadDriver:
    """Publishes the same events over and over. The subscriber reports how many were delivered."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._published = 0
        self._delivered = 0
        self._latest = 0.0
        self._has_progress = asyncio.Event()

    def set_delivered(self, count: int) -> None:
        """Set the number of events delivered so far."""
        self._delivered = count
        self.record_progress()

    def record_progress(self) -> None:
        """Record that an event was delivered or acknowledged."""
        self._latest = time.monotonic()
        self._has_progress.set()

    async def drive(self, publisher: BenchPublisher, load: Load) -> LoadResult:
        """Publish under a load, wait for the events in flight, and return the outcome."""
        published_before = self._published - self._in_flight(publisher)
        begin = self._latest = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(load.seconds + _PATIENCE):
                await (self._publish_window if load.window else self._publish_at_rate)(publisher, load)
                while self._in_flight(publisher):
                    await self._await_progress()
        missing = self._in_flight(publisher)
        return LoadResult(self._published - published_before - missing, missing, max(self._latest - begin, 1e-9))

    async def _publish_window(self, publisher: BenchPublisher, load: Load) -> None:
        until = time.monotonic() + load.seconds
        while time.monotonic() < until:
            self._publish(publisher, load.window - self._in_flight(publisher))
            await self._await_progress()

    async def _publish_at_rate(self, publisher: BenchPublisher, load: Load) -> None:
        begin, before = time.monotonic(), self._published
        while (passed := time.monotonic() - begin) < load.seconds:
            self._publish(publisher, int(passed * load.pace) + 1 - (self._published - before))
            await asyncio.sleep(_BETWEEN)

    def _publish(self, publisher: BenchPublisher, count: int) -> None:
        for _ in range(count):
            publisher.publish(self._published % self._events, time.monotonic_ns().to_bytes(STAMP_BYTES))
            self._published += 1
        publisher.flush()

    def _in_flight(self, publisher: BenchPublisher) -> int:
        """Return the number of events that are not yet delivered, or not yet acknowledged if the broker
        acknowledges."""
        return self._published - min(self._delivered, publisher.acknowledged)

    async def _await_progress(self) -> None:
        self._has_progress.clear()
        await self._has_progress.wait()

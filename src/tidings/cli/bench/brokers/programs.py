"""The publisher and the subscriber: processes of their own, which take orders as lines of JSON and answer with such.

They share a socket on which the subscriber says how many events it has got, so that the publisher knows what is in
flight also where a broker acknowledges nothing.
"""

import asyncio
import socket
import sys
import time
from array import array
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np

from tidings.cli.bench.brokers.load import Driver, Load
from tidings.cli.bench.brokers.systems import SYSTEMS
from tidings.cli.bench.brokers.workload import Variant, events, interests

_EVENTS = 10_000  # different ones
_COUNT_BYTES = 8


class Job(msgspec.Struct, frozen=True):
    """What a program is started with."""

    system: str
    port: int
    variant: Variant
    subscriptions: int
    descriptor: int  # of the socket that both share
    seconds: float  # that subscribing may take


class Placed(msgspec.Struct, frozen=True):
    """Subscriptions that are in place, and how long that took."""

    subscriptions: int
    seconds: float


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds between publishing and delivery, of the events that came since this was asked for last."""

    middle: float
    high: float  # of a hundred events one takes longer


async def publish(job: Job) -> None:
    """Carries the loads that it is told."""
    driver = Driver(_EVENTS)
    made = events(interests(job.variant, job.subscriptions), _EVENTS)
    publisher = await SYSTEMS[job.system].publisher(job.port, made, driver.progressed)
    with socket.socket(fileno=job.descriptor) as shared:
        shared.setblocking(False)
        asyncio.get_running_loop().add_reader(shared, lambda: driver.delivered(_latest(shared)))
        _say(None)
        async for order in _orders():
            _say(await driver.drive(publisher, msgspec.json.decode(order, type=Load)))
        asyncio.get_running_loop().remove_reader(shared)
    await publisher.close()


async def subscribe(job: Job) -> None:
    """Says what is in place; then, whenever it is asked, how long events took."""
    with socket.socket(fileno=job.descriptor) as shared:
        arrivals = _Arrivals(shared)
        subscriber = await SYSTEMS[job.system].subscriber(job.port, arrivals.deliver)
        begin = time.monotonic()
        placed = await subscriber.subscribe(interests(job.variant, job.subscriptions), job.seconds)
        _say(Placed(placed, time.monotonic() - begin))
        async for _ in _orders():
            _say(arrivals.latency())
        await subscriber.close()


class _Arrivals:
    def __init__(self, shared: socket.socket) -> None:
        self._shared = shared
        self._count = 0
        self._took = array("q")  # nanoseconds

    def deliver(self, stamps: list[bytes]) -> None:
        now = time.monotonic_ns()
        self._took.extend([now - int.from_bytes(stamp) for stamp in stamps])
        self._count += len(stamps)
        self._shared.send(self._count.to_bytes(_COUNT_BYTES))

    def latency(self) -> Latency:
        if not self._took:
            return Latency(0.0, 0.0)
        middle, high = np.percentile(self._took, [50, 99]) / 1e6
        self._took = array("q")
        return Latency(float(middle), float(high))


def _latest(shared: socket.socket) -> int:
    """The last count that was sent; a part of a count is never alone, since each is written as a whole."""
    said = shared.recv(_COUNT_BYTES << 13)
    return int.from_bytes(said[-_COUNT_BYTES:])


async def _orders() -> AsyncIterator[bytes]:
    """Lines of standard input, until whoever gives orders has gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def _say(what: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def _run(role: str, job: Job) -> None:
    work = publish(job) if role == "publish" else subscribe(job)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    _run(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Job))

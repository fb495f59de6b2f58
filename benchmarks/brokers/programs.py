"""The publisher and the subscriber processes. They read orders as JSON lines, and answer each with a JSON line.

Both share a socket over which the subscriber sends the number of delivered events, so that the publisher knows the
number in flight even if the broker does not acknowledge.
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

from benchmarks.brokers.load import Load, LoadDriver
from benchmarks.brokers.systems import SYSTEMS
from benchmarks.brokers.workload import Variant, events, interests

_EVENTS = 10_000  # number of different events
_COUNT_BYTES = 8


class Job(msgspec.Struct, frozen=True):
    """The parameters that a program is started with."""

    system: str
    port: int
    variant: Variant
    subscriptions: int
    descriptor: int  # descriptor of the shared socket
    seconds: float  # time limit for subscribing


class SubscribeTiming(msgspec.Struct, frozen=True):
    """How many subscriptions are in place, and how long subscribing took."""

    subscriptions: int
    seconds: float


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from publishing to delivery, of the events since the last report."""

    middle: float
    high: float  # 99th percentile


async def publish(job: Job) -> None:
    """Run the publisher: publish under each load that is ordered, and answer with its outcome."""
    driver = LoadDriver(_EVENTS)
    publications = events(interests(job.variant, job.subscriptions), _EVENTS)
    publisher = await SYSTEMS[job.system].publisher(job.port, publications, driver.record_progress)
    with socket.socket(fileno=job.descriptor) as shared:
        shared.setblocking(False)
        asyncio.get_running_loop().add_reader(shared, lambda: driver.set_delivered(_receive_count(shared)))
        _write_answer(None)
        async for order in _read_orders():
            _write_answer(await driver.drive(publisher, msgspec.json.decode(order, type=Load)))
        asyncio.get_running_loop().remove_reader(shared)
    await publisher.close()


async def subscribe(job: Job) -> None:
    """Run the subscriber: subscribe and report the timing; then answer each order with the latency."""
    with socket.socket(fileno=job.descriptor) as shared:
        arrivals = _Arrivals(shared)
        subscriber = await SYSTEMS[job.system].subscriber(job.port, arrivals.deliver)
        begin = time.monotonic()
        subscribed = await subscriber.subscribe(interests(job.variant, job.subscriptions), job.seconds)
        _write_answer(SubscribeTiming(subscribed, time.monotonic() - begin))
        async for _ in _read_orders():
            _write_answer(arrivals.latency())
        await subscriber.close()


class _Arrivals:
    """Latencies and count of the delivered events; sends the count to the publisher."""

    def __init__(self, shared: socket.socket) -> None:
        self._shared = shared
        self._count = 0
        self._latencies_ns = array("q")  # nanoseconds

    def deliver(self, stamps: list[bytes]) -> None:
        now = time.monotonic_ns()
        self._latencies_ns.extend([now - int.from_bytes(stamp) for stamp in stamps])
        self._count += len(stamps)
        self._shared.send(self._count.to_bytes(_COUNT_BYTES))

    def latency(self) -> Latency:
        if not self._latencies_ns:
            return Latency(0.0, 0.0)
        middle, high = np.percentile(self._latencies_ns, [50, 99]) / 1e6
        self._latencies_ns = array("q")
        return Latency(float(middle), float(high))


def _receive_count(shared: socket.socket) -> int:
    """Return the last count that the subscriber sent. A count is written as a whole, so none is ever split."""
    data = shared.recv(_COUNT_BYTES << 13)
    return int.from_bytes(data[-_COUNT_BYTES:])


async def _read_orders() -> AsyncIterator[bytes]:
    """Yield the lines of standard input until its end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def _write_answer(answer: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
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

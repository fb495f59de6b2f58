"""Measure sealed against plain delivery through one broker process: latency by payload size and key size, and jitter.

Broker, publisher and subscriber are processes. Plain and sealed events take turns.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, pstdev
from typing import Any, NamedTuple

from benchmarks.brokers.broker_processes import StartedBroker, start_secure
from benchmarks.brokers.children import ChildProcesses
from benchmarks.workloads.secure_workload import PUBLISHER, SUBSCRIBER, SecureTopic, attributes, event
from tidings.cli.measurement import Measurement, steps, time_each
from tidings.client import ClientSubscription, connect
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.security import Gate, Suite

SUITES = {128: Suite.AES_128_GCM, 192: Suite.AES_192_GCM, 256: Suite.AES_256_GCM}
SIZES = [2**power for power in range(17)]
_LARGE = 16_384  # largest payload for which the first goal holds
_GOALS = {False: ("1.5", "2"), True: ("1.8", "2.3")}  # broker verifies signatures -> (up to _LARGE, above)
_WARM = 20  # events of each kind before the first measurement
_PATIENCE = 60.0  # time limit in seconds, beyond the time that publishing takes
_fork = multiprocessing.get_context("fork")  # `fork`, so that the child processes inherit the members


class SentSize(NamedTuple):
    """An event to publish: its number, payload size, and whether it is sealed."""

    number: int
    size: int
    is_sealed: bool


class Pace(NamedTuple):
    """How many events are published, and at which interval."""

    events: int  # plain events of each size, and as many sealed events
    interval: float  # seconds between two events


def measure(bits: list[int], sizes: list[int], pace: Pace) -> list[Measurement]:
    """Measure all key sizes and payload sizes, with a broker that verifies signatures and with one that does not."""
    measurements = []
    with steps(2 * len(bits)) as step:
        for key in bits:
            topic = SecureTopic(SUITES[key])
            for verifies in (False, True):
                mode = "signatures checked" if verifies else "signatures not checked"
                step(f"{key} bits, {mode}")
                measurements += _measurements(
                    f"{key} bits, {mode}", _run_case(topic, sizes, pace, verifies=verifies), sizes, verifies
                )
            measurements += [
                measurement
                for payload in sizes
                for measurement in _measure_shares(f"{key} bits", topic, payload, pace.events)
            ]
    return measurements


class SealedRun(NamedTuple):
    """The times, by the number of the event, at which each event was published and opened."""

    events: list[SentSize]
    begun: dict[int, float]
    ended: dict[int, float]

    def latency(self, size: int, *, is_sealed: bool) -> float:
        """Return the median seconds from publishing to opening."""
        numbers = [event.number for event in self.events if (event.size, event.is_sealed) == (size, is_sealed)]
        return median(self.ended[number] - self.begun[number] for number in numbers)

    def jitter(self, *, is_sealed: bool) -> float:
        """Return the standard deviation of how much the spacing of events changes between publishing and arrival."""
        events = [event for event in self.events if event.is_sealed is is_sealed]
        pairs = [(earlier.number, later.number) for earlier, later in pairwise(events) if earlier.size == later.size]
        return pstdev(
            (self.ended[later] - self.ended[earlier]) - (self.begun[later] - self.begun[earlier])
            for earlier, later in pairs
        )


def _measurements(what: str, run: SealedRun, sizes: list[int], verifies: bool) -> list[Measurement]:
    rows = []
    for size in sizes:
        plain, sealed = run.latency(size, is_sealed=False), run.latency(size, is_sealed=True)
        goal = _GOALS[verifies][size > _LARGE]
        comparison = f"{sealed * 1e6:,.0f} us sealed, {plain * 1e6:,.0f} us plain"
        rows.append(Measurement(f"{what}, {size:,} bytes: sealed / plain", sealed / plain, "times", goal, comparison))
    plain, sealed = run.jitter(is_sealed=False), run.jitter(is_sealed=True)
    comparison = f"plain {plain * 1e6:,.0f} us"
    return [*rows, Measurement(f"{what}: deviation of the spacing, sealed", sealed * 1e6, "us", "", comparison)]


def _measure_shares(what: str, topic: SecureTopic, size: int, count: int) -> list[Measurement]:
    """Measure the shares of publisher, broker and subscriber, each in this process."""
    now = time.time_ns() // 1_000
    plain = [event(number, size, now + number) for number in range(count)]
    sealed: list[Event] = []
    publisher = median(time_each(lambda event_: sealed.append(topic.publisher.seal(event_, event_.timestamp)), plain))
    shares = {"publisher": publisher}
    for name, verifies in (("broker", False), ("broker with signatures", True)):
        gate = topic.gate(verifies=verifies)
        shares[name] = median(time_each(partial(_admit, gate, now), sealed))
    shares["subscriber"] = median(time_each(lambda event_: topic.subscriber.open(event_, now), sealed))
    return [Measurement(f"{what}, {size:,} bytes: {name}", share * 1e6, "us") for name, share in shares.items()]


def _admit(gate: Gate, now: int, sealed: Event) -> None:
    gate.admit(sealed, now)


def _run_case(topic: SecureTopic, sizes: list[int], pace: Pace, *, verifies: bool) -> SealedRun:
    kinds = [(size, is_sealed) for size in sizes for _ in range(pace.events) for is_sealed in (False, True)]
    warm = [(1, is_sealed) for _ in range(_WARM) for is_sealed in (False, True)]
    events = [SentSize(number, *kind) for number, kind in enumerate([*warm, *kinds])]
    with ChildProcesses() as children:
        folder = children.folder / "security"
        broker = start_secure(children, _save_files(topic, folder), verify_signatures=verifies)
        subscriber = _Fork(lambda pipe: _subscribe(pipe, broker, topic, len(events), pace.interval))
        subscriber.receive()
        publisher = _Fork(lambda pipe: _publish(pipe, broker, topic, events, pace.interval))
        begun, ended = publisher.receive(), subscriber.receive()
    return SealedRun(events[len(warm) :], begun, ended)


def _save_files(topic: SecureTopic, folder: Path) -> Path:
    """Write the files that a broker is started with: its identity, the topic's record, and the revocation list."""
    topic.broker.save(folder)
    (folder / "topic").write_bytes(topic.record.data)
    (folder / "revocations").write_bytes(topic.revocations.data)
    return folder


async def _publish(
    pipe: Connection, broker: StartedBroker, topic: SecureTopic, events: list[SentSize], interval: float
) -> None:
    begun = {}
    async with connect(broker.address, name=PUBLISHER, member=topic.publisher) as client:
        for event_ in events:
            payload, values = bytes(event_.size), attributes(event_.number, "sealed" if event_.is_sealed else "plain")
            begun[event_.number] = time.monotonic()
            await client.publish(values, payload=payload)
            await asyncio.sleep(max(0.0, begun[event_.number] + interval - time.monotonic()))
    pipe.send(begun)


async def _subscribe(pipe: Connection, broker: StartedBroker, topic: SecureTopic, count: int, interval: float) -> None:
    ended: dict[int, float] = {}

    async def take(subscription: ClientSubscription) -> None:
        while len(ended) < count:
            for notification in await subscription.take(timeout=1.0):
                ended[int(notification.attributes["number"])] = time.monotonic()

    async with connect(broker.address, name=SUBSCRIBER, member=topic.subscriber) as client:
        subscriptions = [
            await client.subscribe("topic = 'sealed' and price is not null"),
            await client.subscribe("topic = 'plain'"),
        ]
        pipe.send(None)
        async with asyncio.timeout(_PATIENCE + count * interval):
            await asyncio.gather(*(take(subscription) for subscription in subscriptions))
    pipe.send(ended)


class _Fork:
    """A forked child process that inherits the state of this process, and sends its results over a pipe."""

    def __init__(self, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._pipe, child_end = _fork.Pipe()
        self._process = _fork.Process(target=lambda: asyncio.run(work(child_end)), daemon=True)
        self._process.start()
        child_end.close()

    def receive(self) -> Any:
        """Wait for the next result. Raises TidingsError if the process has ended."""
        try:
            return self._pipe.recv()
        except EOFError:
            raise TidingsError("a program of the measurement has ended before its time") from None

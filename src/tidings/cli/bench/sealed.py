"""Sealed against plain delivery through one broker: end to end, by size of payload and by key, and the spacing of a
stream. Broker, publisher and subscriber are processes of their own; plain and sealed events take turns."""

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

from tidings.cli.bench import Measurement, each_timed, steps
from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import Started, start_secure
from tidings.cli.bench.secure_workload import PUBLISHER, SUBSCRIBER, SecureTopic, attributes, event
from tidings.client import Subscription, connect
from tidings.model.errors import TidingsError
from tidings.model.event import Event
from tidings.security import Gate, Suite

SUITES = {128: Suite.AES_128_GCM, 192: Suite.AES_192_GCM, 256: Suite.AES_256_GCM}
SIZES = [2**power for power in range(17)]
_LARGE = 16_384  # up to which the first goal holds
_GOALS = {False: ("1.5", "2"), True: ("1.8", "2.3")}  # whether the broker checks signatures -> up to that, and above
_WARM = 20  # events of each kind, before anything is measured
_PATIENCE = 60.0  # seconds, beyond the time that publishing takes
_fork = multiprocessing.get_context("fork")  # so that members need not be written down


class Sent(NamedTuple):
    number: int
    size: int
    is_sealed: bool


class Pace(NamedTuple):
    events: int  # of each size, plain and sealed each
    interval: float  # seconds between two


def measure(bits: list[int], sizes: list[int], pace: Pace) -> list[Measurement]:
    found = []
    with steps(2 * len(bits)) as step:
        for key in bits:
            topic = SecureTopic(SUITES[key])
            for verifies in (False, True):
                way = "signatures checked" if verifies else "signatures not checked"
                step(f"{key} bits, {way}")
                found += _told(f"{key} bits, {way}", _measured(topic, sizes, pace, verifies=verifies), sizes, verifies)
            found += [one for payload in sizes for one in _split(f"{key} bits", topic, payload, pace.events)]
    return found


class Run(NamedTuple):
    """When each event, by its number, was published and opened: seconds."""

    events: list[Sent]
    begun: dict[int, float]
    ended: dict[int, float]

    def latency(self, size: int, *, is_sealed: bool) -> float:
        those = [one.number for one in self.events if (one.size, one.is_sealed) == (size, is_sealed)]
        return median(self.ended[one] - self.begun[one] for one in those)

    def jitter(self, *, is_sealed: bool) -> float:
        """By how much the spacing on arrival differs from that of publishing."""
        those = [one for one in self.events if one.is_sealed is is_sealed]
        pairs = [(one.number, other.number) for one, other in pairwise(those) if one.size == other.size]
        return pstdev(
            (self.ended[other] - self.ended[one]) - (self.begun[other] - self.begun[one]) for one, other in pairs
        )


def _told(what: str, run: Run, sizes: list[int], verifies: bool) -> list[Measurement]:
    rows = []
    for size in sizes:
        plain, sealed = run.latency(size, is_sealed=False), run.latency(size, is_sealed=True)
        goal = _GOALS[verifies][size > _LARGE]
        beside = f"{sealed * 1e6:,.0f} us sealed, {plain * 1e6:,.0f} us plain"
        rows.append(Measurement(f"{what}, {size:,} bytes: sealed / plain", sealed / plain, "times", goal, beside))
    plain, sealed = run.jitter(is_sealed=False), run.jitter(is_sealed=True)
    beside = f"plain {plain * 1e6:,.0f} us"
    return [*rows, Measurement(f"{what}: deviation of the spacing, sealed", sealed * 1e6, "us", "", beside)]


def _split(what: str, topic: SecureTopic, size: int, count: int) -> list[Measurement]:
    """Whose share is how large: each by itself, in this process."""
    now = time.time_ns() // 1_000
    plain = [event(number, size, now + number) for number in range(count)]
    sealed: list[Event] = []
    publisher = median(each_timed(lambda one: sealed.append(topic.publisher.seal(one, one.timestamp)), plain))
    shares = {"publisher": publisher}
    for name, verifies in (("broker", False), ("broker with signatures", True)):
        gate = topic.gate(verifies=verifies)
        shares[name] = median(each_timed(partial(_admit, gate, now), sealed))
    shares["subscriber"] = median(each_timed(lambda one: topic.subscriber.open(one, now), sealed))
    return [Measurement(f"{what}, {size:,} bytes: {name}", share * 1e6, "us") for name, share in shares.items()]


def _admit(gate: Gate, now: int, one: Event) -> None:
    gate.admit(one, now)


def _measured(topic: SecureTopic, sizes: list[int], pace: Pace, *, verifies: bool) -> Run:
    kinds = [(one, is_sealed) for one in sizes for _ in range(pace.events) for is_sealed in (False, True)]
    warm = [(1, is_sealed) for _ in range(_WARM) for is_sealed in (False, True)]
    events = [Sent(number, *one) for number, one in enumerate([*warm, *kinds])]
    with Children() as children:
        folder = children.folder / "security"
        broker = start_secure(children, _saved(topic, folder), verify_signatures=verifies)
        subscriber = _Fork(lambda pipe: _subscribe(pipe, broker, topic, len(events), pace.interval))
        subscriber.hear()
        publisher = _Fork(lambda pipe: _publish(pipe, broker, topic, events, pace.interval))
        begun, ended = publisher.hear(), subscriber.hear()
    return Run(events[len(warm) :], begun, ended)


def _saved(topic: SecureTopic, folder: Path) -> Path:
    """What a broker is started with: its identity, the topic, and the list of revocations."""
    topic.broker.save(folder)
    (folder / "topic").write_bytes(topic.record.data)
    (folder / "revocations").write_bytes(topic.revocations.data)
    return folder


async def _publish(pipe: Connection, broker: Started, topic: SecureTopic, events: list[Sent], interval: float) -> None:
    begun = {}
    async with connect(broker.address, name=PUBLISHER, member=topic.publisher) as client:
        for one in events:
            payload, said = bytes(one.size), attributes(one.number, "sealed" if one.is_sealed else "plain")
            begun[one.number] = time.monotonic()
            await client.publish(said, payload=payload)
            await asyncio.sleep(max(0.0, begun[one.number] + interval - time.monotonic()))
    pipe.send(begun)


async def _subscribe(pipe: Connection, broker: Started, topic: SecureTopic, count: int, interval: float) -> None:
    ended: dict[int, float] = {}

    async def take(subscription: Subscription) -> None:
        while len(ended) < count:
            for note in await subscription.take(timeout=1.0):
                ended[int(note.attributes["number"])] = time.monotonic()

    async with connect(broker.address, name=SUBSCRIBER, member=topic.subscriber) as client:
        wanted = [
            await client.subscribe("topic = 'sealed' and price is not null"),
            await client.subscribe("topic = 'plain'"),
        ]
        pipe.send(None)
        async with asyncio.timeout(_PATIENCE + count * interval):
            await asyncio.gather(*(take(one) for one in wanted))
    pipe.send(ended)


class _Fork:
    """A process that goes on from here with all that this one knows, and says something over a pipe."""

    def __init__(self, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=lambda: asyncio.run(work(theirs)), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise TidingsError("a program of the measurement has ended before its time") from None

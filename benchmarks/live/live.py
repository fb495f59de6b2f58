"""Measure one broker process: throughput, latency, and the memory of clients and subscriptions."""

import asyncio
import resource
from contextlib import AsyncExitStack

from benchmarks.brokers.broker_processes import StartedBroker, start
from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.trial import WINDOW, TrialResult, run_trial
from benchmarks.brokers.workload import Interest, Variant, events, interests
from benchmarks.processes import resident
from tidings.cli.measurement import Measurement, steps
from tidings.client import Client, connect
from tidings.model.errors import TidingsError

_SYSTEMS = {  # with their goals in events per second
    "tidings": "30,000",
    "tidings-journaled": "20,000",
    "tidings-settled": "",
    "tidings-client": "30,000",
    "tidings-client-journaled": "20,000",
}
_AT_A_TIME = 100  # clients that connect, or subscriptions made, at the same time
_WARM = 200  # events before memory is measured
_FILES = 512  # open files besides the connections
_REST, _PATIENCE = 5.0, 30.0  # seconds of unchanged memory to wait for, and the time limit


def measure(count: int, clients: int, seconds: float) -> list[Measurement]:
    """Measure a broker with `count` subscriptions, and its memory with `clients` clients."""
    measurements = []
    with steps(len(_SYSTEMS) + 1) as step:
        for system, goal in _SYSTEMS.items():
            step(system)
            measurements += _measurements(run_trial(system, Variant.RANGES, count, seconds), goal)
        step("memory")
        with ChildProcesses() as children:
            measurements += asyncio.run(_measure_memory(start(children), count, clients))
    return measurements


def _measurements(trial: TrialResult, goal: str) -> list[Measurement]:
    if trial.remark:
        raise TidingsError(f"{trial.name}: {trial.remark}")
    name = f"{trial.name}, {trial.subscriptions:,} subscriptions"
    return [
        Measurement(f"{name}, {WINDOW} in flight", trial.rate, "events/s", f"{goal} events/s" if goal else ""),
        Measurement(f"{name}, one at a time", trial.single, "us"),
        Measurement(f"{name}, p50 at half the rate", trial.middle, "ms"),
        Measurement(f"{name}, p99 at half the rate", trial.high, "ms", "20 ms" if goal else ""),
    ]


async def _measure_memory(broker: StartedBroker, count: int, clients: int) -> list[Measurement]:
    """Measure how much the broker's memory grows by clients and subscriptions, after a warm-up."""
    _allow_files(clients + _FILES)
    async with connect(broker.address) as client:
        await _warm_up(client)
    async with AsyncExitStack() as stack:
        idle_memory = await _memory_at_rest(broker)
        connected: list[Client] = []
        for first in range(0, clients, _AT_A_TIME):
            batch = [
                connect(broker.address, name=f"c{number}") for number in range(first, min(clients, first + _AT_A_TIME))
            ]
            connected += await asyncio.gather(*(stack.enter_async_context(client) for client in batch))
        connected_memory = await _memory_at_rest(broker)
        all_interests = interests(Variant.RANGES, count)
        for first in range(0, count, _AT_A_TIME):
            interest_batch = list(enumerate(all_interests[first : first + _AT_A_TIME], first))
            await asyncio.gather(
                *(_subscribe(connected[number % clients], interest) for number, interest in interest_batch)
            )
        subscribed_memory = await _memory_at_rest(broker)
    return [
        Measurement(
            f"a client, of {clients:,}", max(1, connected_memory - idle_memory) / clients, "bytes", "20,000 bytes"
        ),
        Measurement(
            f"a subscription, of {count:,}",
            max(1, subscribed_memory - connected_memory) / count,
            "bytes",
            "1,000 bytes",
        ),
    ]


async def _memory_at_rest(broker: StartedBroker) -> int:
    """Return the resident memory of the broker once it no longer changes: the index is merged, temporary memory is
    freed."""
    loop = asyncio.get_running_loop()
    until, since, memory = loop.time() + _PATIENCE, loop.time(), 0
    while loop.time() < min(until, since + _REST):
        now = resident(broker.process)
        if now != memory:
            memory, since = now, loop.time()
        await asyncio.sleep(0.1)
    return memory


async def _warm_up(client: Client) -> None:
    (interest,) = interests(Variant.RANGES, 1)
    async with client.subscribe(interest.text) as subscription:
        publications = events([interest], _WARM)
        await asyncio.gather(*(client.publish(event.attributes, payload=event.filling) for event in publications))
        received = 0
        while received < _WARM:
            received += len(await subscription.take(timeout=None))


async def _subscribe(client: Client, interest: Interest) -> None:
    await client.subscribe(interest.text)


def _allow_files(count: int) -> None:
    """Raise the limit of open files, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard)
        )

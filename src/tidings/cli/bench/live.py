"""One broker as a process: what it carries, how long an event takes, and the memory of clients and subscriptions."""

import asyncio
import resource
from contextlib import AsyncExitStack

from tidings.cli.bench import Measurement, steps
from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import Started, start
from tidings.cli.bench.brokers.trial import WINDOW, Outcome, outcome
from tidings.cli.bench.brokers.workload import Interest, Variant, events, interests
from tidings.cli.bench.processes import resident
from tidings.client import Client, connect
from tidings.model.errors import TidingsError

_SYSTEMS = {  # with the goals of each
    "tidings": "30,000",
    "tidings-journaled": "20,000",
    "tidings-settled": "",
    "tidings-client": "30,000",
    "tidings-client-journaled": "20,000",
}
_AT_A_TIME = 100  # clients that connect, or subscribe, at once
_WARM = 200  # events, before memory is looked at
_FILES = 512  # that are open besides the connections
_REST, _PATIENCE = 5.0, 30.0  # seconds without a change of memory, and how long they are waited for


def measure(count: int, clients: int, seconds: float) -> list[Measurement]:
    found = []
    with steps(len(_SYSTEMS) + 1) as step:
        for system, goal in _SYSTEMS.items():
            step(system)
            found += _told(outcome(system, Variant.RANGES, count, seconds), goal)
        step("memory")
        with Children() as children:
            found += asyncio.run(_memory(start(children), count, clients))
    return found


def _told(one: Outcome, goal: str) -> list[Measurement]:
    if one.remark:
        raise TidingsError(f"{one.name}: {one.remark}")
    name = f"{one.name}, {one.subscriptions:,} subscriptions"
    return [
        Measurement(f"{name}, {WINDOW} in flight", one.rate, "events/s", f"{goal} events/s" if goal else ""),
        Measurement(f"{name}, one at a time", one.single, "us"),
        Measurement(f"{name}, p50 at half the rate", one.middle, "ms"),
        Measurement(f"{name}, p99 at half the rate", one.high, "ms", "20 ms" if goal else ""),
    ]


async def _memory(broker: Started, count: int, clients: int) -> list[Measurement]:
    """What the broker's process grows by; first it has seen some of everything."""
    _allow_files(clients + _FILES)
    async with connect(broker.address) as client:
        await _warm(client)
    async with AsyncExitStack() as stack:
        before = await _at_rest(broker)
        connected: list[Client] = []
        for first in range(0, clients, _AT_A_TIME):
            some = [
                connect(broker.address, name=f"c{number}") for number in range(first, min(clients, first + _AT_A_TIME))
            ]
            connected += await asyncio.gather(*(stack.enter_async_context(client) for client in some))
        alone = await _at_rest(broker)
        wanted = interests(Variant.RANGES, count)
        for first in range(0, count, _AT_A_TIME):
            some_wanted = list(enumerate(wanted[first : first + _AT_A_TIME], first))
            await asyncio.gather(*(_subscribed(connected[number % clients], one) for number, one in some_wanted))
        subscribed = await _at_rest(broker)
    return [
        Measurement(f"a client, of {clients:,}", max(1, alone - before) / clients, "bytes", "20,000 bytes"),
        Measurement(f"a subscription, of {count:,}", max(1, subscribed - alone) / count, "bytes", "1,000 bytes"),
    ]


async def _at_rest(broker: Started) -> int:
    """What it has in memory once its index is in order, and what that took for a moment is given back."""
    loop = asyncio.get_running_loop()
    until, since, known = loop.time() + _PATIENCE, loop.time(), 0
    while loop.time() < min(until, since + _REST):
        now = resident(broker.process)
        if now != known:
            known, since = now, loop.time()
        await asyncio.sleep(0.1)
    return known


async def _warm(client: Client) -> None:
    (wanted,) = interests(Variant.RANGES, 1)
    async with client.subscribe(wanted.text) as subscription:
        made = events([wanted], _WARM)
        await asyncio.gather(*(client.publish(event.attributes, payload=event.filling) for event in made))
        taken = 0
        while taken < _WARM:
            taken += len(await subscription.take(timeout=None))


async def _subscribed(client: Client, interest: Interest) -> None:
    await client.subscribe(interest.text)


def _allow_files(wanted: int) -> None:
    """As many open files as are needed, where the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )

"""What it costs that a broker has to prove to which trust groups it belongs: paper 000's Fig. 14.

Two brokers, a publisher at one and a subscriber at the other, whose policy lets pass what comes from a broker of all of
its groups. What is measured is the time from publishing to the delivery, or to the refusal, at the other broker.
"""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tidings.cli.bench import Measurement, median, steps
from tidings.client import Client, connect
from tidings.live.broker import Broker
from tidings.live.configuration import Configuration
from tidings.security.trust import Group

GROUPS = (0, 1, 3, 5)
_EXPIRY = 10  # milliseconds: the least; between two publications it has passed
_LONG = 3_600_000
_PATIENCE = 20.0  # seconds
_QUIET = 0.05  # seconds, in which brokers tell each other what they have


class Way(NamedTuple):
    """How the sender stands to the groups; `expiry` in milliseconds."""

    name: str
    is_member: bool
    expiry: int


WAYS = (
    Way("proved each time", True, _EXPIRY),
    Way("proved once", True, _LONG),
    Way("denied each time", False, _EXPIRY),
)


def measure(count: int) -> list[Measurement]:
    found: list[Measurement] = []
    with steps(len(WAYS) * len(GROUPS)) as step:
        for way in WAYS:
            for groups in GROUPS:
                step(f"{way.name}, {groups} groups")
                seconds, challenges = asyncio.run(_measured(way, groups, count))
                what = f"a publication between brokers, {groups} groups, {way.name}"
                found.append(Measurement(what, seconds * 1e6, "us", beside=f"{challenges / count:.3g} challenges"))
    return found


async def _measured(way: Way, groups: int, count: int) -> tuple[float, int]:
    """Seconds of a publication in the middle, and how many challenges there were."""
    names = [f"TrustGroup{number}" for number in range(1, groups + 1)]
    with tempfile.TemporaryDirectory() as folder:
        trust = []
        for name in names:
            path = Path(folder, name)
            Group.new(name).save(path)
            trust.append({"group": name, "secret_file": str(path), "expiry_ms": way.expiry})
        async with AsyncExitStack() as stack:
            receiving = await _started(stack, "receiving", {"links": [{"broker": "sending"}], "trust": trust})
            link = {"broker": "receiving", "address": str(receiving.address)}
            sending = await _started(stack, "sending", {"links": [link], "trust": trust if way.is_member else []})
            publisher = await stack.enter_async_context(connect(str(sending.address), "publisher"))
            subscriber = await stack.enter_async_context(connect(str(receiving.address), "subscriber"))
            await publisher.advertise("a > 0")
            await _settled(receiving, sending)
            await subscriber.subscribe("a > 0", policy=_policy(names))
            await _settled(receiving, sending)
            await _timed(publisher, receiving, way)
            before = receiving.metrics.challenges
            seconds = [await _timed(publisher, receiving, way) for _ in range(count)]
            return median(seconds), receiving.metrics.challenges - before


async def _started(stack: AsyncExitStack, name: str, tables: dict[str, Any]) -> Broker:
    given = {"broker": {"name": name, "listen": "127.0.0.1:0", "stop_seconds": 0.5, "settling_ms": 20}, **tables}
    broker = Broker(Configuration.from_values(given))
    await broker.start()
    stack.push_async_callback(broker.stop)
    return broker


async def _settled(*brokers: Broker) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not all(one.links and one.is_settled for one in brokers):
            await asyncio.sleep(_QUIET)
    await asyncio.sleep(_QUIET)


async def _timed(publisher: Client, receiving: Broker, way: Way) -> float:
    if way.expiry == _EXPIRY:
        await asyncio.sleep(2 * _EXPIRY / 1000)
    before = _decided(receiving)
    begin = time.perf_counter()
    await publisher.publish({"a": 1}, safe="accepted")
    while _decided(receiving) == before:
        await asyncio.sleep(0)
    return time.perf_counter() - begin


def _decided(broker: Broker) -> int:
    return broker.metrics.delivered + broker.metrics.challenges_failed


def _policy(groups: list[str]) -> str | None:
    """At the subscriber's broker; without groups there is none."""
    if not groups:
        return None
    condition = " && ".join(f"AuthenticateSender({one})" for one in groups)
    branches = f"If {{{condition}}} Then {{}} Elseif {{}} Then {{BlockMessage()}}"
    return f"PolicyStatement {{ On(Forward, Publication) {{ @broker: Egress {branches} }} }}"

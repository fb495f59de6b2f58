"""Measure the cost of a broker's proof that it belongs to trust groups: paper 000's Fig. 14.

There are two brokers, with a publisher at one and a subscriber at the other. The subscriber's policy forwards only
events from a broker that belongs to all groups. The measured time is from publishing to the delivery, or the refusal,
at the subscriber's broker.
"""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.cli.measurement import Measurement, median, steps
from tidings.client import Client, connect
from tidings.security.trust_group import TrustGroup

GROUPS = (0, 1, 3, 5)
_EXPIRY = 10  # milliseconds, the least; a proof expires between two publications
_LONG = 3_600_000
_PATIENCE = 20.0  # time limit in seconds
_QUIET = 0.05  # seconds for brokers to exchange their tables


class TrustCase(NamedTuple):
    """Whether the sending broker belongs to the groups, and after how many milliseconds a proof expires."""

    name: str
    is_member: bool
    expiry: int


CASES = (
    TrustCase("proved each time", True, _EXPIRY),
    TrustCase("proved once", True, _LONG),
    TrustCase("denied each time", False, _EXPIRY),
)


def measure(count: int) -> list[Measurement]:
    """Measure `count` publications for each case and number of groups."""
    measurements: list[Measurement] = []
    with steps(len(CASES) * len(GROUPS)) as step:
        for case in CASES:
            for groups in GROUPS:
                step(f"{case.name}, {groups} groups")
                seconds, challenges = asyncio.run(_measure_case(case, groups, count))
                what = f"a publication between brokers, {groups} groups, {case.name}"
                measurements.append(
                    Measurement(what, seconds * 1e6, "us", comparison=f"{challenges / count:.3g} challenges")
                )
    return measurements


async def _measure_case(case: TrustCase, groups: int, count: int) -> tuple[float, int]:
    """Return the median seconds of a publication, and the number of challenges."""
    names = [f"TrustGroup{number}" for number in range(1, groups + 1)]
    with tempfile.TemporaryDirectory() as folder:
        trust = []
        for name in names:
            path = Path(folder, name)
            TrustGroup.new(name).save(path)
            trust.append({"group": name, "secret_file": str(path), "expiry_ms": case.expiry})
        async with AsyncExitStack() as stack:
            receiving = await _start_broker(stack, "receiving", {"links": [{"broker": "sending"}], "trust": trust})
            link = {"broker": "receiving", "address": str(receiving.address)}
            sending = await _start_broker(stack, "sending", {"links": [link], "trust": trust if case.is_member else []})
            publisher = await stack.enter_async_context(connect(str(sending.address), "publisher"))
            subscriber = await stack.enter_async_context(connect(str(receiving.address), "subscriber"))
            await publisher.advertise("a > 0")
            await _await_settled(receiving, sending)
            await subscriber.subscribe("a > 0", policy=_policy(names))
            await _await_settled(receiving, sending)
            await _time_publication(publisher, receiving, case)
            before = receiving.metrics.security.challenges
            seconds = [await _time_publication(publisher, receiving, case) for _ in range(count)]
            return median(seconds), receiving.metrics.security.challenges - before


async def _start_broker(stack: AsyncExitStack, name: str, tables: dict[str, Any]) -> Broker:
    values = {"broker": {"name": name, "listen": "127.0.0.1:0", "stop_seconds": 0.5, "settling_ms": 20}, **tables}
    broker = Broker(BrokerConfiguration.from_values(values))
    await broker.start()
    stack.push_async_callback(broker.stop)
    return broker


async def _await_settled(*brokers: Broker) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not all(broker.links and broker.is_settled for broker in brokers):
            await asyncio.sleep(_QUIET)
    await asyncio.sleep(_QUIET)


async def _time_publication(publisher: Client, receiving: Broker, case: TrustCase) -> float:
    if case.expiry == _EXPIRY:
        await asyncio.sleep(2 * _EXPIRY / 1000)
    before = _count_decisions(receiving)
    begin = time.perf_counter()
    await publisher.publish({"a": 1}, safe="accepted")
    while _count_decisions(receiving) == before:
        await asyncio.sleep(0)
    return time.perf_counter() - begin


def _count_decisions(broker: Broker) -> int:
    return broker.metrics.operations.delivered + broker.metrics.security.challenges_failed


def _policy(groups: list[str]) -> str | None:
    """Return the policy for the subscriber's broker; None without groups."""
    if not groups:
        return None
    condition = " && ".join(f"AuthenticateSender({group})" for group in groups)
    branches = f"If {{{condition}}} Then {{}} Elseif {{}} Then {{BlockMessage()}}"
    return f"PolicyStatement {{ On(Forward, Publication) {{ @broker: Egress {branches} }} }}"

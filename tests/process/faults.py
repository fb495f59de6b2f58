"""Faults that a seed draws: which broker, which links, when and for how long; and how they are done to an overlay."""

import asyncio
import random
from collections import defaultdict

import msgspec

from tests.process.overlay import RelayedOverlay
from tidings.simulation.topologies import Edge, Topology

KILL, PAUSE, RESTART = "kill", "pause", "restart"  # of a broker
CUT, SILENCE, DELAY = "cut", "silence", "delay"  # of links
_OF_BROKERS, _OF_LINKS = (KILL, KILL, PAUSE, RESTART), (CUT, CUT, SILENCE, SILENCE, DELAY)


class Fault(msgspec.Struct, frozen=True):
    """`after` so many seconds since the one before it began; some begin before that one is over."""

    kind: str
    after: float
    lasts: float
    broker: str = ""
    links: tuple[Edge, ...] = ()

    def __str__(self) -> str:
        what = self.broker or " and ".join(f"{one.one}-{one.other}" for one in self.links)
        return f"after {self.after:.1f} s: {self.kind} {what} for {self.lasts:.1f} s"


def drawn(seed: int, topology: Topology, count: int) -> list[Fault]:
    chance = random.Random(seed)
    faults = []
    for _ in range(count):
        after, lasts = chance.choice([chance.uniform(0.0, 0.5), chance.uniform(1.0, 3.0)]), chance.uniform(1.0, 4.0)
        if chance.random() < 0.55:
            kind, broker = chance.choice(_OF_BROKERS), chance.choice(topology.brokers)
            faults.append(Fault(kind, after, chance.uniform(0.0, 2.0) if kind == KILL else lasts, broker))
        else:
            links = tuple(chance.sample(topology.edges, chance.choice([1, 2])))
            faults.append(Fault(chance.choice(_OF_LINKS), after, lasts, links=links))
    return faults


class Doing:
    """Of faults, to one overlay. Of those that befall the same broker or link, each waits for the one before it."""

    def __init__(self, overlay: RelayedOverlay) -> None:
        self._overlay = overlay
        self._busy: dict[str | Edge, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def all(self, faults: list[Fault]) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(fault.after)
                if fault.broker:
                    group.create_task(self._to_broker(fault))
                for link in fault.links:
                    group.create_task(self._to_link(fault, link))

    async def _to_broker(self, fault: Fault) -> None:
        overlay, name = self._overlay, fault.broker
        async with self._busy[name]:
            match fault.kind:
                case "pause":
                    overlay.pause(name)
                    await asyncio.sleep(fault.lasts)
                    overlay.resume(name)
                case "kill":
                    overlay.kill(name)
                    await asyncio.sleep(fault.lasts)
                    await asyncio.to_thread(overlay.restart, name)
                case "restart":
                    await asyncio.to_thread(overlay.restart, name)

    async def _to_link(self, fault: Fault, link: Edge) -> None:
        relay = self._overlay.relays[link]
        async with self._busy[link]:
            match fault.kind:
                case "cut":
                    relay.cut()
                case "silence":
                    relay.silence()
                case "delay":
                    relay.delay = 0.1
            await asyncio.sleep(fault.lasts)
            relay.heal()

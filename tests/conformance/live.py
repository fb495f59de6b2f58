"""Live overlays as drivers: real brokers with sockets between them, in the loop of the test, and clients on them.

A step is over when no broker has anything to do, no frame is between two of them, and every client has heard what its
broker had told it by then.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from tests.conformance.drivers import Told, told_of
from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.client import Client, ClientSubscription, connect
from tidings.model.errors import RefusedError
from tidings.simulation import Topology
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
)


class LiveDriver:
    """Clients are spread over the brokers, in the order in which they first do something."""

    def __init__(self, strategy: str, topology: Topology, folder: Path | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._brokers: dict[str, Broker] = {}
        self._clients: dict[str, Client] = {}
        self._at: dict[str, str] = {}
        self._here: set[str] = set()
        self._subscriptions: dict[str, dict[str, ClientSubscription]] = {}
        self._durable: dict[str, dict[str, Subscribes]] = {}
        self._loop.run_until_complete(self._start(strategy, topology, folder))

    def take(self, step: Step) -> list[Told]:
        return self._loop.run_until_complete(self._taken(step))

    def close(self) -> None:
        self._loop.run_until_complete(self._stop())
        self._loop.close()

    async def _start(self, strategy: str, topology: Topology, folder: Path | None) -> None:
        for name in topology.brokers:
            links: list[dict[str, Any]] = []
            for one, other, cost in topology.edges:
                if name in (one, other):
                    neighbour = other if name == one else one
                    link: dict[str, Any] = {"broker": neighbour, "cost": cost}
                    if neighbour in self._brokers:
                        link["address"] = str(self._brokers[neighbour].address)
                    links.append(link)
            given = {
                "broker": {"name": name, "listen": "127.0.0.1:0", "strategy": strategy, "settling_ms": 20},
                "links": links,
                "journal": {"folder": "" if folder is None else str(folder / name)},
            }
            self._brokers[name] = Broker(BrokerConfiguration.from_values(given))
            await self._brokers[name].start()
        async with asyncio.timeout(20):
            while any(len(one.links) < len(one.configuration.links) for one in self._brokers.values()):
                await asyncio.sleep(0.005)
        await self._settled()

    async def _stop(self) -> None:
        for client in self._clients.values():
            await client.close()
        for broker in self._brokers.values():
            await broker.stop()

    async def _settled(self) -> None:
        async with asyncio.timeout(20):
            quiet = 0
            while quiet < 3:
                await asyncio.sleep(0.001)
                quiet = quiet + 1 if self._is_quiet() else 0
        for name in self._here:
            await self._clients[name].ask("status")  # behind everything that it was told before

    def _is_quiet(self) -> bool:
        brokers = self._brokers
        if not all(one.is_settled for one in brokers.values()):
            return False
        return all(
            link.sent == brokers[neighbour].links[name].received
            for name, broker in brokers.items()
            for neighbour, link in broker.links.items()
        )

    async def _taken(self, step: Step) -> list[Told]:
        name = getattr(step, "client", "")
        if isinstance(step, Moves | Returns):
            await self._arrive(step)
        elif name in self._here or name not in self._clients:
            if name not in self._clients:
                brokers = list(self._brokers)
                await self._connect(name, brokers[len(self._clients) % len(brokers)])
            with contextlib.suppress(RefusedError):
                await self._act(step, self._clients[name])
        await self._settled()
        return await self._told()

    async def _arrive(self, step: Moves | Returns) -> None:
        name = step.client
        if name not in self._at:
            return
        if isinstance(step, Moves) and name in self._here:
            self._at[name] = step.broker
            await self._clients[name].move(str(self._brokers[step.broker].address))
            return
        if isinstance(step, Moves):
            self._at[name] = step.broker
        if name not in self._here:
            await self._connect(name, self._at[name])
            for wanted in self._durable.get(name, {}).values():
                await self._subscribe(wanted)

    async def _connect(self, name: str, broker: str) -> None:
        self._at[name] = broker
        self._clients[name] = await connect(str(self._brokers[broker].address), name=name).__aenter__()
        self._here.add(name)

    async def _act(self, step: Step, client: Client) -> None:
        name = client.name
        match step:
            case Subscribes():
                await self._subscribe(step)
                if step.durable is not None:
                    self._durable.setdefault(name, {})[step.id] = step
            case Unsubscribes(_, id):
                if id in self._subscriptions.get(name, {}):
                    await client.unsubscribe(id)
                    self._subscriptions[name].pop(id)
                    self._durable.get(name, {}).pop(id, None)
            case SetsContext(_, context):
                await client.set_context(context)
            case Advertises():
                await client.advertise(step.content, step.publisher_context, step.subscriber_context, id=step.id)
            case Unadvertises(_, id):
                await client.unadvertise(id)
            case Publishes():
                await client.publish(step.attributes, subscribers=step.subscribers)
            case Leaves():
                await client.close()
                self._here.discard(name)
                self._subscriptions.pop(name, None)

    async def _subscribe(self, step: Subscribes) -> None:
        wanted = self._clients[step.client].subscribe(
            step.content, publishers=step.publishers, policy=step.policy, durable=step.durable, id=step.id
        )
        self._subscriptions.setdefault(step.client, {})[step.id] = await wanted

    async def _told(self) -> list[Told]:
        told: list[Told] = []
        for name in self._here:
            for held in self._subscriptions.get(name, {}).values():
                notes = await held.take()
                told += map(told_of, notes)
                if held.durable is not None:
                    await held.acknowledge(*notes)
        return sorted(told)

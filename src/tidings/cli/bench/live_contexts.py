"""A change of context beside subscribing anew, on brokers that are processes: paper 001's Fig. 10.

A publisher at each broker, and subscribers at the last, each with subscriptions for publishers in a box around it.
Either the box is written with `this.`, and only the subscriber's position is told where it changes; or positions are
attributes of events, and every subscription is taken back and made anew with other numbers.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from tidings.cli.bench import Measurement, moving_workload, steps
from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import Started, start_all
from tidings.client import Client, Subscription, connect
from tidings.simulation.topologies import Topology, line, star

_PATIENCE = 60.0  # seconds for an overlay to settle, or a change to take effect
_QUIET = 0.3  # seconds in which no broker sends anything
_AGAIN = 0.002  # seconds between tries

Place = dict[str, Any]  # client, x and y


class Size(NamedTuple):
    brokers: int = 4
    subscribers: int = 10
    subscriptions: int = 10  # of each subscriber


class Cost(NamedTuple):
    """Of a change of position."""

    seconds: float  # until it has taken effect everywhere
    messages: float  # between brokers


def measure(size: Size, changes: int) -> list[Measurement]:
    found = []
    with steps(4) as step:
        for name, topology in (("line", line(size.brokers)), ("star", star(size.brokers))):
            costs = []
            for way in (Situated, Rewritten):
                step(f"{name}: {way.NAME}")
                costs.append(_cost(way, topology, size, changes))
            found += _told(name, *costs)
    return found


def _told(topology: str, own: Cost, other: Cost) -> list[Measurement]:
    rows = []
    for way, cost in ((Situated, own), (Rewritten, other)):
        name = f"{topology}: {way.NAME}"
        rows += [
            Measurement(name, cost.messages, "messages a change"),
            Measurement(name, cost.seconds * 1e6, "us"),
        ]
    what = f"{topology}: {Rewritten.NAME} / {Situated.NAME}"
    return [
        *rows,
        Measurement(f"{what}, messages", other.messages / own.messages, "times", "5"),
        Measurement(f"{what}, time", other.seconds / own.seconds, "times", "5"),
    ]


def _cost(way: "type[Situated]", topology: Topology, size: Size, changes: int) -> Cost:
    with Children() as children:
        return asyncio.run(_measured(way, start_all(children, topology), size, changes))


async def _measured(way: "type[Situated]", brokers: dict[str, Started], size: Size, changes: int) -> Cost:
    """Messages and time in rounds of their own: to see that a change has taken effect takes messages, too."""
    async with AsyncExitStack() as stack:
        network = way(brokers, size, stack)
        await network.begin()
        before = await network.messages()
        for place in moving_workload.moves(changes, size.subscribers, seed=1).to_pylist():
            await network.move(place)
        sent = await network.messages() - before
        places = moving_workload.moves(changes, size.subscribers, seed=2).to_pylist()
        begin = time.monotonic()
        for place in places:
            await network.move(place)
        await network.is_at(places[-1])
        return Cost((time.monotonic() - begin) / changes, sent / changes)


class Situated:
    """An overlay whose subscribers set their context where they have moved."""

    NAME = "set_context"

    def __init__(self, brokers: dict[str, Started], size: Size, stack: AsyncExitStack) -> None:
        self._brokers, self._size, self._stack = brokers, size, stack
        self._publishers: list[Client] = []
        self._subscribers: dict[str, Client] = {}
        self._firsts: dict[str, Subscription] = {}  # of the subscriptions of each

    async def begin(self) -> None:
        for name, broker in self._brokers.items():
            self._publishers.append(await self._connected(broker, f"publisher at {name}"))
        await self._settle()
        for publisher in self._publishers:
            await self._advertise(publisher)
        await self._settle()
        home = list(self._brokers.values())[-1]
        for place in moving_workload.everyone(self._size.subscribers).to_pylist():
            client = self._subscribers[place["client"]] = await self._connected(home, place["client"])
            await self._begin(client, place)

    async def move(self, place: Place) -> None:
        await self._move(self._subscribers[place["client"]], place)

    async def is_at(self, place: Place) -> None:
        """Returns when an event from there has come from the first broker; links keep the order of what was changed."""
        async with asyncio.timeout(_PATIENCE):
            notes: list[Any] = []
            while not notes:
                await self._publish(self._publishers[0], {"kind": _kind(0)}, {"x": place["x"], "y": place["y"]})
                notes = await self._firsts[place["client"]].take(timeout=_AGAIN)

    async def messages(self) -> int:
        """All that has gone over links, once nothing goes any more."""
        before, sent = -1, await self._sent()
        while sent != before:
            await asyncio.sleep(_QUIET)
            before, sent = sent, await self._sent()
        return sent

    async def _connected(self, broker: Started, name: str) -> Client:
        return await self._stack.enter_async_context(connect(broker.address, name=name))

    async def _settle(self) -> None:
        """Returns when every broker knows of all, and has nothing to do."""
        async with asyncio.timeout(_PATIENCE):
            for publisher in self._publishers:
                while not await self._is_settled(publisher):
                    await asyncio.sleep(_AGAIN)

    async def _is_settled(self, publisher: Client) -> bool:
        status = await publisher.ask("status")
        return bool(status["settled"]) and len(status["brokers"]) == len(self._brokers)

    async def _sent(self) -> int:
        stats = [await publisher.ask("stats") for publisher in self._publishers]
        return sum(link["sent"] for one in stats for link in one["links"].values())

    async def _advertise(self, publisher: Client) -> None:
        await publisher.advertise("kind like 'k%'", publisher_context=("x", "y"))

    async def _publish(self, publisher: Client, said: dict[str, Any], position: dict[str, float]) -> None:
        await publisher.set_context(position)
        await publisher.publish(said, safe="accepted")

    async def _begin(self, client: Client, place: Place) -> None:
        await self._move(client, place)
        await self._subscribe(client, moving_workload.BOX)

    async def _move(self, client: Client, place: Place) -> None:
        await client.set_context(x=place["x"], y=place["y"])

    async def _subscribe(self, client: Client, publishers: str | None, and_more: str = "") -> None:
        wanted = [
            client.subscribe(f"kind = '{_kind(number)}'{and_more}", publishers=publishers, id=_id(client, number))
            for number in range(self._size.subscriptions)
        ]
        self._firsts[client.name] = wanted[0]
        await asyncio.gather(*(_begun(one) for one in wanted))


class Rewritten(Situated):
    """An overlay whose subscribers write where they are into their subscriptions, and subscribe anew."""

    NAME = "subscribe anew"

    async def _advertise(self, publisher: Client) -> None:
        await publisher.advertise("kind like 'k%' and x >= 0 and y >= 0")

    async def _publish(self, publisher: Client, said: dict[str, Any], position: dict[str, float]) -> None:
        await publisher.publish(said | position, safe="accepted")

    async def _begin(self, client: Client, place: Place) -> None:
        await self._subscribe(client, None, f" and {moving_workload.box(place['x'], place['y'])}")

    async def _move(self, client: Client, place: Place) -> None:
        await asyncio.gather(*(client.unsubscribe(_id(client, number)) for number in range(self._size.subscriptions)))
        await self._begin(client, place)


async def _begun(subscription: Subscription) -> None:
    await subscription


def _kind(number: int) -> str:
    return f"k{number}"


def _id(client: Client, number: int) -> str:
    return f"{client.name} s{number}"

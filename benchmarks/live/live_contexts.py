"""Measure a context change compared with re-subscribing, on broker processes: paper 001's Fig. 10.

There is a publisher at each broker, and subscribers at the last broker, each with subscriptions for publishers in a box
around it. Either the box is written with `this.`, and the subscriber only sends its new context; or positions are
attributes of events, and each subscription is removed and made again with new constants.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from benchmarks.brokers.broker_processes import StartedBroker, start_all
from benchmarks.brokers.children import ChildProcesses
from benchmarks.workloads import moving_workload
from tidings.cli.measurement import Measurement, steps
from tidings.client import Client, ClientSubscription, connect
from tidings.simulation.topologies import Topology, line, star

_PATIENCE = 60.0  # time limit in seconds for an overlay to settle, or a change to take effect
_QUIET = 0.3  # seconds in which no broker sends anything
_AGAIN = 0.002  # seconds between two attempts

Place = dict[str, Any]  # client, x and y


class LiveOverlaySize(NamedTuple):
    """The size of the overlay."""

    brokers: int = 4
    subscribers: int = 10
    subscriptions: int = 10  # per subscriber


class LiveMoveCost(NamedTuple):
    """The cost of one change of position."""

    seconds: float  # until the change has taken effect at all brokers
    messages: float  # between brokers


def measure(size: LiveOverlaySize, changes: int) -> list[Measurement]:
    """Measure both ways on a line and on a star of brokers."""
    measurements = []
    with steps(4) as step:
        for name, topology in (("line", line(size.brokers)), ("star", star(size.brokers))):
            costs = []
            for way in (LiveContextOverlay, LiveResubscribingOverlay):
                step(f"{name}: {way.NAME}")
                costs.append(_cost(way, topology, size, changes))
            measurements += _measurements(name, *costs)
    return measurements


def _measurements(topology: str, context_cost: LiveMoveCost, resubscribe_cost: LiveMoveCost) -> list[Measurement]:
    rows = []
    for way, cost in ((LiveContextOverlay, context_cost), (LiveResubscribingOverlay, resubscribe_cost)):
        name = f"{topology}: {way.NAME}"
        rows += [
            Measurement(name, cost.messages, "messages a change"),
            Measurement(name, cost.seconds * 1e6, "us"),
        ]
    what = f"{topology}: {LiveResubscribingOverlay.NAME} / {LiveContextOverlay.NAME}"
    return [
        *rows,
        Measurement(f"{what}, messages", resubscribe_cost.messages / context_cost.messages, "times", "5"),
        Measurement(f"{what}, time", resubscribe_cost.seconds / context_cost.seconds, "times", "5"),
    ]


def _cost(way: "type[LiveContextOverlay]", topology: Topology, size: LiveOverlaySize, changes: int) -> LiveMoveCost:
    with ChildProcesses() as children:
        return asyncio.run(_measure_moves(way, start_all(children, topology), size, changes))


async def _measure_moves(
    way: "type[LiveContextOverlay]", brokers: dict[str, StartedBroker], size: LiveOverlaySize, changes: int
) -> LiveMoveCost:
    """Count messages and measure time in separate rounds, since checking that a change took effect sends messages
    too."""
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
        await network.await_move(places[-1])
        return LiveMoveCost((time.monotonic() - begin) / changes, sent / changes)


class LiveContextOverlay:
    """An overlay whose subscribers set their context when they move."""

    NAME = "set_context"

    def __init__(self, brokers: dict[str, StartedBroker], size: LiveOverlaySize, stack: AsyncExitStack) -> None:
        self._brokers, self._size, self._stack = brokers, size, stack
        self._publishers: list[Client] = []
        self._subscribers: dict[str, Client] = {}
        self._firsts: dict[str, ClientSubscription] = {}  # the first subscription of each subscriber

    async def begin(self) -> None:
        """Connect the clients, advertise and subscribe."""
        for name, broker in self._brokers.items():
            self._publishers.append(await self._connect(broker, f"publisher at {name}"))
        await self._settle()
        for publisher in self._publishers:
            await self._advertise(publisher)
        await self._settle()
        home = list(self._brokers.values())[-1]
        for place in moving_workload.everyone(self._size.subscribers).to_pylist():
            client = self._subscribers[place["client"]] = await self._connect(home, place["client"])
            await self._start_client(client, place)

    async def move(self, place: Place) -> None:
        """Move a subscriber to a position."""
        await self._move(self._subscribers[place["client"]], place)

    async def await_move(self, place: Place) -> None:
        """Wait until a subscriber's move has taken effect: until it gets an event that the first broker publishes at
        its position.

        Links keep the order of changes, so all earlier moves have taken effect too.
        """
        async with asyncio.timeout(_PATIENCE):
            notifications: list[Any] = []
            while not notifications:
                await self._publish(self._publishers[0], {"kind": _kind(0)}, {"x": place["x"], "y": place["y"]})
                notifications = await self._firsts[place["client"]].take(timeout=_AGAIN)

    async def messages(self) -> int:
        """Return how many messages were sent over links, once none is sent any more."""
        before, sent = -1, await self._count_sent()
        while sent != before:
            await asyncio.sleep(_QUIET)
            before, sent = sent, await self._count_sent()
        return sent

    async def _connect(self, broker: StartedBroker, name: str) -> Client:
        return await self._stack.enter_async_context(connect(broker.address, name=name))

    async def _settle(self) -> None:
        """Wait until each broker knows all others and has settled."""
        async with asyncio.timeout(_PATIENCE):
            for publisher in self._publishers:
                while not await self._is_settled(publisher):
                    await asyncio.sleep(_AGAIN)

    async def _is_settled(self, publisher: Client) -> bool:
        status = await publisher.ask("status")
        return bool(status["settled"]) and len(status["brokers"]) == len(self._brokers)

    async def _count_sent(self) -> int:
        stats = [await publisher.ask("stats") for publisher in self._publishers]
        return sum(link["sent"] for answer in stats for link in answer["links"].values())

    async def _advertise(self, publisher: Client) -> None:
        await publisher.advertise("kind like 'k%'", publisher_context=("x", "y"))

    async def _publish(self, publisher: Client, attributes: dict[str, Any], position: dict[str, float]) -> None:
        await publisher.set_context(position)
        await publisher.publish(attributes, safe="accepted")

    async def _start_client(self, client: Client, place: Place) -> None:
        await self._move(client, place)
        await self._subscribe(client, moving_workload.BOX)

    async def _move(self, client: Client, place: Place) -> None:
        await client.set_context(x=place["x"], y=place["y"])

    async def _subscribe(self, client: Client, publishers: str | None, and_more: str = "") -> None:
        subscriptions = [
            client.subscribe(f"kind = '{_kind(number)}'{and_more}", publishers=publishers, id=_id(client, number))
            for number in range(self._size.subscriptions)
        ]
        self._firsts[client.name] = subscriptions[0]
        await asyncio.gather(*(_await_subscription(subscription) for subscription in subscriptions))


class LiveResubscribingOverlay(LiveContextOverlay):
    """An overlay whose subscribers write their position into their subscriptions, and re-subscribe when they move."""

    NAME = "subscribe anew"

    async def _advertise(self, publisher: Client) -> None:
        await publisher.advertise("kind like 'k%' and x >= 0 and y >= 0")

    async def _publish(self, publisher: Client, attributes: dict[str, Any], position: dict[str, float]) -> None:
        await publisher.publish(attributes | position, safe="accepted")

    async def _start_client(self, client: Client, place: Place) -> None:
        await self._subscribe(client, None, f" and {moving_workload.box(place['x'], place['y'])}")

    async def _move(self, client: Client, place: Place) -> None:
        await asyncio.gather(*(client.unsubscribe(_id(client, number)) for number in range(self._size.subscriptions)))
        await self._start_client(client, place)


async def _await_subscription(subscription: ClientSubscription) -> None:
    await subscription


def _kind(number: int) -> str:
    return f"k{number}"


def _id(client: Client, number: int) -> str:
    return f"{client.name} s{number}"

"""One program for every client: a hub's, a broker's (asynchronous and synchronous), and the simulator's.

mypy checks that each follows `td.ClientApi`; these tests, that the same calls have the same results.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

import pytest

import tidings as td
from tests.broker.cases import run
from tests.limits import PATIENCE
from tidings.client import Client, SyncClient, connect, connect_sync
from tidings.client.api import Answer, ContextApi, GovernanceApi, Handle, PublishingApi, SubscribingApi
from tidings.hub.client import HubClient
from tidings.simulation import World
from tidings.simulation.client import SimulatedClient
from tidings.simulation.topologies import line
from tidings.testing import BrokerThread, broker

_Value = TypeVar("_Value")
PORTS = (ContextApi, PublishingApi, SubscribingApi, GovernanceApi)


class Pair(NamedTuple):
    """Two clients of the same kind, and how the first one's notifications are taken."""

    car: td.ClientApi
    camera: td.ClientApi
    taken: Callable[[Any, int], Answer[list[td.Notification]]]


def of_simulator() -> Iterator[Pair]:
    world = World(line(1), seed=1)
    car: SimulatedClient = world.client("car", "b1")

    def taken(_: Handle, count: int) -> list[td.Notification]:
        world.settle()
        return car.notifications[:count]

    yield Pair(car, world.client("camera", "b1"), taken)


def of_hub() -> Iterator[Pair]:
    with td.Hub() as hub:
        car: HubClient = hub.client("car")
        yield Pair(car, hub.client("camera"), lambda subscription, count: subscription.take(count, PATIENCE))


def of_synchronous_client() -> Iterator[Pair]:
    with (
        broker() as thread,
        connect_sync(thread.address, "car") as car,
        connect_sync(thread.address, "camera") as other,
    ):
        clients: tuple[SyncClient, SyncClient] = car, other
        yield Pair(*clients, lambda subscription, count: subscription.take(count, PATIENCE))


@contextmanager
def _connected(thread: BrokerThread) -> Iterator[tuple[SyncClient, SyncClient]]:
    with connect_sync(thread.address, "car") as car, connect_sync(thread.address, "camera") as camera:
        yield car, camera


@asynccontextmanager
async def of_client() -> AsyncIterator[Pair]:
    thread = await asyncio.to_thread(_started)
    try:
        async with connect(thread.address, "car") as car, connect(thread.address, "camera") as camera:
            clients: tuple[Client, Client] = car, camera
            yield Pair(*clients, lambda subscription, count: subscription.take(count, PATIENCE))
    finally:
        await asyncio.to_thread(thread.__exit__, None, None, None)


def _started() -> BrokerThread:
    return BrokerThread().__enter__()


def _as_asynchronous(pairs: Callable[[], Iterator[Pair]]) -> Callable[[], AbstractAsyncContextManager[Pair]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Pair]:
        for pair in pairs():
            yield pair

    return opened


CLIENTS: Mapping[str, Callable[[], AbstractAsyncContextManager[Pair]]] = {
    "hub": _as_asynchronous(of_hub),
    "simulator": _as_asynchronous(of_simulator),
    "broker": of_client,
    "broker, synchronous": _as_asynchronous(of_synchronous_client),
}
each_client = pytest.mark.parametrize("opened", CLIENTS.values(), ids=CLIENTS.keys())


async def result(answer: Answer[_Value]) -> _Value:
    """The result of a call, awaited if the client is asynchronous."""
    if inspect.isawaitable(answer):
        value: _Value = await answer
        return value
    return answer


@each_client
def test_the_same_calls_have_the_same_results(opened: Callable[[], AbstractAsyncContextManager[Pair]]) -> None:
    async def scenario() -> None:
        async with opened() as (car, camera, taken):
            _connect(car, camera)
            assert (car.name, camera.name) == ("car", "camera")
            await result(car.set_context(x=1.0, role="driver"))
            await result(car.set_context({"role": None}, merge=True))
            assert car.context == {"x": 1.0}
            loop = td.Schema("Loop", {"li": int, "lo": str})
            assert await result(camera.schema(loop)) == loop
            advertisement = await result(camera.advertise("n > 0", subscriber_context=["x"], id="offers"))
            assert advertisement.id == "offers"
            subscription = await result(car.subscribe("n > 1", id="wanted"))
            assert subscription.id == "wanted"
            receipts = [await result(camera.publish({"n": n}, subscribers="x < 5")) for n in (1, 2, 3)]
            assert [receipt.event.sequence for receipt in receipts] == [1, 2, 3]
            notifications = await result(taken(subscription, 2))
            assert notifications[0].attributes == {"n": 2}
            (low,) = await result(car.explain({"n": 1}))
            (high,) = await result(car.explain({"n": 9}))
            assert (low.delivered, low.step, high.delivered) == (False, "content", True)
            (finding,) = await result(camera.set_policy("offers", td.policies.trim()))
            assert "TrimAttributes() goes by a subscription" in finding
            await result(car.unsubscribe("wanted"))
            assert await result(car.explain({"n": 9})) == []
            await result(camera.unadvertise("offers"))

    run(scenario())


def _connect(*clients: td.ClientApi) -> None:
    """Clients of a broker and of a hub are connected already; those of the simulator connect when they are told to."""
    for client in clients:
        if isinstance(client, SimulatedClient):
            client.connect()


def test_a_port_has_at_most_eight_members_and_the_whole_at_most_twelve() -> None:
    def members(protocol: type) -> set[str]:
        return {name for name in dir(protocol) if not name.startswith("_")}

    assert max(len(members(port)) for port in PORTS) <= 8
    assert len(members(td.ClientApi)) <= 12
    for kind in (Client, SyncClient, HubClient, SimulatedClient):
        assert members(td.ClientApi) <= {*dir(kind), "name"}

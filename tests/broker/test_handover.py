"""What waits for a client that has moved follows it, also what an earlier connection took along; and wherever it goes,
it is told by the context that it has."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import address, run, running, until
from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.client import Client, connect


def _broker(name: str, folder: Path, link: dict[str, Any]) -> Broker:
    tables = {
        "broker": {"name": name, "listen": "127.0.0.1:0"},
        "journal": {"folder": str(folder / name)},
        "links": [link],
    }
    return Broker(BrokerConfiguration.from_values(tables))


async def _settled(*brokers: Broker) -> None:
    async with asyncio.timeout(60):
        while not all(one.is_settled and len(one.node.engine.topology.brokers) == 2 for one in brokers):
            await asyncio.sleep(0.01)


def test_what_a_program_was_told_and_has_not_acknowledged_is_told_to_the_next_one_at_another_broker(
    tmp_path: Path,
) -> None:
    asyncio.run(_moved(tmp_path))


async def _moved(folder: Path) -> None:
    first = _broker("b1", folder, {"broker": "b2"})
    here = f"tidings://{await first.start()}"
    second = _broker("b2", folder, {"broker": "b1", "address": str(first.address)})
    there = f"tidings://{await second.start()}"
    await _settled(first, second)
    async with connect(here, "publisher") as publisher:
        await publisher.advertise("n > 0")
        async with connect(here, "c") as client, client.subscribe("n > 0", durable="all") as subscription:
            await publisher.publish({"n": 1})
            (told,) = await subscription.take(timeout=60)
            await _settled(first, second)
        async with connect(there, "c") as client, client.subscribe("n > 0", durable="all") as subscription:
            assert [note.event.id for note in await subscription.take(timeout=60)] == [told.event.id]
            await subscription.acknowledge(told)
            await _settled(first, second)
    await second.stop()
    await first.stop()


_SAME_X = "x = this.x"


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
def test_a_program_that_begins_anew_at_another_broker_keeps_the_context_of_its_client(
    tmp_path: Path, strategy: str
) -> None:
    assert run(_begins_anew(tmp_path, strategy, said=None)) == [1]


def test_an_empty_context_that_a_program_sets_at_another_broker_is_its_context(tmp_path: Path) -> None:
    assert run(_begins_anew(tmp_path, "advertisement", said={})) == []


async def _begins_anew(folder: Path, strategy: str, said: dict[str, int] | None) -> list[Any]:
    """What a durable subscription by context is told, when its program ends at one broker and begins at another."""
    async with AsyncExitStack() as stack:
        b1, b2 = await _two_brokers(stack, folder, strategy)
        unit = await _publisher(stack, b1)
        async with td.connect(address(b2), "van") as van:
            await van.set_context(x=2)
            await van.subscribe("", publishers=_SAME_X, durable="all")
        await _settled(b1, b2)
        again = await stack.enter_async_context(td.connect(address(b1), "van"))
        if said is not None:
            await again.set_context(said)
        events = await again.subscribe("", publishers=_SAME_X, durable="all")
        await _settled(b1, b2)
        await unit.publish({"n": 1}, safe="settled")
        await again.ask("status")  # behind every notification so far
        return [note.attributes["n"] for note in await events.take()]


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
def test_a_client_that_moves_away_and_back_with_one_context_is_notified_by_it(tmp_path: Path, strategy: str) -> None:
    assert run(_moves_back(tmp_path, strategy)) == [1]


async def _moves_back(folder: Path, strategy: str) -> list[Any]:
    async with AsyncExitStack() as stack:
        b1, b2 = await _two_brokers(stack, folder, strategy)
        unit = await _publisher(stack, b1)
        van = await stack.enter_async_context(td.connect(address(b1), "van"))
        await van.set_context(x=2)
        events = await van.subscribe("", publishers=_SAME_X, durable="all")
        for broker in (b2, b1):
            await van.move(address(broker))
            await _settled(b1, b2)
        await unit.publish({"n": 1}, safe="settled")
        await van.ask("status")  # behind every notification so far
        return [note.attributes["n"] for note in await events.take()]


async def _two_brokers(stack: AsyncExitStack, folder: Path, strategy: str) -> tuple[Broker, Broker]:
    """Brokers b1 and b2, linked, with complete tables."""
    b1 = await stack.enter_async_context(_of_ring(folder, strategy, "b1", {"broker": "b2"}))
    to_b1 = {"broker": "b1", "address": str(b1.address)}
    b2 = await stack.enter_async_context(_of_ring(folder, strategy, "b2", to_b1))
    await _settled(b1, b2)
    return b1, b2


async def _publisher(stack: AsyncExitStack, broker: Broker) -> Client:
    """A client `unit` in the context x = 2 that may publish everything."""
    unit = await stack.enter_async_context(td.connect(address(broker), "unit"))
    await unit.set_context(x=2)
    await unit.advertise("")
    return unit


_UNSETTLED = {"settling_ms": 1_000}  # so long tables are not made anew when a broker is gone: the client is quicker


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
def test_a_client_whose_broker_stops_is_told_by_its_new_context_where_it_goes(tmp_path: Path, strategy: str) -> None:
    run(_broker_stops(tmp_path, strategy))


async def _broker_stops(folder: Path, strategy: str) -> None:
    async with AsyncExitStack() as others:
        b1 = await others.enter_async_context(_of_ring(folder, strategy, "b1", {"broker": "b2"}, {"broker": "b3"}))
        to_b1 = {"broker": "b1", "address": str(b1.address)}
        async with _of_ring(folder, strategy, "b2", to_b1, {"broker": "b3"}) as b2:
            to_b2 = {"broker": "b2", "address": str(b2.address)}
            b3 = await others.enter_async_context(_of_ring(folder, strategy, "b3", to_b1, to_b2))
            await until(lambda: all(_is_settled(one, 3) for one in (b1, b2, b3)))
            unit = await others.enter_async_context(td.connect(address(b1), "unit"))
            van = await others.enter_async_context(td.connect([address(b2), address(b3)], "van"))
            await unit.set_context(lat=48.1)
            await unit.advertise("kind = 'alert'", publisher_context=["lat"])
            await van.set_context(lat=49.0)
            near = "lat between this.lat - 0.01 and this.lat + 0.01"
            alerts = await van.subscribe("kind = 'alert'", publishers=near, durable="alerts")
            await until(lambda: all(_is_settled(one, 3) for one in (b1, b2, b3)))
        await until(lambda: van.is_connected and van.broker == "b3")
        await until(lambda: _is_settled(b1, 2) and _is_settled(b3, 2))
        await van.set_context(lat=48.101)
        await until(lambda: _is_settled(b1, 2) and _is_settled(b3, 2))
        await unit.publish({"kind": "alert"}, safe="settled")
        assert [dict(note.attributes) for note in await alerts.take(timeout=20)] == [{"kind": "alert"}]
        assert [one.hop for one in b1.node.engine.state.filters.subscriptions] == ["b3"]


def _of_ring(folder: Path, strategy: str, name: str, *links: dict[str, Any]) -> AbstractAsyncContextManager[Broker]:
    journal = {"folder": str(folder / name)}
    return running(name, broker={"strategy": strategy, **_UNSETTLED}, journal=journal, links=list(links))


def _is_settled(broker: Broker, brokers: int) -> bool:
    """Whether a broker has complete tables of an overlay of so many."""
    return broker.is_settled and len(broker.node.engine.topology.brokers) == brokers


@pytest.mark.parametrize("strategy", ["advertisement", "asf", "gsf", "spcf"])
def test_what_waits_follows_a_client_that_moves_on_before_it_was_handed_over(tmp_path: Path, strategy: str) -> None:
    """The first broker went on sending the backlog to the second one, which did not have the subscription."""
    run(_moves_on(tmp_path, strategy))


async def _moves_on(folder: Path, strategy: str) -> None:
    async with AsyncExitStack() as stack:
        b1 = await stack.enter_async_context(_of_ring(folder, strategy, "b1", {"broker": "b2"}, {"broker": "b3"}))
        to_b1 = {"broker": "b1", "address": str(b1.address)}
        b2 = await stack.enter_async_context(_of_ring(folder, strategy, "b2", to_b1))
        b3 = await stack.enter_async_context(_of_ring(folder, strategy, "b3", to_b1))
        await until(lambda: all(_is_settled(broker, 3) for broker in (b1, b2, b3)))
        unit = await _publisher(stack, b1)
        async with td.connect(address(b1), "van") as van:
            events = await van.subscribe("", durable="all")
            await unit.publish({"n": 1}, safe="settled")
            await events.take(timeout=20)
        async with td.connect(address(b2), "van") as van:  # b2 stores nothing of a subscription that it does not have
            await van.subscribe("n < 0", durable="other")
            await until(lambda: b1.parts.handover.pending_clients == ["van"])
        van = await stack.enter_async_context(td.connect(address(b3), "van"))
        events = await van.subscribe("", durable="all")
        assert [note.attributes["n"] for note in await events.take(timeout=20)] == [1]
        await until(lambda: all(_is_settled(broker, 3) for broker in (b1, b2, b3)))

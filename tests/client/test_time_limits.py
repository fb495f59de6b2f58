"""Every wait of a client ends: by its time limit, by an error, or by a close."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until
from tidings.broker.broker import Broker
from tidings.client import Client, ClientSubscription, SyncSubscription
from tidings.model.errors import ClosedError, InvalidValueError, RequestTimeoutError, TidingsError
from tidings.testing import BrokerThread

SOON = 0.05  # seconds: a time limit that is to be over
SECONDS = 60  # against hanging for ever
ID = td.uuid7(1_700_000_000_000_000, bytes(10))  # of an event


@asynccontextmanager
async def abandoned(**given: Any) -> Any:
    """A client and a durable and a fleeting subscription of it, without the broker that it was connected to."""
    async with running() as broker:
        client = connect(broker, "car-1", **given)
        await client.__aenter__()
        durable, fleeting = await client.subscribe("", durable="all"), await client.subscribe("n = 1")
    await until(lambda: not client.is_connected)
    try:
        yield client, durable, fleeting
    finally:
        await client.close()


Request = Callable[[Client, ClientSubscription, Any], Awaitable[Any]]

REQUESTS: dict[str, Request] = {
    "publish": lambda client, _, limit: client.publish({"n": 1}, timeout=limit),
    "publish_many": lambda client, _, limit: client.publish_many([{"n": 1}], timeout=limit),
    "set_context": lambda client, _, limit: client.set_context(x=1, timeout=limit),
    "set_context of another": lambda client, _, limit: client.set_context({"x": 1}, of="car-2", timeout=limit),
    "let_set_context": lambda client, _, limit: client.let_set_context("gps", timeout=limit),
    "advertise": lambda client, _, limit: client.advertise("n = 1", timeout=limit),
    "unadvertise": lambda client, _, limit: client.unadvertise("offer", timeout=limit),
    "subscribe": lambda client, _, limit: client.subscribe("n = 1", timeout=limit),
    "unsubscribe": lambda client, held, limit: client.unsubscribe(held, timeout=limit),
    "unsubscribe of a subscription": lambda _, held, limit: held.unsubscribe(timeout=limit),
    "set_policy": lambda client, held, limit: client.set_policy(held, None, timeout=limit),
    "schema to define": lambda client, _, limit: client.schema(td.Schema("Loop", {"li": int}), timeout=limit),
    "schema to read": lambda client, _, limit: client.schema("Loop", timeout=limit),
    "topics": lambda client, _, limit: client.topics(timeout=limit),
    "explain": lambda client, held, limit: client.explain({"n": 1}, held, timeout=limit),
    "replay": lambda client, _, limit: anext(client.replay(timeout=limit)),
    "replay of a subscription": lambda _, held, limit: anext(held.replay(timeout=limit)),
    "ask": lambda client, _, limit: client.ask("status", timeout=limit),
    "move": lambda client, _, limit: client.move("tidings://127.0.0.1:1", timeout=limit),
    "until_closed": lambda client, _, limit: client.until_closed(timeout=limit),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_ends_by_its_time_limit_while_the_broker_is_away(name: str) -> None:
    async def scenario() -> None:
        async with abandoned() as (client, durable, _):
            told = "the client is not closed" if name == "until_closed" else "may still be carried out"
            with pytest.raises(RequestTimeoutError, match=told):
                await REQUESTS[name](client, durable, SOON)

    run(scenario())


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - {"until_closed"}))
def test_a_request_that_has_no_limit_ends_by_that_of_the_client(name: str) -> None:
    async def scenario() -> None:
        async with abandoned(timeout=SOON) as (client, durable, _):
            with pytest.raises(RequestTimeoutError):
                await REQUESTS[name](client, durable, None)

    run(scenario())


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_without_any_limit_ends_when_the_client_is_closed(name: str) -> None:
    async def scenario() -> None:
        async with abandoned() as (client, durable, _):
            waiting = asyncio.ensure_future(REQUESTS[name](client, durable, None))
            await asyncio.sleep(0)
            await client.close()
            if name == "until_closed":
                await waiting
                return
            with pytest.raises(ClosedError):
                await waiting

    run(scenario())


def test_publish_soon_and_acknowledge_end_by_their_time_limit_where_there_is_no_room() -> None:
    async def scenario() -> None:
        async with abandoned() as (client, durable, _):
            while not client.session.is_full:
                (await client.publish_soon({"n": 1}, safe="accepted", timeout=SOON)).cancel()
            with pytest.raises(RequestTimeoutError, match="the event is not published"):
                await client.publish_soon({"n": 1}, timeout=SOON)
            with pytest.raises(RequestTimeoutError):
                await durable.acknowledge(ID, timeout=SOON)
            with pytest.raises(RequestTimeoutError):
                await durable.acknowledge_all(timeout=SOON)

    run(scenario())


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_a_time_limit_is_seconds_from_zero_on(timeout: Any) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            for request in (car.publish({"n": 1}, timeout=timeout), car.topics(timeout=timeout)):
                with pytest.raises(InvalidValueError, match="timeout"):
                    await request
            with pytest.raises(InvalidValueError, match="timeout"):
                connect(broker, "car-2", timeout=timeout)

    run(scenario())


def test_a_request_with_a_wrong_time_limit_changes_nothing() -> None:
    wrong: Any = "soon"

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            offer = await car.advertise("n = 1")
            fleeting, durable = await car.subscribe("n = 1"), await car.subscribe("n = 2", durable="all")
            for request in (
                car.set_context(x=1, timeout=wrong),
                car.unadvertise(offer, timeout=wrong),
                fleeting.unsubscribe(timeout=wrong),
                fleeting.close(timeout=wrong),
                durable.acknowledge(ID, timeout=wrong),
            ):
                with pytest.raises(InvalidValueError, match="timeout"):
                    await request
            assert not car.context
            assert not fleeting.closed
            broker.sessions["car-1"].connection.abort("cut off by the test")
            await until(lambda: car.state.connections == 2)
            assert [one["id"] for one in (await car.topics())["advertisements"]] == [offer.id]
            await car.publish({"n": 1})
            assert len(await fleeting.take(timeout=SECONDS)) == 1

    run(scenario())


@pytest.mark.parametrize("patience", [-1, float("nan"), "long", None])
def test_patience_is_seconds_from_zero_on(patience: Any) -> None:
    with pytest.raises(InvalidValueError, match="patience: seconds from 0 on"):
        td.connect("tidings://127.0.0.1:1", "car-1", patience=patience)


def test_a_request_that_is_answered_in_time_does_not_feel_its_limit() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1", timeout=SECONDS) as car:
            held = await car.subscribe("n = 1", timeout=SECONDS)
            assert (await car.publish({"n": 1}, timeout=SECONDS)).event.sequence == 1
            assert len(await held.take(timeout=SECONDS)) == 1
            await held.close(timeout=SECONDS)
            assert broker.node.registry.count("car-1") == 0

    run(scenario())


def test_requests_whose_callers_wait_no_more_are_not_kept_and_not_sent_again() -> None:
    async def scenario() -> None:
        async with running() as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            where = {"listen": str(broker.address)}
        await until(lambda: not car.is_connected)
        for _ in range(3):
            with pytest.raises(RequestTimeoutError):
                await car.subscribe("n = 1", timeout=SOON)
            with pytest.raises(RequestTimeoutError):
                await car.advertise("n = 1", timeout=SOON)
        assert not car.session.in_flight.requests
        async with running(broker=where) as again:
            await until(lambda: car.is_connected)
            assert not (await car.topics())["advertisements"]
            assert again.node.registry.count("car-1") == 0
            await car.close()

    run(scenario())


def test_a_publication_whose_caller_waits_no_more_is_published_under_its_id_once() -> None:
    async def scenario() -> None:
        async with running() as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            where = {"listen": str(broker.address)}
        await until(lambda: not car.is_connected)
        with pytest.raises(RequestTimeoutError):
            await car.publish({"n": 1}, id=ID, timeout=SOON)
        async with running(broker=where):
            with pytest.raises(td.PublishedBeforeError):
                await car.publish({"n": 1}, id=ID)
            await car.close()

    run(scenario())


# Closing


def test_a_subscription_is_closed_at_once_while_the_broker_is_away() -> None:
    async def scenario() -> None:
        async with abandoned() as (client, durable, fleeting):
            await fleeting.close()
            await durable.close()
            assert fleeting.closed
            assert durable.closed
            assert not client.subscriptions()

    run(scenario(), seconds=SECONDS)


def test_a_subscription_that_was_closed_while_the_broker_was_away_does_not_come_back() -> None:
    async def scenario() -> None:
        async with running() as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            first, second = await car.subscribe("n = 1"), await car.subscribe("n = 2")
            where = {"listen": str(broker.address)}
        await until(lambda: not car.is_connected)
        await first.close()
        async with running(broker=where) as again:
            await until(lambda: again.node.registry.count("car-1") == 1)
            await car.topics()
            assert [one.id for one in again.node.registry.subscriptions_of("car-1")] == [second.id]
            await car.close()

    run(scenario())


def test_a_subscription_that_is_closed_while_it_begins_has_ended_at_the_broker() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = car.subscribe("n = 1")
            beginning = asyncio.ensure_future(held)
            await asyncio.sleep(0)
            await held.close()
            await beginning
            await car.topics()
            assert broker.node.registry.count("car-1") == 0

    run(scenario())


def test_the_broker_is_waited_for_no_longer_than_said_when_a_subscription_is_closed() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("n = 1")
            broker.sessions["car-1"].connection.flow.set_reading(False)  # it is there, and does not answer
            await held.close(timeout=SOON)
            assert held.closed
            broker.sessions["car-1"].connection.flow.set_reading(True)
            await until(lambda: broker.node.registry.count("car-1") == 0)

    run(scenario())


# Taking after the end


async def ended_by_the_broker(broker: Broker) -> tuple[Client, ClientSubscription]:
    """Another program has connected under its name; one notification waits."""
    car = connect(broker, "car-1")
    await car.__aenter__()
    held = await car.subscribe("n = 1")
    await car.publish({"n": 1})
    await until(lambda: held.waiting == 1)
    other = connect(broker, "car-1")
    await other.__aenter__()
    await until(lambda: held.closed)
    await other.close()
    return car, held


@pytest.mark.parametrize("timeout", [0, SOON, None])
def test_take_gives_out_what_has_come_and_then_says_why_no_more_comes(timeout: float | None) -> None:
    async def scenario() -> None:
        async with running() as broker:
            car, held = await ended_by_the_broker(broker)
            assert len(await held.take(timeout=timeout)) == 1
            for _ in range(2):
                with pytest.raises(ClosedError, match="another program has connected"):
                    await held.take(timeout=timeout)
            with pytest.raises(ClosedError, match="another program has connected"):
                await anext(held)
            await car.close()

    run(scenario(), seconds=SECONDS)


@pytest.mark.parametrize("timeout", [0, SOON, None])
def test_take_after_a_close_raises_and_iteration_ends(timeout: float | None) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("n = 1")
            await car.publish({"n": 1})
            await until(lambda: held.waiting == 1)
            await held.close()
            assert len(await held.take(timeout=timeout)) == 1
            with pytest.raises(ClosedError, match="is closed"):
                await held.take(timeout=timeout)
            assert [note async for note in held] == []

    run(scenario(), seconds=SECONDS)


def test_who_waits_for_a_notification_is_told_when_the_subscription_is_closed() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("n = 1")
            taking = asyncio.ensure_future(held.take(timeout=None))
            await asyncio.sleep(0)
            await held.close()
            with pytest.raises(ClosedError):
                await taking

    run(scenario(), seconds=SECONDS)


# The synchronous client


def within(action: Callable[[], Any]) -> Any:
    """What an action returns or raises, in a thread; it must end."""
    outcome: list[Any] = []

    def act() -> None:
        try:
            outcome.append(action())
        except TidingsError as error:
            outcome.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert outcome, "it waits"
    return outcome[0]


def test_the_synchronous_client_waits_no_longer_either() -> None:
    with BrokerThread() as served:
        car = td.connect_sync(served.address, "car-1")
        durable, fleeting = car.subscribe("", durable="all"), car.subscribe("n = 1")
        served.stop()
        requests: list[Callable[[], Any]] = [
            lambda: car.publish({"n": 1}, timeout=SOON),
            lambda: car.publish_many([{"n": 1}], timeout=SOON),
            lambda: car.set_context(x=1, timeout=SOON),
            lambda: car.subscribe("n = 1", timeout=SOON),
            lambda: car.unsubscribe(durable, timeout=SOON),
            lambda: durable.unsubscribe(timeout=SOON),
            lambda: car.set_policy(durable, None, timeout=SOON),
            lambda: car.explain({"n": 1}, timeout=SOON),
            lambda: list(car.replay(timeout=SOON)),
            lambda: list(durable.replay(timeout=SOON)),
            lambda: car.ask("status", timeout=SOON),
            lambda: car.until_closed(timeout=SOON),
        ]
        while car.is_connected:
            threading.Event().wait(0.01)
        for request in requests:
            assert isinstance(within(request), RequestTimeoutError)
        assert within(fleeting.close) is None
        assert within(car.close) is None


def test_what_waits_can_be_taken_after_the_synchronous_client_was_closed() -> None:
    with BrokerThread() as served:
        car = td.connect_sync(served.address, "car-1")
        held = car.subscribe("n = 1")
        car.publish_many([{"n": 1}, {"n": 1}, {"n": 1}])
        while held.waiting < 3:
            threading.Event().wait(0.01)
        car.close()
        assert len(within(lambda: held.take(1, timeout=None))) == 1
        assert len(within(lambda: list(held))) == 2
        assert isinstance(within(lambda: held.take(timeout=None)), ClosedError)
        assert within(lambda: list(held.listen(timeout=None))) == []
        assert within(held.close) is None


def test_the_synchronous_client_is_told_why_the_broker_has_ended_it() -> None:
    with BrokerThread() as served:
        car = td.connect_sync(served.address, "car-1")
        held: SyncSubscription = car.subscribe("n = 1")
        with td.connect_sync(served.address, "car-1"):
            for wait in (lambda: held.take(timeout=None), lambda: list(held), lambda: held.take(timeout=1)):
                error = within(wait)
                assert isinstance(error, ClosedError)
                assert "another program has connected" in str(error)
        assert within(car.close) is None

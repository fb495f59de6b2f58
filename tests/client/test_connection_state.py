"""Programs see the state of their connection: by a function, by an iterator, and in the log."""

import asyncio
import functools
import logging
import threading
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import connect, run, running, until
from tidings.client import Client
from tidings.model.errors import ClosedError, InvalidValueError, UnreachableError
from tidings.testing import BrokerThread

SECONDS = 60


def names(states: list[td.ConnectionState]) -> list[str]:
    return [state.state for state in states]


async def collect(client: Client, states: list[td.ConnectionState]) -> None:
    async for state in client.states():
        states.append(state)


def test_a_client_announces_each_state_from_its_first_attempt_to_its_close() -> None:
    async def scenario() -> None:
        states: list[td.ConnectionState] = []
        async with running() as broker:
            car = connect(broker, "car-1", on_state=states.append)
            assert (car.state.state, car.state.connections) == ("disconnected", 0)
            await car.__aenter__()
            assert names(states) == ["connecting", "connected"]
            connected, where = states[-1], {"listen": str(broker.address)}
            assert connected is car.state
            assert (connected.broker, connected.address) == ("b1", f"tidings://{broker.address}")
            assert (connected.connections, connected.attempt, connected.reason) == (1, 0, None)
        await until(lambda: len(states) > 6)
        lost, trying, failed = states[2:5]
        assert names([lost, trying, failed]) == ["disconnected", "connecting", "disconnected"]
        assert (lost.reason, lost.attempt, lost.retry_seconds) == ("the broker stops", 0, 0.0)
        assert (trying.attempt, trying.address, trying.reason) == (1, connected.address, lost.reason)
        assert failed.reason
        assert failed.attempt == 1
        assert failed.retry_seconds is not None
        assert failed.retry_seconds > 0
        async with running(broker=where):
            await until(lambda: car.is_connected)
            assert (states[-1].state, states[-1].connections, states[-1].attempt) == ("connected", 2, 0)
            before = len(states)
            await car.close()
        assert [(one.state, one.reason) for one in states[before:]] == [("closed", "the client car-1 is closed")]

    run(scenario())


def test_a_broker_that_ends_a_client_closes_it_and_says_why() -> None:
    async def scenario() -> None:
        states: list[td.ConnectionState] = []
        async with running() as broker, connect(broker, "car-1", on_state=states.append) as car:
            async with connect(broker, "car-1"):
                with pytest.raises(ClosedError):
                    await car.until_closed(timeout=SECONDS)
            assert names(states) == ["connecting", "connected", "closed"]
            assert "another program has connected" in str(states[-1])

    run(scenario())


def test_a_client_that_moves_is_disconnected_on_its_way() -> None:
    async def scenario() -> None:
        async with running("b1") as first, running("b2") as second:
            states: list[td.ConnectionState] = []
            async with connect(first, "car-1", on_state=states.append) as car:
                await car.move(f"tidings://{second.address}")
                assert names(states[2:]) == ["disconnected", "connecting", "connected"]
                assert states[2].reason == "the client moves"
                assert states[-1].broker == "b2"

    run(scenario())


def test_a_client_that_reaches_no_broker_is_closed() -> None:
    async def scenario() -> None:
        states: list[td.ConnectionState] = []
        client = td.connect("tidings://127.0.0.1:1,tidings://127.0.0.1:2", "car-1", patience=0, on_state=states.append)
        with pytest.raises(UnreachableError):
            await client.__aenter__()
        assert names(states) == ["connecting", "disconnected", "connecting", "disconnected", "closed"]
        assert [states[0].address, states[2].address] == ["tidings://127.0.0.1:1", "tidings://127.0.0.1:2"]
        assert [one async for one in client.states()] == [states[-1]]

    run(scenario())


def test_an_iterator_begins_with_the_present_state_and_ends_with_the_client() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            states: list[td.ConnectionState] = []
            collecting = asyncio.ensure_future(collect(car, states))
            await until(lambda: names(states) == ["connected"])
            broker.sessions["car-1"].connection.abort("cut off by the test")
            await until(lambda: names(states)[-1] == "connected" and states[-1].connections == 2)
            await car.close()
            await asyncio.wait_for(collecting, SECONDS)
            assert names(states)[-1] == "closed"
            assert any(state.connections == 1 and state.reason for state in states)

    run(scenario())


def test_after_the_last_state_none_is_waited_for() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            await car.close()
            assert await asyncio.wait_for(car.state_after(car.state), SECONDS) is car.state

    run(scenario())


def test_an_iterator_that_is_slow_gets_the_latest_state_and_keeps_no_other() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            slow = aiter(car.states())
            assert (await anext(slow)).connections == 1
            for connections in range(2, 6):
                broker.sessions["car-1"].connection.abort("cut off by the test")
                await until(lambda wanted=connections: car.state.connections == wanted)  # type: ignore[misc]
            assert await anext(slow) is car.state
            waiting = asyncio.ensure_future(anext(slow))
            await asyncio.sleep(0)
            assert not waiting.done()
            await car.close()
            assert (await waiting).state == "closed"

    run(scenario())


def test_a_function_that_raises_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: td.ConnectionState) -> None:
        raise RuntimeError("it went wrong")

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1", on_state=fail) as car:
            await car.publish({"n": 1})

    run(scenario())
    assert [one.exc_info[1].args for one in caplog.records if one.exc_info] == [("it went wrong",)] * 3  # type: ignore[union-attr]


async def wait(_: td.ConnectionState) -> None:
    """Not what `on_state` takes: a call only makes a coroutine."""


class Wait:
    __call__ = staticmethod(wait)


@pytest.mark.parametrize("on_state", ["print", 1, wait, Wait(), functools.partial(wait)])
def test_a_function_that_cannot_be_called_at_once_is_refused(on_state: Any) -> None:
    with pytest.raises(InvalidValueError, match="on_state"):
        td.connect("tidings://127.0.0.1:1", "car-1", on_state=on_state)


def test_each_change_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tidings.client")

    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            broker.sessions["car-1"].connection.abort("cut off by the test")
            await until(lambda: car.state.connections == 2)

    run(scenario())
    lines = [(one.levelname, one.getMessage()) for one in caplog.records if hasattr(one, "connection_state")]
    levels = [level for level, line in lines]
    assert levels == ["DEBUG", "INFO", "WARNING", "DEBUG", "INFO", "INFO"]
    assert all(line.startswith("client car-1: ") for _, line in lines)
    assert "disconnected from b1 at tidings://127.0.0.1:" in lines[2][1]


def test_what_looks_after_the_connection_fails_and_the_client_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:

            async def fail(*_: object) -> None:
                raise RuntimeError("it went wrong")

            monkeypatch.setattr(car.session, "_try", fail)
            broker.sessions["car-1"].connection.abort("cut off by the test")
            with pytest.raises(ClosedError, match="it went wrong"):
                await car.until_closed(timeout=SECONDS)
            with pytest.raises(ClosedError, match="it went wrong"):
                await car.publish({"n": 1})

    run(scenario())


def test_the_synchronous_client_has_the_same() -> None:
    with BrokerThread() as served:
        announced: list[td.ConnectionState] = []
        car = td.connect_sync(served.address, "car-1", on_state=announced.append)
        seen: list[td.ConnectionState] = []
        thread = threading.Thread(target=lambda: seen.extend(car.states()), daemon=True)
        thread.start()
        first = car.state
        assert first.state == "connected"
        served.stop()
        lost = car.state_after(first)
        assert lost.state != "connected"
        served.start()
        while not car.is_connected:
            lost = car.state_after(lost)
        car.close()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert names(seen)[-1] == names(announced)[-1] == "closed"
        assert car.state.state == "closed"
        assert names(list(car.states())) == ["closed"]

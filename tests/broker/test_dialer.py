"""Calling neighbours: what becomes of calls that nobody answers, and of addresses that are none."""

import asyncio
import logging

import pytest

from tests.broker.cases import configuration, run, running, until
from tidings.broker.broker import Broker


def test_a_call_that_is_not_answered_is_hung_up() -> None:
    async def scenario() -> None:
        called: list[asyncio.StreamReader] = []
        ended = 0

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal ended
            called.append(reader)
            try:
                while await reader.read(1024):
                    pass
            except ConnectionResetError:
                pass
            ended += 1
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        links = [{"broker": "b2", "address": f"127.0.0.1:{port}"}]
        async with server, running(links=links, limits={"handshake_seconds": 0.05}):
            await until(lambda: len(called) >= 3)
            await until(lambda: ended >= 2)
        await until(lambda: ended == len(called))  # the last one is not left behind either

    run(scenario())


def test_a_neighbour_whose_host_cannot_be_is_called_in_vain_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with caplog.at_level(logging.INFO, "tidings.broker"):
            async with running(links=[{"broker": "b2", "address": "a..b:7450"}]) as broker:
                await until(lambda: "b2 cannot be reached" in caplog.text)
                [dialler] = broker.parts.links.dialers.values()
                assert dialler.is_dialing

    run(scenario())


def test_a_broker_that_is_aborted_calls_nobody_any_more() -> None:
    async def scenario() -> None:
        broker = Broker(configuration("b1", links=[{"broker": "b2", "address": "127.0.0.1:1"}]))
        await broker.start()
        [dialler] = broker.parts.links.dialers.values()
        assert dialler.is_dialing
        await broker.abort()
        assert not dialler.is_dialing

    run(scenario())

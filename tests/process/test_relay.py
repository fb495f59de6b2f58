"""The relay of the process tests: it passes what it is given, and is a bad network when it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.process.relay import Relay

_ENDED = (ConnectionResetError, asyncio.IncompleteReadError)


@asynccontextmanager
async def _echoed() -> AsyncIterator[tuple[Relay, asyncio.StreamReader, asyncio.StreamWriter]]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    relay = Relay()
    host, _, port = (await relay.open(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield relay, reader, writer
    finally:
        writer.close()
        await relay.close()
        server.close()


def test_a_relay_passes_bytes_and_holds_them_back_while_it_is_silent() -> None:
    async def played() -> None:
        async with _echoed() as (relay, reader, writer):
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            relay.silence()
            writer.write(b"two")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.readexactly(3)
            relay.heal()
            assert await reader.readexactly(3) == b"two"

    asyncio.run(played())


def test_a_relay_that_is_cut_ends_connections_and_lets_none_through_until_it_is_healed() -> None:
    async def played() -> None:
        async with _echoed() as (relay, reader, _):
            relay.cut()
            with pytest.raises(_ENDED):
                await reader.readexactly(1)
            host, _, port = relay.address.rpartition(":")
            again, writer = await asyncio.open_connection(host, int(port))
            with pytest.raises(_ENDED):
                await again.readexactly(1)
            writer.close()
            relay.heal()
            again, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"here")
            assert await again.readexactly(4) == b"here"
            writer.close()

    asyncio.run(played())

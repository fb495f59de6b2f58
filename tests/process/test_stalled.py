"""One of a hundred subscribers does not take what it is sent: the others are told of everything."""

import asyncio
from contextlib import AsyncExitStack

from tests.broker.running_broker import running_broker
from tidings.client import Client, connect
from tidings.client.subscription import ClientSubscription

_SUBSCRIBERS = 100
_SMALL, _LARGE = 200, 300
_PAYLOAD = bytes(64 * 1024)  # all of them together are more than sockets hold


def test_a_stalled_subscriber_costs_the_others_nothing() -> None:
    with running_broker(limits={"queue_bytes": 256 * 1024}) as address:
        asyncio.run(_played(f"tidings://{address}"))


async def _played(address: str) -> None:
    async with AsyncExitStack() as stack:

        async def client(name: str) -> Client:
            return await stack.enter_async_context(connect(address, name))

        stalled = await (await client("stalled")).subscribe("n > 0", limit=1)
        others: list[ClientSubscription] = [
            await (await client(f"s{number}")).subscribe("n > 0 and size = 'small'")
            for number in range(1, _SUBSCRIBERS)
        ]
        publisher = await client("publisher")
        for number in range(1, _LARGE + 1):
            await publisher.publish({"n": number, "size": "large"}, payload=_PAYLOAD, safe="accepted")
            if number <= _SMALL:
                await publisher.publish({"n": number, "size": "small"}, safe="accepted")
        for one in others:
            told: list[object] = []
            while len(told) < _SMALL and (taken := await one.take(timeout=60)):
                told += [int(note.attributes["n"]) for note in taken]
            assert told == list(range(1, _SMALL + 1))
            assert one.lost == 0
        while not stalled.lost and await stalled.take(timeout=60):
            pass  # it is told that it has lost something where that would have come
        assert stalled.lost > 0

"""What waits for a client that has moved follows it, also what an earlier connection took along."""

import asyncio
from pathlib import Path
from typing import Any

from tidings.client import connect
from tidings.live.broker import Broker
from tidings.live.configuration import Configuration


def _broker(name: str, folder: Path, link: dict[str, Any]) -> Broker:
    tables = {
        "broker": {"name": name, "listen": "127.0.0.1:0"},
        "journal": {"folder": str(folder / name)},
        "links": [link],
    }
    return Broker(Configuration.from_values(tables))


async def _settled(*brokers: Broker) -> None:
    async with asyncio.timeout(60):
        while not all(one.is_settled and len(one.desk.engine.topology.brokers) == 2 for one in brokers):
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

"""A broker that is killed at any moment while it writes starts again, with everything that it has acknowledged.

Its logs are closed, turned into segments and its state is written down all the time, so that kills fall into that too.
"""

import asyncio
import random
from pathlib import Path
from uuid import UUID

import pytest

from tests.limits import PATIENCE
from tests.process.forking import Forked
from tests.sizes import sized
from tidings.client import Client, connect

pytestmark = pytest.mark.process

_KILLS = sized(8, 300)
_UNDER_WAY = 16
_TINY = {"roll_bytes": 8_000, "roll_records": 40, "snapshot_rows": 5}


def test_a_broker_killed_while_it_writes_loses_nothing_that_it_has_acknowledged(tmp_path: Path) -> None:
    broker = Forked({"broker": {"name": "b1", "listen": "127.0.0.1:0"}, "journal": {"folder": str(tmp_path), **_TINY}})
    try:
        broker.start()
        asyncio.run(_Killing(broker, seed=7).play())
    finally:
        broker.close()
    assert len([*tmp_path.glob("log/*"), *tmp_path.glob("segments/*")]) > 1
    assert list(tmp_path.glob("snapshots/*"))


class _Killing:
    def __init__(self, broker: Forked, seed: int) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self._acknowledged: dict[UUID, int] = {}  # with their numbers
        self._told: list[UUID] = []
        self._order: list[int] = []
        self._is_over = False

    async def play(self) -> None:
        async with (
            connect(self._broker.address, "subscriber", patience=PATIENCE) as subscriber,
            connect(self._broker.address, "publisher", patience=PATIENCE) as publisher,
        ):
            subscription = await subscriber.subscribe("n > 0", durable="all")

            async def take() -> None:
                while not self._is_over or self._acknowledged.keys() - set(self._told):
                    taken = await subscription.take(100, 0.5)
                    self._told += [note.event.id for note in taken]
                    self._order += [note.event.sequence for note in taken]
                    await subscription.acknowledge(*taken)

            async with asyncio.timeout(PATIENCE * max(1, _KILLS // 20)), asyncio.TaskGroup() as group:
                group.create_task(take())
                async with asyncio.TaskGroup() as publishing:
                    for _ in range(_UNDER_WAY):
                        publishing.create_task(self._publish(publisher))
                    publishing.create_task(self._control(subscriber))
                    publishing.create_task(self._kill())
        assert len(self._told) == len(set(self._told))
        assert self._order == sorted(self._order)

    async def _publish(self, publisher: Client) -> None:
        while not self._is_over:
            number = len(self._acknowledged) + 1
            receipt = await publisher.publish({"n": number})
            self._acknowledged[receipt.event.id] = number

    async def _control(self, client: Client) -> None:
        """What snapshots are taken after."""
        count = 0
        while not self._is_over:
            count += 1
            await client.set_context(count=count)

    async def _kill(self) -> None:
        """Each time after some more has been acknowledged, and a moment."""
        for _ in range(_KILLS):
            wanted = len(self._acknowledged) + self._chance.randint(1, 200)
            while len(self._acknowledged) < wanted:
                await asyncio.sleep(0.001)
            await asyncio.sleep(self._chance.uniform(0.0, 0.02))
            await asyncio.to_thread(self._broker.kill)
            await asyncio.to_thread(self._broker.start)
        self._is_over = True

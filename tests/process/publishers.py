"""Publishers under load: many publications under way at a time, and a note of what became of each."""

import asyncio
import os
import time
from uuid import UUID

import msgspec

from tests.limits import PATIENCE
from tests.sizes import sized
from tidings.client import Client, connect
from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.identity import ENTROPY_BYTES, uuid7

UNDER_WAY = 8
_TURNS_AFTER = 40  # publications, until its situation changes
_REFUSED_EVERY = 25
_PAUSE = sized(80, 20) / 1000  # seconds between two publications of a task


class Accepted(msgspec.Struct, frozen=True):
    """A publication that a broker has acknowledged as journaled."""

    event: Event
    broker: str
    offset: int

    def __str__(self) -> str:
        event = self.event
        return f"{event.publisher} {event.sequence} ({event.id}), accepted by {self.broker} at {self.offset}"


class Publisher:
    """Tries the addresses in their order; with one, it waits for that broker."""

    def __init__(self, name: str, addresses: list[str]) -> None:
        self.name, self._addresses = name, addresses
        self.accepted: list[Accepted] = []
        self.refused: set[UUID] = set()
        self.is_ready, self.may_begin, self.is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._count = 0

    async def run(self) -> None:
        async with connect(self._addresses, self.name, patience=PATIENCE) as client:
            await client.advertise("n > 0", publisher_context=["zone"])
            await client.set_context(zone=0)
            self.is_ready.set()
            await self.may_begin.wait()
            async with asyncio.TaskGroup() as group:
                for _ in range(UNDER_WAY):
                    group.create_task(self._publish(client))

    async def _publish(self, client: Client) -> None:
        while not self.is_over.is_set():
            self._count += 1
            number = self._count
            if number % _TURNS_AFTER == 0:
                await client.set_context(zone=number // _TURNS_AFTER % 2)
            # What is not advertised is refused, unless the broker is alone for a while.
            attributes = {"n": number if number % _REFUSED_EVERY else -number}
            event = uuid7(time.time_ns() // 1000, os.urandom(ENTROPY_BYTES))
            before = client.broker
            try:
                receipt = await client.publish(attributes, id=event)
            except RefusedError:
                # Another broker, alone then, may have accepted it and been gone before it could say so.
                if client.broker == before:
                    self.refused.add(event)
            else:
                self.accepted.append(Accepted(receipt.event, client.broker, receipt.offset))
            await asyncio.sleep(_PAUSE)

"""Durable subscribers that acknowledge in batches, of which some are killed and come back, or go elsewhere."""

import asyncio
import contextlib
from collections.abc import Callable

from tests.limits import PATIENCE
from tests.process.relay import Relay
from tidings.client import Client, connect
from tidings.model.errors import UnreachableError
from tidings.model.event import Event

_BATCH = 50


class Subscriber:
    """`lives` are the events that it was told of, in their order, for each of its programs one after the other. What
    a killed one had acknowledged last may come again: nobody has told it that this has arrived."""

    def __init__(self, name: str, zone: int | None = None) -> None:
        self.name, self._zone = name, zone
        self.has_moved = False
        self.lives: list[list[Event]] = []
        self.is_ready = asyncio.Event()
        self._relay = Relay()
        self._client: Client | None = None
        self._living: asyncio.Task[None] | None = None
        self._is_over = False

    async def open(self, address: str) -> None:
        """At the broker there."""
        await self._relay.open(address.removeprefix("tidings://"))
        self._begin()
        await self.is_ready.wait()

    async def close(self) -> None:
        self._is_over = True
        if self._living is not None:
            await self._living
        await self._relay.close()

    async def die(self) -> None:
        """It is gone without a word, with what it had not acknowledged; another program takes its place."""
        self._relay.cut()
        if self._living is not None:
            self._living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._living
        self._relay.heal()
        self._begin()

    async def move(self, address: str) -> None:
        """To the broker there, if it can be reached."""
        if self._client is not None:
            with contextlib.suppress(UnreachableError):
                self.has_moved = True
                await self._client.move(address)

    def is_due(self, event: Event) -> bool:
        return self._zone is None or event.context.get("zone") == self._zone

    @property
    def events(self) -> list[Event]:
        """Each once, in the order in which it was told of them first."""
        return list({event.id: event for life in self.lives for event in life}.values())

    def _begin(self) -> None:
        self._is_over = False
        life: list[Event] = []
        self.lives.append(life)
        self._living = asyncio.create_task(self._live(life.append))

    async def _live(self, tell: Callable[[Event], None]) -> None:
        publishers = None if self._zone is None else "zone = this.zone"
        async with connect(self._relay.address, self.name, patience=PATIENCE) as client:
            self._client = client
            if self._zone is not None:
                await client.set_context(zone=self._zone)
            async with client.subscribe("n > -1000000", publishers=publishers, durable="all") as subscription:
                self.is_ready.set()
                waiting = 0
                while not self._is_over:
                    taken = await subscription.take(_BATCH, 0.2)
                    for note in taken:
                        tell(note.event)
                    waiting += len(taken)
                    if waiting >= _BATCH or not taken:
                        waiting = 0
                        await subscription.acknowledge_all()
                await subscription.acknowledge_all()

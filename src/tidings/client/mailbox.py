"""A mailbox: where the answers to a client's questions come, under names that nobody can guess."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidings.model.notification import Notification
from tidings.security.exchange import SERVICE_TOPIC

if TYPE_CHECKING:
    from tidings.client.client import Client

Taker = Callable[[str, bytes], None]  # is given the reply topic and the payload


class Mailbox:
    """One of each client, with one subscription that it keeps; each question has a reply topic of its own."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._name = secrets.token_hex(16)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._made = 0
        self._takers: dict[str, Taker] = {}

    async def open(self) -> None:
        """Says that there will be questions, and that answers are wanted; both hold where the client connects next."""
        async with self._opening:
            if self._is_open:
                return
            await self._client.advertise(f"{SERVICE_TOPIC} IS NOT NULL", id=f"questions.{self._name}")
            await self._client.subscribe(
                f"{SERVICE_TOPIC} LIKE '{self._name}/%'", id=f"answers.{self._name}", callback=self._came
            )
            self._is_open = True

    @contextmanager
    def expecting(self, taker: Taker) -> Iterator[str]:
        """A new reply topic; the taker is called with whatever comes to it, from anybody."""
        self._made += 1
        topic = f"{self._name}/{self._made}"
        self._takers[topic] = taker
        try:
            with self._client.expecting():
                yield topic
        finally:
            del self._takers[topic]

    def _came(self, note: Notification) -> None:
        topic = str(note.attributes.get(SERVICE_TOPIC))
        taker = self._takers.get(topic)
        if taker is not None and note.event.payload is not None:
            taker(topic, note.event.payload)

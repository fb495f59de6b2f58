"""Publishers and subscribers for any broker whose protocol can be spoken: a speech knows the bytes, this the socket."""

import asyncio
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self, cast

from tidings.cli.bench.brokers.system import Deliver, Progress, Publisher, Subscriber, System
from tidings.cli.bench.brokers.workload import Event, Interest

_AT_A_TIME = 100  # subscriptions, between looks at the clock
_SILENCE = 60.0  # seconds without an answer while a conversation begins


class Speech(ABC):
    """One side of a conversation with a broker."""

    acknowledged: int | None = None  # None: this way of publishing has no acknowledgements

    @abstractmethod
    def greet(self, line: socket.socket) -> None:
        """Until the broker has let us in."""

    @abstractmethod
    def publishes(self, line: socket.socket, events: Sequence[Event]) -> None:
        """These will be published, by their numbers."""

    @abstractmethod
    def subscribe(self, line: socket.socket, interests: Sequence[Interest]) -> None:
        """Until all of them are in place; comes again for more."""

    def listen(self, line: socket.socket) -> None:  # noqa: B027 - most brokers need not be told
        """All subscriptions are in place: let events come."""

    @abstractmethod
    def publication(self, number: int, stamp: bytes) -> bytes:
        """What to send."""

    @abstractmethod
    def hear(self, data: bytes) -> list[bytes]:
        """The stamps of the events that are in what came; acknowledgements are counted."""

    def answer(self) -> bytes:
        """What the broker has to be told after what was heard."""
        return b""


class Spoken(System):
    """A broker that is spoken to by a speech of its protocol."""

    @abstractmethod
    def speech(self) -> Speech: ...

    async def publisher(self, port: int, events: Sequence[Event], progress: Progress) -> Publisher:
        speech, line = self._greeted(port)
        speech.publishes(line, events)
        return await _SpeakingPublisher.on(line, speech, progress)

    async def subscriber(self, port: int, deliver: Deliver) -> Subscriber:
        speech, line = self._greeted(port)
        return _SpeakingSubscriber(line, speech, deliver)

    def _greeted(self, port: int) -> tuple[Speech, socket.socket]:
        line = socket.create_connection(("127.0.0.1", port), timeout=_SILENCE)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        speech = self.speech()
        speech.greet(line)
        return speech, line


def exactly(line: socket.socket, size: int) -> bytes:
    """So many bytes from the line, while a conversation begins."""
    found = b""
    while len(found) < size:
        more = line.recv(size - len(found))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        found += more
    return found


class _SpeakingPublisher(asyncio.Protocol, Publisher):
    def __init__(self, speech: Speech, progress: Progress) -> None:
        self._speech, self._progress = speech, progress
        self._outgoing: list[bytes] = []
        self._is_acknowledged = speech.acknowledged is not None

    @classmethod
    async def on(cls, line: socket.socket, speech: Speech, progress: Progress) -> Self:
        line.setblocking(False)
        _, made = await asyncio.get_running_loop().create_connection(lambda: cls(speech, progress), sock=line)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._speech.hear(data)
        if answer := self._speech.answer():
            self._transport.write(answer)
        if self._speech.acknowledged is not None:
            self.acknowledged = self._speech.acknowledged
            self._progress()

    def publish(self, number: int, stamp: bytes) -> None:
        self._outgoing.append(self._speech.publication(number, stamp))
        if not self._is_acknowledged:
            self.acknowledged += 1

    def flush(self) -> None:
        if self._outgoing:
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()

    async def close(self) -> None:
        self._transport.abort()


class _SpeakingSubscriber(asyncio.Protocol, Subscriber):
    def __init__(self, line: socket.socket, speech: Speech, deliver: Deliver) -> None:
        self._line, self._speech, self._deliver = line, speech, deliver

    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        until = time.monotonic() + seconds
        placed = 0
        while placed < len(interests) and time.monotonic() < until:
            some = interests[placed : placed + _AT_A_TIME]
            self._speech.subscribe(self._line, some)
            placed += len(some)
        self._speech.listen(self._line)
        self._line.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=self._line)
        return placed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        stamps = self._speech.hear(data)
        if stamps:
            self._deliver(stamps)
        if answer := self._speech.answer():
            self._transport.write(answer)

    async def close(self) -> None:
        self._transport.abort()

"""Publishers and subscribers for any broker protocol: a `ProtocolClient` encodes and decodes, this module owns the
socket."""

import asyncio
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self, cast

from benchmarks.brokers.system import BenchPublisher, BenchSubscriber, Deliver, Progress, System
from benchmarks.brokers.workload import BenchEvent, Interest

_AT_A_TIME = 100  # subscriptions between two checks of the time limit
_SILENCE = 60.0  # seconds without an answer, during the handshake, until an error


class ProtocolClient(ABC):
    """The client side of a broker's protocol on one connection, without the socket after the handshake."""

    acknowledged: int | None = None  # None: the broker does not acknowledge publications

    @abstractmethod
    def handshake(self, connection: socket.socket) -> None:
        """Perform the handshake."""

    @abstractmethod
    def prepare(self, connection: socket.socket, events: Sequence[BenchEvent]) -> None:
        """Prepare to publish these events, which `publication` then names by number."""

    @abstractmethod
    def subscribe(self, connection: socket.socket, interests: Sequence[Interest]) -> None:
        """Subscribe, and return when all subscriptions are in place. May be called again for more."""

    def start_delivery(self, connection: socket.socket) -> None:  # noqa: B027 - most brokers need not be told
        """Start the delivery, after all subscriptions are in place."""

    @abstractmethod
    def publication(self, number: int, stamp: bytes) -> bytes:
        """Return the bytes that publish event `number`, with the stamp at the beginning of its payload."""

    @abstractmethod
    def decode(self, data: bytes) -> list[bytes]:
        """Decode received bytes, count acknowledgements, and return the stamps of the delivered events."""

    def answer(self) -> bytes:
        """Return the bytes to send to the broker in answer to what was decoded."""
        return b""


class ProtocolSystem(System):
    """A broker that is measured through `protocol_client()`, a new `ProtocolClient` for each connection."""

    @abstractmethod
    def protocol_client(self) -> ProtocolClient: ...

    async def publisher(self, port: int, events: Sequence[BenchEvent], progress: Progress) -> BenchPublisher:
        protocol_client, connection = self._open_connection(port)
        protocol_client.prepare(connection, events)
        return await _ProtocolPublisher.open(connection, protocol_client, progress)

    async def subscriber(self, port: int, deliver: Deliver) -> BenchSubscriber:
        protocol_client, connection = self._open_connection(port)
        return _ProtocolSubscriber(connection, protocol_client, deliver)

    def _open_connection(self, port: int) -> tuple[ProtocolClient, socket.socket]:
        connection = socket.create_connection(("127.0.0.1", port), timeout=_SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol_client = self.protocol_client()
        protocol_client.handshake(connection)
        return protocol_client, connection


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes, during the handshake.

    Raises ConnectionError if the broker closes the connection.
    """
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the broker has closed the connection")
        data += chunk
    return data


class _ProtocolPublisher(asyncio.Protocol, BenchPublisher):
    def __init__(self, protocol_client: ProtocolClient, progress: Progress) -> None:
        self._client, self._progress = protocol_client, progress
        self._outgoing: list[bytes] = []
        self._is_acknowledged = protocol_client.acknowledged is not None

    @classmethod
    async def open(cls, connection: socket.socket, protocol_client: ProtocolClient, progress: Progress) -> Self:
        connection.setblocking(False)
        _, publisher = await asyncio.get_running_loop().create_connection(
            lambda: cls(protocol_client, progress), sock=connection
        )
        return publisher

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._client.decode(data)
        if answer := self._client.answer():
            self._transport.write(answer)
        if self._client.acknowledged is not None:
            self.acknowledged = self._client.acknowledged
            self._progress()

    def publish(self, number: int, stamp: bytes) -> None:
        self._outgoing.append(self._client.publication(number, stamp))
        if not self._is_acknowledged:
            self.acknowledged += 1

    def flush(self) -> None:
        if self._outgoing:
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()

    async def close(self) -> None:
        self._transport.abort()


class _ProtocolSubscriber(asyncio.Protocol, BenchSubscriber):
    def __init__(self, connection: socket.socket, protocol_client: ProtocolClient, deliver: Deliver) -> None:
        self._connection, self._client, self._deliver = connection, protocol_client, deliver

    async def subscribe(self, interests: Sequence[Interest], seconds: float) -> int:
        until = time.monotonic() + seconds
        subscribed = 0
        while subscribed < len(interests) and time.monotonic() < until:
            batch = interests[subscribed : subscribed + _AT_A_TIME]
            self._client.subscribe(self._connection, batch)
            subscribed += len(batch)
        self._client.start_delivery(self._connection)
        self._connection.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=self._connection)
        return subscribed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        stamps = self._client.decode(data)
        if stamps:
            self._deliver(stamps)
        if answer := self._client.answer():
            self._transport.write(answer)

    async def close(self) -> None:
        self._transport.abort()

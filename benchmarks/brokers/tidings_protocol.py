"""A Tidings broker with a minimal client of its protocol, like the clients of other brokers. One client has all
subscriptions."""

import os
import socket
import time
from collections.abc import Sequence

import msgspec

from benchmarks.brokers.broker_processes import start
from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.protocol_clients import ProtocolClient, ProtocolSystem
from benchmarks.brokers.workload import STAMP_BYTES, BenchEvent, Interest, Variant
from tidings.model.errors import TidingsError
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind, FrameSplitter, frame
from tidings.protocol.handshake import MAGIC, VERSION, Hello, Ping, Welcome
from tidings.protocol.notifications import WireNotification
from tidings.protocol.publications import Safety, WirePublication, encode_prefix

_ENCODE = msgspec.msgpack.Encoder().encode
_FRONT = encode_prefix()
_DECODE_NOTIFICATION = msgspec.msgpack.Decoder(WireNotification).decode
_DECODE_RECEIPTS = msgspec.msgpack.Decoder(answers.PublicationReceipts).decode
_PING, _PONG = frame(FrameKind.PING, _ENCODE(Ping())), frame(FrameKind.PONG, _ENCODE(Ping()))
_BEAT = 0.5  # seconds between two heartbeats


class TidingsProtocolSystem(ProtocolSystem):
    """A Tidings broker with a minimal client as a system to measure, at one durability."""

    variants = (Variant.EQUALITY, Variant.RANGES)

    def __init__(self, safe: Safety) -> None:
        self.name = f"tidings, {safe.name.lower()}"
        self._safe = safe

    def lacking(self) -> str:
        return ""

    def start(self, children: ChildProcesses) -> int:
        return start(children).port

    def protocol_client(self) -> ProtocolClient:
        return TidingsProtocol(self._safe)


class TidingsProtocol(ProtocolClient):
    """The part of the Tidings protocol that the benchmark needs."""

    def __init__(self, safe: Safety) -> None:
        self._safe = safe
        self.acknowledged = 0
        self._splitter = FrameSplitter()
        self._events: Sequence[BenchEvent] = ()
        self._sequence = 0
        self._subscribed = 0
        self._done = 0
        self._receipts = 0
        self._must_answer_ping = False
        self._last_heartbeat = 0.0

    def handshake(self, connection: socket.socket) -> None:
        name = f"bench-{os.getpid()}-{id(self)}"
        connection.sendall(frame(FrameKind.HELLO, _ENCODE(Hello(MAGIC, (VERSION,), "client", name, 1))))
        frames: list[tuple[int, bytes]] = []
        while not frames:
            frames = self._splitter.feed(_receive(connection))
        kind, body = frames[0]
        if kind != FrameKind.WELCOME:
            raise TidingsError(f"the broker says {body!r} instead of welcome")
        self._splitter.welcome(msgspec.msgpack.decode(body, type=Welcome).frame_bytes)

    def prepare(self, connection: socket.socket, events: Sequence[BenchEvent]) -> None:
        self._events = events

    def subscribe(self, connection: socket.socket, interests: Sequence[Interest]) -> None:
        frames = []
        for interest in interests:
            self._subscribed += 1
            request = requests.SubscribeRequest(self._subscribed, f"s{self._subscribed}", interest.text)
            frames.append(frame(FrameKind.SUBSCRIBE, _ENCODE(request)))
        connection.sendall(b"".join(frames))
        while self._done < self._subscribed:
            self.decode(_receive(connection))
            connection.sendall(self.answer())

    def publication(self, number: int, stamp: bytes) -> bytes:
        event = self._events[number]
        self._sequence += 1
        identity = uuid7(time.time_ns() // 1000, self._sequence.to_bytes(ENTROPY_BYTES))
        payload = stamp + event.filling
        published = WirePublication(
            self._sequence, identity.bytes, self._sequence, self._safe, event.attributes, None, payload
        )
        return frame(FrameKind.PUBLISH, _FRONT + _ENCODE(published))

    def decode(self, data: bytes) -> list[bytes]:
        stamps = []
        for kind, body in self._splitter.feed(data):
            if kind == FrameKind.NOTIFICATION:
                stamps.append((_DECODE_NOTIFICATION(body).event.payload or b"")[:STAMP_BYTES])
            elif kind == FrameKind.RECEIPTS:
                self._receipts += len(_DECODE_RECEIPTS(body).receipts)
                self.acknowledged = self._receipts
            elif kind == FrameKind.DONE:
                self._done += 1
            elif kind == FrameKind.PING:
                self._must_answer_ping = True
            elif kind == FrameKind.REFUSED:
                raise answers.error_of(msgspec.msgpack.decode(body, type=answers.RequestRefused))
            elif kind in (FrameKind.BYE, FrameKind.LOST):
                raise TidingsError(f"the broker says {FrameKind(kind).name}: {msgspec.msgpack.decode(body)}")
        return stamps

    def answer(self) -> bytes:
        """Return a heartbeat if one is due: also while the broker sends so many notifications that it does not ask
        for one."""
        now = time.monotonic()
        if self._must_answer_ping:
            self._must_answer_ping, self._last_heartbeat = False, now
            return _PONG
        if now - self._last_heartbeat < _BEAT:
            return b""
        self._last_heartbeat = now
        return _PING


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise TidingsError("the broker has closed the connection")
    return data

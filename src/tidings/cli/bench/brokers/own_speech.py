"""Our own broker, spoken to as barely as those of others: all subscriptions are those of one client."""

import os
import socket
import time
from collections.abc import Sequence

import msgspec

from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import start
from tidings.cli.bench.brokers.wire import Speech, Spoken
from tidings.cli.bench.brokers.workload import STAMP_BYTES, Event, Interest, Variant
from tidings.model.errors import TidingsError
from tidings.model.identity import ENTROPY_BYTES, uuid7
from tidings.protocol import answers, requests
from tidings.protocol.frames import Kind, Splitter, frame
from tidings.protocol.handshake import MAGIC, VERSION, Hello, Ping, Welcome
from tidings.protocol.notes import Note
from tidings.protocol.publications import Published, Safety, front

_ENCODE = msgspec.msgpack.Encoder().encode
_AHEAD = front()
_READ_NOTE = msgspec.msgpack.Decoder(Note).decode
_READ_RECEIPTS = msgspec.msgpack.Decoder(answers.Receipts).decode
_PING, _PONG = frame(Kind.PING, _ENCODE(Ping())), frame(Kind.PONG, _ENCODE(Ping()))
_BEAT = 0.5  # seconds, after which a broker wants to hear something


class OwnSpoken(Spoken):
    variants = (Variant.EQUALITY, Variant.RANGES)

    def __init__(self, safe: Safety) -> None:
        self.name = f"tidings, {safe.name.lower()}"
        self._safe = safe

    def lacking(self) -> str:
        return ""

    def start(self, children: Children) -> int:
        return start(children).port

    def speech(self) -> Speech:
        return Native(self._safe)


class Native(Speech):
    """Our own protocol."""

    def __init__(self, safe: Safety) -> None:
        self._safe = safe
        self.acknowledged = 0
        self._splitter = Splitter()
        self._events: Sequence[Event] = ()
        self._sequence = 0
        self._placed = 0
        self._done = 0
        self._receipts = 0
        self._is_asked = False
        self._beaten = 0.0

    def greet(self, line: socket.socket) -> None:
        name = f"bench-{os.getpid()}-{id(self)}"
        line.sendall(frame(Kind.HELLO, _ENCODE(Hello(MAGIC, (VERSION,), "client", name, 1))))
        frames: list[tuple[int, bytes]] = []
        while not frames:
            frames = self._splitter.feed(_received(line))
        kind, body = frames[0]
        if kind != Kind.WELCOME:
            raise TidingsError(f"the broker says {body!r} instead of welcome")
        self._splitter.welcome(msgspec.msgpack.decode(body, type=Welcome).frame_bytes)

    def publishes(self, line: socket.socket, events: Sequence[Event]) -> None:
        self._events = events

    def subscribe(self, line: socket.socket, interests: Sequence[Interest]) -> None:
        frames = []
        for interest in interests:
            self._placed += 1
            wanted = requests.Subscribe(self._placed, f"s{self._placed}", interest.text)
            frames.append(frame(Kind.SUBSCRIBE, _ENCODE(wanted)))
        line.sendall(b"".join(frames))
        while self._done < self._placed:
            self.hear(_received(line))
            line.sendall(self.answer())

    def publication(self, number: int, stamp: bytes) -> bytes:
        event = self._events[number]
        self._sequence += 1
        identity = uuid7(time.time_ns() // 1000, self._sequence.to_bytes(ENTROPY_BYTES))
        payload = stamp + event.filling
        published = Published(
            self._sequence, identity.bytes, self._sequence, self._safe, event.attributes, None, payload
        )
        return frame(Kind.PUBLISH, _AHEAD + _ENCODE(published))

    def hear(self, data: bytes) -> list[bytes]:
        stamps = []
        for kind, body in self._splitter.feed(data):
            if kind == Kind.NOTE:
                stamps.append((_READ_NOTE(body).event.payload or b"")[:STAMP_BYTES])
            elif kind == Kind.RECEIPTS:
                self._receipts += len(_READ_RECEIPTS(body).receipts)
                self.acknowledged = self._receipts
            elif kind == Kind.DONE:
                self._done += 1
            elif kind == Kind.PING:
                self._is_asked = True
            elif kind == Kind.REFUSED:
                raise answers.error_of(msgspec.msgpack.decode(body, type=answers.Refused))
            elif kind in (Kind.BYE, Kind.LOST):
                raise TidingsError(f"the broker says {Kind(kind).name}: {msgspec.msgpack.decode(body)}")
        return stamps

    def answer(self) -> bytes:
        """A sign of life, also where the broker has so much to say that it asks for none."""
        now = time.monotonic()
        if self._is_asked:
            self._is_asked, self._beaten = False, now
            return _PONG
        if now - self._beaten < _BEAT:
            return b""
        self._beaten = now
        return _PING


def _received(line: socket.socket) -> bytes:
    data = line.recv(65536)
    if not data:
        raise TidingsError("the broker has closed the connection")
    return data

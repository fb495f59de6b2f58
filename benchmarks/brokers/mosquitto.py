"""Mosquitto with one topic and one subscriber: an upper limit for the others, since it does not match content."""

import getpass
import os
import shutil
import socket
from collections.abc import Sequence

from benchmarks.brokers.children import ChildProcesses, free_port
from benchmarks.brokers.protocol_clients import ProtocolClient, ProtocolSystem, receive_exactly
from benchmarks.brokers.workload import EVENT_BYTES, STAMP_BYTES, BenchEvent, Interest
from tidings.model.errors import TidingsError

_PROGRAM = "mosquitto"
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # where Debian installs it
_TOPIC = b"events"
_CONNACK, _PUBLISH, _PUBACK, _SUBACK = 0x20, 0x30, 0x40, 0x90
_IDENTITIES = 0xFFFF  # packet identifiers are 1 to this number


class Mosquitto(ProtocolSystem):
    """Mosquitto as a system to measure, with QoS 0 or 1."""

    is_limit = True

    def __init__(self, qos: int) -> None:
        self.name = f"Mosquitto, one topic, QoS {qos}"
        self._qos = qos

    def lacking(self) -> str:
        return "" if shutil.which(_PROGRAM, path=_PATH) else "apt-get install mosquitto"

    def start(self, children: ChildProcesses) -> int:
        folder = children.folder
        port = free_port()
        lines = [
            f"listener {port} 127.0.0.1",
            "allow_anonymous true",
            "persistence false",
            "set_tcp_nodelay true",
            "max_inflight_messages 0",  # no limit
            "max_queued_messages 0",
            f"user {getpass.getuser()}",
        ]
        configuration = folder / "mosquitto.conf"
        configuration.write_text("\n".join(lines) + "\n")
        program = shutil.which(_PROGRAM, path=_PATH) or _PROGRAM
        children.server("mosquitto", [program, "-c", configuration])
        children.await_port("mosquitto", port)
        return port

    def protocol_client(self) -> ProtocolClient:
        return Mqtt(self._qos)


class Mqtt(ProtocolClient):
    """The part of MQTT 3.1.1 that one topic needs."""

    def __init__(self, qos: int) -> None:
        self._qos = qos
        self.acknowledged = 0 if qos else None
        self._rest = b""
        self._answers: list[bytes] = []
        self._tails: list[bytes] = []

    def handshake(self, connection: socket.socket) -> None:
        connection.sendall(_packet(0x10, _text(b"MQTT") + b"\x04\x02\x00\x00" + _text(b"")))
        answer = receive_exactly(connection, 4)
        if answer[0] != _CONNACK or answer[3]:
            raise TidingsError(f"Mosquitto refuses the connection with code {answer[3]}")

    def prepare(self, connection: socket.socket, events: Sequence[BenchEvent]) -> None:
        identity = 2 if self._qos else 0
        size = 2 + len(_TOPIC) + identity + EVENT_BYTES
        self._head = _packet(_PUBLISH | self._qos << 1, _text(_TOPIC), size)
        # Mosquitto does not read attributes, so they are part of the opaque payload.
        self._tails = [_opaque(event) for event in events]
        self._next = 0

    def subscribe(self, connection: socket.socket, interests: Sequence[Interest]) -> None:
        connection.sendall(_packet(0x82, b"\x00\x01" + _text(_TOPIC) + bytes([self._qos])))
        if receive_exactly(connection, 5)[0] != _SUBACK:
            raise TidingsError("Mosquitto does not take the subscription")

    def publication(self, number: int, stamp: bytes) -> bytes:
        if not self._qos:
            return self._head + stamp + self._tails[number]
        self._next = self._next % _IDENTITIES + 1
        return self._head + self._next.to_bytes(2) + stamp + self._tails[number]

    def decode(self, data: bytes) -> list[bytes]:
        if self._rest:
            data = self._rest + data
        stamps, at, end = [], 0, len(data)
        while end - at >= 2:
            size, start = data[at + 1], at + 2
            if size & 0x80:  # the length has a second byte; no packet here is so long that it has a third
                if end - at < 3:
                    break
                size, start = size & 0x7F | data[at + 2] << 7, at + 3
            if end - start < size:
                break
            kind = data[at]
            at = start + size
            if kind & 0xF0 == _PUBLISH:
                start += 2 + (data[start] << 8 | data[start + 1])
                if kind & 0x06:
                    self._answers.append(b"\x40\x02" + data[start : start + 2])
                    start += 2
                stamps.append(data[start : start + STAMP_BYTES])
            elif kind == _PUBACK and self.acknowledged is not None:
                self.acknowledged += 1
        self._rest = data[at:]
        return stamps

    def answer(self) -> bytes:
        answers = b"".join(self._answers)
        self._answers.clear()
        return answers


def _opaque(event: BenchEvent) -> bytes:
    """Return an event's attributes and filling as bytes."""
    text = "".join(f"{name}{value}" for name, value in event.attributes.items())
    return text.encode() + event.filling


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


def _packet(kind: int, content: bytes, size: int | None = None) -> bytes:
    """Return the beginning of a packet; `size` is the length of its whole content, if more content follows."""
    remaining = len(content) if size is None else size
    length = b""
    while remaining > 0x7F:
        length += bytes([remaining & 0x7F | 0x80])
        remaining >>= 7
    return bytes([kind]) + length + bytes([remaining]) + content

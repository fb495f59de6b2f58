"""RabbitMQ with a headers exchange: one binding per subscription, to the queues of one connection."""

import shutil
import socket
import struct
from collections.abc import Sequence
from typing import Any

from benchmarks.brokers.children import ChildProcesses, free_port
from benchmarks.brokers.protocol_clients import ProtocolClient, ProtocolSystem, receive_exactly
from benchmarks.brokers.workload import STAMP_BYTES, BenchEvent, Interest
from tidings.model.errors import TidingsError
from tidings.model.packages import installation

_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the script on the path runs only as a service
_QUEUES = 100
_CHANNEL = 1
_EXCHANGE = "events"
_METHOD, _BODY = 1, 3  # kinds of frames
_HEADER_BYTES = 7  # of a frame header: kind, channel, size
_FRAME = struct.Struct(">BHI")
_DELIVER, _ACK, _NACK = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
_CLOSING = (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28")  # close of a connection, close of a channel


class RabbitMq(ProtocolSystem):
    """RabbitMQ as a system to measure, with or without publisher confirms."""

    def __init__(self, *, confirmed: bool) -> None:
        how = "confirmed" if confirmed else "unconfirmed"
        self.name = f"RabbitMQ, headers, {how}"
        self._is_confirmed = confirmed

    def lacking(self) -> str:
        try:
            import pika  # noqa: F401
        except ImportError:
            return str(installation("pika"))
        return "" if shutil.which(_PROGRAM) and shutil.which("epmd") else "apt-get install rabbitmq-server"

    def start(self, children: ChildProcesses) -> int:
        folder = children.folder
        port, names = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text("loopback_users = none\nheartbeat = 0\n")
        (folder / "plugins").write_text("[].\n")
        (folder / "environment").write_text("")
        environment = {
            "HOME": str(folder),  # for the Erlang cookie
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
        }
        # Start epmd here, since Erlang would start it as a daemon that stays.
        children.server("epmd", ["epmd", "-port", str(names), "-address", "127.0.0.1"], environment)
        children.await_port("epmd", names)
        children.server("rabbitmq", [_PROGRAM], environment)
        children.await_port("rabbitmq", port)
        return port

    def protocol_client(self) -> ProtocolClient:
        return Amqp(is_confirmed=self._is_confirmed)


class Amqp(ProtocolClient):
    """AMQP 0-9-1 on one channel. Frames of publications and deliveries are handled here, all others by pika."""

    def __init__(self, *, is_confirmed: bool) -> None:
        self._is_confirmed = is_confirmed
        self.acknowledged = 0 if is_confirmed else None
        self._confirmed_up_to = 0
        self._confirmed_alone: set[int] = set()
        self._rest = b""
        self._delivered: int | None = None  # tag of the last delivery to acknowledge
        self._bound = 0
        self._publications: list[tuple[bytes, bytes]] = []

    def handshake(self, connection: socket.socket) -> None:
        from pika import frame, spec

        connection.sendall(frame.ProtocolHeader().marshal())
        self._await(connection, "Connection.Start")
        connection.sendall(_method(spec.Connection.StartOk({}, "PLAIN", b"\x00guest\x00guest", "en_US"), channel=0))
        tune = self._await(connection, "Connection.Tune")
        connection.sendall(_method(spec.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0))
        connection.sendall(_method(spec.Connection.Open("/"), channel=0))
        self._await(connection, "Connection.OpenOk")
        connection.sendall(_method(spec.Channel.Open()))
        self._await(connection, "Channel.OpenOk")
        connection.sendall(
            _method(spec.Exchange.Declare(exchange=_EXCHANGE, type="headers", durable=self._is_confirmed))
        )
        self._await(connection, "Exchange.DeclareOk")

    def prepare(self, connection: socket.socket, events: Sequence[BenchEvent]) -> None:
        from pika import frame, spec

        if self._is_confirmed:
            connection.sendall(_method(spec.Confirm.Select()))
            self._await(connection, "Confirm.SelectOk")
        publish = _method(spec.Basic.Publish(exchange=_EXCHANGE, routing_key=""))
        for event in events:
            size = STAMP_BYTES + len(event.filling)
            properties = spec.BasicProperties(headers=event.attributes, delivery_mode=2 if self._is_confirmed else 1)
            header = frame.Header(_CHANNEL, size, properties).marshal()
            body = _FRAME.pack(_BODY, _CHANNEL, size)
            self._publications.append((publish + header + body, event.filling + bytes([spec.FRAME_END])))

    def subscribe(self, connection: socket.socket, interests: Sequence[Interest]) -> None:
        from pika import spec

        binds = []
        for interest in interests:
            if self._bound < _QUEUES:
                connection.sendall(_method(self._queue(self._bound)))
                self._await(connection, "Queue.DeclareOk")
            arguments = {"x-match": "all", "kind": interest.kind, "place": interest.place}
            queue = f"q{self._bound % _QUEUES}"
            binds.append(_method(spec.Queue.Bind(queue=queue, exchange=_EXCHANGE, routing_key="", arguments=arguments)))
            self._bound += 1
        connection.sendall(b"".join(binds))
        for _ in binds:
            self._await(connection, "Queue.BindOk")

    def start_delivery(self, connection: socket.socket) -> None:
        from pika import spec

        for number in range(min(self._bound, _QUEUES)):
            connection.sendall(_method(spec.Basic.Consume(queue=f"q{number}", no_ack=not self._is_confirmed)))
            self._await(connection, "Basic.ConsumeOk")

    def publication(self, number: int, stamp: bytes) -> bytes:
        head, tail = self._publications[number]
        return head + stamp + tail

    def decode(self, data: bytes) -> list[bytes]:
        if self._rest:
            data = self._rest + data
        stamps, at, end = [], 0, len(data)
        while end - at >= _HEADER_BYTES:
            kind, _, size = _FRAME.unpack_from(data, at)
            start = at + _HEADER_BYTES
            if end <= start + size:
                break
            if kind == _BODY:
                stamps.append(data[start : start + STAMP_BYTES])
            elif kind == _METHOD:
                self._decode_method(data[start : start + size])
            at = start + size + 1
        self._rest = data[at:]
        return stamps

    def answer(self) -> bytes:
        if self._delivered is None:
            return b""
        from pika import spec

        tag, self._delivered = self._delivered, None
        return _method(spec.Basic.Ack(delivery_tag=tag, multiple=True))

    def _decode_method(self, method: bytes) -> None:
        which = method[:4]
        if which == _DELIVER:
            if self._is_confirmed:
                tag = 5 + method[4]  # after the consumer's tag
                self._delivered = int.from_bytes(method[tag : tag + 8])
        elif which == _ACK:
            self._confirm(int.from_bytes(method[4:12]), is_multiple=bool(method[12] & 1))
        elif which == _NACK or which in _CLOSING:
            raise TidingsError(f"RabbitMQ refuses: {method[4:]!r}")

    def _confirm(self, tag: int, *, is_multiple: bool) -> None:
        if is_multiple:
            self._confirmed_up_to = max(tag, self._confirmed_up_to)
            self._confirmed_alone = {confirmed_tag for confirmed_tag in self._confirmed_alone if confirmed_tag > tag}
        else:
            self._confirmed_alone.add(tag)
        self.acknowledged = self._confirmed_up_to + len(self._confirmed_alone)

    def _queue(self, number: int) -> Any:
        from pika import spec

        return spec.Queue.Declare(queue=f"q{number}", durable=self._is_confirmed, exclusive=not self._is_confirmed)

    def _await(self, connection: socket.socket, name: str) -> Any:
        """Receive the next method and return it. Raises TidingsError if it has another name."""
        from pika import frame

        head = receive_exactly(connection, _HEADER_BYTES)
        _, received = frame.decode_frame(head + receive_exactly(connection, _FRAME.unpack(head)[2] + 1))
        method = getattr(received, "method", None)
        if method is None or name != method.NAME:
            raise TidingsError(f"RabbitMQ answers with {received} instead of {name}")
        return method


def _method(method: Any, channel: int = _CHANNEL) -> bytes:
    from pika import frame

    return bytes(frame.Method(channel, method).marshal())

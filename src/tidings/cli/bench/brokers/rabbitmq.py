"""RabbitMQ with a headers exchange: a binding a subscription, to the queues of one connection."""

import shutil
import socket
import struct
from collections.abc import Sequence
from typing import Any

from tidings.cli.bench.brokers.children import Children, free_port
from tidings.cli.bench.brokers.wire import Speech, Spoken, exactly
from tidings.cli.bench.brokers.workload import STAMP_BYTES, Event, Interest
from tidings.model.errors import TidingsError
from tidings.model.packages import installation

_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on the path wants to be a service
_QUEUES = 100
_CHANNEL = 1
_EXCHANGE = "events"
_METHOD, _BODY = 1, 3  # kinds of frames
_HEADER_BYTES = 7  # of a frame: kind, channel, size
_FRAME = struct.Struct(">BHI")
_DELIVER, _ACK, _NACK = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
_CLOSING = (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28")  # of a connection, of a channel


class RabbitMq(Spoken):
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

    def start(self, children: Children) -> int:
        folder = children.folder
        port, names = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text("loopback_users = none\nheartbeat = 0\n")
        (folder / "plugins").write_text("[].\n")
        (folder / "environment").write_text("")
        environment = {
            "HOME": str(folder),  # its cookie
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
        # Erlang would start its register of names as a daemon that stays.
        children.server("epmd", ["epmd", "-port", str(names), "-address", "127.0.0.1"], environment)
        children.await_port("epmd", names)
        children.server("rabbitmq", [_PROGRAM], environment)
        children.await_port("rabbitmq", port)
        return port

    def speech(self) -> Speech:
        return Amqp(is_confirmed=self._is_confirmed)


class Amqp(Speech):
    """AMQP 0-9-1 on one channel; the frames that come by the thousand are read here, all others by pika."""

    def __init__(self, *, is_confirmed: bool) -> None:
        self._is_confirmed = is_confirmed
        self.acknowledged = 0 if is_confirmed else None
        self._confirmed_up_to = 0
        self._confirmed_alone: set[int] = set()
        self._rest = b""
        self._delivered: int | None = None  # the tag of the last one that is to be acknowledged
        self._bound = 0
        self._publications: list[tuple[bytes, bytes]] = []

    def greet(self, line: socket.socket) -> None:
        from pika import frame, spec

        line.sendall(frame.ProtocolHeader().marshal())
        self._await(line, "Connection.Start")
        line.sendall(_method(spec.Connection.StartOk({}, "PLAIN", b"\x00guest\x00guest", "en_US"), channel=0))
        tune = self._await(line, "Connection.Tune")
        line.sendall(_method(spec.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0))
        line.sendall(_method(spec.Connection.Open("/"), channel=0))
        self._await(line, "Connection.OpenOk")
        line.sendall(_method(spec.Channel.Open()))
        self._await(line, "Channel.OpenOk")
        line.sendall(_method(spec.Exchange.Declare(exchange=_EXCHANGE, type="headers", durable=self._is_confirmed)))
        self._await(line, "Exchange.DeclareOk")

    def publishes(self, line: socket.socket, events: Sequence[Event]) -> None:
        from pika import frame, spec

        if self._is_confirmed:
            line.sendall(_method(spec.Confirm.Select()))
            self._await(line, "Confirm.SelectOk")
        publish = _method(spec.Basic.Publish(exchange=_EXCHANGE, routing_key=""))
        for event in events:
            size = STAMP_BYTES + len(event.filling)
            properties = spec.BasicProperties(headers=event.attributes, delivery_mode=2 if self._is_confirmed else 1)
            header = frame.Header(_CHANNEL, size, properties).marshal()
            body = _FRAME.pack(_BODY, _CHANNEL, size)
            self._publications.append((publish + header + body, event.filling + bytes([spec.FRAME_END])))

    def subscribe(self, line: socket.socket, interests: Sequence[Interest]) -> None:
        from pika import spec

        binds = []
        for interest in interests:
            if self._bound < _QUEUES:
                line.sendall(_method(self._queue(self._bound)))
                self._await(line, "Queue.DeclareOk")
            asked = {"x-match": "all", "kind": interest.kind, "place": interest.place}
            queue = f"q{self._bound % _QUEUES}"
            binds.append(_method(spec.Queue.Bind(queue=queue, exchange=_EXCHANGE, routing_key="", arguments=asked)))
            self._bound += 1
        line.sendall(b"".join(binds))
        for _ in binds:
            self._await(line, "Queue.BindOk")

    def listen(self, line: socket.socket) -> None:
        from pika import spec

        for number in range(min(self._bound, _QUEUES)):
            line.sendall(_method(spec.Basic.Consume(queue=f"q{number}", no_ack=not self._is_confirmed)))
            self._await(line, "Basic.ConsumeOk")

    def publication(self, number: int, stamp: bytes) -> bytes:
        head, tail = self._publications[number]
        return head + stamp + tail

    def hear(self, data: bytes) -> list[bytes]:
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
                self._told(data[start : start + size])
            at = start + size + 1
        self._rest = data[at:]
        return stamps

    def answer(self) -> bytes:
        if self._delivered is None:
            return b""
        from pika import spec

        tag, self._delivered = self._delivered, None
        return _method(spec.Basic.Ack(delivery_tag=tag, multiple=True))

    def _told(self, method: bytes) -> None:
        which = method[:4]
        if which == _DELIVER:
            if self._is_confirmed:
                tag = 5 + method[4]  # behind the consumer's name
                self._delivered = int.from_bytes(method[tag : tag + 8])
        elif which == _ACK:
            self._confirm(int.from_bytes(method[4:12]), is_multiple=bool(method[12] & 1))
        elif which == _NACK or which in _CLOSING:
            raise TidingsError(f"RabbitMQ refuses: {method[4:]!r}")

    def _confirm(self, tag: int, *, is_multiple: bool) -> None:
        if is_multiple:
            self._confirmed_up_to = max(tag, self._confirmed_up_to)
            self._confirmed_alone = {one for one in self._confirmed_alone if one > tag}
        else:
            self._confirmed_alone.add(tag)
        self.acknowledged = self._confirmed_up_to + len(self._confirmed_alone)

    def _queue(self, number: int) -> Any:
        from pika import spec

        return spec.Queue.Declare(queue=f"q{number}", durable=self._is_confirmed, exclusive=not self._is_confirmed)

    def _await(self, line: socket.socket, name: str) -> Any:
        """The method of that name, which must be the next that comes."""
        from pika import frame

        head = exactly(line, _HEADER_BYTES)
        _, came = frame.decode_frame(head + exactly(line, _FRAME.unpack(head)[2] + 1))
        method = getattr(came, "method", None)
        if method is None or name != method.NAME:
            raise TidingsError(f"RabbitMQ answers with {came} instead of {name}")
        return method


def _method(method: Any, channel: int = _CHANNEL) -> bytes:
    from pika import frame

    return bytes(frame.Method(channel, method).marshal())

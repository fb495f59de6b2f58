"""ActiveMQ with one topic: each subscription is a STOMP subscription with a selector, all on one connection."""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.brokers.children import ChildProcesses, free_port
from benchmarks.brokers.protocol_clients import ProtocolClient, ProtocolSystem
from benchmarks.brokers.workload import STAMP_BYTES, BenchEvent, Interest, Variant
from tidings.model.errors import TidingsError

_JAR = Path("/usr/share/activemq/bin/activemq.jar")
_HOME = Path("/usr/share/activemq")
_TOPIC = "/topic/events"
_NEWLINE = 10
_OPEN = [  # the Java modules that ActiveMQ's start script opens
    *("java.base/java.security", "java.base/java.net", "java.base/java.lang", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.naming/javax.naming.spi"),
]
_CONFIGURATION = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" advisorySupport="false"
      persistent="{persistent}" dataDirectory="{folder}">
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp+nio://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


class ActiveMq(ProtocolSystem):
    """ActiveMQ as a system to measure, with durable or transient subscriptions."""

    variants = (Variant.EQUALITY, Variant.RANGES)

    def __init__(self, *, durable: bool) -> None:
        how = "durable" if durable else "transient"
        self.name = f"ActiveMQ, selectors, {how}"
        self._is_durable = durable

    def lacking(self) -> str:
        return "" if _JAR.exists() and shutil.which(_java()) else "apt-get install activemq openjdk-17-jre-headless"

    def start(self, children: ChildProcesses) -> int:
        folder = children.folder
        port = free_port()
        configuration = folder / "activemq.xml"
        configuration.write_text(
            _CONFIGURATION.format(persistent=str(self._is_durable).lower(), folder=folder / "data", port=port)
        )
        command = [
            *(_java(), "-Xms1G", "-Xmx1G"),
            *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPEN),
            *(f"-Dactivemq.{name}={path}" for name, path in (("home", _HOME), ("base", folder), ("data", folder))),
            *("-jar", str(_JAR), "start", f"xbean:file:{configuration}"),
        ]
        children.server("activemq", command)
        children.await_port("activemq", port)
        return port

    def protocol_client(self) -> ProtocolClient:
        return Stomp(is_durable=self._is_durable)


class Stomp(ProtocolClient):
    """STOMP 1.1 with the header extensions of ActiveMQ."""

    def __init__(self, *, is_durable: bool) -> None:
        self._is_durable = is_durable
        self.acknowledged = 0 if is_durable else None
        self._rest = b""
        self._receipts = 0
        self._subscribed = 0
        self._sent = 0
        self._publications: list[tuple[bytes, bytes]] = []

    def handshake(self, connection: socket.socket) -> None:
        headers = {"accept-version": "1.1", "host": "bench", "heart-beat": "0,0"}
        # Durable subscriptions belong to a client id, and each connection needs its own.
        connection.sendall(_frame("CONNECT", {**headers, "client-id": f"bench-{os.getpid()}-{id(self)}"}))
        answer = connection.recv(4096)
        while not answer.rstrip(b"\n").endswith(b"\0"):
            answer += connection.recv(4096)
        if not answer.startswith(b"CONNECTED"):
            raise TidingsError(f"ActiveMQ refuses the connection: {answer!r}")

    def prepare(self, connection: socket.socket, events: Sequence[BenchEvent]) -> None:
        for event in events:
            size = STAMP_BYTES + len(event.filling)
            headers = {"destination": _TOPIC, **event.attributes, "content-length": size}
            head = _head("SEND", {**headers, **({"persistent": "true"} if self._is_durable else {})})
            self._publications.append((head, event.filling + b"\0"))

    def subscribe(self, connection: socket.socket, interests: Sequence[Interest]) -> None:
        frames = []
        for interest in interests:
            name = f"s{self._subscribed}"
            headers = {"id": name, "destination": _TOPIC, "selector": interest.text, "ack": "auto", "receipt": name}
            if self._is_durable:
                headers["activemq.subscriptionName"] = name
            frames.append(_frame("SUBSCRIBE", headers))
            self._subscribed += 1
        connection.sendall(b"".join(frames))
        while self._receipts < self._subscribed:
            self.decode(connection.recv(65536))

    def publication(self, number: int, stamp: bytes) -> bytes:
        head, tail = self._publications[number]
        if not self._is_durable:
            return b"%b\n%b%b" % (head, stamp, tail)
        self._sent += 1
        return b"%breceipt:%d\n\n%b%b" % (head, self._sent, stamp, tail)

    def decode(self, data: bytes) -> list[bytes]:
        if self._rest:
            data = self._rest + data
        stamps, at, end = [], 0, len(data)
        while True:
            while at < end and data[at] == _NEWLINE:  # newlines are allowed between frames
                at += 1
            body = data.find(b"\n\n", at) + 2
            if body < 2:
                break
            length = data.find(b"\ncontent-length:", at, body)
            if length < 0:
                close = data.find(b"\0", body)
            else:
                close = body + int(data[length + 16 : data.index(b"\n", length + 1)])
            if not body <= close < end:
                break
            if data.startswith(b"MESSAGE", at):
                stamps.append(data[body : body + STAMP_BYTES])
            elif data.startswith(b"RECEIPT", at):
                self._receipts += 1
            else:
                raise TidingsError(f"ActiveMQ says {data[at:close]!r}")
            at = close + 1
        self._rest = data[at:]
        if self.acknowledged is not None:
            self.acknowledged = self._receipts
        return stamps


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def _head(command: str, headers: Mapping[str, object]) -> bytes:
    return "".join([f"{command}\n", *(f"{name}:{value}\n" for name, value in headers.items())]).encode()


def _frame(command: str, headers: Mapping[str, object]) -> bytes:
    return _head(command, headers) + b"\n\0"

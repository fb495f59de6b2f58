"""A second client, written from docs/reference/wire-protocol.md alone: sockets, `struct`, and a MessagePack of its own.

It shares nothing with the client of the library, so that what the page leaves out, or what both sides of the library
have wrong together, shows here.
"""

import secrets
import socket
import ssl
import time
from collections import deque
from struct import pack, unpack_from
from typing import Any, Self

HELLO, WELCOME, PING, PONG, BYE, BOUND = 1, 2, 3, 4, 5, 6
PUBLISH, SUBSCRIBE, UNSUBSCRIBE, ADVERTISE, UNADVERTISE, SET_CONTEXT, ENTRUST, SET_POLICY = (
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
)
DEFINE, ACKNOWLEDGE, ASK = 18, 19, 20
DONE, REFUSED, RECEIPTS, NOTIFICATION, LOST, CONTEXT, ANSWER = 30, 31, 32, 33, 34, 35, 36

Frame = tuple[int, Any]


# MessagePack


def packed(value: Any) -> bytes:
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int() if 0 <= value < 128:
            return pack("B", value)
        case int():
            return pack(">Bq", 0xD3, value)
        case float():
            return pack(">Bd", 0xCB, value)
        case str():
            text = value.encode()
            return pack(">BI", 0xDB, len(text)) + text
        case bytes():
            return pack(">BI", 0xC6, len(value)) + value
        case list() | tuple():
            return pack(">BI", 0xDD, len(value)) + b"".join(map(packed, value))
        case dict():
            return pack(">BI", 0xDF, len(value)) + b"".join(packed(key) + packed(one) for key, one in value.items())
    raise TypeError(type(value).__name__)


_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_BYTES = {0xC4: "B", 0xC5: "H", 0xC6: "I"}
_TEXTS = {0xD9: "B", 0xDA: "H", 0xDB: "I"}
_ARRAYS = {0xDC: "H", 0xDD: "I"}
_MAPS = {0xDE: "H", 0xDF: "I"}


class Unpacker:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def value(self) -> Any:
        first = self._data[self._at]
        self._at += 1
        if first < 0x80:
            return first
        if first < 0x90:
            return self._map(first & 0x0F)
        if first < 0xA0:
            return self._array(first & 0x0F)
        if first < 0xC0:
            return self._bytes(first & 0x1F).decode()
        if first >= 0xE0:
            return first - 0x100
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first in _BYTES:
            return self._bytes(self._number(f">{_BYTES[first]}"))
        if first in _TEXTS:
            return self._bytes(self._number(f">{_TEXTS[first]}")).decode()
        if first in _ARRAYS:
            return self._array(self._number(f">{_ARRAYS[first]}"))
        return self._map(self._number(f">{_MAPS[first]}"))

    def _number(self, form: str) -> Any:
        [number] = unpack_from(form, self._data, self._at)
        self._at += len(pack(form, 0))
        return number

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def _array(self, length: int) -> list[Any]:
        return [self.value() for _ in range(length)]

    def _map(self, length: int) -> dict[str, Any]:
        return {self.value(): self.value() for _ in range(length)}


# The client


class Refused(Exception):  # noqa: N818 - the word of the protocol
    def __init__(self, body: list[Any]) -> None:
        super().__init__(body[2])
        _, self.error, self.reason, self.step, self.text, self.position = body[:6]


class Closed(Exception):  # noqa: N818
    """The broker has said BYE, or nothing more."""

    def __init__(self, reason: str = "", again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class SecondClient:
    """One connection. Whatever is asked for is waited for; what comes meanwhile is kept in `notes` and the like."""

    def __init__(
        self, address: tuple[str, int], name: str, last_broker: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.name = name
        self.notes: deque[list[Any]] = deque()
        self.receipts: dict[int, list[Any]] = {}
        self.bound: dict[str, tuple[int, list[str]]] = {}  # number, and attributes in the order of their bits
        self.told: list[Frame] = []  # answers, and whatever else came
        self._request = 0
        self._rest = b""
        plain = socket.create_connection(address, timeout=60)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
        session = time.time_ns() // 1000
        self.send(HELLO, ["tidings", [1], "client", name, session, last_broker, 1, "second-client"])
        kind, body = self.next_frame()
        if kind != WELCOME:
            self.socket.close()
            raise Closed(*body[:2])
        self.welcome = body
        self.broker, self._sequence = body[1], body[7]

    # Frames

    def send(self, kind: int, body: Any, ahead: bytes = b"") -> None:
        written = ahead + packed(body)
        self.socket.sendall(pack(">IB", len(written) + 1, kind) + written)

    def next_frame(self) -> Frame:
        while len(self._rest) < 4 or len(self._rest) < 4 + unpack_from(">I", self._rest)[0]:
            data = self.socket.recv(65_536)
            if not data:
                raise Closed
            self._rest += data
        end = 4 + unpack_from(">I", self._rest)[0]
        frame, self._rest = self._rest[4:end], self._rest[end:]
        return frame[0], Unpacker(frame[1:]).value()

    def step(self) -> Frame:
        """Reads one frame and does what is to be done with it."""
        kind, body = self.next_frame()
        if kind == PING:
            self.send(PONG, body)
        elif kind == NOTIFICATION:
            self.notes.append(body)
        elif kind == RECEIPTS:
            self.receipts.update({one[0]: one for one in body[0]})
        elif kind == BOUND:
            self.bound[body[1]] = body[0], [name for version in body[2] for name in version]
        elif kind == BYE:
            raise Closed(*body[:2])
        elif kind != PONG:
            self.told.append((kind, body))
        return kind, body

    # Requests

    def ask_for(self, kind: int, *fields: Any) -> list[Any]:
        """A request of that kind, and the body of its answer."""
        self._request += 1
        self.send(kind, [self._request, *fields])
        return self._answered(self._request)

    def _answered(self, request: int) -> list[Any]:
        while True:
            kind, body = self.step()
            if kind in (DONE, ANSWER, REFUSED) and body[0] == request:
                if kind == REFUSED:
                    raise Refused(body)
                return list(body)

    def subscribe(self, id: str, content: str = "", durable: str | None = None, **more: Any) -> str:  # noqa: A002
        """The id that the subscription has."""
        fields = [id, content, more.get("publishers"), None, durable, more.get("notify", "subscription")]
        return str(self.ask_for(SUBSCRIBE, *fields, more.get("subject"), more.get("structure"), more.get("limit"))[2])

    def acknowledge(self, subscription: str, *notes: list[Any]) -> None:
        self.send(ACKNOWLEDGE, [subscription, [note[1][0] for note in notes]])

    def ask(self, question: str, **about: Any) -> Any:
        return self.ask_for(ASK, question, about)[1]

    def ping(self, number: int) -> int:
        """The number that comes back."""
        self.send(PING, [number])
        while True:
            kind, body = self.step()
            if kind == PONG:
                return int(body[0])

    # Publishing

    def publish(self, attributes: dict[str, Any], safe: int = 1, subject: str | None = None, **more: Any) -> list[Any]:
        """The receipt."""
        request = self.publish_only(attributes, safe, subject, **more)
        while request not in self.receipts:
            kind, body = self.step()
            if kind == REFUSED and body[0] == request:
                raise Refused(body)
        return self.receipts.pop(request)

    def publish_only(self, attributes: dict[str, Any], safe: int = 1, subject: str | None = None, **more: Any) -> int:
        """Sends a publication; the number by which it will be answered."""
        self._request += 1
        self._sequence += 1
        ahead = pack(">IB", 0, 0)
        if subject in self.bound:
            number, names = self.bound[subject]
            vector = sum(1 << names.index(name) for name in attributes)
            bits = vector.to_bytes((len(names) + 7) // 8, "big")
            ahead, subject = pack(">IB", number, len(bits)) + bits, None
        sequence = more.get("sequence", self._sequence)
        fields = [self._request, more.get("id") or event_id(), sequence, safe, attributes, subject]
        self.send(PUBLISH, [*fields, more.get("payload"), more.get("context"), more.get("subscribers")], ahead)
        return self._request

    # Receiving

    def take(self, count: int) -> list[list[Any]]:
        """So many notifications, as they come."""
        while len(self.notes) < count:
            self.step()
        return [self.notes.popleft() for _ in range(count)]

    def leave(self) -> None:
        """Says goodbye, and waits until the broker has closed."""
        self.send(BYE, ["the second client leaves", True])
        try:
            while True:
                self.step()
        except Closed:
            self.socket.close()

    def break_off(self) -> None:
        """Without a word."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def event_id() -> bytes:
    """A UUID of version 7."""
    made = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + secrets.token_bytes(10))
    made[6] = 0x70 | made[6] & 0x0F
    made[8] = 0x80 | made[8] & 0x3F
    return bytes(made)

"""Frames: a length, a kind, a body. Bytes go in as they come, in any pieces; whole frames come out.

A frame is four bytes of length (big-endian, of what follows), one byte of kind, and a body, which is MessagePack unless
the kind says otherwise.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from tidings.model.errors import TidingsError
from tidings.model.limits import MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO

_LENGTH = Struct(">I")
_HEAD = Struct(">IB")
LENGTH_BYTES = _LENGTH.size
HEAD_BYTES = _HEAD.size


class Kind(IntEnum):
    """The numbers are part of the protocol: they are never given to something else."""

    # Both ways
    HELLO = 1
    WELCOME = 2
    PING = 3
    PONG = 4
    BYE = 5
    BOUND = 6
    CHALLENGE = 7
    PROOF = 8
    # From a client
    PUBLISH = 10
    SUBSCRIBE = 11
    UNSUBSCRIBE = 12
    ADVERTISE = 13
    UNADVERTISE = 14
    SET_CONTEXT = 15
    ENTRUST = 16
    SET_POLICY = 17
    DEFINE = 18
    ACKNOWLEDGE = 19
    ASK = 20
    # To a client
    DONE = 30
    REFUSED = 31
    RECEIPTS = 32
    NOTE = 33
    LOST = 34
    CONTEXT = 35
    ANSWER = 36
    # Between brokers
    OPERATION = 40
    PASS = 41


class FramingError(TidingsError):
    """Bytes that are no frames: the connection cannot be used any more. `before` are the frames that came before."""

    def __init__(self, message: str, before: Sequence[tuple[int, bytes]] = ()) -> None:
        super().__init__(message)
        self.before = before


def frame(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


class Splitter:
    """Cuts a stream of bytes into frames. `limit` is the most bytes that a frame may have, its length not counted; it
    is small until the other side has said who it is."""

    __slots__ = ("_rest", "limit")

    def __init__(self, limit: int = MAX_FRAME_BYTES_BEFORE_HELLO) -> None:
        self.limit = limit
        self._rest = bytearray()

    def welcome(self, limit: int = MAX_FRAME_BYTES) -> None:
        """The other side is known: its frames may be as large as frames may be."""
        self.limit = limit

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are whole now, as kind and body; a `FramingError` if a length cannot be.

        Nothing is kept of a frame that is too long: it is refused when its length is read.
        """
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < LENGTH_BYTES or len(rest) < LENGTH_BYTES + self._checked(_LENGTH.unpack_from(rest)[0]):
                return []
            data = bytes(rest)
            rest.clear()
        found: list[tuple[int, bytes]] = []
        position, size, limit, length_at = 0, len(data), self.limit, _LENGTH.unpack_from
        while size - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            length = length_at(data, position)[0]
            end = start + (length if 0 < length <= limit else self._checked(length, found))
            if end > size:
                break
            found.append((data[start], data[start + 1 : end]))
            position = end
        if position < size:
            rest += data[position:]
        return found

    def _checked(self, length: int, before: Sequence[tuple[int, bytes]] = ()) -> int:
        if not 0 < length <= self.limit:
            told = "a frame of no bytes" if not length else f"a frame of {length:,} bytes; the most are {self.limit:,}"
            raise FramingError(told, before)
        return length

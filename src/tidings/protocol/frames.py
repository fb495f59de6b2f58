"""Frames: cut a byte stream into messages, and build frames.

A frame is four bytes of length (big-endian, of what follows), one byte of kind, and a body. The body is MessagePack
unless the kind says otherwise. This module is sans-I/O: bytes go in, in pieces of any size, and whole frames come out.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

import msgspec

from tidings.model.errors import TidingsError
from tidings.model.limits import MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO

_LENGTH = Struct(">I")
_HEAD = Struct(">IB")
LENGTH_BYTES = _LENGTH.size
HEAD_BYTES = _HEAD.size


class FrameKind(IntEnum):
    """The kind of a frame. The numbers are part of the protocol and are never reused."""

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
    NOTIFICATION = 33
    LOST = 34
    CONTEXT = 35
    ANSWER = 36
    # Between brokers
    OPERATION = 40
    PASS = 41


class FramingError(TidingsError):
    """The bytes are not valid frames; the connection cannot continue. `before` are the complete frames before."""

    def __init__(self, message: str, before: Sequence[tuple[int, bytes]] = ()) -> None:
        super().__init__(message)
        self.before = before


def frame(kind: int, body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(len(body) + 1, kind) + body


class FrameSplitter:
    """A splitter of one connection's byte stream into frames.

    `limit` is the largest allowed length of a frame, without its length field; it is small until the handshake is
    complete.
    """

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int = MAX_FRAME_BYTES_BEFORE_HELLO) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def welcome(self, limit: int = MAX_FRAME_BYTES) -> None:
        """Raise the limit after the handshake."""
        self.limit = limit

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that are complete now, as (kind, body); raise a `FramingError` for a length out of range.

        A frame that is too long is refused as soon as its length is read; none of its bytes are stored.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < LENGTH_BYTES or len(buffer) < LENGTH_BYTES + self._check_length(
                _LENGTH.unpack_from(buffer)[0]
            ):
                return []
            data = bytes(buffer)
            buffer.clear()
        frames: list[tuple[int, bytes]] = []
        position, size, limit, length_at = 0, len(data), self.limit, _LENGTH.unpack_from
        while size - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            length = length_at(data, position)[0]
            end = start + (length if 0 < length <= limit else self._check_length(length, frames))
            if end > size:
                break
            frames.append((data[start], data[start + 1 : end]))
            position = end
        if position < size:
            buffer += data[position:]
        return frames

    def _check_length(self, length: int, before: Sequence[tuple[int, bytes]] = ()) -> int:
        if not 0 < length <= self.limit:
            message = (
                "a frame of no bytes" if not length else f"a frame of {length:,} bytes; the most are {self.limit:,}"
            )
            raise FramingError(message, before)
        return length


# What decoding a bad body may raise: invalid UTF-8 and too deep nesting are not msgspec errors.
UNREADABLE: tuple[type[Exception], ...] = (msgspec.MsgspecError, TidingsError, UnicodeDecodeError, RecursionError)

"""The socket of a client: frames in and out. What is sent in one turn of the loop goes out together."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from tidings.protocol.frames import FramingError, Kind, Splitter, frame
from tidings.protocol.handshake import Bye, Ping

_ENCODE = msgspec.msgpack.Encoder().encode
_PING = frame(Kind.PING, _ENCODE(Ping()))
_LINGER = 5.0  # seconds
CLOSED = "the broker has closed the connection"  # where it has not said why


class Wire(asyncio.Protocol):
    """`taken` is called with the frames that came, `relieved` when more can be sent again, `lost` once with the reason
    why no more comes."""

    def __init__(
        self,
        taken: Callable[[list[tuple[int, bytes]]], None],
        relieved: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        self.on_frames, self._relieved, self._lost = taken, relieved, lost
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._now: list[bytes] = []
        self.is_full = False  # whether the broker does not read as fast as is sent
        self._lingering: asyncio.TimerHandle | None = None
        self._reason = ""
        self._is_reading = True
        self.heard = self._loop.time()
        self.wrote = self._loop.time()

    # What the client does

    def send(self, data: bytes) -> None:
        if not self._now:
            self._loop.call_soon(self._write)
        self._now.append(data)

    def say(self, kind: Kind, message: msgspec.Struct) -> None:
        self.send(frame(kind, _ENCODE(message)))

    @property
    def certificate(self) -> bytes | None:
        """That of the broker, in DER."""
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if secured is None else secured.getpeercert(binary_form=True)

    def welcome(self, limit: int) -> None:
        self._splitter.welcome(limit)

    def beat(self, interval: float, patience: float) -> None:
        """Says that this side is there, and finds out whether the other one is."""
        now = self._loop.time()
        if now - self.heard > patience and self._is_reading:
            self.end(f"nothing was heard for {now - self.heard:.1f} seconds")
        elif now - self.wrote >= interval:
            self.send(_PING)

    def read(self, wanted: bool) -> None:
        if wanted != self._is_reading and self._transport is not None:
            self._is_reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()
            self.heard = self._loop.time()

    def end(self, reason: str) -> None:
        """At once."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """After what was sent before has gone, if the broker reads it in time."""
        self._reason = self._reason or reason
        if self._transport is not None and not self._transport.is_closing():
            self.say(Kind.BYE, Bye(reason))
            self._write()
            self._transport.close()
            self._lingering = self._loop.call_later(_LINGER, self.end, reason)

    # What the loop tells it

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        try:
            self.on_frames(self._splitter.feed(data))
        except FramingError as error:
            self.on_frames(list(error.before))
            self.end(f"the broker sent {error}")

    def pong(self, ping: Ping) -> None:
        self.say(Kind.PONG, ping)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._relieved()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.is_full = False
        self._now.clear()
        if self._lingering is not None:
            self._lingering.cancel()
        was_closed = error is None or isinstance(error, ConnectionResetError)
        self._lost(self._reason or (CLOSED if was_closed else str(error)))

    def _write(self) -> None:
        if not self._now or self._transport is None:
            return
        data = self._now[0] if len(self._now) == 1 else b"".join(self._now)
        self._now.clear()
        self.wrote = self._loop.time()
        self._transport.write(data)

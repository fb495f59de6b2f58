"""A connection: frames in, frames out, on one socket. Bounded in both directions, and it knows when the other side is
gone.

What is written in one turn of the loop goes out together. While the other side does not read, frames wait here, up to a
limit; what then happens is its owner's to decide.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import msgspec

from tidings.live.metrics import Metrics
from tidings.live.tls import fingerprint_of, name_of
from tidings.protocol.frames import FramingError, Kind, Splitter, frame
from tidings.protocol.handshake import Bye, Ping

_HIGH_WATER = 256 * 1024  # bytes in the socket's own buffer before frames wait here
_LINGER = 5.0  # seconds that the other side has to read the rest of a connection that is closed
_ENCODE = msgspec.msgpack.Encoder().encode
_PING = frame(Kind.PING, _ENCODE(Ping()))

Frame = tuple[int, bytes]


class Owner(Protocol):
    """Who a connection belongs to: a session of a client, a link to a broker, or a greeting that is neither yet."""

    def take(self, frames: list[Frame]) -> None:
        """Frames have come, in this order."""

    def stalled(self) -> None:
        """Frames have to wait, since the other side does not read."""

    def ahead(self) -> list[bytes]:
        """Frames that are to go before those that wait."""
        ...

    def relieved(self) -> None:
        """None has to wait any more."""

    def gone(self, reason: str) -> None:
        """The connection is closed. Told once."""


class Connection(asyncio.Protocol):
    """`owner` may change, once it is known who is at the other end."""

    def __init__(
        self,
        metrics: Metrics,
        opened: Callable[["Connection"], Owner],
        closed: Callable[["Connection"], None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._opened, self._closed = opened, closed
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._now: list[bytes] = []  # to be written at the end of this turn
        self._now_bytes = 0
        self._waiting: deque[tuple[bytes, Hashable | None]] = deque()  # with what it is about, if it may be lost
        self.waiting_bytes = 0
        self._is_stalled = False
        self.is_reading = True
        self.host = ""  # of the other side
        self.own_fingerprint = b""  # of the certificate that this side has shown
        self._reason = ""
        self.heard = self._loop.time()  # when something came last
        self.stalled_since = 0.0
        self._lingering: asyncio.TimerHandle | None = None
        self.owner: Owner

    # What its owner does

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_stalled(self) -> bool:
        return self._is_stalled

    @property
    def buffered_bytes(self) -> int:
        """The bytes that were sent and that the system has not taken yet, without those in `waiting_bytes`."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._now_bytes + written

    @property
    def certified_name(self) -> str | None:
        """The name in the certificate of the other side."""
        return None if self._transport is None else name_of(self._transport.get_extra_info("peercert"))

    @property
    def certificate(self) -> bytes | None:
        """That of the other side, in DER."""
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if secured is None else secured.getpeercert(binary_form=True)

    @property
    def fingerprints(self) -> tuple[bytes, bytes]:
        """Of this side's certificate and of the other's; empty where there is none."""
        return self.own_fingerprint, fingerprint_of(self.certificate)

    def welcome(self, limit: int) -> None:
        """It is known who this is: frames may be as large as frames may be."""
        self._splitter.welcome(limit)

    def send(self, data: bytes, about: Hashable | None = None) -> None:
        """A frame, or several; in order. `about` marks what may be lost if the other side is too slow."""
        if not self.is_open:
            return
        if self._is_stalled:
            self._waiting.append((data, about))
            self.waiting_bytes += len(data)
            return
        if not self._now:
            self._loop.call_soon(self._write)
        self._now.append(data)
        self._now_bytes += len(data)
        if self._now_bytes > _HIGH_WATER:
            self._write()  # so that it is known whether the rest has to wait

    def say(self, kind: Kind, message: msgspec.Struct) -> None:
        self.send(frame(kind, _ENCODE(message)))

    def ping(self) -> None:
        self.send(_PING)

    def pong(self, ping: Ping) -> None:
        self.say(Kind.PONG, ping)

    def read(self, wanted: bool) -> None:
        """Whether anything more is to come in for now."""
        if wanted != self.is_reading and self._transport is not None:
            self.is_reading = wanted
            self.heard = self._loop.time()  # while it was not read it could not be heard
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def close(self, reason: str, *, again: bool = True, say: bool = True) -> None:
        """What was sent before is still written, as far as the other side reads it."""
        if self._transport is None or self._transport.is_closing():
            return
        self._reason = self._reason or reason
        if say and not self._is_stalled:
            self.say(Kind.BYE, Bye(reason, again))
            self._write()
        self._transport.close()
        self._lingering = self._loop.call_later(_LINGER, self.abort, reason)

    def abort(self, reason: str) -> None:
        """At once: the other side does not read."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting(self) -> int:
        """How many frames wait."""
        return len(self._waiting)

    def lose_oldest(self, left_bytes: int, left: int) -> Counter[Hashable]:
        """Of what waits and may be lost, the oldest is, until no more than so many bytes and frames wait; how much, of
        what."""
        lost: Counter[Hashable] = Counter()
        kept: deque[tuple[bytes, Hashable | None]] = deque()
        while self._waiting and (self.waiting_bytes > left_bytes or len(self._waiting) + len(kept) > left):
            data, about = self._waiting.popleft()
            if about is None:
                kept.append((data, about))
            else:
                self.waiting_bytes -= len(data)
                lost[about] += 1
        kept.extend(self._waiting)
        self._waiting = kept
        return lost

    # What the loop tells it

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.host = (transport.get_extra_info("peername") or ("",))[0]
        self.owner = self._opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        self._metrics.bytes_in += len(data)
        broken: FramingError | None = None
        try:
            frames = self._splitter.feed(data)
        except FramingError as error:
            broken, frames = error, list(error.before)
        if frames:
            self.owner.take(frames)
        if broken is not None:
            self._metrics.broken_connections += 1
            self.close(str(broken), again=False)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_stalled = True
        self.stalled_since = self._loop.time()
        self.owner.stalled()

    def resume_writing(self) -> None:
        self._is_stalled = False
        for data in reversed(self.owner.ahead()):
            self._waiting.appendleft((data, None))
            self.waiting_bytes += len(data)
        while self._waiting and not self._is_stalled and self._transport is not None:
            data, _ = self._waiting.popleft()
            self.waiting_bytes -= len(data)
            self._metrics.bytes_out += len(data)
            self._transport.write(data)
        if not self._is_stalled:
            self.owner.relieved()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._is_stalled = False
        if self._lingering is not None:
            self._lingering.cancel()
        self._waiting.clear()
        self._now.clear()
        self.waiting_bytes = 0
        self.owner.gone(self._reason or (str(error) if error else "the other side has closed the connection"))
        if self._closed is not None:
            self._closed(self)
        del self.owner  # which holds this connection: so both are let go at once, not when somebody looks for circles

    def _write(self) -> None:
        if not self._now or self._transport is None:
            return
        data = self._now[0] if len(self._now) == 1 else b"".join(self._now)
        self._now.clear()
        self._now_bytes = 0
        self._metrics.bytes_out += len(data)
        self._transport.write(data)

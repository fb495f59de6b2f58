"""A connection: frames in and out over one socket, with bounded memory in both directions.

Frames that are sent in one turn of the event loop are written together. While the other side does not read, further
frames wait in the connection; its owner decides what happens when too many wait.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import msgspec

from tidings.broker.metrics import TrafficMetrics
from tidings.broker.net.tls import fingerprint_of, name_of
from tidings.protocol.frames import FrameKind, FrameSplitter, FramingError, frame
from tidings.protocol.handshake import Bye, Ping

_HIGH_WATER = 256 * 1024  # bytes in the transport's buffer, above which frames wait here
_LINGER = 5.0  # seconds that the other side has to read the rest once the connection is being closed
_ENCODE = msgspec.msgpack.Encoder().encode
_PING = frame(FrameKind.PING, _ENCODE(Ping()))

Frame = tuple[int, bytes]


class ConnectionOwner(Protocol):
    """What handles a connection's frames: a client session, a link to a broker, or a handshake that is under way."""

    def handle_frames(self, frames: list[Frame]) -> None:
        """Handle frames that have come, in order."""

    def on_stalled(self) -> None:
        """Called when the other side does not read, so that frames begin to wait in the connection."""

    def frames_first(self) -> list[bytes]:
        """Return frames that are to be sent before those that wait, when the other side reads again."""
        ...

    def on_resumed(self) -> None:
        """Called when no frame waits any more."""

    def on_closed(self, reason: str) -> None:
        """Called by the connection, once, when it is closed; owners that hand over or give up call it themselves."""


class Connection(asyncio.Protocol):
    """An asyncio protocol that splits the byte stream into frames and gives them to its `owner`.

    The owner changes once the handshake is complete. `opened` returns the first owner when the connection is made;
    `closed` is called after it has ended.
    """

    def __init__(
        self,
        metrics: TrafficMetrics,
        opened: Callable[["Connection"], ConnectionOwner],
        closed: Callable[["Connection"], None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._opened, self._closed = opened, closed
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []  # frames to be written at the end of this turn of the event loop
        self._outgoing_bytes = 0
        self._waiting: deque[tuple[bytes, Hashable | None]] = deque()  # `send`'s data and `drop_key`
        self.waiting_bytes = 0
        self._is_stalled = False
        self.is_reading = True
        self.host = ""  # of the other side
        self.own_fingerprint = b""  # of this side's certificate
        self._reason = ""
        self.last_received = self._loop.time()  # when data came last
        self.stalled_since = 0.0
        self._abort_timer: asyncio.TimerHandle | None = None
        self.owner: ConnectionOwner

    # For the owner

    @property
    def is_open(self) -> bool:
        """Whether the connection is made and is not being closed."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_stalled(self) -> bool:
        """Whether the other side does not read, so that frames wait."""
        return self._is_stalled

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that were sent and not taken by the system yet, without `waiting_bytes`."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._outgoing_bytes + written

    @property
    def certified_name(self) -> str | None:
        """The name in the certificate of the other side; None if it has shown none."""
        return None if self._transport is None else name_of(self._transport.get_extra_info("peercert"))

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the other side, in DER; None if it has shown none."""
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if secured is None else secured.getpeercert(binary_form=True)

    @property
    def fingerprints(self) -> tuple[bytes, bytes]:
        """The fingerprints of this side's certificate and of the other side's; empty where there is none."""
        return self.own_fingerprint, fingerprint_of(self.certificate)

    def raise_frame_limit(self, max_bytes: int) -> None:
        """Allow frames of up to `max_bytes` bytes from now on, since the other side has completed the handshake."""
        self._splitter.welcome(max_bytes)

    def send(self, data: bytes, drop_key: Hashable | None = None) -> None:
        """Send the bytes of one or several frames, behind what was sent before; nothing is sent once it is closed.

        `drop_key` marks frames that `lose_oldest` may drop while they wait; it counts the dropped ones by this value.
        """
        if not self.is_open:
            return
        if self._is_stalled:
            self._waiting.append((data, drop_key))
            self.waiting_bytes += len(data)
            return
        if not self._outgoing:
            self._loop.call_soon(self._write)
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > _HIGH_WATER:
            self._write()  # this may call `pause_writing`, so that the rest waits

    def send_message(self, kind: FrameKind, message: msgspec.Struct) -> None:
        """Encode a message and send it as a frame of this kind."""
        self.send(frame(kind, _ENCODE(message)))

    def ping(self) -> None:
        """Send a PING, which the other side answers with a PONG."""
        self.send(_PING)

    def pong(self, ping: Ping) -> None:
        """Answer a PING of the other side."""
        self.send_message(FrameKind.PONG, ping)

    def set_reading(self, is_reading: bool) -> None:
        """Resume reading from the socket, or pause it, so that the other side's data stays in the network."""
        if is_reading != self.is_reading and self._transport is not None:
            self.is_reading = is_reading
            self.last_received = self._loop.time()  # the time without reading must not count as silence
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()

    def close(self, reason: str, *, retry: bool = True, send_bye: bool = True) -> None:
        """Close the connection, after what was sent before is written.

        The other side has a few seconds to read the rest; then the connection is aborted.

        Args:
            reason: Sent to the other side, and given to the owner's `on_closed`.
            retry: Whether the other side should try to connect again.
            send_bye: Whether a BYE with the reason is sent.
        """
        if self._transport is None or self._transport.is_closing():
            return
        self._reason = self._reason or reason
        if send_bye and not self._is_stalled:
            self.send_message(FrameKind.BYE, Bye(reason, retry))
            self._write()
        self._transport.close()
        self._abort_timer = self._loop.call_later(_LINGER, self.abort, reason)

    def abort(self, reason: str) -> None:
        """Close the connection at once, without writing what waits."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting_frames(self) -> int:
        """The number of frames that wait for the other side to read."""
        return len(self._waiting)

    def lose_oldest(self, max_bytes: int, max_frames: int) -> Counter[Hashable]:
        """Drop the oldest waiting frames that may be dropped; return how many were, by their `drop_key`.

        It stops once no more than `max_bytes` bytes and `max_frames` frames wait.
        """
        lost: Counter[Hashable] = Counter()
        undroppable: deque[tuple[bytes, Hashable | None]] = deque()
        while self._waiting and (self.waiting_bytes > max_bytes or len(self._waiting) + len(undroppable) > max_frames):
            data, drop_key = self._waiting.popleft()
            if drop_key is None:
                undroppable.append((data, drop_key))
            else:
                self.waiting_bytes -= len(data)
                lost[drop_key] += 1
        undroppable.extend(self._waiting)
        self._waiting = undroppable
        return lost

    # Callbacks of the event loop

    def connection_made(self, transport: Any) -> None:
        """Get the first owner of the new connection."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.host = (transport.get_extra_info("peername") or ("",))[0]
        self.owner = self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Give all complete frames to the owner; close the connection if the data is not valid frames."""
        self.last_received = self._loop.time()
        self._metrics.bytes_in += len(data)
        broken: FramingError | None = None
        try:
            frames = self._splitter.feed(data)
        except FramingError as error:
            broken, frames = error, list(error.before)
        if frames:
            self.owner.handle_frames(frames)
        if broken is not None:
            self._metrics.broken_connections += 1
            self.close(str(broken), retry=False)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Let frames wait from now on, since the other side does not read."""
        self._is_stalled = True
        self.stalled_since = self._loop.time()
        self.owner.on_stalled()

    def resume_writing(self) -> None:
        """Write the frames that wait, those of the owner's `frames_first` first, and tell the owner when none waits."""
        self._is_stalled = False
        for data in reversed(self.owner.frames_first()):
            self._waiting.appendleft((data, None))
            self.waiting_bytes += len(data)
        while self._waiting and not self._is_stalled and self._transport is not None:
            data, _ = self._waiting.popleft()
            self.waiting_bytes -= len(data)
            self._metrics.bytes_out += len(data)
            self._transport.write(data)
        if not self._is_stalled:
            self.owner.on_resumed()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the frames that wait, and tell the owner that the connection is gone."""
        self._transport = None
        self._is_stalled = False
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._waiting.clear()
        self._outgoing.clear()
        self.waiting_bytes = 0
        self.owner.on_closed(self._reason or (str(error) if error else "the other side has closed the connection"))
        if self._closed is not None:
            self._closed(self)
        del self.owner  # breaks the reference cycle, so that both are freed at once

    def _write(self) -> None:
        if not self._outgoing or self._transport is None:
            return
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._metrics.bytes_out += len(data)
        self._transport.write(data)

"""A connection: frames in and out over one socket, with bounded memory in both directions.

Frames that are sent in one turn of the event loop are written together. While the other side does not read, further
frames wait in the connection's `FlowControl`; its owner decides what happens when too many wait.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import msgspec

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.metrics import TrafficMetrics
from tidings.broker.net.channel import Channel, ConnectionOwner, FlowControl, PeerIdentity
from tidings.broker.net.tls import Certificates
from tidings.protocol.frames import FrameKind, FrameSplitter, FramingError, frame
from tidings.protocol.handshake import Bye
from tidings.security.ca.certificates import Role

_HIGH_WATER = 256 * 1024  # bytes in the transport's buffer, above which frames wait here
_LINGER = 5.0  # seconds that the other side has to read the rest once the connection is being closed
_ENCODE = msgspec.msgpack.Encoder().encode

Opened = Callable[[Channel], ConnectionOwner]
Closed = Callable[[Channel], None]


class Connection(asyncio.Protocol):
    """An asyncio protocol that splits the byte stream into frames and gives them to its owner. It is a `Channel`.

    The owner changes once the handshake is complete.

    Args:
        metrics: The counters that the connection increments.
        opened: Returns the first owner, when the connection is made.
        closed: Called after the connection has ended.
        own_fingerprint: The fingerprint of this side's certificate; empty without TLS.
    """

    def __init__(
        self, metrics: TrafficMetrics, opened: Opened, closed: Closed | None = None, own_fingerprint: bytes = b""
    ) -> None:
        self._metrics = metrics
        self._opened, self._closed = opened, closed
        self._own_fingerprint = own_fingerprint
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []  # frames to be written at the end of this turn of the event loop
        self._outgoing_bytes = 0
        self._reason = ""
        self._abort_timer: asyncio.TimerHandle | None = None
        self._owner: ConnectionOwner
        self.peer: PeerIdentity
        self.flow: FlowControl

    # Channel

    @property
    def is_open(self) -> bool:
        """Whether the connection is made and is not being closed."""
        return self._transport is not None and not self._transport.is_closing()

    def hand_over(self, owner: ConnectionOwner, max_frame_bytes: int) -> None:
        """Give the connection to another owner, since the handshake is complete, and allow larger frames."""
        self._owner = owner
        self._splitter.welcome(max_frame_bytes)

    def send(self, data: bytes, drop_key: Hashable | None = None) -> None:
        """Send the bytes of one or several frames; see `Channel.send`."""
        if not self.is_open:
            return
        if self.flow.is_stalled:
            self.flow.add(data, drop_key)
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

    def close(self, reason: str, *, retry: bool = True, send_bye: bool = True) -> None:
        """Close the connection, after what was sent before is written; see `Channel.close`."""
        if self._transport is None or self._transport.is_closing():
            return
        self._reason = self._reason or reason
        if send_bye and not self.flow.is_stalled:
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
    def buffered_bytes(self) -> int:
        """The number of bytes that were sent and not taken by the system yet, without those that wait (for tests)."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._outgoing_bytes + written

    # Callbacks of the event loop

    def connection_made(self, transport: Any) -> None:
        """Get the first owner of the new connection."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.peer = PeerIdentity(transport, self._own_fingerprint)
        self.flow = FlowControl(transport, self._loop.time)
        self._owner = self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Give all complete frames to the owner; close the connection if the data is not valid frames."""
        self.flow.last_received = self._loop.time()
        self._metrics.bytes_in += len(data)
        broken: FramingError | None = None
        try:
            frames = self._splitter.feed(data)
        except FramingError as error:
            broken, frames = error, list(error.before)
        if frames:
            self._owner.handle_frames(frames)
        if broken is not None:
            self._metrics.broken_connections += 1
            self.close(str(broken), retry=False)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Let frames wait from now on, since the other side does not read."""
        self.flow.is_stalled = True
        self.flow.stalled_since = self._loop.time()
        self._owner.on_stalled()

    def resume_writing(self) -> None:
        """Write the frames that wait, those of the owner's `frames_first` first, and tell the owner when none waits."""
        flow = self.flow
        flow.is_stalled = False
        flow.add_first(self._owner.frames_first())
        while flow.waiting_frames and not flow.is_stalled and self._transport is not None:
            data = flow.take()
            self._metrics.bytes_out += len(data)
            self._transport.write(data)
        if not flow.is_stalled:
            self._owner.on_resumed()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the frames that wait, and tell the owner that the connection is gone."""
        self._transport = None
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._outgoing.clear()
        self.flow.close()
        self.peer.close()
        self._owner.on_closed(self._reason or (str(error) if error else "the other side has closed the connection"))
        if self._closed is not None:
            self._closed(self)
        del self._owner  # breaks the reference cycle, so that both are freed at once

    def _write(self) -> None:
        if not self._outgoing or self._transport is None:
            return
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._metrics.bytes_out += len(data)
        self._transport.write(data)


class LocalEnd(NamedTuple):
    """This broker's end of all connections: what it says of itself in a handshake, and what it checks.

    `refusal` returns why the certificate of the other side is not acceptable, or None; the role is the one that the
    certificate must have, if any.
    """

    name: str
    incarnation: int  # when this broker was started, in microseconds
    configuration: ActiveConfiguration
    certificates: Certificates | None
    traffic: TrafficMetrics
    refusal: Callable[[PeerIdentity, Role | None], str | None]

    def connection(self, opened: Opened, closed: Closed | None = None) -> Connection:
        """Return a new connection, for the event loop."""
        fingerprint = b"" if self.certificates is None else self.certificates.fingerprint
        return Connection(self.traffic, opened, closed, fingerprint)

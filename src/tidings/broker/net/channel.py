"""What the owner of a connection sees of it: the channel, its flow control, and the peer at the other end."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Protocol

import msgspec

from tidings.broker.net.tls import fingerprint_of, name_of
from tidings.protocol.frames import FrameKind

Frame = tuple[int, bytes]


class ConnectionOwner(Protocol):
    """Handles a connection's frames: a client session, a link to a broker, or a handshake that is under way."""

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


class PeerIdentity:
    """Who is at the other end of a connection: its host, and the certificate that it has shown.

    `own_fingerprint` is that of this side's certificate; it is empty without TLS.
    """

    def __init__(self, transport: asyncio.Transport, own_fingerprint: bytes) -> None:
        self._transport: asyncio.Transport | None = transport
        self._own_fingerprint = own_fingerprint
        self.host: str = (transport.get_extra_info("peername") or ("",))[0]

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
        return self._own_fingerprint, fingerprint_of(self.certificate)

    def close(self) -> None:
        """Forget the certificate, since the connection is gone; this breaks the reference cycle with the transport."""
        self._transport = None


class FlowControl:
    """The backpressure of a connection in both directions.

    While the other side does not read, the connection `is_stalled`, and the frames for it wait here. While this side
    does not read (`is_reading` is false), the other side's data stays in the network.
    """

    def __init__(self, transport: asyncio.Transport, time: Callable[[], float]) -> None:
        self._transport: asyncio.Transport | None = transport
        self._time = time
        self._waiting: deque[tuple[bytes, Hashable | None]] = deque()  # data and `drop_key` of `Channel.send`
        self.waiting_bytes = 0
        self.is_stalled = False
        self.stalled_since = 0.0
        self.is_reading = True
        self.last_received = time()  # when data came last

    def set_reading(self, is_reading: bool) -> None:
        """Resume reading from the socket, or pause it, so that the other side's data stays in the network."""
        if is_reading != self.is_reading and self._transport is not None:
            self.is_reading = is_reading
            self.last_received = self._time()  # the time without reading must not count as silence
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()

    @property
    def waiting_frames(self) -> int:
        """The number of frames that wait for the other side to read."""
        return len(self._waiting)

    def add(self, data: bytes, drop_key: Hashable | None) -> None:
        """Let data wait, behind what waits already; `drop_key` is that of `Channel.send`."""
        self._waiting.append((data, drop_key))
        self.waiting_bytes += len(data)

    def add_first(self, frames: list[bytes]) -> None:
        """Let frames wait, before what waits already."""
        for data in reversed(frames):
            self._waiting.appendleft((data, None))
            self.waiting_bytes += len(data)

    def take(self) -> bytes:
        """Remove and return the data that has waited longest."""
        data, _ = self._waiting.popleft()
        self.waiting_bytes -= len(data)
        return data

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

    def close(self) -> None:
        """Drop the frames that wait, since the connection is gone."""
        self._transport = None
        self.is_stalled = False
        self._waiting.clear()
        self.waiting_bytes = 0


class Channel(Protocol):
    """A connection, as its owner and the parts of a broker use it."""

    @property
    def peer(self) -> PeerIdentity:
        """Who is at the other end."""
        ...

    @property
    def flow(self) -> FlowControl:
        """The backpressure of the connection."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the connection is made and is not being closed."""
        ...

    def hand_over(self, owner: ConnectionOwner, max_frame_bytes: int) -> None:
        """Give the connection to another owner, since the handshake is complete, and allow larger frames."""
        ...

    def send(self, data: bytes, drop_key: Hashable | None = None) -> None:
        """Send the bytes of one or several frames, behind what was sent before; nothing is sent once it is closed.

        `drop_key` marks frames that `FlowControl.lose_oldest` may drop while they wait; it counts the dropped ones by
        this value.
        """
        ...

    def send_message(self, kind: FrameKind, message: msgspec.Struct) -> None:
        """Encode a message and send it as a frame of this kind."""
        ...

    def close(self, reason: str, *, retry: bool = True, send_bye: bool = True) -> None:
        """Close the connection, after what was sent before is written.

        The other side has a few seconds to read the rest; then the connection is aborted.

        Args:
            reason: Sent to the other side, and given to the owner's `on_closed`.
            retry: Whether the other side should try to connect again.
            send_bye: Whether a BYE with the reason is sent.
        """
        ...

    def abort(self, reason: str) -> None:
        """Close the connection at once, without writing what waits."""
        ...

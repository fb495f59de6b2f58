"""The socket of a client: sends and receives frames. Frames sent in one turn of the event loop are written together."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from tidings.client.in_flight import PendingPublication
from tidings.client.request_sender import SessionState
from tidings.model.errors import InvalidValueError, SchemaError
from tidings.model.limits import MAX_FRAME_BYTES
from tidings.model.schema import Schema, schema_of
from tidings.protocol.events import Values
from tidings.protocol.frames import LENGTH_BYTES, FrameKind, FrameSplitter, FramingError, frame
from tidings.protocol.handshake import Bye, Ping, SubjectBound
from tidings.protocol.publications import WirePublication, encode_prefix

_ENCODE = msgspec.msgpack.Encoder().encode
_PING = frame(FrameKind.PING, _ENCODE(Ping()))
_LINGER = 5.0  # seconds
CLOSED = "the broker has closed the connection"  # the reason, where the broker gave none


class Transport(asyncio.Protocol):
    """The connection of a client to a broker, as an asyncio protocol.

    `on_frames` is called with the frames that came, `on_writable` when sending may resume, `on_lost` once with the
    reason why the connection ended.
    """

    def __init__(
        self,
        on_frames: Callable[[list[tuple[int, bytes]]], None],
        on_writable: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.on_frames, self._on_writable, self._on_lost = on_frames, on_writable, on_lost
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self.is_full = False  # whether the send buffer is full, since the broker reads too slowly
        self._lingering: asyncio.TimerHandle | None = None
        self._reason = ""
        self._is_reading = True
        self.received_at = self._loop.time()
        self.sent_at = self._loop.time()

    # Called by the session

    def send(self, data: bytes) -> None:
        """Send encoded frames at the end of this turn of the event loop."""
        if not self._outgoing:
            self._loop.call_soon(self._write)
        self._outgoing.append(data)

    def send_message(self, kind: FrameKind, message: msgspec.Struct) -> None:
        """Encode and send a message."""
        self.send(frame(kind, _ENCODE(message)))

    @property
    def certificate(self) -> bytes | None:
        """The broker's certificate, in DER; None without TLS."""
        secured = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if secured is None else secured.getpeercert(binary_form=True)

    def welcome(self, limit: int) -> None:
        """Raise the limit on frame sizes, now that the handshake is complete."""
        self._splitter.welcome(limit)

    def beat(self, interval: float, patience: float) -> None:
        """Send a heartbeat if due; end the connection if nothing was received for `patience` seconds."""
        now = self._loop.time()
        if now - self.received_at > patience and self._is_reading:
            self.end(f"nothing was heard for {now - self.received_at:.1f} seconds")
        elif now - self.sent_at >= interval:
            self.send(_PING)

    def read(self, enabled: bool) -> None:
        """Resume or pause reading from the socket."""
        if enabled != self._is_reading and self._transport is not None:
            self._is_reading = enabled
            (self._transport.resume_reading if enabled else self._transport.pause_reading)()
            self.received_at = self._loop.time()

    def end(self, reason: str) -> None:
        """Abort the connection at once."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """Close the connection after sending what is queued; abort it if the broker does not read that in time."""
        self._reason = self._reason or reason
        if self._transport is not None and not self._transport.is_closing():
            self.send_message(FrameKind.BYE, Bye(reason))
            self._write()
            self._transport.close()
            self._lingering = self._loop.call_later(_LINGER, self.end, reason)

    # Called by the event loop

    def connection_made(self, transport: Any) -> None:
        """Begin to use the connection (called by asyncio)."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Split the received bytes into frames and pass them on; end the connection if the framing is broken."""
        self.received_at = self._loop.time()
        try:
            self.on_frames(self._splitter.feed(data))
        except FramingError as error:
            self.on_frames(list(error.before))
            self.end(f"the broker sent {error}")

    def pong(self, ping: Ping) -> None:
        """Answer the broker's ping."""
        self.send_message(FrameKind.PONG, ping)

    def pause_writing(self) -> None:
        """Mark the send buffer as full (called by asyncio)."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Mark that the send buffer has room again, and resume sending."""
        self.is_full = False
        self._on_writable()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the connection and its reason to the session."""
        self._transport = None
        self.is_full = False
        self._outgoing.clear()
        if self._lingering is not None:
            self._lingering.cancel()
        was_closed = error is None or isinstance(error, ConnectionResetError)
        self._on_lost(self._reason or (CLOSED if was_closed else str(error)))

    def _write(self) -> None:
        if not self._outgoing or self._transport is None:
            return
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        self.sent_at = self._loop.time()
        self._transport.write(data)


_NO_PREFIX = encode_prefix()


class FrameEncoder:
    """Encodes requests and publications as frames, of at most `most` bytes each."""

    def __init__(self, session_state: SessionState) -> None:
        self._session_state = session_state
        self.most = MAX_FRAME_BYTES
        self.schemas: dict[str, tuple[int, Schema]] = {}  # by subject, with the numbers that the broker bound to them

    def bind(self, bound: SubjectBound) -> None:
        """Record the number that the broker has bound to a subject, and the subject's schema."""
        self.schemas[bound.subject] = bound.number, schema_of(bound.subject, list(bound.versions))

    def request(self, kind: FrameKind, message: msgspec.Struct) -> bytes:
        """Encode a request."""
        return self._checked(frame(kind, _ENCODE(message)))

    def publication(self, number: int, publication: PendingPublication, *, is_connected: bool) -> bytes:
        """Encode a publication as request `number`, leaving out a context that the broker knows.

        Raises:
            InvalidValueError: The broker does not accept frames that large.
        """
        event = publication.event if publication.sealed is None else publication.sealed
        # Leave out the context that the broker knows, unless it may have changed since, or is covered by the signature.
        context: Values | None = event.context
        is_known = self._session_state.announces_context and is_connected and not publication.sent
        if is_known and publication.sealed is None:
            context = None
        subject, prefix = event.subject, _NO_PREFIX
        if subject is not None and subject in self.schemas:
            number_of_subject, schema = self.schemas[subject]
            with contextlib.suppress(SchemaError):  # the broker may have a later version, or will report the error
                prefix = encode_prefix(number_of_subject, schema.bits_of(event.attributes))
                subject = None
        published = WirePublication(
            number,
            event.id.bytes,
            event.sequence,
            publication.safe,
            event.attributes,
            subject,
            event.payload,
            context,
            None if event.subscribers is None else str(event.subscribers),
            event.policy,
            event.token,
            event.signature,
        )
        return self._checked(frame(FrameKind.PUBLISH, prefix + _ENCODE(published)))

    def _checked(self, data: bytes) -> bytes:
        """Return the frame; raise an error if it is so large that the broker would close the connection."""
        if len(data) - LENGTH_BYTES > self.most:
            raise InvalidValueError(f"the message has {len(data):,} bytes; the broker accepts at most {self.most:,}")
        return data

"""The broker's side of the handshake: the owner of a connection until its HELLO was accepted or refused."""

from typing import TYPE_CHECKING

import msgspec

from tidings.broker.net.connection import Connection, Frame
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.protocol.frames import UNREADABLE, FrameKind
from tidings.protocol.handshake import MAGIC, VERSION, Hello

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_HELLO = msgspec.msgpack.Decoder(Hello)


class Handshake:
    """Reads the first frame of a connection, which must be a HELLO, and hands the connection over to a session or link.

    It closes the connection if the HELLO is invalid or does not come within `limits.handshake_seconds`. Until then only
    small frames are accepted.
    """

    def __init__(self, broker: "Broker", connection: Connection) -> None:
        self.connection = connection
        self._broker = broker
        self._is_complete = False
        self._timer = broker.call_later(broker.configuration.limits.handshake_seconds, self._give_up)

    def handle_frames(self, frames: list[Frame]) -> None:
        """Handle the HELLO, and pass the frames behind it to the new owner of the connection."""
        kind, body = frames[0]
        connection = self.connection
        if kind != FrameKind.HELLO:
            connection.close("the first frame must be a HELLO", retry=False)
            return
        try:
            hello = _HELLO.decode(body)
            self._check(hello)
        except UNREADABLE as error:
            connection.close(f"HELLO: {error}", retry=False)
            return
        admission = self._broker.admission
        admit = admission.admit_client if hello.role == "client" else admission.admit_broker
        try:
            owner = admit(connection, hello)
        except TidingsError as error:  # such as a full journal
            connection.close(str(error))
            return
        if owner is None:
            return  # the connection was closed with a reason
        self._is_complete = True
        self.on_closed("it is known")
        connection.owner = owner
        if len(frames) > 1:
            owner.handle_frames(frames[1:])

    def _check(self, hello: Hello) -> None:
        """Raise an error unless the protocol, its version, the session number and the name are valid."""
        if hello.magic != MAGIC:
            raise InvalidValueError(f"begins with {MAGIC!r}, not {hello.magic!r:.20}")
        if VERSION not in hello.versions:
            raise InvalidValueError(f"this broker speaks version {VERSION} of the protocol, not {hello.versions!r:.40}")
        if hello.session < 0:
            raise InvalidValueError("session: must not be negative")
        checked_client(hello.name)

    def _give_up(self) -> None:
        self.connection.close("nothing was heard in time", retry=False)

    def on_stalled(self) -> None:
        """Abort the connection: the other side does not read the few frames of a handshake."""
        self.connection.abort("it does not read")

    def frames_first(self) -> list[bytes]:
        return []

    def on_resumed(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        """End the handshake.

        A connection that ends without completing it counts as a refused attempt of its host, unless the broker stops.
        """
        self._timer.cancel()
        if not self._is_complete and not self._broker.is_stopping:
            self._broker.admission.count_refused_attempt(self.connection.host)
        self._broker.admission.handshake_ended(self)

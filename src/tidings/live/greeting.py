"""A greeting: a connection of which nobody knows yet who is at its other end. It has little time and little room."""

from typing import TYPE_CHECKING

import msgspec

from tidings.live.connection import Connection, Frame
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import MAGIC, VERSION, Hello
from tidings.protocol.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_HELLO = msgspec.msgpack.Decoder(Hello)


class Greeting:
    def __init__(self, broker: "Broker", connection: Connection) -> None:
        self.connection = connection
        self._broker = broker
        self._is_known = False
        self._timer = broker.later(broker.configuration.limits.handshake_seconds, self._give_up)

    def take(self, frames: list[Frame]) -> None:
        kind, body = frames[0]
        connection = self.connection
        if kind != Kind.HELLO:
            connection.close("the first frame must be a HELLO", again=False)
            return
        try:
            hello = _HELLO.decode(body)
            self._check(hello)
        except UNREADABLE as error:
            connection.close(f"HELLO: {error}", again=False)
            return
        reception = self._broker.reception
        greeted = reception.greeted_by_client if hello.role == "client" else reception.greeted_by_broker
        try:
            owner = greeted(connection, hello)
        except TidingsError as error:  # such as a journal that cannot take it
            connection.close(str(error))
            return
        if owner is None:
            return  # it was told why
        self._is_known = True
        self.gone("it is known")
        connection.owner = owner
        if len(frames) > 1:
            owner.take(frames[1:])

    def _check(self, hello: Hello) -> None:
        if hello.magic != MAGIC:
            raise InvalidValueError(f"begins with {MAGIC!r}, not {hello.magic!r:.20}")
        if VERSION not in hello.versions:
            raise InvalidValueError(f"this broker speaks version {VERSION} of the protocol, not {hello.versions!r:.40}")
        if hello.session < 0:
            raise InvalidValueError("session: must not be negative")
        checked_client(hello.name)

    def _give_up(self) -> None:
        self.connection.close("nothing was heard in time", again=False)

    def stalled(self) -> None:
        self.connection.abort("it does not read")

    def ahead(self) -> list[bytes]:
        return []

    def relieved(self) -> None:
        pass

    def gone(self, reason: str) -> None:
        self._timer.cancel()
        if not self._is_known and not self._broker.is_stopping:
            self._broker.reception.note_bogus(self.connection.host)
        self._broker.reception.ungreeted(self)

"""A link: a connection to another broker. Operations go over it in order; when it is gone, both engines hear of it."""

import logging
from typing import TYPE_CHECKING

import msgspec

from tidings.engine.operations import Define, Join, Leave, Publish, Travelling
from tidings.live.connection import Connection, Frame
from tidings.model.errors import SchemaError
from tidings.protocol.challenges import Challenge, Proof
from tidings.protocol.frames import FramingError, Kind
from tidings.protocol.handshake import Bound, Ping
from tidings.protocol.operations import operation_frame, read_operation, read_passed
from tidings.protocol.publications import check_front
from tidings.protocol.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")
_BOUND = msgspec.msgpack.Decoder(Bound)
_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
_PROOF = msgspec.msgpack.Decoder(Proof)
_PING = msgspec.msgpack.Decoder(Ping)


class Link:
    """`dialled`: whether this broker has opened the connection."""

    def __init__(self, broker: "Broker", connection: Connection, name: str, cost: int, *, dialled: bool) -> None:
        self.name, self.cost, self.dialled = name, cost, dialled
        self.connection = connection
        self._broker, self._desk = broker, broker.desk
        self._numbers: dict[str, int] = {}  # by subject, as the other side has bound them
        self.sent = self.received = 0

    def start(self) -> None:
        """Both sides know each other: the engines hear of it."""
        for bound in self._broker.bindings.all():
            self.connection.say(Kind.BOUND, bound)
        self._broker.trusting.came(self.name)
        self._desk.drive(Join(self.name, self.cost))
        self._broker.flush()

    def send(self, operation: Travelling) -> None:
        if isinstance(operation, Define):
            self.connection.say(Kind.BOUND, self._broker.bindings.bound(operation.schema.subject))
        self.sent += 1
        self._desk.metrics.link_messages_out += 1
        self.connection.send(self._frame(operation))
        if self.connection.waiting_bytes > self._broker.configuration.limits.link_queue_bytes:
            # What was sent and not settled is sent again when there is a way.
            self.connection.abort(f"{self.name} is too slow: more waits for it than link_queue_bytes")

    def _frame(self, operation: Travelling) -> bytes:
        if isinstance(operation, Publish) and operation.event.subject is not None:
            number = self._numbers.get(operation.event.subject, 0)
            schema = self._desk.engine.subjects.find(operation.event.subject)
            if number and schema is not None:
                known = [name for name in operation.event.attributes if name in schema.attributes]
                return operation_frame(operation, number, schema.bits(known))
        return operation_frame(operation)

    # What the connection tells it

    def take(self, frames: list[Frame]) -> None:
        try:
            for kind, body in frames:
                self._take(kind, body)
        except UNREADABLE as error:
            # What comes after it may depend on what was not understood: both sides begin anew.
            self._desk.metrics.misunderstood += 1
            _LOG.error("the link to %s is closed: a frame that cannot be read: %s", self.name, error)
            self.connection.close(f"a frame that cannot be read: {error}")
        self._broker.flush()

    def _take(self, kind: int, body: bytes) -> None:
        match kind:
            case Kind.PASS:
                ahead, published = read_passed(body)
                if ahead.number:
                    check_front(ahead, self._broker.bindings.schema(ahead.number))
                self._note_received()
                self._desk.receive(self.name, published)
                self._broker.heard(published.event)
            case Kind.OPERATION:
                self._note_received()
                operation = read_operation(body)
                self._desk.receive(self.name, operation)
                if isinstance(operation, Define) and self._desk.engine.subjects.find(operation.schema.subject):
                    self._broker.subject_defined(operation.schema.subject)
            case Kind.PING:
                self.connection.pong(_PING.decode(body))
            case Kind.PONG:
                pass
            case Kind.CHALLENGE:
                self._broker.trusting.challenged(self, _CHALLENGE.decode(body))
            case Kind.PROOF:
                self._broker.trusting.proved(self.connection, _PROOF.decode(body))
            case Kind.BOUND:
                bound = _BOUND.decode(body)
                if bound.number < 1:
                    raise SchemaError(f"{bound.subject}: no subject has the number {bound.number}")
                self._numbers[bound.subject] = bound.number
            case Kind.BYE:
                self.connection.close("", say=False)
            case _:
                raise FramingError(f"a broker does not send frames of the kind {kind}")

    def _note_received(self) -> None:
        self.received += 1
        self._desk.metrics.link_messages_in += 1

    def stalled(self) -> None:
        self._broker.look_again()

    def ahead(self) -> list[bytes]:
        return []

    def relieved(self) -> None:
        self._broker.look_again()

    def gone(self, reason: str) -> None:
        if self._broker.neighbourhood.unlinked(self):
            _LOG.warning("the link to %s is gone: %s", self.name, reason)
            self._desk.drive(Leave(self.name))
            self._broker.flush()
        self._broker.trusting.left(self.connection)

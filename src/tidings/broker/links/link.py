"""A link: the connection to a neighbouring broker, over which both engines send each other operations in order.

When the connection is gone, both engines are told (`Leave`), and forget what came over it.
"""

import logging
from typing import TYPE_CHECKING

import msgspec

from tidings.broker.net.connection import Connection, Frame
from tidings.engine.operations import Define, Join, Leave, Publish, Travelling
from tidings.model.errors import SchemaError
from tidings.protocol.frames import UNREADABLE, FrameKind, FramingError
from tidings.protocol.handshake import Challenge, Ping, Proof, SubjectBound
from tidings.protocol.operations import decode_forwarded, operation_frame, read_operation
from tidings.protocol.publications import check_prefix

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = logging.getLogger("tidings.broker")
_SUBJECT_BOUND = msgspec.msgpack.Decoder(SubjectBound)
_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
_PROOF = msgspec.msgpack.Decoder(Proof)
_PING = msgspec.msgpack.Decoder(Ping)


class Link:
    """The link to the neighbour `name`.

    Args:
        broker: The broker that this end of the link belongs to.
        connection: The connection, with the handshake completed.
        name: The neighbour's name.
        cost: The cost of the link in routing.
        dialled: Whether this broker opened the connection.
    """

    def __init__(self, broker: "Broker", connection: Connection, name: str, cost: int, *, dialled: bool) -> None:
        self.name, self.cost, self.dialled = name, cost, dialled
        self.connection = connection
        self._broker, self._node = broker, broker.node
        self._subject_numbers: dict[str, int] = {}  # by subject, as the neighbour has announced them
        self.sent = self.received = 0

    def start(self) -> None:
        """Announce subject numbers, and tell the engine that the link is up (`Join`)."""
        for announcement in self._broker.subject_numbers.announcements():
            self.connection.send_message(FrameKind.BOUND, announcement)
        self._broker.trust_challenges.party_connected(self.name)
        self._node.drive(Join(self.name, self.cost))
        self._broker.flush()

    def send(self, operation: Travelling) -> None:
        """Send an operation; abort the link if more than `link_queue_bytes` wait for the neighbour then."""
        if isinstance(operation, Define):
            self.connection.send_message(
                FrameKind.BOUND, self._broker.subject_numbers.announcement(operation.schema.subject)
            )
        self.sent += 1
        self._node.metrics.link_messages_out += 1
        self.connection.send(self._encode(operation))
        if self.connection.waiting_bytes > self._broker.configuration.limits.link_queue_bytes:
            # Publications that are not settled are sent again once there is a path.
            self.connection.abort(f"{self.name} is too slow: more waits for it than link_queue_bytes")

    def _encode(self, operation: Travelling) -> bytes:
        """Encode an operation; if the neighbour numbers an event's subject, with that number and attribute bits."""
        if isinstance(operation, Publish) and operation.event.subject is not None:
            number = self._subject_numbers.get(operation.event.subject, 0)
            schema = self._node.engine.state.subjects.find(operation.event.subject)
            if number and schema is not None:
                names = [name for name in operation.event.attributes if name in schema.attributes]
                return operation_frame(operation, number, schema.bits(names))
        return operation_frame(operation)

    # ConnectionOwner

    def handle_frames(self, frames: list[Frame]) -> None:
        """Handle frames of the neighbour; a frame that cannot be decoded ends the link."""
        try:
            for kind, body in frames:
                self._handle_frame(kind, body)
        except UNREADABLE as error:
            # Later frames may depend on the one that was not understood, so both sides begin anew.
            self._node.metrics.misunderstood += 1
            _LOG.error("the link to %s is closed: a frame that cannot be read: %s", self.name, error)
            self.connection.close(f"a frame that cannot be read: {error}")
        self._broker.flush()

    def _handle_frame(self, kind: int, body: bytes) -> None:
        """Handle one frame of the neighbour."""
        match kind:
            case FrameKind.PASS:
                front, publication = decode_forwarded(body)
                if front.number:
                    check_prefix(front, self._broker.subject_numbers.schema(front.number))
                self._note_received()
                self._node.receive(self.name, publication)
                self._broker.on_event(publication.event)
            case FrameKind.OPERATION:
                self._note_received()
                operation = read_operation(body)
                self._node.receive(self.name, operation)
                if isinstance(operation, Define) and self._node.engine.state.subjects.find(operation.schema.subject):
                    self._broker.subject_defined(operation.schema.subject)
            case FrameKind.PING:
                self.connection.pong(_PING.decode(body))
            case FrameKind.PONG:
                pass
            case FrameKind.CHALLENGE:
                self._broker.trust_challenges.answer_challenge(self, _CHALLENGE.decode(body))
            case FrameKind.PROOF:
                self._broker.trust_challenges.handle_proof(self.connection, _PROOF.decode(body))
            case FrameKind.BOUND:
                announcement = _SUBJECT_BOUND.decode(body)
                if announcement.number < 1:
                    raise SchemaError(f"{announcement.subject}: no subject has the number {announcement.number}")
                self._subject_numbers[announcement.subject] = announcement.number
            case FrameKind.BYE:
                self.connection.close("", send_bye=False)
            case _:
                raise FramingError(f"a broker does not send frames of the kind {kind}")

    def _note_received(self) -> None:
        self.received += 1
        self._node.metrics.link_messages_in += 1

    def on_stalled(self) -> None:
        """Update backpressure: clients are not read while a neighbour does not read."""
        self._broker.update_backpressure()

    def frames_first(self) -> list[bytes]:
        """Return no frames: nothing that waits on a link is ever dropped."""
        return []

    def on_resumed(self) -> None:
        """Update backpressure, since the neighbour reads again."""
        self._broker.update_backpressure()

    def on_closed(self, reason: str) -> None:
        """Tell the engine that the link is down (`Leave`), unless another link has taken its place."""
        if self._broker.link_registry.remove(self):
            _LOG.warning("the link to %s is gone: %s", self.name, reason)
            self._node.drive(Leave(self.name))
            self._broker.flush()
        self._broker.trust_challenges.connection_closed(self.connection)

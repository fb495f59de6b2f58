"""The links of a broker: the connections to its neighbours, over which the engines send each other operations in order.

When a connection is gone, both engines are told (`Leave`), and forget what came over it. Neighbours whose addresses are
configured are dialed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from tidings.broker.links.dialer import Dialer
from tidings.broker.metrics import TrafficMetrics
from tidings.broker.net.channel import Channel, Frame
from tidings.broker.net.connection import LocalEnd
from tidings.broker.ports import NodePort, Scheduler, Sessions
from tidings.broker.sessions.client_sessions import SubjectNumbers
from tidings.engine.operations import Define, Join, Leave, Publish, Travelling
from tidings.model.errors import SchemaError
from tidings.model.event import Event
from tidings.protocol.frames import UNREADABLE, FrameKind, FramingError
from tidings.protocol.handshake import Challenge, Ping, Proof, SubjectBound
from tidings.protocol.operations import decode_forwarded, operation_frame, read_operation
from tidings.protocol.publications import check_prefix

_LOG = logging.getLogger("tidings.broker")
_SUBJECT_BOUND = msgspec.msgpack.Decoder(SubjectBound)
_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
_PROOF = msgspec.msgpack.Decoder(Proof)
_PING = msgspec.msgpack.Decoder(Ping)


class LinkNode(NodePort, Protocol):
    """What links need of the node."""

    def receive(self, neighbour: str, operation: Travelling) -> None:
        """Handle an operation that `neighbour` has sent."""
        ...


class NeighbourTrust(Protocol):
    """What links need of the challenges of trust groups."""

    def party_connected(self, party: str) -> None:
        """Drop the answers about a party that has connected anew."""
        ...

    def answer_challenge(self, neighbour: str, connection: Channel, challenge: Challenge) -> None:
        """Answer the challenge of a neighbour."""
        ...

    def handle_proof(self, connection: Channel, proof: Proof) -> None:
        """Check the answer that a party has sent over its connection."""
        ...

    def connection_closed(self, connection: Channel) -> None:
        """End the challenges on a connection that is gone."""
        ...


class LinkPorts(NamedTuple):
    """What every link takes of the broker around it."""

    node: LinkNode
    scheduler: Scheduler
    sessions: Sessions
    trust: NeighbourTrust
    subject_numbers: SubjectNumbers
    metrics: TrafficMetrics
    on_event: Callable[[Event], None]  # called with each event of a neighbour
    update_backpressure: Callable[[], None]


class Link:
    """The link to the neighbour `name`.

    Args:
        links: The links of the broker, which this one leaves when it has ended.
        connection: The connection, with the handshake completed.
        name: The neighbour's name.
        cost: The cost of the link in routing.
        dialled: Whether this broker opened the connection.
        ports: What links take of the broker around them.
    """

    def __init__(
        self, links: "NeighbourLinks", connection: Channel, name: str, cost: int, *, dialled: bool, ports: LinkPorts
    ) -> None:
        self.name, self.cost, self.dialled = name, cost, dialled
        self.connection = connection
        self._links, self._ports, self._node = links, ports, ports.node
        self._subject_numbers: dict[str, int] = {}  # by subject, as the neighbour has announced them
        self.sent = self.received = 0

    def start(self) -> None:
        """Announce subject numbers, and tell the engine that the link is up (`Join`)."""
        for announcement in self._ports.subject_numbers.announcements():
            self.connection.send_message(FrameKind.BOUND, announcement)
        self._ports.trust.party_connected(self.name)
        self._node.drive(Join(self.name, self.cost))
        self._ports.scheduler.flush()

    def send(self, operation: Travelling) -> None:
        """Send an operation; abort the link if more than `link_queue_bytes` wait for the neighbour then."""
        if isinstance(operation, Define):
            self.connection.send_message(
                FrameKind.BOUND, self._ports.subject_numbers.announcement(operation.schema.subject)
            )
        self.sent += 1
        self._ports.metrics.link_messages_out += 1
        self.connection.send(self._encode(operation))
        if self.connection.flow.waiting_bytes > self._links.queue_bytes:
            # Publications that are not settled are sent again once there is a path.
            self.connection.abort(f"{self.name} reads too slowly: more than link_queue_bytes wait for it")

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
            self._ports.metrics.misunderstood += 1
            _LOG.error("the link to %s is closed: a frame of the neighbour cannot be decoded: %s", self.name, error)
            self.connection.close(f"a frame cannot be decoded: {error}")
        self._ports.scheduler.flush()

    def _handle_frame(self, kind: int, body: bytes) -> None:
        """Handle one frame of the neighbour."""
        match kind:
            case FrameKind.PASS:
                front, publication = decode_forwarded(body)
                if front.number:
                    check_prefix(front, self._ports.subject_numbers.schema(front.number))
                self._note_received()
                self._node.receive(self.name, publication)
                self._ports.on_event(publication.event)
            case FrameKind.OPERATION:
                self._note_received()
                operation = read_operation(body)
                self._node.receive(self.name, operation)
                if isinstance(operation, Define) and self._node.engine.state.subjects.find(operation.schema.subject):
                    self._ports.sessions.announce_subject(operation.schema.subject)
            case FrameKind.PING:
                self.connection.send_message(FrameKind.PONG, _PING.decode(body))
            case FrameKind.PONG:
                pass
            case FrameKind.CHALLENGE:
                self._ports.trust.answer_challenge(self.name, self.connection, _CHALLENGE.decode(body))
            case FrameKind.PROOF:
                self._ports.trust.handle_proof(self.connection, _PROOF.decode(body))
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
        self._ports.metrics.link_messages_in += 1

    def on_stalled(self) -> None:
        """Update backpressure: clients are not read while a neighbour does not read."""
        self._ports.update_backpressure()

    def frames_first(self) -> list[bytes]:
        """Return no frames: nothing that waits on a link is ever dropped."""
        return []

    def on_resumed(self) -> None:
        """Update backpressure, since the neighbour reads again."""
        self._ports.update_backpressure()

    def on_closed(self, reason: str) -> None:
        """Tell the engine that the link is down (`Leave`), unless another link has taken its place."""
        if self._links.remove(self):
            _LOG.warning("the link to %s is gone: %s", self.name, reason)
            self._node.drive(Leave(self.name))
            self._ports.scheduler.flush()
        self._ports.trust.connection_closed(self.connection)


class NeighbourLinks:
    """The links of a broker that are up, and the `dialers` of the neighbours whose addresses are configured.

    `up` has the links by neighbour. `end` is this broker's end of all connections.
    """

    def __init__(self, end: LocalEnd) -> None:
        self._end = end
        self._ports: LinkPorts
        self._up: dict[str, Link] = {}
        self._dialled: dict[str, asyncio.Future[None]] = {}
        self.dialers: dict[str, Dialer] = {}  # by neighbour

    def begin(self, ports: LinkPorts) -> None:
        """Give links these ports from now on. Called once, before the first link is added."""
        self._ports = ports

    @property
    def up(self) -> Mapping[str, Link]:
        """The links that are up, by neighbour."""
        return self._up

    @property
    def queue_bytes(self) -> int:
        """The bytes that may wait for one neighbour."""
        return self._end.configuration.current.limits.link_queue_bytes

    def get(self, neighbour: str) -> Link | None:
        """Return the link to a neighbour; None if it is down."""
        return self._up.get(neighbour)

    def all(self) -> list[Link]:
        """Return the links that are up."""
        return list(self._up.values())

    async def stop_dialing(self) -> None:
        """Stop dialing all neighbours."""
        for dialer in self.dialers.values():
            await dialer.stop()

    def add(self, connection: Channel, name: str, cost: int, ended: "asyncio.Future[None] | None") -> Link | None:
        """Make an accepted or dialed connection the link to the neighbour `name`; return None if another link stays.

        If two brokers dial each other at once, the link that the broker with the smaller name has dialed stays. In
        every other case the new link replaces the old one. For accepted connections, `ConnectionAdmission` has checked
        this already.

        Args:
            connection: The connection, with the handshake completed.
            name: The neighbour's name.
            cost: The cost of the link in routing.
            ended: Done when the link has ended, for the dialer; None if the neighbour has dialed.
        """
        existing = self._up.get(name)
        if existing is not None:
            if ended is not None and not existing.dialled and name < self._end.name:
                return None
            existing.connection.close("a newer link replaces this one")
            existing.on_closed("a newer link replaces this one")
        if ended is not None:
            self._dialled[name] = ended
        link = self._up[name] = Link(self, connection, name, cost, dialled=ended is not None, ports=self._ports)
        _LOG.info("the link to %s is up", name)
        return link

    def remove(self, link: Link) -> bool:
        """Remove a link whose connection is gone, and tell its dialer.

        Returns False if another link to the neighbour has taken its place.
        """
        if self._up.get(link.name) is not link:
            return False
        del self._up[link.name]
        if (ended := self._dialled.pop(link.name, None)) is not None and not ended.done():
            ended.set_result(None)
        return True

    def close_all(self, reason: str) -> None:
        """Close every link."""
        for link in self.all():
            link.connection.close(reason)
            link.on_closed(reason)

    def dial(self) -> None:
        """Begin to dial the configured neighbours that are not being dialed yet."""
        for table in self._end.configuration.current.links:
            if table.address and table.broker not in self.dialers:
                self.dialers[table.broker] = Dialer(self._end, self, table)

    async def disconnect(self, neighbour: str) -> None:
        """Stop dialing a neighbour, and close the link to it."""
        if (dialer := self.dialers.pop(neighbour, None)) is not None:
            await dialer.stop()
        if (link := self._up.get(neighbour)) is not None:
            link.connection.close("the configuration has changed")
            link.on_closed("the configuration has changed")

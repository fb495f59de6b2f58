"""Admission of connections: count them, check their HELLO, and make each a client session or a link, or close it."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec

from tidings.broker.links.links import Link, NeighbourLinks
from tidings.broker.logs import Log
from tidings.broker.metrics import SecurityMetrics
from tidings.broker.net.channel import Channel, ConnectionOwner, Frame
from tidings.broker.net.connection import LocalEnd
from tidings.broker.net.rate_limits import RefusedAttempts, lockout_reason
from tidings.broker.ports import OperationPort, Scheduler
from tidings.broker.sessions.client_sessions import ClientSessions
from tidings.broker.sessions.session import Session
from tidings.engine.operations import Connect
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_RECORD_BYTES
from tidings.protocol.frames import UNREADABLE, FrameKind
from tidings.protocol.handshake import MAGIC, VERSION, Hello, Welcome
from tidings.security.ca.certificates import Role

_LOG = Log("tidings.broker")
NONCE_BYTES = 32
_HELLO = msgspec.msgpack.Decoder(Hello)
_OVER_LIMIT = 64  # connections over the limit that are still let in, to be told why they are closed


class AdmissionNode(OperationPort, Protocol):
    """What the admission needs of the node."""

    def client_connected(self, client: str) -> None:
        """Have the engine make the pending decisions about events for `client`, which has connected anew."""
        ...


class ConnectedParty(Protocol):
    """Is told which parties connect: the challenges of trust groups."""

    def party_connected(self, party: str) -> None:
        """Drop the answers about a party that has connected anew."""
        ...


class ConnectionAdmission:
    """Decides which connections the broker accepts, and as what.

    It enforces the limits on connections, checks names and certificates, and creates the `Session` or `Link` of a
    connection that completes the handshake.

    Args:
        end: This broker's end of all connections.
        scheduler: The turns of the event loop.
        attempts: Counts refused attempts, and locks parties out.
        metrics: The counters of refused attempts.
        sessions: The sessions of the clients.
        links: The links to the neighbours.
        node: Connects clients in the engine.
        trust: The challenges of trust groups.
        stop_handing_over: Called with a client that is connected here again.
        open_session: Makes the session of a client; takes its HELLO, and the nonce that the client signs with tokens.
        has_journal: Whether the broker has a journal, so that clients may have durable subscriptions.
        has_gate: Whether the broker checks tokens.
    """

    def __init__(
        self,
        end: LocalEnd,
        *,
        scheduler: Scheduler,
        attempts: RefusedAttempts,
        metrics: SecurityMetrics,
        sessions: ClientSessions,
        links: NeighbourLinks,
        node: AdmissionNode,
        trust: ConnectedParty,
        stop_handing_over: Callable[[str], None],
        open_session: Callable[[Channel, Hello, bytes], Session],
        has_journal: bool,
        has_gate: bool,
    ) -> None:
        self._end, self._scheduler, self._attempts, self._metrics = end, scheduler, attempts, metrics
        self._sessions, self._links, self._node, self._trust = sessions, links, node, trust
        self._stop_handing_over, self._open_session = stop_handing_over, open_session
        self._has_journal, self._has_gate = has_journal, has_gate
        self.connections: Counter[str] = Counter()  # by host
        self.handshakes: set[Handshake] = set()

    def may_connect(self, host: str, tls_handshakes: int) -> bool:
        """Return whether a connection from `host` may begin its handshake.

        `tls_handshakes` is the number of accepted connections whose TLS handshake is still running. A few connections
        over the limit are let in, so that the broker can tell them why it closes them.
        """
        if self._attempts.host_wait(host):
            self._metrics.shut_out += 1
            return False
        limits = self._end.configuration.current.limits
        return self.connections.total() + tls_handshakes < limits.connections + _OVER_LIMIT

    # Connections and handshakes

    def connection_opened(self, connection: Channel) -> "Handshake":
        """Count a new connection and begin its handshake.

        The connection is closed at once if the broker stops, or if there are too many connections.
        """
        host, limits = connection.peer.host, self._end.configuration.current.limits
        self.connections[host] += 1
        handshake = Handshake(self, connection, self._scheduler, limits.handshake_seconds)
        self.handshakes.add(handshake)
        if self._scheduler.is_stopping:
            connection.close("the broker stops")
        elif self.connections.total() > limits.connections:
            connection.close("too many connections; try later, or another broker")
        elif self.connections[host] > limits.connections_per_address:
            connection.close("too many connections from this address", retry=False)
        return handshake

    def handshake_ended(self, handshake: "Handshake", *, is_complete: bool) -> None:
        """Forget a handshake that has ended.

        A connection that ends without completing it counts as a refused attempt of its host, unless the broker stops.
        """
        if not is_complete and not self._scheduler.is_stopping:
            self._attempts.count(handshake.connection.peer.host)
        self.handshakes.discard(handshake)

    def accept(self, connection: Channel, hello: Hello) -> ConnectionOwner | None:
        """Answer a HELLO: hand the connection over to a session or a link, and return that.

        Returns None if the connection was closed with a reason. Raises a `TidingsError`, such as a full journal, if the
        other side may try again.
        """
        owner: ConnectionOwner | None
        if hello.role == "client":
            owner, limit = self.admit_client(connection, hello), self._end.configuration.current.limits.frame_bytes
        else:
            # A neighbour may send any event that it has accepted.
            owner, limit = self.admit_broker(connection, hello), MAX_RECORD_BYTES
        if owner is not None:
            connection.hand_over(owner, limit)
        return owner

    def connection_closed(self, connection: Channel) -> None:
        """Count a closed connection."""
        host = connection.peer.host
        self.connections[host] -= 1
        if not self.connections[host]:
            del self.connections[host]

    def admit_client(self, connection: Channel, hello: Hello) -> Session | None:
        """Answer a client's HELLO: return its new session, or close the connection with the reason and return None."""
        refusal = self._refusal(connection, hello)
        if refusal is None and self._is_broker(hello.name):
            refusal = f"{hello.name} is the name of a broker"
        if refusal is None and not hello.observer:
            refusal = self._connect_client(hello)
        if refusal is not None:
            connection.close(refusal, retry=False)
            return None
        nonce = secrets.token_bytes(NONCE_BYTES) if self._has_gate else b""
        self._send_welcome(connection, self._node.registry.events.sequences.get(hello.name, 0), nonce=nonce)
        session = self._open_session(connection, hello, nonce)
        for announcement in self._sessions.subject_numbers.announcements():
            connection.send_message(FrameKind.BOUND, announcement)
        if hello.observer:
            self._sessions.observers.add(session)  # a client of the same name stays connected
        else:
            self._sessions.clients[hello.name] = session
            self._node.client_connected(hello.name)
        _LOG.debug("a client has connected", client=hello.name, host=connection.peer.host, program=hello.program)
        return session

    def _connect_client(self, hello: Hello) -> str | None:
        """End an earlier session of the client, and connect it in the engine; return a reason if it is refused."""
        session = self._sessions.get(hello.name)
        if session is not None and session.number >= hello.session:
            return f"{hello.name} is connected already, with a later session number"
        if session is not None:
            session.connection.close(f"another program has connected as {hello.name}", retry=False)
            self._sessions.ended(session, "another program has connected under its name")
        self._trust.party_connected(hello.name)
        self._stop_handing_over(hello.name)
        moved = bool(hello.last_broker) and hello.last_broker != self._end.name
        outcome = self._node.operate(Connect(hello.name, moved, hello.session), sync=False)
        return None if outcome.refused is None else outcome.refused.reason

    def admit_broker(self, connection: Channel, hello: Hello) -> Link | None:
        """Answer a neighbour's HELLO: return the new link, or close the connection with the reason and return None."""
        configured = self._end.configuration.current.links
        table = next((link_table for link_table in configured if link_table.broker == hello.name), None)
        refusal = self._refusal(connection, hello)
        if refusal is None and table is None:
            refusal = f"{self._end.name} has no link to {hello.name}; add one to its configuration"
        existing = self._links.get(hello.name)
        if refusal is None and existing is not None and existing.dialled and self._end.name < hello.name:
            refusal = "the link is up already"
        if refusal is not None or table is None:
            connection.close(refusal or "")
            return None
        self._send_welcome(connection, 0, table.cost)
        link = self._links.add(connection, hello.name, table.cost, None)
        if link is not None:
            link.start()
        return link

    def _refusal(self, connection: Channel, hello: Hello) -> str | None:
        """Return why the name or the certificate of a connection is not acceptable; None if it is."""
        if hello.name == self._end.name:
            return f"{hello.name} is the name of this broker"
        tls = self._end.configuration.current.tls
        if tls.is_on and tls.check_names:
            certified = connection.peer.certified_name
            if certified is None and (hello.role == "broker" or tls.require_client_certificate):
                return "this broker requires a certificate"
            if certified is None and self._is_reserved(hello.name):
                return f"this broker requires a certificate for the name {hello.name}"
            if certified is not None and (wait := self._attempts.certificate_wait(certified)):
                self._metrics.shut_out += 1
                return lockout_reason(wait)
            if certified is not None and certified != hello.name:
                return f"the certificate names {certified}, not {hello.name}"
        return self._end.refusal(connection.peer, Role.BROKER if hello.role == "broker" else None)

    def _is_reserved(self, name: str) -> bool:
        """Return whether a name needs a certificate.

        That is so if its client has special rights, or if a client with a certificate is connected under the name now.
        """
        table, session = self._end.configuration.current.broker, self._sessions.get(name)
        return name in (*table.operators, *table.govern, *(table.observers or ())) or (
            session is not None and session.connection.peer.certified_name is not None
        )

    def _is_broker(self, name: str) -> bool:
        """Return whether a name is that of a broker in the overlay or in the configuration."""
        return name in self._node.engine.topology.brokers or any(
            link.broker == name for link in self._end.configuration.current.links
        )

    def _send_welcome(self, connection: Channel, sequence: int, cost: int = 1, nonce: bytes = b"") -> None:
        """Send the WELCOME."""
        configuration = self._end.configuration.current
        heartbeat, limits = configuration.heartbeat, configuration.limits
        welcome = Welcome(
            VERSION,
            self._end.name,
            self._end.incarnation,
            heartbeat.interval_ms,
            heartbeat.patience,
            limits.frame_bytes,
            limits.in_flight,
            sequence,
            cost,
            self._has_journal,
            nonce=nonce,
        )
        connection.send_message(FrameKind.WELCOME, welcome)


class Handshake:
    """Reads the first frame of a connection, which must be a HELLO, and hands the connection over to a session or link.

    It closes the connection if the HELLO is invalid or does not come within so many `seconds`. Until then only small
    frames are accepted.
    """

    def __init__(
        self, admission: ConnectionAdmission, connection: Channel, scheduler: Scheduler, seconds: float
    ) -> None:
        self.connection = connection
        self._admission = admission
        self._is_complete = False
        self._timer = scheduler.call_later(seconds, self._give_up)

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
        try:
            owner = self._admission.accept(connection, hello)
        except TidingsError as error:  # such as a full journal
            connection.close(str(error))
            return
        if owner is None:
            return  # the connection was closed with a reason
        self._is_complete = True
        self.on_closed("the handshake is complete")
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
        self.connection.close("no HELLO came in time", retry=False)

    def on_stalled(self) -> None:
        """Abort the connection: the other side does not read the few frames of a handshake."""
        self.connection.abort("the other side does not read")

    def frames_first(self) -> list[bytes]:
        return []

    def on_resumed(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        """End the handshake."""
        self._timer.cancel()
        self._admission.handshake_ended(self, is_complete=self._is_complete)

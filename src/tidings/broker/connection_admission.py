"""Admission of connections: count them, check their HELLO, and make each a client session or a link, or close it."""

from collections import Counter
from typing import TYPE_CHECKING

from tidings.broker.config.tables import LimitsTable
from tidings.broker.links.link import Link
from tidings.broker.logs import Log
from tidings.broker.net.connection import Connection
from tidings.broker.net.handshake import Handshake
from tidings.broker.net.rate_limits import Lockout
from tidings.broker.sessions.session import Session
from tidings.engine.operations import Connect
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import VERSION, Hello, Welcome
from tidings.security.ca.certificates import Role

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = Log("tidings.broker")
_OVER_LIMIT = 64  # connections over the limit that are still let in, to be told why they are closed


class ConnectionAdmission:
    """Decides which connections the broker accepts, and as what.

    It enforces the limits on connections, locks out hosts and certificates with too many refused attempts, checks names
    and certificates, and creates the `Session` or `Link` of a connection that completes the handshake.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.connections: Counter[str] = Counter()  # by host
        self.handshakes: set[Handshake] = set()
        limits = broker.configuration.limits
        self._host_lockout, self.certificate_lockout = Lockout(limits), Lockout(limits)

    # Lockout after refused attempts

    def set_limits(self, limits: LimitsTable) -> None:
        """Apply other limits on refused attempts; the attempts that were counted are forgotten."""
        self._host_lockout.set_limits(limits)
        self.certificate_lockout.set_limits(limits)

    def may_connect(self, host: str, tls_handshakes: int) -> bool:
        """Return whether a connection from `host` may begin its handshake.

        `tls_handshakes` is the number of accepted connections whose TLS handshake is still running. A few connections
        over the limit are let in, so that the broker can tell them why it closes them.
        """
        if self._host_lockout.check(host, self._broker.now()):
            self._broker.metrics.shut_out += 1
            return False
        return self.connections.total() + tls_handshakes < self._broker.configuration.limits.connections + _OVER_LIMIT

    def count_refused_attempt(self, host: str) -> None:
        """Count an attempt from `host` that was refused, or that closed before completing the handshake."""
        self._broker.metrics.bogus += 1
        self._host_lockout.record_refused(host, self._broker.now())

    def record_refused_attempt(self, connection: Connection, name: str) -> None:
        """Count a refused proof, token or signature of a connected party; after too many, close its connection.

        It counts for the host and, if `name` is the name in the connection's certificate, for that certificate. Without
        that condition a client could have another one locked out by using its name.
        """
        self.count_refused_attempt(connection.host)
        now = self._broker.now()
        wait = self._host_lockout.check(connection.host, now)
        if connection.certified_name == name:
            wait = max(wait, self.certificate_lockout.record_refused(name, now))
        if wait:
            self._broker.metrics.shut_out += 1
            connection.close(_too_many(wait))

    # Connections and handshakes

    def connection_opened(self, connection: Connection) -> Handshake:
        """Count a new connection and begin its handshake.

        The connection is closed at once if the broker stops, or if there are too many connections.
        """
        host, limits = connection.host, self._broker.configuration.limits
        if self._broker.certificates is not None:
            connection.own_fingerprint = self._broker.certificates.fingerprint
        self.connections[host] += 1
        handshake = Handshake(self._broker, connection)
        self.handshakes.add(handshake)
        if self._broker.is_stopping:
            connection.close("the broker stops")
        elif self.connections.total() > limits.connections:
            connection.close("too many connections; try later, or another broker")
        elif self.connections[host] > limits.connections_per_address:
            connection.close("too many connections from this address", retry=False)
        return handshake

    def handshake_ended(self, handshake: Handshake) -> None:
        """Forget a handshake that has ended."""
        self.handshakes.discard(handshake)

    def connection_closed(self, connection: Connection) -> None:
        """Count a closed connection."""
        host = connection.host
        self.connections[host] -= 1
        if not self.connections[host]:
            del self.connections[host]

    def admit_client(self, connection: Connection, hello: Hello) -> Session | None:
        """Answer a client's HELLO: return its new session, or close the connection with the reason and return None."""
        refusal = self._refusal(connection, hello)
        if refusal is None and self._is_broker(hello.name):
            refusal = f"{hello.name} is the name of a broker"
        if refusal is None and not hello.observer:
            refusal = self._connect_client(hello)
        if refusal is not None:
            connection.close(refusal, retry=False)
            return None
        topic_security = self._broker.topic_security
        nonce = b"" if topic_security is None else topic_security.nonce()
        self._send_welcome(connection, self._broker.node.registry.events.sequences.get(hello.name, 0), nonce=nonce)
        session = Session(self._broker, connection, hello, nonce)
        for announcement in self._broker.subject_numbers.announcements():
            connection.send_message(FrameKind.BOUND, announcement)
        if hello.observer:
            self._broker.observers.add(session)  # a client of the same name stays connected
        else:
            self._broker.sessions[hello.name] = session
            self._broker.node.client_connected(hello.name)
        _LOG.debug("a client has come", client=hello.name, host=connection.host, program=hello.program)
        return session

    def _connect_client(self, hello: Hello) -> str | None:
        """End an earlier session of the client, and connect it in the engine; return a reason if it is refused."""
        session = self._broker.sessions.get(hello.name)
        if session is not None and session.number >= hello.session:
            return f"{hello.name} is connected, with a later session"
        if session is not None:
            session.connection.close(f"another program has connected as {hello.name}", retry=False)
            self._broker.session_ended(session, "another program has connected under its name")
        self._broker.trust_challenges.party_connected(hello.name)
        self._broker.handover.cancel(hello.name)
        moved = bool(hello.last_broker) and hello.last_broker != self._broker.name
        outcome = self._broker.node.operate(Connect(hello.name, moved, hello.session), sync=False)
        return None if outcome.refused is None else outcome.refused.reason

    def admit_broker(self, connection: Connection, hello: Hello) -> Link | None:
        """Answer a neighbour's HELLO: return the new link, or close the connection with the reason and return None."""
        table = next(
            (link_table for link_table in self._broker.configuration.links if link_table.broker == hello.name), None
        )
        refusal = self._refusal(connection, hello)
        if refusal is None and table is None:
            refusal = f"{self._broker.name} has no link to {hello.name}; say so in its configuration"
        existing = self._broker.links.get(hello.name)
        if refusal is None and existing is not None and existing.dialled and self._broker.name < hello.name:
            refusal = "the link is up already"
        if refusal is not None or table is None:
            connection.close(refusal or "")
            return None
        self._send_welcome(connection, 0, table.cost)
        link = self._broker.link_registry.add(connection, hello.name, table.cost, None)
        if link is not None:
            link.start()
        return link

    def _refusal(self, connection: Connection, hello: Hello) -> str | None:
        """Return why the name or the certificate of a connection is not acceptable; None if it is."""
        if hello.name == self._broker.name:
            return f"{hello.name} is the name of this broker"
        tls = self._broker.configuration.tls
        if tls.is_on and tls.check_names:
            certified = connection.certified_name
            if certified is None and (hello.role == "broker" or tls.require_client_certificate):
                return "a certificate is needed here"
            if certified is None and self._is_reserved(hello.name):
                return f"a certificate is needed here for the name {hello.name}"
            if certified is not None and (wait := self.certificate_lockout.check(certified, self._broker.now())):
                self._broker.metrics.shut_out += 1
                return _too_many(wait)
            if certified is not None and certified != hello.name:
                return f"the certificate is that of {certified}, not of {hello.name}"
        topic_security = self._broker.topic_security
        role = Role.BROKER if hello.role == "broker" else None
        return None if topic_security is None else topic_security.refusal(connection, role)

    def _is_reserved(self, name: str) -> bool:
        """Return whether a name needs a certificate.

        That is so if its client has special rights, or if a client with a certificate is connected under the name now.
        """
        table, session = self._broker.configuration.broker, self._broker.sessions.get(name)
        return name in (*table.operators, *table.govern, *(table.observers or ())) or (
            session is not None and session.connection.certified_name is not None
        )

    def _is_broker(self, name: str) -> bool:
        """Return whether a name is that of a broker in the overlay or in the configuration."""
        return name in self._broker.node.engine.topology.brokers or any(
            link.broker == name for link in self._broker.configuration.links
        )

    def _send_welcome(self, connection: Connection, sequence: int, cost: int = 1, nonce: bytes = b"") -> None:
        """Send the WELCOME, and accept frames of up to `frame_bytes` from now on."""
        heartbeat, limits = self._broker.configuration.heartbeat, self._broker.configuration.limits
        connection.raise_frame_limit(limits.frame_bytes)
        welcome = Welcome(
            VERSION,
            self._broker.name,
            self._broker.incarnation,
            heartbeat.interval_ms,
            heartbeat.patience,
            limits.frame_bytes,
            limits.in_flight,
            sequence,
            cost,
            self._broker.node.journal_store is not None,
            nonce=nonce,
        )
        connection.send_message(FrameKind.WELCOME, welcome)


def _too_many(wait: float) -> str:
    return f"too many attempts were refused; try again in {wait:.0f} seconds"

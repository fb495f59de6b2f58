"""The reception of a broker: who connects is counted, greeted, and let in as a client or as a neighbour, or not."""

from collections import Counter
from typing import TYPE_CHECKING

from tidings.engine.operations import Connect
from tidings.live.attempts import Attempts
from tidings.live.configuration.tables import Limits
from tidings.live.connection import Connection
from tidings.live.greeting import Greeting
from tidings.live.link import Link
from tidings.live.logs import Log
from tidings.live.session import Session
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import VERSION, Hello, Welcome
from tidings.security.certificates import Role

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = Log("tidings.live")
_TOLD_SO = 64  # connections over their limit that are still told why they are closed


class Reception:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.connections: Counter[str] = Counter()  # by host
        self.greetings: set[Greeting] = set()
        limits = broker.configuration.limits
        self._addresses, self.identities = Attempts(limits), Attempts(limits)

    # Who tries too often

    def limit(self, limits: Limits) -> None:
        self._addresses.limit(limits)
        self.identities.limit(limits)

    def lets_in(self, host: str, entering: int) -> bool:
        """Whether somebody from there may so much as begin; `entering` are others who have just begun."""
        if self._addresses.check(host, self._broker.now()):
            self._broker.metrics.shut_out += 1
            return False
        return self.connections.total() + entering < self._broker.configuration.limits.connections + _TOLD_SO

    def note_bogus(self, host: str) -> None:
        """Somebody from there has not come as far as to say who it is."""
        self._broker.metrics.bogus += 1
        self._addresses.note(host, self._broker.now())

    def bogus(self, connection: Connection, name: str) -> None:
        """A proof, a token or a signature of somebody who is connected was refused. It counts for its address and, if
        its certificate says that this is its name, for that: else one could have others shut out."""
        self.note_bogus(connection.host)
        now = self._broker.now()
        wait = self._addresses.check(connection.host, now)
        if connection.certified_name == name:
            wait = max(wait, self.identities.note(name, now))
        if wait:
            self._broker.metrics.shut_out += 1
            connection.close(_too_many(wait))

    # Who comes

    def opened(self, connection: Connection) -> Greeting:
        host, limits = connection.host, self._broker.configuration.limits
        if self._broker.certificates is not None:
            connection.own_fingerprint = self._broker.certificates.fingerprint
        self.connections[host] += 1
        greeting = Greeting(self._broker, connection)
        self.greetings.add(greeting)
        if self._broker.is_stopping:
            connection.close("the broker stops")
        elif self.connections.total() > limits.connections:
            connection.close("too many connections; try later, or another broker")
        elif self.connections[host] > limits.connections_per_address:
            connection.close("too many connections from this address", again=False)
        return greeting

    def ungreeted(self, greeting: Greeting) -> None:
        self.greetings.discard(greeting)

    def closed(self, connection: Connection) -> None:
        host = connection.host
        self.connections[host] -= 1
        if not self.connections[host]:
            del self.connections[host]

    def greeted_by_client(self, connection: Connection, hello: Hello) -> Session | None:
        refusal = self._refusal(connection, hello)
        if refusal is None and self._is_broker(hello.name):
            refusal = f"{hello.name} is the name of a broker"
        if refusal is None and not hello.observer:
            refusal = self._attach(hello)
        if refusal is not None:
            connection.close(refusal, again=False)
            return None
        gatehouse = self._broker.gatehouse
        nonce = b"" if gatehouse is None else gatehouse.nonce()
        self._welcome(connection, self._broker.desk.roster.sequences.get(hello.name, 0), nonce=nonce)
        session = Session(self._broker, connection, hello, nonce)
        for bound in self._broker.bindings.all():
            connection.say(Kind.BOUND, bound)
        if hello.observer:
            self._broker.observers.add(session)  # beside the client of its name, which stays connected
        else:
            self._broker.sessions[hello.name] = session
            self._broker.desk.came(hello.name)
        _LOG.debug("a client has come", client=hello.name, host=connection.host, program=hello.program)
        return session

    def _attach(self, hello: Hello) -> str | None:
        """End an earlier session of the client, and make the client known to routing. Return why it is refused, None if
        it is not."""
        known = self._broker.sessions.get(hello.name)
        if known is not None and known.number >= hello.session:
            return f"{hello.name} is connected, with a later session"
        if known is not None:
            known.connection.close(f"another program has connected as {hello.name}", again=False)
            self._broker.left(known, "another program has connected under its name")
        self._broker.trusting.came(hello.name)
        self._broker.moving.came_back(hello.name)
        moved = bool(hello.last_broker) and hello.last_broker != self._broker.name
        outcome = self._broker.desk.operate(Connect(hello.name, moved, hello.session), safe=False)
        return None if outcome.refused is None else outcome.refused.reason

    def greeted_by_broker(self, connection: Connection, hello: Hello) -> Link | None:
        wanted = next((one for one in self._broker.configuration.links if one.broker == hello.name), None)
        refusal = self._refusal(connection, hello)
        if refusal is None and wanted is None:
            refusal = f"{self._broker.name} has no link to {hello.name}; say so in its configuration"
        known = self._broker.links.get(hello.name)
        if refusal is None and known is not None and known.dialled and self._broker.name < hello.name:
            refusal = "the link is up already"
        if refusal is not None or wanted is None:
            connection.close(refusal or "")
            return None
        self._welcome(connection, 0, wanted.cost)
        link = self._broker.neighbourhood.linked(connection, hello.name, wanted.cost, None)
        if link is not None:
            link.start()
        return link

    def _refusal(self, connection: Connection, hello: Hello) -> str | None:
        if hello.name == self._broker.name:
            return f"{hello.name} is the name of this broker"
        tls = self._broker.configuration.tls
        if tls.is_on and tls.check_names:
            certified = connection.certified_name
            if certified is None and (hello.role == "broker" or tls.require_client_certificate):
                return "a certificate is needed here"
            if certified is None and self._is_reserved(hello.name):
                return f"a certificate is needed here for the name {hello.name}"
            if certified is not None and (wait := self.identities.check(certified, self._broker.now())):
                self._broker.metrics.shut_out += 1
                return _too_many(wait)
            if certified is not None and certified != hello.name:
                return f"the certificate is that of {certified}, not of {hello.name}"
        gatehouse = self._broker.gatehouse
        role = Role.BROKER if hello.role == "broker" else None
        return None if gatehouse is None else gatehouse.refusal(connection, role)

    def _is_reserved(self, name: str) -> bool:
        """Whether who has that name may do what others may not, or is here and has proved that it is its name."""
        given, known = self._broker.configuration.broker, self._broker.sessions.get(name)
        return name in (*given.operators, *given.govern, *(given.observers or ())) or (
            known is not None and known.connection.certified_name is not None
        )

    def _is_broker(self, name: str) -> bool:
        return name in self._broker.desk.engine.topology.brokers or any(
            one.broker == name for one in self._broker.configuration.links
        )

    def _welcome(self, connection: Connection, sequence: int, cost: int = 1, nonce: bytes = b"") -> None:
        heartbeat, limits = self._broker.configuration.heartbeat, self._broker.configuration.limits
        connection.welcome(limits.frame_bytes)
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
            self._broker.desk.archive is not None,
            nonce=nonce,
        )
        connection.say(Kind.WELCOME, welcome)


def _too_many(wait: float) -> str:
    return f"too many attempts were refused; try again in {wait:.0f} seconds"

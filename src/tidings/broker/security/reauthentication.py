"""Challenge clients with a certificate from time to time to sign that they still hold the certificate's key.

TLS checks the key only when a connection is made. Without this, a connection whose owner has lost the key would stay
trusted for as long as it is open.
"""

import itertools
import logging
import secrets
from typing import TYPE_CHECKING, NamedTuple

from tidings.broker.net.connection import Connection
from tidings.model.errors import SecurityError
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import Challenge, Proof
from tidings.security.ca.certificates import NONCE_BYTES, check_challenge

if TYPE_CHECKING:
    from tidings.broker.broker import Broker
    from tidings.broker.sessions.session import Session

_LOG = logging.getLogger("tidings.broker")


class _OpenChallenge(NamedTuple):
    """A challenge that the client has not answered yet."""

    number: int
    nonce: bytes
    sent: float  # by the event loop's clock


class Reauthentication:
    """Challenges the clients of a broker at the configured interval, and disconnects those that fail."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._numbers = itertools.count(-1, -1)  # negative, to tell them from challenges of trust groups
        self._open: dict[Connection, _OpenChallenge] = {}
        self._last_proved: dict[Connection, float] = {}  # when the client has last proved itself, or was first seen

    def tick(self) -> None:
        """Challenge clients that are due, and disconnect those that are late. Called at every heartbeat."""
        table, now = self._broker.configuration.security, self._broker.now()
        for session in self._broker.all_sessions():
            connection = session.connection
            challenge = self._open.get(connection)
            if challenge is not None:
                # While the broker does not read the connection, an answer cannot arrive.
                if now - challenge.sent > table.answer_ms / 1000 and connection.is_reading:
                    self._fail(session, "it has not proved in time that it holds the key of its certificate")
            elif self._is_due(connection, now, table.challenge_interval_ms / 1000):
                self._challenge(connection, now)

    def _is_due(self, connection: Connection, now: float, interval: float) -> bool:
        """Return whether the interval has passed since the client has proved itself or has connected."""
        if not interval or not connection.is_open or connection.certificate is None:
            return False
        return now - self._last_proved.setdefault(connection, now) >= interval

    def _challenge(self, connection: Connection, now: float) -> None:
        challenge = self._open[connection] = _OpenChallenge(next(self._numbers), secrets.token_bytes(NONCE_BYTES), now)
        self._broker.metrics.security.challenges += 1
        connection.send_message(FrameKind.CHALLENGE, Challenge(challenge.number, challenge.nonce))

    def handle_proof(self, session: "Session", proof: Proof) -> None:
        """Check a client's answer; disconnect the client and count a refused attempt if it is wrong."""
        connection = session.connection
        challenge = self._open.get(connection)
        if challenge is None or challenge.number != proof.number:
            return  # the answer came too late
        try:
            if not proof.proof:
                raise SecurityError("signature", "it cannot prove that it holds the key of its certificate")
            check_challenge(
                connection.certificate or b"", self._broker.name, session.name, challenge.nonce, proof.proof
            )
        except SecurityError as error:
            self._broker.admission.record_refused_attempt(connection, session.name)
            self._fail(session, error.reason)
        else:
            del self._open[connection]
            self._last_proved[connection] = self._broker.now()

    def _fail(self, session: "Session", reason: str) -> None:
        self._broker.metrics.security.challenges_failed += 1
        _LOG.warning("%s is disconnected: %s", session.name, reason)
        session.connection.close(f"challenge: {reason}")
        self.connection_closed(session.connection)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)
        self._last_proved.pop(connection, None)

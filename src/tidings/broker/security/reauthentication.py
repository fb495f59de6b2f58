"""Challenge clients with a certificate from time to time to sign that they still hold the certificate's key.

TLS checks the key only when a connection is made. Without this, a connection whose owner has lost the key would stay
trusted for as long as it is open.
"""

import itertools
import logging
import secrets
from collections.abc import Callable
from typing import NamedTuple

from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.metrics import SecurityMetrics
from tidings.broker.net.channel import Channel
from tidings.broker.net.rate_limits import RefusedAttempts
from tidings.broker.ports import Sessions
from tidings.model.errors import SecurityError
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import Challenge, Proof
from tidings.security.ca.certificates import NONCE_BYTES, check_challenge

_LOG = logging.getLogger("tidings.broker")


class _OpenChallenge(NamedTuple):
    """A challenge that the client has not answered yet."""

    number: int
    nonce: bytes
    sent: float  # by the event loop's clock


class Reauthentication:
    """Challenges the clients of a broker at the configured interval, and disconnects those that fail.

    Args:
        broker: The broker's name.
        configuration: Has the interval and the time for an answer.
        sessions: The sessions of the clients.
        attempts: Counts refused attempts.
        metrics: The counters of challenges.
        now: Returns the time of the event loop, in seconds.
    """

    def __init__(
        self,
        broker: str,
        *,
        configuration: ActiveConfiguration,
        sessions: Sessions,
        attempts: RefusedAttempts,
        metrics: SecurityMetrics,
        now: Callable[[], float],
    ) -> None:
        self._broker, self._configuration, self._sessions = broker, configuration, sessions
        self._attempts, self._metrics, self._now = attempts, metrics, now
        self._numbers = itertools.count(-1, -1)  # negative, to tell them from challenges of trust groups
        self._open: dict[Channel, _OpenChallenge] = {}
        self._last_proved: dict[Channel, float] = {}  # when the client has last proved itself, or was first seen

    def tick(self) -> None:
        """Challenge clients that are due, and disconnect those that are late. Called at every heartbeat."""
        table, now = self._configuration.current.security, self._now()
        for session in self._sessions.all():
            connection = session.connection
            challenge = self._open.get(connection)
            if challenge is not None:
                # While the broker does not read the connection, an answer cannot arrive.
                if now - challenge.sent > table.answer_ms / 1000 and connection.flow.is_reading:
                    self._fail(
                        connection,
                        session.name,
                        "the client has not proved in time that it holds the key of its certificate",
                    )
            elif self._is_due(connection, now, table.challenge_interval_ms / 1000):
                self._challenge(connection, now)

    def _is_due(self, connection: Channel, now: float, interval: float) -> bool:
        """Return whether the interval has passed since the client has proved itself or has connected."""
        if not interval or not connection.is_open or connection.peer.certificate is None:
            return False
        return now - self._last_proved.setdefault(connection, now) >= interval

    def _challenge(self, connection: Channel, now: float) -> None:
        challenge = self._open[connection] = _OpenChallenge(next(self._numbers), secrets.token_bytes(NONCE_BYTES), now)
        self._metrics.challenges += 1
        connection.send_message(FrameKind.CHALLENGE, Challenge(challenge.number, challenge.nonce))

    def handle_proof(self, connection: Channel, client: str, proof: Proof) -> None:
        """Check a client's answer; disconnect the client and count a refused attempt if it is wrong."""
        challenge = self._open.get(connection)
        if challenge is None or challenge.number != proof.number:
            return  # the answer came too late
        try:
            if not proof.proof:
                raise SecurityError("signature", "the client cannot prove that it holds the key of its certificate")
            certificate = connection.peer.certificate or b""
            check_challenge(certificate, self._broker, client, challenge.nonce, proof.proof)
        except SecurityError as error:
            self._attempts.record(connection, client)
            self._fail(connection, client, error.reason)
        else:
            del self._open[connection]
            self._last_proved[connection] = self._now()

    def _fail(self, connection: Channel, client: str, reason: str) -> None:
        self._metrics.challenges_failed += 1
        _LOG.warning("%s is disconnected: %s", client, reason)
        connection.close(f"challenge: {reason}")
        self.connection_closed(connection)

    def connection_closed(self, connection: Channel) -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)
        self._last_proved.pop(connection, None)

"""Examining: from time to time a client with a certificate has to show that it still holds the certificate's key.

TLS has checked that when it connected; a key that was stolen from a connection that stays open would not be noticed.
"""

import itertools
import logging
import secrets
from typing import TYPE_CHECKING, NamedTuple

from tidings.live.connection import Connection
from tidings.model.errors import SecurityError
from tidings.protocol.challenges import Challenge, Proof
from tidings.protocol.frames import Kind
from tidings.security.challenge import NONCE_BYTES, check

if TYPE_CHECKING:
    from tidings.live.broker import Broker
    from tidings.live.session import Session

_LOG = logging.getLogger("tidings.live")


class _Asked(NamedTuple):
    number: int
    nonce: bytes
    when: float  # by the clock of the loop


class Examining:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._numbers = itertools.count(-1, -1)  # below those of trust groups
        self._asked: dict[Connection, _Asked] = {}
        self._passed: dict[Connection, float] = {}  # when it has proved itself last, or came

    def tick(self) -> None:
        """At every heartbeat."""
        given, now = self._broker.configuration.security, self._broker.now()
        for session in self._broker.all_sessions():
            connection = session.connection
            asked = self._asked.get(connection)
            if asked is not None:
                # Who is not read cannot be heard: that is not its fault.
                if now - asked.when > given.answer_ms / 1000 and connection.is_reading:
                    self._fail(session, "it has not proved in time that it holds the key of its certificate")
            elif self._is_due(connection, now, given.challenge_interval_ms / 1000):
                self._ask(connection, now)

    def _is_due(self, connection: Connection, now: float, interval: float) -> bool:
        if not interval or not connection.is_open or connection.certificate is None:
            return False
        return now - self._passed.setdefault(connection, now) >= interval

    def _ask(self, connection: Connection, now: float) -> None:
        asked = self._asked[connection] = _Asked(next(self._numbers), secrets.token_bytes(NONCE_BYTES), now)
        self._broker.metrics.challenges += 1
        connection.say(Kind.CHALLENGE, Challenge(asked.number, asked.nonce))

    def proved(self, session: "Session", proof: Proof) -> None:
        connection = session.connection
        asked = self._asked.get(connection)
        if asked is None or asked.number != proof.number:
            return  # it came too late
        try:
            if not proof.proof:
                raise SecurityError("signature", "it cannot prove that it holds the key of its certificate")
            check(connection.certificate or b"", self._broker.name, session.name, asked.nonce, proof.proof)
        except SecurityError as error:
            self._broker.reception.bogus(connection, session.name)
            self._fail(session, error.reason)
        else:
            del self._asked[connection]
            self._passed[connection] = self._broker.now()

    def _fail(self, session: "Session", reason: str) -> None:
        self._broker.metrics.challenges_failed += 1
        _LOG.warning("%s is disconnected: %s", session.name, reason)
        session.connection.close(f"challenge: {reason}")
        self.left(session.connection)

    def left(self, connection: Connection) -> None:
        self._asked.pop(connection, None)
        self._passed.pop(connection, None)

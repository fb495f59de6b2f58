"""Challenges of trust groups: connected parties prove that they belong to a group, when a policy asks for it.

- The engine asks whether a party belongs to a group, and goes on. If the answer is not known, the party is challenged
  over its own connection, and its answer is given to the engine as a `Trust` operation.
- A party that is not connected, does not answer in time or answers wrongly does not belong to the group.
- The engine caches answers until they expire; they are dropped when the party connects anew.
- The broker also answers the challenges of its neighbours.
"""

import itertools
import secrets
from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tidings.broker.config import BrokerConfiguration
from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.metrics import SecurityMetrics
from tidings.broker.net.channel import Channel
from tidings.broker.net.rate_limits import RefusedAttempts
from tidings.broker.ports import Links, NodePort, Scheduler, Sessions
from tidings.engine.operations import Trust
from tidings.model.errors import InvalidValueError, JournalError, SecurityError
from tidings.protocol.frames import FrameKind
from tidings.protocol.handshake import Challenge, Proof
from tidings.security.trust_group import NONCE_BYTES, ConnectionEnds, TrustGroup

Question = tuple[str, str]  # a party and a group
_MAX_DENIAL_CACHE = 1_000_000  # microseconds, at most, for which a denial is cached


class _PendingChallenge(NamedTuple):
    """A challenge that the party has not answered yet."""

    connection: Channel
    number: int
    nonce: bytes
    timer: TimerHandle


class TrustGroups:
    """The trust groups whose secrets a broker has, and the members that its configuration names.

    `secrets` has the groups by name. A reload replaces them; answers that are cached stay until they expire.
    """

    def __init__(self, broker: str, configuration: ActiveConfiguration) -> None:
        self._broker, self._configuration = broker, configuration
        self.secrets = groups_of(configuration.current)

    def reload(self, secrets: dict[str, TrustGroup]) -> None:
        """Use other groups and secrets from now on."""
        self.secrets = secrets

    def is_member(self, party: str, group: str) -> bool:
        """Return whether a party is known to belong to a group without a proof."""
        if party == self._broker and group in self.secrets:
            return True
        return any(table.group == group and party in table.members for table in self._configuration.current.trust)


class TrustNode(NodePort, Protocol):
    """What the challenges need of the node."""

    def record_trust_answer(self, answer: Trust, *, journaled: bool) -> None:
        """Give the engine the answer to a trust question."""
        ...


class TrustChallenges:
    """Answers the trust questions of a broker's engine, by configuration or by challenging the party.

    Args:
        broker: The broker's name.
        groups: The trust groups that the broker knows.
        configuration: Has the time for an answer, and how long answers hold.
        scheduler: The turns of the event loop.
        node: Gets the answers.
        sessions: The sessions of the clients.
        links: The links to the neighbours.
        attempts: Counts refused attempts.
        metrics: The counters of challenges.
    """

    def __init__(
        self,
        broker: str,
        groups: TrustGroups,
        *,
        configuration: ActiveConfiguration,
        scheduler: Scheduler,
        node: TrustNode,
        sessions: Sessions,
        links: Links,
        attempts: RefusedAttempts,
        metrics: SecurityMetrics,
    ) -> None:
        self._broker, self._groups, self._configuration = broker, groups, configuration
        self._scheduler, self._node, self._sessions, self._links = scheduler, node, sessions, links
        self._attempts, self._metrics = attempts, metrics
        self._numbers = itertools.count(1)
        self._pending: dict[Question, _PendingChallenge] = {}
        self._by_number: dict[int, Question] = {}
        self._waiting: dict[Question, list[Callable[[], None]]] = {}

    # Questions of the engine

    def trust_answer(self, party: str, group: str) -> tuple[bool, int] | None:
        """Return whether a party belongs to a group, and until when (microseconds; 0: not cached) that holds.

        Returns None if the party is being challenged; the engine then gets the answer as a `Trust` operation.
        """
        if self._groups.is_member(party, group):
            return True, 0
        peer = self._links.get(party) or self._sessions.get(party)
        if peer is None or group not in self._groups.secrets:
            return False, 0
        pending = self._pending.get((party, group))
        if pending is None or pending.connection is not peer.connection:
            self._challenge((party, group), peer.connection)
        return None

    def wait_for(self, question: Question, callback: Callable[[], None]) -> None:
        """Call `callback` once the question is answered, in a turn of the event loop of its own."""
        if question in self._pending:
            self._waiting.setdefault(question, []).append(callback)
        else:
            self._scheduler.call_later(0, callback)

    @property
    def is_settled(self) -> bool:
        """Whether no challenge is waiting for its answer."""
        return not self._pending

    # Challenges to parties

    def _challenge(self, question: Question, connection: Channel) -> None:
        """Challenge a party; if its connection is being closed, `connection_closed` ends the challenge soon."""
        self._close(question)
        number, nonce = next(self._numbers), secrets.token_bytes(NONCE_BYTES)
        self._pending[question] = _PendingChallenge(connection, number, nonce, self._start_timer(question))
        self._by_number[number] = question
        self._metrics.challenges += 1
        connection.send_message(FrameKind.CHALLENGE, Challenge(number, nonce, question[1]))

    def _start_timer(self, question: Question) -> TimerHandle:
        seconds = self._configuration.current.security.answer_ms / 1000
        return self._scheduler.call_later(seconds, partial(self._time_out, question))

    def _time_out(self, question: Question) -> None:
        """Count a missing answer as a denial, unless the broker is not reading the party's connection."""
        pending = self._pending[question]
        if pending.connection.is_open and not pending.connection.flow.is_reading:  # no answer can arrive
            self._pending[question] = pending._replace(timer=self._start_timer(question))
            return
        self._answer(question, False)

    def handle_proof(self, connection: Channel, proof: Proof) -> None:
        """Check the answer that a party has sent over its connection."""
        question = self._by_number.get(proof.number)
        if question is None or self._pending[question].connection is not connection:
            return  # the answer came too late
        party, group = question
        trust_group = self._groups.secrets.get(group)
        try:
            if trust_group is None:
                raise SecurityError("trust", f"{party} has not proved that it belongs to {group}")
            own_fingerprint, peer_fingerprint = connection.peer.fingerprints
            ends = ConnectionEnds(self._broker, party, own_fingerprint, peer_fingerprint)
            trust_group.check(ends, self._pending[question].nonce, proof.nonce, proof.proof)
        except SecurityError:
            if proof.proof:  # an empty proof is honest, a wrong one is an attempt
                self._attempts.record(connection, party)
            self._answer(question, False)
        else:
            self._answer(question, True)

    def deny(self, party: str) -> None:
        """Deny every question about a party that waits for its answer."""
        for question in [pending for pending in self._pending if pending[0] == party]:
            self._answer(question, False)

    def _answer(self, question: Question, is_member: bool) -> None:
        """Give the engine the answer to a question, and wake those that wait for it.

        If the answer cannot be journaled, the engine is told that the party does not belong to the group, and the
        connection is closed. The party connects and proves itself again; its pending decisions are made then, before
        anything newer reaches it.
        """
        connection = self._pending[question].connection
        self._close(question)
        if not is_member:
            self._metrics.challenges_failed += 1
        expiry = next(
            (table.expiry_ms * 1000 for table in self._configuration.current.trust if table.group == question[1]), 0
        )
        until = self._scheduler.clock.now() + (expiry if is_member else min(expiry, _MAX_DENIAL_CACHE))
        # Answers about neighbours are not journaled: when the journal is read, no link is up.
        try:
            journaled = self._links.get(question[0]) is None
            self._node.record_trust_answer(Trust(*question, is_member, until), journaled=journaled)
        except JournalError as error:
            self._node.drive(Trust(*question, False))
            connection.close(f"the answer to your proof cannot be journaled: {error}")
        self._wake(question)
        self._scheduler.flush()

    def _close(self, question: Question) -> None:
        pending = self._pending.pop(question, None)
        if pending is not None:
            del self._by_number[pending.number]
            pending.timer.cancel()

    def _wake(self, question: Question) -> None:
        for callback in self._waiting.pop(question, ()):
            self._scheduler.call_later(0, callback)

    # Connections

    def party_connected(self, party: str) -> None:
        """Drop the answers about a party that has connected anew: they held for its former connection."""
        engine = self._node.engine
        for group in self._groups.secrets:
            if (party, group) in engine.state.trust:
                self._node.record_trust_answer(Trust(party, group, False), journaled=False)

    def connection_closed(self, connection: Channel) -> None:
        """End the challenges on a connection that is gone.

        The engine is given no answer: it knows that the party has left, and no longer waits for it.
        """
        for question in [
            pending_question for pending_question, pending in self._pending.items() if pending.connection is connection
        ]:
            self._close(question)
            self._wake(question)

    # Challenges from neighbours

    def answer_challenge(self, neighbour: str, connection: Channel, challenge: Challenge) -> None:
        """Answer the challenge of a neighbour; an empty proof says that this broker has not got the secret."""
        group = None if challenge.group is None else self._groups.secrets.get(challenge.group)
        if group is None or len(challenge.nonce) != NONCE_BYTES:
            connection.send_message(FrameKind.PROOF, Proof(challenge.number))
            return
        own_fingerprint, peer_fingerprint = connection.peer.fingerprints
        nonce = secrets.token_bytes(NONCE_BYTES)
        proof = group.prove(
            ConnectionEnds(neighbour, self._broker, peer_fingerprint, own_fingerprint), challenge.nonce, nonce
        )
        connection.send_message(FrameKind.PROOF, Proof(challenge.number, nonce, proof))


def groups_of(configuration: BrokerConfiguration) -> dict[str, TrustGroup]:
    """Return the trust groups whose secrets the broker has, read from the files that `[[trust]]` names."""
    groups: dict[str, TrustGroup] = {}
    for table in configuration.trust:
        if table.secret_file:
            try:
                groups[table.group] = TrustGroup.load(table.group, table.secret_file)
            except InvalidValueError as error:
                raise InvalidValueError(f"trust.secret_file: {error}") from None
    return groups

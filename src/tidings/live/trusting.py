"""Trusting: who is connected here proves that it belongs to a trust group, when a policy wants to know.

The engine asks and goes on with something else; the challenge goes to the party over its own connection, and the answer
comes back to the engine. Who does not answer in time, or is not connected, does not belong to the group.
"""

import itertools
import secrets
from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidings.engine.operations import Trust
from tidings.live.configuration import Configuration
from tidings.live.connection import Connection
from tidings.model.errors import InvalidValueError, JournalError, SecurityError
from tidings.protocol.challenges import Challenge, Proof
from tidings.protocol.frames import Kind
from tidings.security.trust import NONCE_BYTES, Ends, Group

if TYPE_CHECKING:
    from tidings.live.broker import Broker
    from tidings.live.link import Link

Question = tuple[str, str]  # a party and a group
_DENIED = 1_000_000  # microseconds for which, at most, a party that has not proved it is not challenged again


class _Pending(NamedTuple):
    connection: Connection
    number: int
    nonce: bytes
    timer: TimerHandle


class Trusting:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._groups = groups_of(broker.configuration)
        self._numbers = itertools.count(1)
        self._pending: dict[Question, _Pending] = {}
        self._by_number: dict[int, Question] = {}
        self._waiting: dict[Question, list[Callable[[], None]]] = {}

    def reload(self, groups: dict[str, Group]) -> None:
        """With other secrets. What was proved stays so until it expires."""
        self._groups = groups

    # What the engine asks

    def is_member(self, party: str, group: str) -> bool:
        """Whether that is known without asking the party."""
        if party == self._broker.name and group in self._groups:
            return True
        return any(one.group == group and party in one.members for one in self._broker.configuration.trust)

    def asked(self, party: str, group: str) -> tuple[bool, int] | None:
        """Whether the party belongs to the group, and until when that holds; None if it is challenged now."""
        if self.is_member(party, group):
            return True, 0
        peer = self._broker.links.get(party) or self._broker.sessions.get(party)
        if peer is None or group not in self._groups:
            return False, 0
        pending = self._pending.get((party, group))
        if pending is None or pending.connection is not peer.connection:
            self._challenge((party, group), peer.connection)
        return None

    def wait_for(self, question: Question, act: Callable[[], None]) -> None:
        """`act` once the answer is known, in a turn of its own."""
        if question in self._pending:
            self._waiting.setdefault(question, []).append(act)
        else:
            self._broker.later(0, act)

    @property
    def is_settled(self) -> bool:
        return not self._pending

    # Challenges to others

    def _challenge(self, question: Question, connection: Connection) -> None:
        """On a connection that is being closed it is not answered: soon nobody waits for it."""
        self._close(question)
        number, nonce = next(self._numbers), secrets.token_bytes(NONCE_BYTES)
        self._pending[question] = _Pending(connection, number, nonce, self._timer(question))
        self._by_number[number] = question
        self._broker.metrics.challenges += 1
        connection.say(Kind.CHALLENGE, Challenge(number, nonce, question[1]))

    def _timer(self, question: Question) -> TimerHandle:
        seconds = self._broker.configuration.security.answer_ms / 1000
        return self._broker.later(seconds, partial(self._late, question))

    def _late(self, question: Question) -> None:
        pending = self._pending[question]
        if pending.connection.is_open and not pending.connection.is_reading:  # it cannot be heard: it is not late
            self._pending[question] = pending._replace(timer=self._timer(question))
            return
        self._answer(question, False)

    def proved(self, connection: Connection, proof: Proof) -> None:
        """A party has answered, over its connection."""
        question = self._by_number.get(proof.number)
        if question is None or self._pending[question].connection is not connection:
            return  # it came too late
        party, group = question
        known = self._groups.get(group)
        try:
            if known is None:
                raise SecurityError("trust", f"{party} has not proved that it belongs to {group}")
            own, other = connection.fingerprints
            ends = Ends(self._broker.name, party, own, other)
            known.check(ends, self._pending[question].nonce, proof.nonce, proof.proof)
        except SecurityError:
            if proof.proof:  # who has no secret says so; who says something else tries
                self._broker.reception.bogus(connection, party)
            self._answer(question, False)
        else:
            self._answer(question, True)

    def give_up(self, party: str) -> None:
        """What was asked of that party is not waited for."""
        for question in [one for one in self._pending if one[0] == party]:
            self._answer(question, False)

    def _answer(self, question: Question, member: bool) -> None:
        """If what follows cannot be written down, the party has to come again, and to prove it again: what waited is
        judged anew then, and what comes meanwhile does not overtake it."""
        connection = self._pending[question].connection
        self._close(question)
        broker = self._broker
        if not member:
            broker.metrics.challenges_failed += 1
        expiry = next((one.expiry_ms * 1000 for one in broker.configuration.trust if one.group == question[1]), 0)
        until = broker.clock.now() + (expiry if member else min(expiry, _DENIED))
        # What a neighbour has proved is of no use when the journal is read again: nobody is linked then.
        try:
            broker.desk.answered(Trust(*question, member, until), kept=question[0] not in broker.links)
        except JournalError as error:
            broker.desk.drive(Trust(*question, False))
            connection.close(f"what waits for your proof cannot be kept: {error}")
        self._wake(question)
        broker.flush()

    def _close(self, question: Question) -> None:
        pending = self._pending.pop(question, None)
        if pending is not None:
            del self._by_number[pending.number]
            pending.timer.cancel()

    def _wake(self, question: Question) -> None:
        for act in self._waiting.pop(question, ()):
            self._broker.later(0, act)

    # Who comes and goes

    def came(self, party: str) -> None:
        """Over a new connection: what was proved on another one counts no more."""
        engine = self._broker.desk.engine
        for group in self._groups:
            if (party, group) in engine.trust:
                self._broker.desk.answered(Trust(party, group, False), kept=False)

    def left(self, connection: Connection) -> None:
        """The engine knows it already, and waits for nothing of that party: that is no answer."""
        for question in [one for one, pending in self._pending.items() if pending.connection is connection]:
            self._close(question)
            self._wake(question)

    # Challenges of others

    def challenged(self, link: "Link", challenge: Challenge) -> None:
        """By a neighbour."""
        group = None if challenge.group is None else self._groups.get(challenge.group)
        if group is None or len(challenge.nonce) != NONCE_BYTES:
            link.connection.say(Kind.PROOF, Proof(challenge.number))
            return
        own, other = link.connection.fingerprints
        nonce = secrets.token_bytes(NONCE_BYTES)
        proof = group.prove(Ends(link.name, self._broker.name, other, own), challenge.nonce, nonce)
        link.connection.say(Kind.PROOF, Proof(challenge.number, nonce, proof))


def groups_of(configuration: Configuration) -> dict[str, Group]:
    """The groups whose secrets a broker holds, read from their files."""
    found: dict[str, Group] = {}
    for one in configuration.trust:
        if one.secret_file:
            try:
                found[one.group] = Group.load(one.group, one.secret_file)
            except InvalidValueError as error:
                raise InvalidValueError(f"trust.secret_file: {error}") from None
    return found

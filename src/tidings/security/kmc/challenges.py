"""Challenge queries: questions that an entity has enrolled answers to and is asked now and then.

A thief of the entity's key does not know the answers. Answers are stored as slow, salted hashes only. A query
stays the pending one until it is answered, so nobody can wait for another one. After `WRONG` wrong answers the
entity is suspended until it is released.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_QUERIES, MAX_QUERY_CHARACTERS
from tidings.security.kmc.epochs import SECOND, Draw
from tidings.security.kmc.state import ChallengeQuery, Change, EnrolmentChange, EnrolmentRemoved
from tidings.security.rpc.kmc_messages import CHALLENGED, SUSPENDED

WRONG = 3  # wrong answers after which an entity is suspended
_SALT = 16
_WORK = {"n": 2**12, "r": 8, "p": 1, "dklen": 32}  # some milliseconds per hash; the stored state is encrypted as well


class EnrolmentState(Protocol):
    """The enrolments in a centre's state. `CentreState` says what each of these is."""

    enrolments: dict[str, EnrolmentChange]

    def record_change(self, change: Change) -> None: ...


class Challenges:
    """Enrols, asks and checks the challenge queries of entities."""

    def __init__(self, state: EnrolmentState, draw: Draw) -> None:
        self._state, self._draw = state, draw
        self._pending_queries: dict[str, str] = {}  # the pending query of each entity

    def enrol(self, entity: str, queries: Sequence[tuple[str, str]], now: int) -> None:
        """Store an entity's queries and hashed answers.

        Raises `SecurityError` if it has a query set already, and `InvalidValueError` if the queries are not
        valid.
        """
        if entity in self._state.enrolments:
            raise SecurityError(
                "enrolled", f"{entity} has a query set already; the centre's administrator can take it away"
            )
        if not 0 < len(queries) <= MAX_QUERIES or len({text for text, _ in queries}) != len(queries):
            raise InvalidValueError(f"a query set has 1 to MAX_QUERIES ({MAX_QUERIES}) queries, each of them once")
        for text, answer in queries:
            if not 0 < len(text) <= MAX_QUERY_CHARACTERS or not 0 < len(_normalised(answer)) <= MAX_QUERY_CHARACTERS:
                raise InvalidValueError(
                    f"a query and its answer have 1 to MAX_QUERY_CHARACTERS ({MAX_QUERY_CHARACTERS}) characters"
                )
        salts = [self._draw(_SALT) for _ in queries]
        hashed = [
            ChallengeQuery(text, salt, _digest(answer, salt))
            for (text, answer), salt in zip(queries, salts, strict=True)
        ]
        self._state.record_change(EnrolmentChange(entity, tuple(hashed), now))

    def check(self, entity: str, interval: int, now: int) -> None:
        """Raise `SecurityError` if the entity must answer a query before it gets keys, or is suspended.

        `interval` is the topic's number of seconds between answers; 0 disables queries. The error's text contains
        the query.
        """
        enrolment = self._state.enrolments.get(entity)
        if enrolment is not None and enrolment.wrong >= WRONG:
            raise _suspended(entity)
        if not interval:
            return
        if enrolment is None:
            raise SecurityError("challenge", f"{entity} has no query set, which this topic asks for: enrol first")
        if now < enrolment.answered + interval * SECOND:
            return
        if entity not in self._pending_queries:
            texts = [query.text for query in enrolment.queries]
            self._pending_queries[entity] = texts[int.from_bytes(self._draw(8), "big") % len(texts)]
        raise SecurityError("challenge", CHALLENGED + self._pending_queries[entity])

    def answer(self, entity: str, text: str, answer: str, now: int) -> None:
        """Check an answer to the pending query and record the result.

        Raises `SecurityError` if the query is not pending, the answer is wrong, or the entity is suspended.

        Args:
            entity: The entity.
            text: The query.
            answer: The answer.
            now: The time, in microseconds.
        """
        enrolment = self._state.enrolments.get(entity)
        if enrolment is None or self._pending_queries.get(entity) != text:
            raise SecurityError("challenge", f"{entity} was not asked this: request keys, and answer what comes")
        if enrolment.wrong >= WRONG:
            raise _suspended(entity)
        query = next(candidate for candidate in enrolment.queries if candidate.text == text)
        if not hmac.compare_digest(_digest(answer, query.salt), query.digest):
            self._state.record_change(msgspec.structs.replace(enrolment, wrong=enrolment.wrong + 1))
            if enrolment.wrong + 1 >= WRONG:
                raise _suspended(entity)
            raise SecurityError("challenge", "the answer is wrong")
        del self._pending_queries[entity]
        self._state.record_change(msgspec.structs.replace(enrolment, answered=now, wrong=0))

    def release(self, entity: str, *, anew: bool) -> None:
        """Reset an entity's wrong answers; with `anew`, delete its query set."""
        enrolment = self._state.enrolments.get(entity)
        if enrolment is None:
            raise InvalidValueError(f"{entity} has no query set here")
        self._pending_queries.pop(entity, None)
        self._state.record_change(EnrolmentRemoved(entity) if anew else msgspec.structs.replace(enrolment, wrong=0))

    def suspended(self) -> list[str]:
        """Return the entities that are suspended."""
        return [entity for entity, enrolment in self._state.enrolments.items() if enrolment.wrong >= WRONG]


def _suspended(entity: str) -> SecurityError:
    return SecurityError(
        "suspended", f"{entity} {SUSPENDED} {WRONG} wrong answers: ask a topic's owner or the administrator"
    )


def _normalised(answer: str) -> str:
    """Normalise case and spaces, because people do not write the same answer twice."""
    return " ".join(answer.casefold().split())


def _digest(answer: str, salt: bytes) -> bytes:
    return hashlib.scrypt(_normalised(answer).encode(), salt=salt, **_WORK)

"""Challenges: queries that an entity and the centre have agreed on, of which one is asked now and then. Who has stolen
a key does not have the answers.

Answers are kept as slow, salted hashes only. A query that was asked is asked until it is answered: so nobody can wait
for the one that he knows.
"""

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.limits import MAX_QUERIES, MAX_QUERY_CHARACTERS
from tidings.security.centre.changes import EnrolmentEnded, EnrolmentKept, Query
from tidings.security.centre.epochs import SECOND, Draw
from tidings.security.centre.state import State
from tidings.security.centre_questions import CHALLENGED, SUSPENDED

WRONG = 3  # answers, after which an entity is suspended
_SALT = 16
_WORK = {"n": 2**12, "r": 8, "p": 1, "dklen": 32}  # some milliseconds each: what is kept is encrypted besides


class Challenges:
    def __init__(self, state: State, draw: Draw) -> None:
        self._state, self._draw = state, draw
        self._asked: dict[str, str] = {}  # what each entity has to answer next

    def enrol(self, entity: str, queries: Sequence[tuple[str, str]], now: int) -> None:
        if entity in self._state.enrolments:
            raise SecurityError(
                "enrolled", f"{entity} has a query set already; the centre's administrator can take it away"
            )
        if not 0 < len(queries) <= MAX_QUERIES or len({text for text, _ in queries}) != len(queries):
            raise InvalidValueError(f"a query set has 1 to MAX_QUERIES ({MAX_QUERIES}) queries, each of them once")
        for text, answer in queries:
            if not 0 < len(text) <= MAX_QUERY_CHARACTERS or not 0 < len(_plain(answer)) <= MAX_QUERY_CHARACTERS:
                raise InvalidValueError(
                    f"a query and its answer have 1 to MAX_QUERY_CHARACTERS ({MAX_QUERY_CHARACTERS}) characters"
                )
        salts = [self._draw(_SALT) for _ in queries]
        kept = [Query(text, salt, _digest(answer, salt)) for (text, answer), salt in zip(queries, salts, strict=True)]
        self._state.keep(EnrolmentKept(entity, tuple(kept), now))

    def check(self, entity: str, interval: int, now: int) -> None:
        """Before keys are given on a topic that asks for answers every so many seconds (0: it does not)."""
        enrolment = self._state.enrolments.get(entity)
        if enrolment is not None and enrolment.wrong >= WRONG:
            raise _suspended(entity)
        if not interval:
            return
        if enrolment is None:
            raise SecurityError("challenge", f"{entity} has no query set, which this topic asks for: enrol first")
        if now < enrolment.answered + interval * SECOND:
            return
        if entity not in self._asked:
            texts = [query.text for query in enrolment.queries]
            self._asked[entity] = texts[int.from_bytes(self._draw(8), "big") % len(texts)]
        raise SecurityError("challenge", CHALLENGED + self._asked[entity])

    def answer(self, entity: str, text: str, answer: str, now: int) -> None:
        enrolment = self._state.enrolments.get(entity)
        if enrolment is None or self._asked.get(entity) != text:
            raise SecurityError("challenge", f"{entity} was not asked this: request keys, and answer what comes")
        if enrolment.wrong >= WRONG:
            raise _suspended(entity)
        query = next(one for one in enrolment.queries if one.text == text)
        if not hmac.compare_digest(_digest(answer, query.salt), query.digest):
            self._state.keep(msgspec.structs.replace(enrolment, wrong=enrolment.wrong + 1))
            if enrolment.wrong + 1 >= WRONG:
                raise _suspended(entity)
            raise SecurityError("challenge", "the answer is wrong")
        del self._asked[entity]
        self._state.keep(msgspec.structs.replace(enrolment, answered=now, wrong=0))

    def release(self, entity: str, *, anew: bool) -> None:
        """Wrong answers are forgotten, and the set with them if it is to be made `anew`."""
        enrolment = self._state.enrolments.get(entity)
        if enrolment is None:
            raise InvalidValueError(f"{entity} has no query set here")
        self._asked.pop(entity, None)
        self._state.keep(EnrolmentEnded(entity) if anew else msgspec.structs.replace(enrolment, wrong=0))

    def suspended(self) -> list[str]:
        return [entity for entity, one in self._state.enrolments.items() if one.wrong >= WRONG]


def _suspended(entity: str) -> SecurityError:
    return SecurityError(
        "suspended", f"{entity} {SUSPENDED} {WRONG} wrong answers: ask a topic's owner or the administrator"
    )


def _plain(answer: str) -> str:
    """People do not write the same twice."""
    return " ".join(answer.casefold().split())


def _digest(answer: str, salt: bytes) -> bytes:
    return hashlib.scrypt(_plain(answer).encode(), salt=salt, **_WORK)

"""Inspection: many sealed events at once, and of which of them it is certain that the gate lets them in.

Of the others the gate is asked, one by one: it alone says what is wrong. So all is checked here that it checks, by the
same functions; what many events have in common is checked once for all of them: the token and what it is worth as long
as nothing changes in that, and the one signature of a batch.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from tidings.model.errors import SecurityError
from tidings.security import root
from tidings.security.envelope import Seal, check_scope_of, digest_of
from tidings.security.gate import Gate, check_template
from tidings.security.token import Token

Named = Mapping[str, Any]
# Of an event: its id, publisher, subject and payload; for whom it is and its policy, as texts; its token and seal; when
# it was accepted; its attributes, of which None may be one that is missing; these and its context as leaves have them.
Claim = tuple[
    bytes, str, str | None, bytes | None, str | None, str | None, bytes | None, bytes | None, int, Named, root.Told
]
_Batch = tuple[bytes, bytes, int]  # the key, the signature and the size


class _UncertainError(Exception):
    """The gate has to be asked."""


class Inspection:
    """Of what comes together. Nothing is learnt from it: where that could be, nothing is certain."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._credentials = gate, gate.credentials
        self._turns: dict[bytes, list[int]] = {}  # by token
        self._publishing: dict[tuple[Any, ...], Token] = {}

    def certain(self, claims: Iterable[Claim]) -> dict[int, Seal]:
        """By place the seals of those that are let in."""
        if self._gate.ingress.freshness is not None:  # then it depends on those that came before
            return {}
        seals: dict[int, Seal] = {}
        digests: dict[int, bytes] = {}
        batches: dict[_Batch, list[int]] = {}
        for place, claim in enumerate(claims):
            try:
                seal, digests[place], key = self._checked(*claim)
            except (SecurityError, _UncertainError):
                continue
            seals[place] = seal
            batches.setdefault((key, seal.signature, seal.size), []).append(place)
        if self._gate.verifies:
            for (key, _, _), places in batches.items():
                for place in self._unsigned(places, digests, seals, key):
                    del seals[place]
        return seals

    def _checked(
        self,
        id: bytes,  # noqa: A002 - the event's own word
        publisher: str,
        subject: str | None,
        payload: bytes | None,
        subscribers: str | None,
        policy: str | None,
        token_data: bytes | None,
        seal_data: bytes | None,
        now: int,
        attributes: Named,
        told: root.Told,
    ) -> tuple[Seal, bytes, bytes]:
        """The seal, what is signed, and with which key that has to be."""
        if token_data is None or seal_data is None:
            raise _UncertainError
        seal = Seal.read(seal_data)
        token = self._token(token_data, publisher, seal, now)
        check_template(token, subject, attributes)
        if not self._gate.verifies:
            return seal, b"", token.key
        check_scope_of(subscribers, policy, seal)
        if not root.holds(told, seal.salts, seal.leaves):
            raise _UncertainError
        return seal, digest_of(seal.header_of(id, publisher, subject), payload), token.key

    def _token(self, data: bytes, publisher: str, seal: Seal, now: int) -> Token:
        """Between two moments at which something changes the gate says the same."""
        turns = self._turns.get(data)
        if turns is None:
            turns = self._turns[data] = self._turns_of(data)
        name = data, publisher, seal.topic, seal.suite, seal.epoch, bisect_right(turns, now)
        found = self._publishing.get(name)
        if found is None:
            self._credentials.revocations.check_fresh(now)
            found = self._gate.publishing(data, publisher, seal, now)
            self._gate.check_epoch(seal, now)
            self._publishing[name] = found
        return found

    def _turns_of(self, data: bytes) -> list[int]:
        token = self._credentials.known_token(data)
        if token is None:
            raise _UncertainError
        return self._credentials.turns(token)

    def _unsigned(
        self, places: list[int], digests: Mapping[int, bytes], seals: Mapping[int, Seal], key: bytes
    ) -> list[int]:
        """Those, of events with one signature, that it is not over."""
        places.sort(key=lambda place: seals[place].index)
        try:
            self._gate.signatures.check_all([digests[one] for one in places], [seals[one] for one in places], key)
        except SecurityError:
            return [place for place in places if not self._is_signed(digests[place], seals[place], key)]
        return []

    def _is_signed(self, digest: bytes, seal: Seal, key: bytes) -> bool:
        try:
            self._gate.signatures.check(digest, seal, key)
        except SecurityError:
            return False
        return True

"""Verifies many sealed events at once, for micro-batches.

`BatchVerifier` performs the checks of the gate by the same functions, and shares work between events: a token is
checked once per interval in which its validity cannot change, and the signature of a signed batch once. It only
returns events that the gate would certainly admit. For every other event the caller asks the gate, which alone
produces the reason of a refusal.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidings.model.errors import SecurityError
from tidings.security.gate import check_template
from tidings.security.sealing import attribute_merkle
from tidings.security.sealing.envelope import Seal, check_scope_of, digest_of
from tidings.security.sealing.replay import IngressReplayGuard
from tidings.security.sealing.signatures import Signatures
from tidings.security.tokens.credentials import Credentials
from tidings.security.tokens.token import Token

Attributes = Mapping[str, Any]
# An event's id, publisher, subject, payload, `subscribers` filter and policy (as text), token, seal, acceptance time,
# attributes (a missing one may be None), and the contents of the Merkle leaves for its attributes and its context.
Claim = tuple[
    bytes,
    str,
    str | None,
    bytes | None,
    str | None,
    str | None,
    bytes | None,
    bytes | None,
    int,
    Attributes,
    attribute_merkle.LeafContents,
]
_Batch = tuple[bytes, bytes, int]  # the publisher's public key, the signature and the size of a signed batch


class _UncertainError(Exception):
    """The batch verifier cannot decide about the event; the gate has to."""


class VerifyingGate(Protocol):
    """What the batch verifier needs of a gate. `Gate` says what each of these is."""

    credentials: Credentials
    verifies: bool
    ingress: IngressReplayGuard
    signatures: Signatures

    def publishing(self, token_data: bytes, publisher: str, seal: Seal, now: int) -> Token: ...
    def check_epoch(self, seal: Seal, now: int) -> None: ...


class BatchVerifier:
    """Verifies the sealed events of one micro-batch with the checks of a gate, without changing the gate's state.

    An event that would teach the gate something (an unknown token, for example) is never reported as certain.
    """

    def __init__(self, gate: VerifyingGate) -> None:
        self._gate, self._credentials = gate, gate.credentials
        self._validity_changes: dict[bytes, list[int]] = {}  # the result of `Credentials.turns` by token
        self._publisher_tokens: dict[tuple[Any, ...], Token] = {}

    def certain(self, claims: Iterable[Claim]) -> dict[int, Seal]:
        """Return the seals of the events that the gate would certainly admit, by position in `claims`.

        Returns nothing if the gate checks freshness at ingress, because then the result depends on earlier events.
        """
        if self._gate.ingress.freshness is not None:  # replay protection depends on earlier events
            return {}
        seals: dict[int, Seal] = {}
        digests: dict[int, bytes] = {}
        batches: dict[_Batch, list[int]] = {}
        for position, claim in enumerate(claims):
            try:
                seal, digests[position], key = self._checked(*claim)
            except (SecurityError, _UncertainError):
                continue
            seals[position] = seal
            batches.setdefault((key, seal.signature, seal.size), []).append(position)
        if self._gate.verifies:
            for (key, _, _), positions in batches.items():
                for position in self._unsigned(positions, digests, seals, key):
                    del seals[position]
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
        attributes: Attributes,
        leaf_contents: attribute_merkle.LeafContents,
    ) -> tuple[Seal, bytes, bytes]:
        """Check everything but the signature. Returns the seal, the digest that is signed, and the public key that must
        have signed it."""
        if token_data is None or seal_data is None:
            raise _UncertainError
        seal = Seal.read(seal_data)
        token = self._token(token_data, publisher, seal, now)
        check_template(token, subject, attributes)
        if not self._gate.verifies:
            return seal, b"", token.key
        check_scope_of(subscribers, policy, seal)
        if not attribute_merkle.has_leaves(leaf_contents, seal.salts, seal.leaves):
            raise _UncertainError
        return seal, digest_of(seal.header_of(id, publisher, subject), payload), token.key

    def _token(self, data: bytes, publisher: str, seal: Seal, now: int) -> Token:
        """Return the checked token for publishing under `seal`.

        The result is cached per interval between the moments of `Credentials.moments`, in which the gate's answer
        cannot change.
        """
        moments = self._validity_changes.get(data)
        if moments is None:
            moments = self._validity_changes[data] = self._validity_changes_of(data)
        cache_key = data, publisher, seal.topic, seal.suite, seal.epoch, bisect_right(moments, now)
        token = self._publisher_tokens.get(cache_key)
        if token is None:
            self._credentials.revocations.check_fresh(now)
            token = self._gate.publishing(data, publisher, seal, now)
            self._gate.check_epoch(seal, now)
            self._publisher_tokens[cache_key] = token
        return token

    def _validity_changes_of(self, data: bytes) -> list[int]:
        token = self._credentials.known_token(data)
        if token is None:
            raise _UncertainError
        return self._credentials.turns(token)

    def _unsigned(
        self, positions: list[int], digests: Mapping[int, bytes], seals: Mapping[int, Seal], key: bytes
    ) -> list[int]:
        """Return the positions, among events that share one signature, at which the signature does not hold."""
        positions.sort(key=lambda position: seals[position].index)
        try:
            self._gate.signatures.check_all(
                [digests[position] for position in positions], [seals[position] for position in positions], key
            )
        except SecurityError:
            return [position for position in positions if not self._is_signed(digests[position], seals[position], key)]
        return []

    def _is_signed(self, digest: bytes, seal: Seal, key: bytes) -> bool:
        try:
            self._gate.signatures.check(digest, seal, key)
        except SecurityError:
            return False
        return True

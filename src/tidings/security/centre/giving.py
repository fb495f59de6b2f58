"""Giving: tokens and keys to those who may have them, and content keys of what they have missed."""

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_GIVEN_KEYS, MAX_ISSUED_TOKENS, MAX_REWRAPPED
from tidings.security.authority import SKEW
from tidings.security.centre.challenges import Challenges
from tidings.security.centre.changes import GrantKept, Held
from tidings.security.centre.epochs import Epochs
from tidings.security.centre.granting import TOKEN
from tidings.security.centre.state import State
from tidings.security.centre_questions import GivesKeys, Rewrapped, WantsKeys, WantsRewrapped
from tidings.security.certificates import Certificate
from tidings.security.identity import Identity
from tidings.security.keys import EpochKey
from tidings.security.token import Right, Token


class Giving:
    def __init__(self, state: State, epochs: Epochs, challenges: Challenges, identity: Identity) -> None:
        self._state, self._epochs, self._challenges, self._identity = state, epochs, challenges, identity
        self._tokens: dict[tuple[bytes, bytes, bytes], Token] = {}  # by topic, certificate and key: the oldest first

    def keys(self, asker: Certificate, wanted: WantsKeys, now: int) -> GivesKeys:
        grant = self._granted(wanted.topic, asker, now)
        if (wanted.topic, asker.fingerprint, wanted.key) not in self._tokens:  # else it has shown before that it has it
            wanted.check(asker, self._identity.certificate)
        kept = self._state.topics[wanted.topic]
        self._challenges.check(asker.name, kept.challenge, now)
        # Early enough: until the next key begins, publishers go on with this one.
        messages = kept.messages - kept.messages // 10
        latest = self._epochs.follow(wanted.topic, now)
        is_latest = Right.PUBLISH in Right(grant.rights) and wanted.have == latest.epoch
        if is_latest and wanted.used >= messages and not self._epochs.is_waiting(wanted.topic, now):
            latest = self._epochs.rotate(wanted.topic, now)
        grant = self._noted(grant, asker, now)
        token = self._token(grant, asker, wanted.key, now)
        keys = self._given(grant, wanted.have, now)
        notice = self._state.topics[wanted.topic].notice
        return GivesKeys(token.data, keys, notice, messages, self._renewal(grant, token, latest, asker))

    def rewrapped(self, asker: Certificate, wanted: WantsRewrapped, now: int) -> Rewrapped:
        """What the asker may read and has no key for any more, under the key of the epoch that is now."""
        grant = self._granted(wanted.topic, asker, now)
        self._challenges.check(asker.name, self._state.topics[wanted.topic].challenge, now)
        if Right.SUBSCRIBE not in Right(grant.rights):
            raise SecurityError("right", f"{asker.name} has no right to subscribe")
        if len(wanted.wrapped) > MAX_REWRAPPED:
            raise SecurityError("limit", f"at most MAX_REWRAPPED ({MAX_REWRAPPED:,}) content keys at a time")
        current = self._state.current(wanted.topic, now)
        self._epochs.given(wanted.topic)
        return Rewrapped(
            current.epoch, tuple(self._rewrapped(grant, epoch, one, at, current) for epoch, one, at in wanted.wrapped)
        )

    def _rewrapped(self, grant: GrantKept, epoch: int, wrapped: bytes, accepted: int, under: EpochKey) -> bytes:
        # When it was accepted is what the asker says; under which epoch it was sealed, nobody can feign.
        before = self._state.epochs.get(grant.topic, epoch)
        if before is None or epoch < grant.since or not grant.begun <= accepted < grant.until:
            return b""
        try:
            return under.wrap(before.unwrap(wrapped))
        except (SecurityError, ValueError):
            return b""

    def _granted(self, topic: bytes, asker: Certificate, now: int) -> GrantKept:
        record = self._state.record(topic)
        grant = self._state.grant(topic, asker.name, now)
        if grant is None:
            raise SecurityError("right", f"{asker.name} has no rights on {record.template}: ask {record.owner.name}")
        return grant

    def _noted(self, grant: GrantKept, asker: Certificate, now: int) -> GrantKept:
        """For whom tokens were made is known for good, since a revocation has to name them all."""
        held = Held(asker.fingerprint.hex(), asker.serial_bytes, asker.not_after)
        if held in grant.certificates:
            return grant
        others = tuple(one for one in grant.certificates if one.not_after > now)
        noted = msgspec.structs.replace(grant, certificates=(*others, held))
        self._state.keep(noted)
        return noted

    def _token(self, grant: GrantKept, asker: Certificate, key: bytes, now: int) -> Token:
        """The one that it was given before, if that is good for long enough."""
        name = grant.topic, asker.fingerprint, key
        record, held = self._state.record(grant.topic), self._tokens.get(name)
        if (
            held is not None
            and (held.grant, held.record.data) == (grant.version, record.data)
            and held.not_after - now > TOKEN // 2
        ):
            return held
        made = Token.make(
            self._identity,
            record,
            holder=asker,
            key=key,
            rights=Right(grant.rights),
            not_before=now - SKEW,
            not_after=min(grant.until, now + TOKEN),
            grant=grant.version,
            template=grant.template,
        )
        self._tokens.pop(name, None)
        self._tokens[name] = made
        if len(self._tokens) > MAX_ISSUED_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return made

    def _given(self, grant: GrantKept, have: int, now: int) -> tuple[EpochKey, ...]:
        """Who only publishes gets what it seals under; who reads, everything since it may. Of very many the latest:
        those before can be had rewrapped."""
        rights = Right(grant.rights)
        if not rights & (Right.PUBLISH | Right.SUBSCRIBE):
            return ()
        self._epochs.given(grant.topic)
        reads = Right.SUBSCRIBE in rights
        start = max(grant.since, have + 1) if reads else self._state.current(grant.topic, now).epoch
        return tuple(self._state.epochs.since(grant.topic, start)[-MAX_GIVEN_KEYS:])

    def _renewal(self, grant: GrantKept, token: Token, latest: EpochKey, asker: Certificate) -> int:
        """When to ask again: before the token ends, unless it ends with the grant, and as soon as the next key can be
        had. Not everybody comes at the same moment, but in the first half of the time that there is."""
        lead = self._epochs.lead(grant.topic)
        next_key = latest.until - lead + lead // 2 * asker.fingerprint[0] // 256
        return min(next_key, token.not_after if token.not_after >= grant.until else token.not_after - TOKEN // 4)

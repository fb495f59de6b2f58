"""Issues tokens and epoch keys to entities with a grant, and rewraps content keys of missed events."""

from typing import Protocol

import msgspec

from tidings.model.errors import SecurityError
from tidings.model.limits import MAX_GIVEN_KEYS, MAX_ISSUED_TOKENS, MAX_REWRAPPED
from tidings.security.ca.authority import SKEW
from tidings.security.ca.certificates import Certificate
from tidings.security.ca.identity import Identity
from tidings.security.kmc.challenges import Challenges
from tidings.security.kmc.epochs import Epochs
from tidings.security.kmc.grants import TOKEN
from tidings.security.kmc.state import Change, GrantChange, TokenCertificate, TopicChange
from tidings.security.rpc.kmc_messages import KeyRequest, KeyResponse, RewrapRequest, RewrapResponse
from tidings.security.sealing.keys import EpochKey, Keyring
from tidings.security.tokens.token import Right, Token
from tidings.security.topic_record import TopicRecord


class IssuingState(Protocol):
    """The topics, epochs and grants in a centre's state. `CentreState` says what each of these is."""

    topics: dict[bytes, TopicChange]
    epochs: Keyring

    def record(self, topic: bytes) -> TopicRecord: ...
    def current(self, topic: bytes, now: int) -> EpochKey: ...
    def grant(self, topic: bytes, entity: str, now: int) -> GrantChange | None: ...
    def record_change(self, change: Change) -> None: ...


class KeyIssuer:
    """Issues tokens and keys. Decides nothing about grants; enforces challenge queries and starts new epochs when
    due."""

    def __init__(self, state: IssuingState, epochs: Epochs, challenges: Challenges, identity: Identity) -> None:
        """Create the issuer of a centre.

        Args:
            state: The centre's state.
            epochs: Creates new epochs.
            challenges: Checks challenge queries.
            identity: The centre's identity, which signs tokens.
        """
        self._state, self._epochs, self._challenges, self._identity = state, epochs, challenges, identity
        self._tokens: dict[tuple[bytes, bytes, bytes], Token] = {}  # by topic, certificate and key; the oldest first

    def issue(self, asker: Certificate, request: KeyRequest, now: int) -> KeyResponse:
        """Return a token and the epoch keys that the asker may have and lacks.

        Begins a new epoch if that is due, or if the asker has sealed nearly as many messages as the topic
        permits. Raises `SecurityError` without a grant, without a proof of the signing key, or if a challenge
        query has to be answered first.
        """
        grant = self._grant_of(request.topic, asker, now)
        if (request.topic, asker.fingerprint, request.key) not in self._tokens:  # else the key was proved before
            request.check(asker, self._identity.certificate)
        topic = self._state.topics[request.topic]
        self._challenges.check(asker.name, topic.challenge, now)
        # Announce a tenth less than the limit, because publishers use this key until the next epoch begins.
        messages = topic.messages - topic.messages // 10
        latest = self._epochs.create_if_due(request.topic, now)
        is_latest = Right.PUBLISH in Right(grant.rights) and request.have == latest.epoch
        if is_latest and request.used >= messages and not self._epochs.is_waiting(request.topic, now):
            latest = self._epochs.rotate(request.topic, now)
        grant = self._with_certificate(grant, asker, now)
        token = self._token(grant, asker, request.key, now)
        keys = self._permitted_keys(grant, request.have, now)
        notice = self._state.topics[request.topic].notice
        return KeyResponse(token.data, keys, notice, messages, self._renewal(grant, token, latest, asker))

    def rewrap(self, asker: Certificate, request: RewrapRequest, now: int) -> RewrapResponse:
        """Return content keys that the asker may read, rewrapped under the current epoch.

        Raises `SecurityError` without a grant to subscribe, or if a challenge query has to be answered first.
        """
        grant = self._grant_of(request.topic, asker, now)
        self._challenges.check(asker.name, self._state.topics[request.topic].challenge, now)
        if Right.SUBSCRIBE not in Right(grant.rights):
            raise SecurityError("right", f"{asker.name} has no right to subscribe")
        if len(request.wrapped) > MAX_REWRAPPED:
            raise SecurityError("limit", f"at most MAX_REWRAPPED ({MAX_REWRAPPED:,}) content keys at a time")
        current = self._state.current(request.topic, now)
        self._epochs.mark_issued(request.topic)
        return RewrapResponse(
            current.epoch,
            tuple(
                self._rewrap_key(grant, epoch, wrapped, accepted, current)
                for epoch, wrapped, accepted in request.wrapped
            ),
        )

    def _rewrap_key(self, grant: GrantChange, epoch: int, wrapped: bytes, accepted: int, under: EpochKey) -> bytes:
        # The asker claims the time of acceptance; the epoch is certain, since its key must unwrap the content key.
        before = self._state.epochs.get(grant.topic, epoch)
        if before is None or epoch < grant.since or not grant.begun <= accepted < grant.until:
            return b""
        try:
            return under.wrap(before.unwrap(wrapped))
        except (SecurityError, ValueError):
            return b""

    def _grant_of(self, topic: bytes, asker: Certificate, now: int) -> GrantChange:
        """Return the asker's grant on a topic, or raise `SecurityError`."""
        record = self._state.record(topic)
        grant = self._state.grant(topic, asker.name, now)
        if grant is None:
            raise SecurityError("right", f"{asker.name} has no rights on {record.template}: ask {record.owner.name}")
        return grant

    def _with_certificate(self, grant: GrantChange, asker: Certificate, now: int) -> GrantChange:
        """Return the grant after recording the asker's certificate in it: a revocation has to name all certificates
        with tokens."""
        certificate = TokenCertificate(asker.fingerprint.hex(), asker.serial_bytes, asker.not_after)
        if certificate in grant.certificates:
            return grant
        others = tuple(other for other in grant.certificates if other.not_after > now)
        changed = msgspec.structs.replace(grant, certificates=(*others, certificate))
        self._state.record_change(changed)
        return changed

    def _token(self, grant: GrantChange, asker: Certificate, key: bytes, now: int) -> Token:
        """Return the cached token if it is still valid for long enough, else a new one."""
        cache_key = grant.topic, asker.fingerprint, key
        record, cached = self._state.record(grant.topic), self._tokens.get(cache_key)
        if (
            cached is not None
            and (cached.grant, cached.record.data) == (grant.version, record.data)
            and cached.not_after - now > TOKEN // 2
        ):
            return cached
        token = Token.make(
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
        self._tokens.pop(cache_key, None)
        self._tokens[cache_key] = token
        if len(self._tokens) > MAX_ISSUED_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return token

    def _permitted_keys(self, grant: GrantChange, have: int, now: int) -> tuple[EpochKey, ...]:
        """Return the epoch keys for a grant: for a publisher the current one on, for a subscriber all since
        `grant.since`.

        At most the latest `MAX_GIVEN_KEYS`; what was sealed under earlier ones can be rewrapped.
        """
        rights = Right(grant.rights)
        if not rights & (Right.PUBLISH | Right.SUBSCRIBE):
            return ()
        self._epochs.mark_issued(grant.topic)
        may_read = Right.SUBSCRIBE in rights
        start = max(grant.since, have + 1) if may_read else self._state.current(grant.topic, now).epoch
        return tuple(self._state.epochs.since(grant.topic, start)[-MAX_GIVEN_KEYS:])

    def _renewal(self, grant: GrantChange, token: Token, latest: EpochKey, asker: Certificate) -> int:
        """Return when the asker should ask again: before the token ends, unless the grant ends with it, and once the
        next key is available.

        Askers are spread over the first half of the lead time by a byte of their fingerprints.
        """
        lead = self._epochs.lead(grant.topic)
        next_key = latest.until - lead + lead // 2 * asker.fingerprint[0] // 256
        return min(next_key, token.not_after if token.not_after >= grant.until else token.not_after - TOKEN // 4)

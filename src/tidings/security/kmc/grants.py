"""Topics and grants of a key management centre: registration, granting and revocation of rights."""

from typing import Protocol

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_GRANTS
from tidings.security.ca.authority import DAY, SKEW
from tidings.security.ca.certificates import Certificate
from tidings.security.ca.revocation import RevocationEntry
from tidings.security.kmc.epochs import SECOND, Epochs
from tidings.security.kmc.state import Change, GrantChange, GrantRemoved, TopicChange
from tidings.security.rpc.kmc_messages import GrantRequest, RegisterTopicRequest
from tidings.security.sealing.keys import EpochKey
from tidings.security.template import Template
from tidings.security.tokens.token import Right
from tidings.security.topic_record import TopicRecord

TOKEN = DAY  # the longest validity of a token, in microseconds
# The parameters of a topic: name, minimum, maximum, description for error messages.
_PARAMETERS = (
    ("lifetime", 1, 365 * 86_400, "seconds that a key is sealed under, from 1 to 31,536,000 (a year)"),
    ("messages", 1, 2**32, "messages that a publisher seals under a key, from 1 to 4,294,967,296"),
    ("grace", 0, 86_400, "seconds that the key before is accepted for, from 0 to 86,400 (a day)"),
    ("challenge", 0, 365 * 86_400, "seconds after which a query has to be answered; 0: never, up to 31,536,000"),
)


class GrantState(Protocol):
    """The topics and grants in a centre's state. `CentreState` says what each of these is."""

    topics: dict[bytes, TopicChange]
    grants: dict[bytes, dict[str, GrantChange]]

    def record(self, topic: bytes) -> TopicRecord: ...
    def latest(self, topic: bytes) -> EpochKey: ...
    def current(self, topic: bytes, now: int) -> EpochKey: ...
    def grant(self, topic: bytes, entity: str, now: int) -> GrantChange | None: ...
    def learn(self, record: TopicRecord, now: int) -> None: ...
    def record_change(self, change: Change) -> None: ...


class Grants:
    """Registers topics, and grants and revokes rights on them, for askers who may do so."""

    def __init__(self, state: GrantState, epochs: Epochs, centre: Certificate) -> None:
        self._state, self._epochs, self._centre = state, epochs, centre

    def is_administrator(self, asker: Certificate) -> bool:
        """Return whether the asker has the centre's own certificate, whose key can read the centre's state anyway."""
        return asker == self._centre

    def check_owner(self, topic: bytes, asker: Certificate) -> TopicRecord:
        """Return the topic's record. Raises `SecurityError` unless the asker is its owner or the administrator."""
        record = self._state.record(topic)
        if record.owner.name != asker.name and not self.is_administrator(asker):
            raise SecurityError("owner", f"{record.template} belongs to {record.owner.name}, not to {asker.name}")
        return record

    # Topics

    def register(self, asker: Certificate, request: RegisterTopicRequest, now: int) -> bytes:
        """Register a topic, or change its record or parameters, and return its id.

        Raises `SecurityError` if the asker is not the owner, the record names another centre, or it is not
        trusted or overlaps; `InvalidValueError` for a parameter out of range.
        """
        record = TopicRecord(request.record)
        if record.owner != asker and not self.is_administrator(asker):
            raise SecurityError("owner", f"the record is that of {record.owner.name}, not of {asker.name}")
        if record.kmc != self._centre.fingerprint:
            raise SecurityError("kmc", f"the record of {record.template} names another centre than {self._centre.name}")
        for name, least, most, meaning in _PARAMETERS:
            if not least <= getattr(request, name) <= most:
                raise InvalidValueError(f"{name}: {getattr(request, name):,}: {meaning}")
        before = self._state.topics.get(record.id)
        if before is not None and before.record != request.record:
            self._check_covered(record)
        self._state.learn(record, now)
        values = (request.record, request.lifetime, request.messages, request.grace, request.challenge)
        if before is None:
            self._state.record_change(TopicChange(record.id, *values))
            self._epochs.begin(record.id, now)
            return record.id
        latest, is_same = self._state.latest(record.id), before.record == request.record
        names = ("record", "lifetime", "messages", "grace", "challenge")
        self._state.record_change(msgspec.structs.replace(before, **dict(zip(names, values, strict=True))))
        if not is_same:
            self._renew_all(record.id, now)
        if latest.suite != record.suite:  # brokers refuse the old suite as soon as they have the new record
            self._epochs.compromise(record.id, now)
        elif now + request.lifetime * SECOND < latest.until:
            self._epochs.rotate(record.id, now)
        elif not is_same:
            self._epochs.announce_revoked_grants(record.id, now)
        return record.id

    def _renew_all(self, topic: bytes, now: int) -> None:
        """Raise the version of all grants, because tokens of the old record are not valid any more."""
        version = self._next_version(topic)
        for grant in list(self._state.grants.get(topic, {}).values()):
            self._raise_floor(grant, version, now)
            self._state.record_change(msgspec.structs.replace(grant, version=version))

    def _check_covered(self, record: TopicRecord) -> None:
        """Raise `SecurityError` if the new record no longer covers a part of the topic that was granted."""
        for grant in self._state.grants.get(record.id, {}).values():
            if grant.template is not None and not record.template.covers(Template.parse(grant.template)):
                raise SecurityError(
                    "topic", f"{grant.entity} was granted {grant.template}, which is not within {record.template}"
                )

    # Grants

    def grant(self, asker: Certificate, request: GrantRequest, now: int) -> bytes:
        """Grant rights to an entity, replacing its earlier grant, and return the topic's id.

        If the new grant permits less than the earlier one, tokens of the earlier one are revoked. Raises
        `SecurityError` or `InvalidValueError`.
        """
        record = self.check_owner(request.topic, asker)
        checked_client(request.entity)
        if not 0 < request.rights < 8:
            raise InvalidValueError("rights: at least one of publish, subscribe and govern")
        if request.until <= now:
            raise InvalidValueError("until: a grant ends in the future")
        part = None if request.template is None else str(Template.parse(request.template))
        if part is not None and not record.template.covers(Template.parse(part)):
            raise InvalidValueError(f"{part} is more than the topic: it is {record.template}")
        grants = self._state.grants.get(request.topic, {})
        before = self._state.grant(request.topic, request.entity, now)
        if request.entity not in grants and len(grants) >= MAX_GRANTS:
            raise SecurityError("limit", f"a topic has at most MAX_GRANTS ({MAX_GRANTS:,}) grants")
        version = self._next_version(request.topic)
        begun, since = self._readable_since(request, before, now)
        change = GrantChange(
            *(request.topic, request.entity, request.rights, begun, request.until, part, version, since),
            certificates=() if before is None else before.certificates,
        )
        self._state.record_change(change)
        if before is not None and _is_less(record, change, before):
            self._raise_floor(before, version, now)
            self._epochs.announce_revoked_grants(request.topic, now)
        return request.topic

    def _readable_since(self, request: GrantRequest, before: GrantChange | None, now: int) -> tuple[int, int]:
        """Return the time and the epoch from which on the entity may read."""
        if request.history:
            return 0, 0
        if before is not None and not Right.SUBSCRIBE & request.rights & ~before.rights:
            return before.begun, before.since
        return now, self._state.current(request.topic, now).epoch

    def _next_version(self, topic: bytes) -> int:
        state = self._state.topics[topic]
        self._state.record_change(msgspec.structs.replace(state, granted=state.granted + 1))
        return state.granted + 1

    # Revocations

    def revoke(self, topic: bytes, entity: str, now: int) -> None:
        """Revoke an entity's grant on a topic, refuse its tokens from now on, and begin a new epoch.

        Raises `InvalidValueError` if there is no grant.
        """
        grant = self._state.grants.get(topic, {}).get(entity)
        if grant is None:
            raise InvalidValueError(f"{entity} was granted nothing on {self._state.record(topic).template}")
        self._raise_floor(grant, self._next_version(topic), now)
        self._state.record_change(GrantRemoved(topic, entity))
        self._epochs.compromise(topic, now)

    def revoke_certificate(self, entry: RevocationEntry, now: int) -> list[bytes]:
        """Revoke the grants for which tokens were issued to a revoked certificate. Returns their topics."""
        affected = [
            topic
            for topic, grants in self._state.grants.items()
            if entry.name in grants
            and any(certificate.serial == entry.serial for certificate in grants[entry.name].certificates)
        ]
        for topic in affected:
            self.revoke(topic, entry.name, now)
        return affected

    def end(self, grant: GrantChange, now: int) -> None:
        """Remove a grant that has ended, and begin a new epoch if tokens were issued for it."""
        self._state.record_change(GrantRemoved(grant.topic, grant.entity))
        if grant.certificates:
            self._epochs.rotate(grant.topic, now)

    def _raise_floor(self, grant: GrantChange, version: int, now: int) -> None:
        """Revoke tokens of earlier versions of a grant. The floor is dropped when the last of them has expired."""
        state, dropped_at = self._state.topics[grant.topic], now + TOKEN + SKEW
        floors = state.floors | {certificate.fingerprint: (version, dropped_at) for certificate in grant.certificates}
        self._state.record_change(msgspec.structs.replace(state, floors=floors))


def _is_less(record: TopicRecord, now: GrantChange, before: GrantChange) -> bool:
    """Return whether a token of the grant `before` permits more than the grant `now`."""
    part, earlier = (
        record.template if grant.template is None else Template.parse(grant.template) for grant in (now, before)
    )
    return bool(before.rights & ~now.rights) or now.until < before.until or not part.covers(earlier)

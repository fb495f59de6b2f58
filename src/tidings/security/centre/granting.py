"""Granting: which topics there are, who may do what on them, and who may no more."""

import msgspec

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_GRANTS
from tidings.security.authority import DAY, SKEW
from tidings.security.centre.changes import GrantEnded, GrantKept, TopicKept
from tidings.security.centre.epochs import SECOND, Epochs
from tidings.security.centre.state import State
from tidings.security.centre_questions import Grants, RegistersTopic
from tidings.security.certificates import Certificate
from tidings.security.records import TopicRecord
from tidings.security.revocation import Entry
from tidings.security.template import Template
from tidings.security.token import Right

TOKEN = DAY  # a token is valid for so long at the most
# A parameter of a topic, from and to, and what it is.
_PARAMETERS = (
    ("lifetime", 1, 365 * 86_400, "seconds that a key is sealed under, from 1 to 31,536,000 (a year)"),
    ("messages", 1, 2**32, "messages that a publisher seals under a key, from 1 to 4,294,967,296"),
    ("grace", 0, 86_400, "seconds that the key before is accepted for, from 0 to 86,400 (a day)"),
    ("challenge", 0, 365 * 86_400, "seconds after which a query has to be answered; 0: never, up to 31,536,000"),
)


class Granting:
    def __init__(self, state: State, epochs: Epochs, centre: Certificate) -> None:
        self._state, self._epochs, self._centre = state, epochs, centre

    def is_administrator(self, asker: Certificate) -> bool:
        """The centre's own certificate: whoever has its key can read its state anyway."""
        return asker == self._centre

    def check_owner(self, topic: bytes, asker: Certificate) -> TopicRecord:
        record = self._state.record(topic)
        if record.owner.name != asker.name and not self.is_administrator(asker):
            raise SecurityError("owner", f"{record.template} belongs to {record.owner.name}, not to {asker.name}")
        return record

    # Topics

    def register(self, asker: Certificate, wanted: RegistersTopic, now: int) -> bytes:
        """A new topic, or a later record or other parameters of one; its id."""
        record = TopicRecord(wanted.record)
        if record.owner != asker and not self.is_administrator(asker):
            raise SecurityError("owner", f"the record is that of {record.owner.name}, not of {asker.name}")
        if record.kmc != self._centre.fingerprint:
            raise SecurityError("kmc", f"the record of {record.template} names another centre than {self._centre.name}")
        for name, least, most, meaning in _PARAMETERS:
            if not least <= getattr(wanted, name) <= most:
                raise InvalidValueError(f"{name}: {getattr(wanted, name):,}: {meaning}")
        known = self._state.topics.get(record.id)
        if known is not None and known.record != wanted.record:
            self._check_covered(record)
        if self._state.credentials.learn(record, now):
            self._state.unknown.append(record.data)
        given = (wanted.record, wanted.lifetime, wanted.messages, wanted.grace, wanted.challenge)
        if known is None:
            self._state.keep(TopicKept(record.id, *given))
            self._epochs.begin(record.id, now)
            return record.id
        before, is_same = self._state.latest(record.id), known.record == wanted.record
        names = ("record", "lifetime", "messages", "grace", "challenge")
        self._state.keep(msgspec.structs.replace(known, **dict(zip(names, given, strict=True))))
        if not is_same:
            self._renew_all(record.id, now)
        if before.suite != record.suite:  # with the new record, what is sealed under the other suite is not accepted
            self._epochs.compromise(record.id, now)
        elif now + wanted.lifetime * SECOND < before.until:
            self._epochs.rotate(record.id, now)
        elif not is_same:
            self._epochs.tell_grants(record.id, now)
        return record.id

    def _renew_all(self, topic: bytes, now: int) -> None:
        """Tokens name the record that they are for: with another one, everybody needs a new token."""
        version = self._next_version(topic)
        for grant in list(self._state.grants.get(topic, {}).values()):
            self._raise_floor(grant, version, now)
            self._state.keep(msgspec.structs.replace(grant, version=version))

    def _check_covered(self, record: TopicRecord) -> None:
        """A later record may not take away the part of a topic that somebody was granted."""
        for grant in self._state.grants.get(record.id, {}).values():
            if grant.template is not None and not record.template.covers(Template.parse(grant.template)):
                raise SecurityError(
                    "topic", f"{grant.entity} was granted {grant.template}, which is not within {record.template}"
                )

    # Grants

    def grant(self, asker: Certificate, wanted: Grants, now: int) -> bytes:
        """Takes the place of what the entity was granted before; the topic's id."""
        record = self.check_owner(wanted.topic, asker)
        checked_client(wanted.entity)
        if not 0 < wanted.rights < 8:
            raise InvalidValueError("rights: at least one of publish, subscribe and govern")
        if wanted.until <= now:
            raise InvalidValueError("until: a grant ends in the future")
        part = None if wanted.template is None else str(Template.parse(wanted.template))
        if part is not None and not record.template.covers(Template.parse(part)):
            raise InvalidValueError(f"{part} is more than the topic: it is {record.template}")
        grants = self._state.grants.get(wanted.topic, {})
        before = self._state.grant(wanted.topic, wanted.entity, now)
        if wanted.entity not in grants and len(grants) >= MAX_GRANTS:
            raise SecurityError("limit", f"a topic has at most MAX_GRANTS ({MAX_GRANTS:,}) grants")
        version = self._next_version(wanted.topic)
        begun, since = self._from(wanted, before, now)
        kept = GrantKept(
            *(wanted.topic, wanted.entity, wanted.rights, begun, wanted.until, part, version, since),
            certificates=() if before is None else before.certificates,
        )
        self._state.keep(kept)
        if before is not None and _is_less(record, kept, before):
            self._raise_floor(before, version, now)
            self._epochs.tell_grants(wanted.topic, now)
        return wanted.topic

    def _from(self, wanted: Grants, before: GrantKept | None, now: int) -> tuple[int, int]:
        """Since when, and since which epoch, it may read."""
        if wanted.history:
            return 0, 0
        if before is not None and not Right.SUBSCRIBE & wanted.rights & ~before.rights:
            return before.begun, before.since
        return now, self._state.current(wanted.topic, now).epoch

    def _next_version(self, topic: bytes) -> int:
        kept = self._state.topics[topic]
        self._state.keep(msgspec.structs.replace(kept, granted=kept.granted + 1))
        return kept.granted + 1

    # Revocations

    def revoke(self, topic: bytes, entity: str, now: int) -> None:
        """It gets no key and no token any more, and what it has is worth nothing for what comes from now on."""
        grant = self._state.grants.get(topic, {}).get(entity)
        if grant is None:
            raise InvalidValueError(f"{entity} was granted nothing on {self._state.record(topic).template}")
        self._raise_floor(grant, self._next_version(topic), now)
        self._state.keep(GrantEnded(topic, entity))
        self._epochs.compromise(topic, now)

    def revoke_certificate(self, entry: Entry, now: int) -> list[bytes]:
        """Of whom the authority has revoked a certificate: on all topics where keys were given for it."""
        affected = [
            topic
            for topic in self._state.topics_of(entry.name)
            if any(one.serial == entry.serial for one in self._state.grants[topic][entry.name].certificates)
        ]
        for topic in affected:
            self.revoke(topic, entry.name, now)
        return affected

    def end(self, grant: GrantKept, now: int) -> None:
        """Of a grant whose time is over: what is sealed from the next epoch on is not for it."""
        self._state.keep(GrantEnded(grant.topic, grant.entity))
        if grant.certificates:
            self._epochs.rotate(grant.topic, now)

    def _raise_floor(self, grant: GrantKept, version: int, now: int) -> None:
        """Tokens of older grants count no more; once the last one has expired, nobody needs to be told."""
        kept, forgotten = self._state.topics[grant.topic], now + TOKEN + SKEW
        floors = kept.floors | {one.fingerprint: (version, forgotten) for one in grant.certificates}
        self._state.keep(msgspec.structs.replace(kept, floors=floors))


def _is_less(record: TopicRecord, now: GrantKept, before: GrantKept) -> bool:
    """Whether tokens of the grant before give more than this one."""
    part, earlier = (record.template if one.template is None else Template.parse(one.template) for one in (now, before))
    return bool(before.rights & ~now.rights) or now.until < before.until or not part.covers(earlier)

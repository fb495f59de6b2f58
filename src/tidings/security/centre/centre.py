"""The key management centre itself: whoever may ask something of it gets a reply, and whoever keeps its state the
changes that came with it.

Nothing of a reply may leave the house before its changes are on the disk: else a key could be given that a restart
knows nothing of.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.centre.challenges import Challenges
from tidings.security.centre.changes import Change, RevocationsKept, ServiceKept
from tidings.security.centre.epochs import Draw, Epochs
from tidings.security.centre.giving import Giving
from tidings.security.centre.granting import Granting
from tidings.security.centre.state import State
from tidings.security.centre_questions import (
    CHALLENGE,
    ENROL,
    GRANT,
    KEYS,
    LIST,
    RELEASE,
    REVOKE,
    REWRAP,
    ROTATE,
    TOPIC,
    AnswersChallenge,
    Changed,
    Enrols,
    Grants,
    Listed,
    ListedGrant,
    ListedTopic,
    RegistersTopic,
    Releases,
    Revokes,
    Rotates,
    WantsKeys,
    WantsRewrapped,
)
from tidings.security.certificates import Certificate, Role
from tidings.security.credentials import Credentials
from tidings.security.encoding import decoded, encoded
from tidings.security.exchange import Question, Service
from tidings.security.identity import Identity
from tidings.security.revocation import Update

_TOPIC = 16  # bytes of the name of its own topic: nobody can guess it
_KEM = 32
Body = TypeVar("Body")


class Reply(msgspec.Struct, frozen=True):
    """To answer with `body`, or with the reason `refused`. First `changes` are to be saved; `records` and `notices` are
    then for everybody. Of a refusal there may be changes, too."""

    body: bytes = b""
    refused: str | None = None
    changes: tuple[Change, ...] = ()
    records: tuple[bytes, ...] = ()
    notices: tuple[bytes, ...] = ()


class KeyManagementCentre:
    def __init__(
        self, identity: Identity, draw: Draw, changes: Iterable[Change] = (), *, overlay: str = "tidings"
    ) -> None:
        """One that was there before is made of the changes that were saved; a new one has to be `found`ed."""
        if identity.certificate.role is not Role.KMC:
            raise InvalidValueError(f"{identity.name} is no kmc: a centre needs a certificate of that role")
        self.identity, self.credentials = identity, Credentials(identity.anchor, overlay)
        self._draw = draw
        self._state = State(self.credentials)
        for change in changes:
            self._state.apply(change)
        self._epochs = Epochs(self._state, identity, draw)
        self._challenges = Challenges(self._state, draw)
        self._granting = Granting(self._state, self._epochs, identity.certificate)
        self._giving = Giving(self._state, self._epochs, self._challenges, identity)
        self._answers: dict[str, Callable[[Certificate, bytes, int], bytes]] = {
            KEYS: self._keys,
            TOPIC: self._register,
            GRANT: self._grant,
            REVOKE: self._revoke,
            ROTATE: self._rotate,
            ENROL: self._enrol,
            CHALLENGE: self._challenge,
            RELEASE: self._release,
            REWRAP: self._rewrap,
            LIST: self._list,
        }

    # Where it is asked

    def found(self) -> Reply:
        """Gives a new centre a topic and a key of its own."""
        if self._state.service is not None:
            raise InvalidValueError("the centre has been founded before")
        self._state.keep(ServiceKept(self._draw(_TOPIC).hex(), self._draw(_KEM), 1))
        return self._reply()

    def move(self) -> Reply:
        """To another topic, which whoever floods the old one does not know."""
        kept = self._kept_service
        self._state.keep(msgspec.structs.replace(kept, topic=self._draw(_TOPIC).hex(), version=kept.version + 1))
        return self._reply()

    @property
    def service(self) -> Service:
        kept = self._kept_service
        kem = self.key.public_key().public_bytes_raw()
        return Service.make(self.identity, kept.topic, kem, kept.version, self.credentials.overlay)

    @property
    def key(self) -> X25519PrivateKey:
        """What questions are sealed to."""
        return X25519PrivateKey.from_private_bytes(self._kept_service.kem)

    @property
    def _kept_service(self) -> ServiceKept:
        if self._state.service is None:
            raise InvalidValueError("the centre has not been founded yet")
        return self._state.service

    # What it is asked

    def handle(self, question: Question, now: int) -> Reply:
        """A question that has been opened and checked: of whom it is, is certain."""
        return self.decide(question.certificate, question.kind, question.body, now)

    def decide(self, asker: Certificate, kind: str, body: bytes, now: int) -> Reply:
        """The same for who stands beside it: its administrator, who has the centre's own certificate."""
        answer = self._answers.get(kind)
        if answer is None:
            return Reply(refused=f"a key management centre does not know the question {kind[:64]!r}")
        try:
            return self._reply(answer(asker, body, now))
        except (SecurityError, InvalidValueError) as error:
            return self._reply(refused=str(error))

    def _reply(self, body: bytes = b"", refused: str | None = None) -> Reply:
        state = self._state
        reply = Reply(body, refused, tuple(state.unsaved), tuple(state.unknown), tuple(state.untold.values()))
        for told in (state.unsaved, state.unknown, state.untold):
            told.clear()
        return reply

    def _keys(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return encoded(self._giving.keys(asker, _read(body, WantsKeys), now))

    def _rewrap(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return encoded(self._giving.rewrapped(asker, _read(body, WantsRewrapped), now))

    def _register(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return self._changed(self._granting.register(asker, _read(body, RegistersTopic), now))

    def _grant(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return self._changed(self._granting.grant(asker, _read(body, Grants), now))

    def _revoke(self, asker: Certificate, body: bytes, now: int) -> bytes:
        wanted = _read(body, Revokes)
        if wanted.topic is not None:
            self._granting.check_owner(wanted.topic, asker)
            topics = [wanted.topic]
        elif self._granting.is_administrator(asker):
            topics = self._state.topics_of(wanted.entity)
        else:
            raise SecurityError("owner", "only the centre's administrator revokes on all topics: name one of yours")
        if not topics:
            raise InvalidValueError(f"{wanted.entity} was granted nothing here")
        for topic in topics:
            self._granting.revoke(topic, wanted.entity, now)
        return self._changed(*topics)

    def _rotate(self, asker: Certificate, body: bytes, now: int) -> bytes:
        wanted = _read(body, Rotates)
        self._granting.check_owner(wanted.topic, asker)
        if wanted.compromised:
            self._epochs.compromise(wanted.topic, now)
        elif not self._epochs.is_waiting(wanted.topic, now):
            self._epochs.rotate(wanted.topic, now)
        return self._changed(wanted.topic)

    def _enrol(self, asker: Certificate, body: bytes, now: int) -> bytes:
        wanted = _read(body, Enrols)
        entity = asker.name if wanted.entity is None else wanted.entity
        if entity != asker.name and not self._granting.is_administrator(asker):
            raise SecurityError("owner", f"{asker.name} enrols itself, and not {entity}")
        if not self._state.topics_of(entity):
            raise SecurityError("right", f"{entity} was granted nothing here: ask the owner of a topic first")
        self._challenges.enrol(entity, wanted.queries, now)
        return b""

    def _challenge(self, asker: Certificate, body: bytes, now: int) -> bytes:
        wanted = _read(body, AnswersChallenge)
        self._challenges.answer(asker.name, wanted.query, wanted.answer, now)
        return b""

    def _release(self, asker: Certificate, body: bytes, now: int) -> bytes:
        wanted = _read(body, Releases)
        if not self._granting.is_administrator(asker):
            owners = {self._state.record(topic).owner.name for topic in self._state.topics_of(wanted.entity)}
            if wanted.anew or asker.name not in owners:
                raise SecurityError("owner", f"{asker.name} has granted {wanted.entity} nothing, or asks for too much")
        self._challenges.release(wanted.entity, anew=wanted.anew)
        return b""

    def _list(self, asker: Certificate, body: bytes, now: int) -> bytes:
        everything = self._granting.is_administrator(asker)
        topics = [one for one in self._state.topics if everything or self._state.record(one).owner.name == asker.name]
        suspended = self._challenges.suspended()
        if not everything:
            mine = {entity for topic in topics for entity in self._state.grants.get(topic, {})}
            suspended = [entity for entity in suspended if entity in mine]
        return encoded(Listed(tuple(self._listed(one) for one in topics), tuple(suspended)))

    def _listed(self, topic: bytes) -> ListedTopic:
        kept, latest = self._state.topics[topic], self._state.latest(topic)
        grants = tuple(
            ListedGrant(one.entity, one.rights, one.until, one.template, one.version, one.since)
            for one in self._state.grants.get(topic, {}).values()
        )
        parameters = (kept.lifetime, kept.messages, kept.grace, kept.challenge)
        return ListedTopic(kept.record, latest.epoch, latest.until, *parameters, grants)

    def _changed(self, *topics: bytes) -> bytes:
        return encoded(Changed({one.hex(): self._state.latest(one).epoch for one in topics}))

    # What happens by itself

    def tick(self, now: int) -> Reply:
        """What time brings: keys that end are replaced, and grants that have ended are over."""
        for grant in self._state.ended(now):
            self._granting.end(grant, now)
        for topic in self._state.topics:
            due = self._epochs.due(topic)
            if due is not None and now >= due:
                self._epochs.follow(topic, now)
        return self._reply()

    def due(self) -> int:
        """When `tick` has something to do at the earliest."""
        dues = (self._epochs.due(topic) for topic in self._state.topics)
        return min([self._state.first_end, *(one for one in dues if one is not None)])

    def revocations(self, update: Update, now: int) -> Reply:
        """An update of the authority's list: whoever it names is out at once."""
        before = self.credentials.revocations.version, self.credentials.revocations.head
        new = self.credentials.revoke(update)
        difference = self.credentials.revocations.since(before[0])
        if difference is not None and self.credentials.revocations.head != before[1]:
            self._state.unsaved.append(RevocationsKept(difference.data))
        for entry in new:
            self._granting.revoke_certificate(entry, now)
        return self._reply()

    def news(self) -> Reply:
        """The record and the latest notice of each topic: for whoever may have missed them."""
        topics = self._state.topics.values()
        return Reply(records=tuple(one.record for one in topics), notices=tuple(one.notice for one in topics))

    def snapshot(self) -> tuple[Change, ...]:
        """Changes that add up to what it knows."""
        return tuple(self._state.snapshot())

    def __repr__(self) -> str:
        return f"<KeyManagementCentre {self.identity.name}: {len(self._state.topics)} topics>"


def _read(body: bytes, wanted: type[Body]) -> Body:
    return decoded(body, wanted, "question")

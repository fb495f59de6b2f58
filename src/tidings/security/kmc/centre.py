"""The key management centre: dispatches requests, and returns replies with the state changes to save.

Rule: the caller saves a reply's changes durably before it sends or publishes any part of the reply. Otherwise a
key could be issued that the centre does not know after a restart.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tidings.model.errors import InvalidValueError, SecurityError
from tidings.security.ca.certificates import Certificate, Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.kmc.challenges import Challenges
from tidings.security.kmc.epochs import Draw, Epochs
from tidings.security.kmc.grants import Grants
from tidings.security.kmc.key_issuing import KeyIssuer
from tidings.security.kmc.state import CentreState, Change, RevocationsChange, ServiceChange
from tidings.security.rpc.kmc_messages import (
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
    AnswerChallengeRequest,
    ChangeResponse,
    EnrolRequest,
    GrantListing,
    GrantRequest,
    KeyRequest,
    ListResponse,
    RegisterTopicRequest,
    ReleaseRequest,
    RevokeRequest,
    RewrapRequest,
    RotateRequest,
    TopicListing,
)
from tidings.security.rpc.messages import RpcRequest, ServiceRecord
from tidings.security.tokens.credentials import Credentials

_TOPIC = 16  # random bytes in the name of the centre's service topic, which nobody can guess
_KEM = 32
Body = TypeVar("Body")


class CentreReply(msgspec.Struct, frozen=True):
    """The result of a request or of `tick`. Save `changes` first; then answer, and publish `records` and `notices`
    to everybody.

    `body` is the answer, or `refused` the reason of a refusal. A refusal may have changes, too.
    """

    body: bytes = b""
    refused: str | None = None
    changes: tuple[Change, ...] = ()
    records: tuple[bytes, ...] = ()
    notices: tuple[bytes, ...] = ()


class KeyManagementCentre:
    """A key management centre as a pure state machine. A bad request raises nothing: the reply contains the reason."""

    def __init__(
        self, identity: Identity, draw: Draw, changes: Iterable[Change] = (), *, overlay: str = "tidings"
    ) -> None:
        """Restore a centre from its saved changes. A new centre has no changes: `found` creates its state.

        Args:
            identity: The centre's identity, with `Role.KMC`.
            draw: A source of random bytes.
            changes: The saved changes.
            overlay: The overlay that the centre serves.
        """
        if identity.certificate.role is not Role.KMC:
            raise InvalidValueError(f"{identity.name} is no kmc: a centre needs a certificate of that role")
        self.identity, self.credentials = identity, Credentials(identity.anchor, overlay)
        self._draw = draw
        self._state = CentreState(self.credentials)
        for change in changes:
            self._state.apply(change)
        self._epochs = Epochs(self._state, identity, draw)
        self._challenges = Challenges(self._state, draw)
        self._grants = Grants(self._state, self._epochs, identity.certificate)
        self._key_issuer = KeyIssuer(self._state, self._epochs, self._challenges, identity)
        self._handlers: dict[str, Callable[[Certificate, bytes, int], bytes]] = {
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

    # The centre's service

    def found(self) -> CentreReply:
        """Set up a new centre with a service topic and a key."""
        if self._state.service is not None:
            raise InvalidValueError("the centre has been founded before")
        self._state.record_change(ServiceChange(self._draw(_TOPIC).hex(), self._draw(_KEM), 1))
        return self._reply()

    def move(self) -> CentreReply:
        """Move the centre to a new service topic, away from clients that flood the old one."""
        service = self._stored_service
        self._state.record_change(
            msgspec.structs.replace(service, topic=self._draw(_TOPIC).hex(), version=service.version + 1)
        )
        return self._reply()

    @property
    def service(self) -> ServiceRecord:
        """The signed record by which clients find and ask the centre."""
        stored = self._stored_service
        kem = self.key.public_key().public_bytes_raw()
        return ServiceRecord.make(self.identity, stored.topic, kem, stored.version, self.credentials.overlay)

    @property
    def key(self) -> X25519PrivateKey:
        """The private key that questions are sealed to."""
        return X25519PrivateKey.from_private_bytes(self._stored_service.kem)

    @property
    def _stored_service(self) -> ServiceChange:
        if self._state.service is None:
            raise InvalidValueError("the centre has not been founded yet")
        return self._state.service

    # Requests

    def handle(self, question: RpcRequest, now: int) -> CentreReply:
        """Handle a question that has been opened and verified."""
        return self.decide(question.certificate, question.kind, question.body, now)

    def decide(self, asker: Certificate, kind: str, body: bytes, now: int) -> CentreReply:
        """Handle a request of `asker`, whose identity the caller has verified. The local administrator calls it
        directly.

        Args:
            asker: The certificate of the asker.
            kind: The kind of request, see `kmc_messages`.
            body: The encoded request.
            now: The time, in microseconds.
        """
        handler = self._handlers.get(kind)
        if handler is None:
            return CentreReply(refused=f"a key management centre does not know the question {kind[:64]!r}")
        try:
            return self._reply(handler(asker, body, now))
        except (SecurityError, InvalidValueError) as error:
            return self._reply(refused=str(error))

    def _reply(self, body: bytes = b"", refused: str | None = None) -> CentreReply:
        """Return a reply with all changes, records and notices that are pending."""
        state = self._state
        reply = CentreReply(
            body,
            refused,
            tuple(state.unsaved),
            tuple(state.unpublished_records),
            tuple(state.unpublished_notices.values()),
        )
        for pending in (state.unsaved, state.unpublished_records, state.unpublished_notices):
            pending.clear()
        return reply

    def _keys(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return encode_canonical(self._key_issuer.issue(asker, _read(body, KeyRequest), now))

    def _rewrap(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return encode_canonical(self._key_issuer.rewrap(asker, _read(body, RewrapRequest), now))

    def _register(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return self._change_response(self._grants.register(asker, _read(body, RegisterTopicRequest), now))

    def _grant(self, asker: Certificate, body: bytes, now: int) -> bytes:
        return self._change_response(self._grants.grant(asker, _read(body, GrantRequest), now))

    def _revoke(self, asker: Certificate, body: bytes, now: int) -> bytes:
        request = _read(body, RevokeRequest)
        if request.topic is not None:
            self._grants.check_owner(request.topic, asker)
            topics = [request.topic]
        elif self._grants.is_administrator(asker):
            topics = self._state.topics_of(request.entity)
        else:
            raise SecurityError("owner", "only the centre's administrator revokes on all topics: name one of yours")
        if not topics:
            raise InvalidValueError(f"{request.entity} was granted nothing here")
        for topic in topics:
            self._grants.revoke(topic, request.entity, now)
        return self._change_response(*topics)

    def _rotate(self, asker: Certificate, body: bytes, now: int) -> bytes:
        request = _read(body, RotateRequest)
        self._grants.check_owner(request.topic, asker)
        if request.compromised:
            self._epochs.compromise(request.topic, now)
        elif not self._epochs.is_waiting(request.topic, now):
            self._epochs.rotate(request.topic, now)
        return self._change_response(request.topic)

    def _enrol(self, asker: Certificate, body: bytes, now: int) -> bytes:
        request = _read(body, EnrolRequest)
        entity = asker.name if request.entity is None else request.entity
        if entity != asker.name and not self._grants.is_administrator(asker):
            raise SecurityError("owner", f"{asker.name} enrols itself, and not {entity}")
        if not self._state.topics_of(entity):
            raise SecurityError("right", f"{entity} was granted nothing here: ask the owner of a topic first")
        self._challenges.enrol(entity, request.queries, now)
        return b""

    def _challenge(self, asker: Certificate, body: bytes, now: int) -> bytes:
        request = _read(body, AnswerChallengeRequest)
        self._challenges.answer(asker.name, request.query, request.answer, now)
        return b""

    def _release(self, asker: Certificate, body: bytes, now: int) -> bytes:
        request = _read(body, ReleaseRequest)
        if not self._grants.is_administrator(asker):
            owners = {self._state.record(topic).owner.name for topic in self._state.topics_of(request.entity)}
            if request.anew or asker.name not in owners:
                raise SecurityError("owner", f"{asker.name} has granted {request.entity} nothing, or asks for too much")
        self._challenges.release(request.entity, anew=request.anew)
        return b""

    def _list(self, asker: Certificate, body: bytes, now: int) -> bytes:
        is_administrator = self._grants.is_administrator(asker)
        topics = [
            topic
            for topic in self._state.topics
            if is_administrator or self._state.record(topic).owner.name == asker.name
        ]
        suspended = self._challenges.suspended()
        if not is_administrator:
            granted = {entity for topic in topics for entity in self._state.grants.get(topic, {})}
            suspended = [entity for entity in suspended if entity in granted]
        return encode_canonical(ListResponse(tuple(self._topic_listing(topic) for topic in topics), tuple(suspended)))

    def _topic_listing(self, topic: bytes) -> TopicListing:
        state, latest = self._state.topics[topic], self._state.latest(topic)
        grants = tuple(
            GrantListing(grant.entity, grant.rights, grant.until, grant.template, grant.version, grant.since)
            for grant in self._state.grants.get(topic, {}).values()
        )
        parameters = (state.lifetime, state.messages, state.grace, state.challenge)
        return TopicListing(state.record, latest.epoch, latest.until, *parameters, grants)

    def _change_response(self, *topics: bytes) -> bytes:
        return encode_canonical(ChangeResponse({topic.hex(): self._state.latest(topic).epoch for topic in topics}))

    # Time and updates

    def tick(self, now: int) -> CentreReply:
        """Do what is due: replace epochs that end, and remove grants that have ended."""
        for grant in self._state.ended(now):
            self._grants.end(grant, now)
        for topic in self._state.topics:
            due = self._epochs.due(topic)
            if due is not None and now >= due:
                self._epochs.create_if_due(topic, now)
        return self._reply()

    def due(self) -> int:
        """Return the earliest time at which `tick` has something to do."""
        dues = (self._epochs.due(topic) for topic in self._state.topics)
        return min([self._state.first_end, *(due for due in dues if due is not None)])

    def revocations(self, update: RevocationUpdate, now: int) -> CentreReply:
        """Apply an update of the revocation list, and revoke the grants of the certificates on it."""
        before = self.credentials.revocations.version, self.credentials.revocations.head
        new = self.credentials.revoke(update)
        difference = self.credentials.revocations.since(before[0])
        if difference is not None and self.credentials.revocations.head != before[1]:
            self._state.unsaved.append(RevocationsChange(difference.data))
        for entry in new:
            self._grants.revoke_certificate(entry, now)
        return self._reply()

    def news(self) -> CentreReply:
        """Return the record and the latest notice of each topic, for receivers that may have missed them."""
        topics = self._state.topics.values()
        return CentreReply(
            records=tuple(topic.record for topic in topics), notices=tuple(topic.notice for topic in topics)
        )

    def snapshot(self) -> tuple[Change, ...]:
        """Return changes that restore the centre's state."""
        return tuple(self._state.snapshot())

    def __repr__(self) -> str:
        return f"<KeyManagementCentre {self.identity.name}: {len(self._state.topics)} topics>"


def _read(body: bytes, request_type: type[Body]) -> Body:
    return decode_canonical(body, request_type, "question")

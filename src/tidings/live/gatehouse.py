"""The gatehouse of a broker: its gate, and what is brought to it: lists of revocations, topic records, notices.

Each of them is signed by who may say it, so anybody may carry it: they come from files, from neighbours, which is the
engines' own business, and as publications, to which the broker subscribes, as some neighbours may have no gate, and
tell nothing. What is revoked is obeyed at once: tokens die
with the certificates that they are from, and connections of a revoked certificate are closed.

A list that is out of date ends everything on secure topics, but closes no connection: over one of them the next list
comes.
"""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from tidings.engine import sealed
from tidings.engine.operations import Heed, Learn, Revoke
from tidings.engine.operations import Subscribe as Subscribes
from tidings.hub.subscription import HubSubscription
from tidings.live.configuration.security import Security
from tidings.live.connection import Connection
from tidings.live.metrics import SecurityGauges
from tidings.model.errors import InvalidValueError, SecurityError, TidingsError
from tidings.model.event import Event, checked_subject
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.protocol.requests import Subscribe, proved
from tidings.security.certificates import Certificate, Role
from tidings.security.credentials import Credentials
from tidings.security.gate import Gate
from tidings.security.identity import Identity
from tidings.security.notices import SignedNotice
from tidings.security.proclaimed import EVERYTHING, KIND, NOTICE, RECORD, REVOCATIONS
from tidings.security.records import TopicRecord
from tidings.security.revocation import Head, Update
from tidings.texts import content_filter

if TYPE_CHECKING:
    from tidings.live.broker import Broker

_LOG = logging.getLogger("tidings.live")
NONCE_BYTES = 32
_SECOND = 1_000_000
# Checks that nobody fails by mistake: a token that has expired, or a wrong clock, is no attack.
_FORGED = (
    *("attributes", "audience", "certificate", "form", "holder", "kmc", "proof", "publisher", "scope"),
    "signature",
)

News = Revoke | Heed | Learn
_PROCLAIMED: dict[Any, Callable[[bytes], News]] = {REVOCATIONS: Revoke, NOTICE: Heed, RECORD: Learn}


class Given(NamedTuple):
    """What a file says; `origin` is the key that names it, and the file."""

    origin: str
    news: News


def gate_of(given: Security, broker: str) -> Gate:
    """The gate that a broker's file asks for."""
    try:
        identity = Identity.load(given.identity)
    except TidingsError as error:
        raise InvalidValueError(f"security.identity: {error}") from None
    certificate = identity.certificate
    if certificate.role is not Role.BROKER or certificate.name != broker:
        raise InvalidValueError(
            f"security.identity: {given.identity} is that of {certificate.name}, {certificate.role.value}; it must be "
            f"that of {broker}, broker: `tidings ca issue` makes it"
        )
    gate = Gate(Credentials(identity.anchor, given.overlay), identity=identity)
    _set(gate, given)
    return gate


def _set(gate: Gate, given: Security) -> None:
    gate.verifies = given.verify_signatures
    gate.ingress.freshness = given.freshness_ms * 1_000


def read_files(given: Security) -> list[Given]:
    """What the files say that are named in a broker's file. Topics come first: one whose owner has been revoked is not
    open to everybody for that."""
    found = [_read("topics", path, TopicRecord, Learn) for path in given.topics]
    if given.revocations:
        found.append(_read("revocations", given.revocations, Update.read, Revoke))
    return found


def _read(key: str, path: str, read: Callable[[bytes], object], make: Callable[[bytes], News]) -> Given:
    origin = f"security.{key}: {path}"
    try:
        data = Path(path).read_bytes()
        read(data)
    except OSError as error:
        raise InvalidValueError(f"{origin}: {error.strerror or error}") from None
    except TidingsError as error:
        raise InvalidValueError(f"{origin}: {error}") from None
    return Given(origin, make(data))


class Gatehouse:
    def __init__(self, broker: "Broker", gate: Gate) -> None:
        self._broker, self.gate = broker, gate
        self._head: Head | None = None  # of the list that connections were looked at with

    def begin(self, given: list[Given]) -> None:
        """What files say counts as if it had just come; what the journal holds is there already."""
        for origin, news in given:
            try:
                self._take(news)
            except TidingsError as error:
                raise InvalidValueError(f"{origin}: {error}") from None

    def listen(self) -> None:
        """So that publications for gates come here, whoever else wants them."""
        desk = self._broker.desk
        wanted = Subscription.of(content_filter(EVERYTHING), id=f"{desk.name}.security", subscriber=desk.name)
        desk.operate(Subscribes(wanted), safe=False)

    def set(self, given: Security) -> None:
        """What another configuration says, as far as that needs no restart."""
        _set(self.gate, given)

    # What comes over the overlay

    def heard(self, event: Event) -> None:
        """An event has come, from a client or from a neighbour; if it carries something, that counts from the end of
        this turn on. It is routed as any other, and believed for its signature alone."""
        said = event.attributes.get(KIND)
        if said is None or event.payload is None:
            return
        make = _PROCLAIMED.get(said)
        if make is not None:
            self._broker.at_the_end(partial(self._take_carried, make(event.payload), event.publisher))

    def _take_carried(self, news: News, publisher: str) -> None:
        try:
            self._take(news)
        except TidingsError as error:
            _LOG.warning("what %s has published for the gate is not believed: %s", publisher, error)
            session = self._broker.sessions.get(publisher)
            if session is not None and isinstance(error, SecurityError) and error.check in _FORGED:
                self._broker.reception.bogus(session.connection, publisher)

    def _take(self, news: News) -> None:
        if self._is_news(news):
            outcome = self._broker.desk.operate(news, safe=False)
            if outcome.refused is not None:
                raise TidingsError(outcome.refused.reason)

    def _is_news(self, news: News) -> bool:
        """Whether it says something that is not known: what is told again is not written down again."""
        credentials = self.gate.credentials
        match news:
            case Revoke(data):
                known = credentials.revocations.head
                head = Update.read(data).says
                return known is None or (head.version, head.issued) > (known.version, known.issued)
            case Heed(data):
                notice = SignedNotice(data).notice
                last = credentials.notice(notice.topic)
                return last is None or notice.version > last.version
            case Learn(data):
                record = TopicRecord(data)
                topic = credentials.topics.get(record.id)
                return topic is None or topic.data != data

    # Who is connected

    def refusal(self, connection: Connection, role: Role | None = None) -> str | None:
        """Why the certificate at the other end does not do, if it has one; `role`: for which it must be."""
        data = connection.certificate
        if data is None:
            return None
        try:
            certificate = Certificate.read(data)
        except SecurityError:
            return None  # that of another authority, by whose word TLS has let it in
        try:
            self.gate.credentials.revocations.check(certificate, self._broker.clock.now())
        except SecurityError as error:
            return error.reason
        if role is not None and certificate.role is not role:
            return f"the certificate of {certificate.name} is that of a {certificate.role.value}, not of a {role.value}"
        return None

    def look_again(self) -> None:
        """At the end of each turn: with a new list, connections of revoked certificates are closed, and what had to
        wait for it goes on."""
        head = self.gate.credentials.revocations.head
        if head is self._head:
            return
        self._head = head
        broker = self._broker
        connected = [(name, link.connection) for name, link in broker.links.items()]
        connected += [(session.name, session.connection) for session in broker.all_sessions()]
        for name, connection in connected:
            reason = self.refusal(connection)
            if reason is not None:
                _LOG.warning("%s is disconnected: %s", name, reason)
                connection.close(reason, again=False)
        for session in broker.sessions.values():
            session.service.wake_pumps()

    @property
    def forged(self) -> int:
        """How often it was tried to get something past the gate that an honest program does not try."""
        return sum(self.gate.refused[check] for check in _FORGED)

    # Subscriptions

    @staticmethod
    def nonce() -> bytes:
        """For a connection, and for no other."""
        return secrets.token_bytes(NONCE_BYTES)

    def check_proof(self, wanted: Subscribe, nonce: bytes) -> None:
        """Whether it is the holder of the token who wants to subscribe with it."""
        if wanted.token is None:
            return
        if wanted.proof is None:
            self.gate.refused["proof"] += 1
            raise SecurityError("proof", "a token alone is anybody's: sign the subscription with the key in it")
        said, now = proved(wanted, self._broker.name), self._broker.clock.now()
        self.gate.check_proof(wanted.token, said, nonce, wanted.proof, now)

    def topic_of(self, subject: str | None, attributes: dict[str, Any], content: str | None) -> TopicRecord | None:
        """The secure topic that an event is on, or, with a content, all that a subscription asks for."""
        assurance = self._broker.desk.engine.assurance
        if content is None or assurance is None:
            return self.gate.topics.of(checked_subject(subject), Attributes.of(attributes))
        wanted = Subscription.of(content_filter(content), id="asked", subscriber=self._broker.name, subject=subject)
        return assurance.confines.of(wanted)

    # What has waited

    def handed_out(
        self, held: HubSubscription, notes: list[Notification]
    ) -> tuple[list[Notification], list[Notification]]:
        """Of notifications that were kept for a durable subscription, those that may be handed out now, and those that
        have to wait until its subscriber has a token that is good again, or the broker a newer list. What may be handed
        out neither now nor then is over and done with."""
        desk, now = self._broker.desk, self._broker.clock.now()
        given: list[Notification] = []
        waiting: list[Notification] = []
        worthless: list[UUID] = []
        for place, note in enumerate(notes):
            try:
                sealed.check_notification(desk.engine, note, now)
            except SecurityError:
                if not self._is_good(held.subscription, now):
                    waiting = notes[place:]
                    break
                worthless.append(note.event.id)
            else:
                given.append(note)
        if worthless:
            desk.acknowledge(held, worthless)
        return given, waiting

    def _is_good(self, subscription: Subscription, now: int) -> bool:
        try:
            if subscription.token is not None:
                self.gate.check_subscription(subscription.token, subscription.subscriber, now)
        except SecurityError:
            return False
        return True

    # How things are

    def gauges(self) -> SecurityGauges:
        credentials = self.gate.credentials
        head = credentials.revocations.head
        found = SecurityGauges(refused=dict(self.gate.refused), topics=len(credentials.topics))
        if head is None:
            return found
        return msgspec.structs.replace(
            found,
            revocations=head.version,
            revocations_issued=head.issued / _SECOND,
            revocations_expire=head.next_update / _SECOND,
        )

    def state(self) -> dict[str, Any]:
        """For people and programs that ask; there are no secrets in it."""
        credentials, now = self.gate.credentials, self._broker.clock.now()
        head = credentials.revocations.head
        return {
            "overlay": credentials.overlay,
            "authority": credentials.anchor.certificate.name,
            "verifies_signatures": self.gate.verifies,
            "topics": len(credentials.topics),
            "refused": dict(sorted(self.gate.refused.items())),
            "revocations": None
            if head is None
            else {
                "version": head.version,
                "age": round((now - head.issued) / _SECOND, 3),
                "in_force": now < head.next_update,
            },
        }

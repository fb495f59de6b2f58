"""Secure topics at a broker: the gate, and the signed news that it works with.

News are updates of the revocation list, records of secure topics, and notices of topics' key management centres. Each
is signed by its author, so it does not matter who carries it. News come from files, from neighbours (the engines
exchange them), and as publications, to which the broker subscribes because a neighbour without a gate does not pass
news on.

Revocations take effect at once: tokens that depend on a revoked certificate are no longer valid, and connections with
one are closed. A revocation list that is out of date stops everything on secure topics, but closes no connections: the
next list may come over one of them.
"""

import logging
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from tidings.broker.config.security import SecurityTable
from tidings.broker.metrics import SecurityGauges
from tidings.broker.net.connection import Connection
from tidings.coerce import content_filter
from tidings.engine.operations import ApplyNotice, LearnTopic, Revoke
from tidings.engine.operations import Subscribe as Subscribes
from tidings.engine.security import sealed_events
from tidings.model.errors import InvalidValueError, SecurityError, TidingsError
from tidings.model.event import Event, checked_subject
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.protocol.requests import SubscribeRequest, signed_request_bytes
from tidings.runtime.subscription_registry import RegisteredSubscription
from tidings.security.ca.certificates import Certificate, Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import RevocationHead, RevocationUpdate
from tidings.security.gate import Gate
from tidings.security.tokens.credentials import Credentials
from tidings.security.tokens.notices import EVERYTHING, KIND, NOTICE, RECORD, REVOCATIONS, SignedNotice
from tidings.security.topic_record import TopicRecord

if TYPE_CHECKING:
    from tidings.broker.broker import Broker

_LOG = logging.getLogger("tidings.broker")
NONCE_BYTES = 32
_SECOND = 1_000_000
# Checks of the gate that an honest client does not fail; it may fail those about expiry or a wrong clock.
_ATTACK_CHECKS = (
    *("attributes", "audience", "certificate", "form", "holder", "kmc", "proof", "publisher", "scope"),
    "signature",
)

News = Revoke | ApplyNotice | LearnTopic
_NEWS_KINDS: dict[Any, Callable[[bytes], News]] = {REVOCATIONS: Revoke, NOTICE: ApplyNotice, RECORD: LearnTopic}


class SecurityFile(NamedTuple):
    """News from a file; `origin` is the configuration key and the file's name, for error messages."""

    origin: str
    news: News


def load_gate(table: SecurityTable, broker: str) -> Gate:
    """Return the gate for a broker's identity, as `[security]` configures it.

    Raises an `InvalidValueError` if the identity cannot be loaded or is not that of this broker.
    """
    try:
        identity = Identity.load(table.identity)
    except TidingsError as error:
        raise InvalidValueError(f"security.identity: {error}") from None
    certificate = identity.certificate
    if certificate.role is not Role.BROKER or certificate.name != broker:
        raise InvalidValueError(
            f"security.identity: {table.identity} is that of {certificate.name}, {certificate.role.value}; it must be "
            f"that of {broker}, broker: `tidings ca issue` makes it"
        )
    gate = Gate(Credentials(identity.anchor, table.overlay), identity=identity)
    _configure_gate(gate, table)
    return gate


def _configure_gate(gate: Gate, table: SecurityTable) -> None:
    gate.verifies = table.verify_signatures
    gate.ingress.freshness = table.freshness_ms * 1_000


def read_files(table: SecurityTable) -> list[SecurityFile]:
    """Read the topic records and the revocation list that `[security]` names, topic records first.

    The order matters: a topic whose owner is revoked must not become open to everybody.
    """
    files = [_read("topics", path, TopicRecord, LearnTopic) for path in table.topics]
    if table.revocations:
        files.append(_read("revocations", table.revocations, RevocationUpdate.read, Revoke))
    return files


def _read(key: str, path: str, read: Callable[[bytes], object], make: Callable[[bytes], News]) -> SecurityFile:
    """Read and check one file of news; raise an `InvalidValueError` that names the key and the file."""
    origin = f"security.{key}: {path}"
    try:
        data = Path(path).read_bytes()
        read(data)
    except OSError as error:
        raise InvalidValueError(f"{origin}: {error.strerror or error}") from None
    except TidingsError as error:
        raise InvalidValueError(f"{origin}: {error}") from None
    return SecurityFile(origin, make(data))


class TopicSecurity:
    """The security gate of a broker, kept up to date with news, and its effects on connections and subscriptions."""

    def __init__(self, broker: "Broker", gate: Gate) -> None:
        self._broker, self.gate = broker, gate
        self._head: RevocationHead | None = None  # of the revocation list that connections were last checked with

    def apply_files(self, files: list[SecurityFile]) -> None:
        """Apply security news (revocations, topic records) from files; what is known already changes nothing."""
        for origin, news in files:
            try:
                self._apply_news(news)
            except TidingsError as error:
                raise InvalidValueError(f"{origin}: {error}") from None

    def subscribe_to_news(self) -> None:
        """Subscribe the broker to publications that carry security news, so that they are routed here."""
        node = self._broker.node
        subscription = Subscription.of(content_filter(EVERYTHING), id=f"{node.name}.security", subscriber=node.name)
        node.operate(Subscribes(subscription), sync=False)

    def configure(self, table: SecurityTable) -> None:
        """Apply those keys of another configuration that need no restart."""
        _configure_gate(self.gate, table)

    # News from publications

    def read_event(self, event: Event) -> None:
        """Apply the security news that an event carries, if any, at the end of this turn of the event loop.

        News are revocations, topic records and notices. The event comes from a client or a neighbour, and is routed
        like any other. News are trusted for their signature alone.
        """
        kind = event.attributes.get(KIND)
        if kind is None or event.payload is None:
            return
        make_news = _NEWS_KINDS.get(kind)
        if make_news is not None:
            self._broker.defer_to_turn_end(
                partial(self._apply_published_news, make_news(event.payload), event.publisher)
            )

    def _apply_published_news(self, news: News, publisher: str) -> None:
        """Apply news that a publication has carried; log it if they are refused, and count forged ones."""
        try:
            self._apply_news(news)
        except TidingsError as error:
            _LOG.warning("what %s has published for the gate is not believed: %s", publisher, error)
            session = self._broker.sessions.get(publisher)
            if session is not None and isinstance(error, SecurityError) and error.check in _ATTACK_CHECKS:
                self._broker.admission.record_refused_attempt(session.connection, publisher)

    def _apply_news(self, news: News) -> None:
        """Have the engine apply security news that are new; raise a `TidingsError` if it refuses them."""
        if self._is_new(news):
            outcome = self._broker.node.operate(news, sync=False)
            if outcome.refused is not None:
                raise TidingsError(outcome.refused.reason)

    def _is_new(self, news: News) -> bool:
        """Return whether security news say something that is not known yet; other news are not journaled again."""
        credentials = self.gate.credentials
        match news:
            case Revoke(data):
                known_head = credentials.revocations.head
                head = RevocationUpdate.read(data).unverified_head
                return known_head is None or (head.version, head.issued) > (known_head.version, known_head.issued)
            case ApplyNotice(data):
                notice = SignedNotice(data).notice
                known_notice = credentials.notice(notice.topic)
                return known_notice is None or notice.version > known_notice.version
            case LearnTopic(data):
                record = TopicRecord(data)
                known_topic = credentials.topics.get(record.id)
                return known_topic is None or known_topic.data != data

    # Connections

    def refusal(self, connection: Connection, role: Role | None = None) -> str | None:
        """Return why the certificate of the other side is not acceptable; None if it is, or if there is none.

        `role` is the role that the certificate must have, if given.
        """
        data = connection.certificate
        if data is None:
            return None
        try:
            certificate = Certificate.read(data)
        except SecurityError:
            return None  # of another authority, which TLS trusts
        try:
            self.gate.credentials.revocations.check(certificate, self._broker.clock.now())
        except SecurityError as error:
            return error.reason
        if role is not None and certificate.role is not role:
            return f"the certificate of {certificate.name} is that of a {certificate.role.value}, not of a {role.value}"
        return None

    def apply_revocations(self) -> None:
        """After a new revocation list, close connections of revoked certificates and resume waiting deliveries.

        Called at the end of every turn of the event loop.
        """
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
                connection.close(reason, retry=False)
        for session in broker.sessions.values():
            session.handlers.wake_pumps()

    @property
    def attack_count(self) -> int:
        """How many checks of the gate have failed that an honest client does not fail by mistake."""
        return sum(self.gate.refused[check] for check in _ATTACK_CHECKS)

    # Subscriptions

    @staticmethod
    def nonce() -> bytes:
        """Return a nonce for one connection, to be signed together with a token."""
        return secrets.token_bytes(NONCE_BYTES)

    def check_proof(self, request: SubscribeRequest, nonce: bytes) -> None:
        """Raise a `SecurityError` unless a subscription with a token is signed by the token's holder."""
        if request.token is None:
            return
        if request.proof is None:
            self.gate.refused["proof"] += 1
            raise SecurityError("proof", "a token alone is anybody's: sign the subscription with the key in it")
        signed_data, now = signed_request_bytes(request, self._broker.name), self._broker.clock.now()
        self.gate.check_proof(request.token, signed_data, nonce, request.proof, now)

    def topic_of(self, subject: str | None, attributes: dict[str, Any], content: str | None) -> TopicRecord | None:
        """Return the secure topic that an event is on, or, if `content` is given, all events of a subscription."""
        topic_gossip = self._broker.node.engine.topic_gossip
        if content is None or topic_gossip is None:
            return self.gate.topics.of(checked_subject(subject), Attributes.of(attributes))
        subscription = Subscription.of(
            content_filter(content), id="asked", subscriber=self._broker.name, subject=subject
        )
        return topic_gossip.token_requirements.of(subscription)

    # Durable deliveries

    def split_deliverable(
        self, subscription: RegisteredSubscription, notifications: list[Notification]
    ) -> tuple[list[Notification], list[Notification]]:
        """Split stored notifications of a durable subscription into those to deliver now and those that must wait.

        Notifications wait while the subscriber's token, or the broker's revocation list, is out of date. Notifications
        that may never be delivered are acknowledged, and so removed.
        """
        node, now = self._broker.node, self._broker.clock.now()
        deliverable: list[Notification] = []
        waiting: list[Notification] = []
        undeliverable: list[UUID] = []
        for position, notification in enumerate(notifications):
            try:
                sealed_events.check_notification(node.engine, notification, now)
            except SecurityError:
                if not self._has_valid_token(subscription.subscription, now):
                    waiting = notifications[position:]
                    break
                undeliverable.append(notification.event.id)
            else:
                deliverable.append(notification)
        if undeliverable:
            node.acknowledge(subscription, undeliverable)
        return deliverable, waiting

    def _has_valid_token(self, subscription: Subscription, now: int) -> bool:
        """Return whether the subscription's token is valid now, or the subscription has none."""
        try:
            if subscription.token is not None:
                self.gate.check_subscription(subscription.token, subscription.subscriber, now)
        except SecurityError:
            return False
        return True

    # State

    def gauges(self) -> SecurityGauges:
        """Return the state of the gate as numbers for the metrics page."""
        credentials = self.gate.credentials
        head = credentials.revocations.head
        gauges = SecurityGauges(refused=dict(self.gate.refused), topics=len(credentials.topics))
        if head is None:
            return gauges
        return msgspec.structs.replace(
            gauges,
            revocations=head.version,
            revocations_issued=head.issued / _SECOND,
            revocations_expire=head.next_update / _SECOND,
        )

    def state(self) -> dict[str, Any]:
        """Return the state of the gate for the `status` query; it has no secrets."""
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

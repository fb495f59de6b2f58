"""The security gate of a broker: verifies what the broker receives, and decides what it may deliver.

Theory of operation:

1. An event on a secure topic must have a token and a seal. Any event with only one of the two is refused.
2. Events of clients (`admit`) pass all checks: revocation list fresh, token valid for publishing, publisher is the
   token's holder, topic and template match, epoch accepted, not replayed, and, if `verifies`, scope, attributes and
   signature as signed.
3. Events of other brokers (`pass_on`) pass the same checks except epoch and replay, which the ingress broker made.
   Policies may have removed attributes on the way, so a missing attribute never refuses an event.
4. Subscriptions need a token with the right to subscribe, and a proof that the client has the token's key. Each
   delivery checks the token again (`check_get`).

Pure: the caller passes the time, and nothing is random; only the signature on added attributes is. A refusal
raises `SecurityError`; `refused` counts refused events, subscriptions and proofs by check.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security.ca.certificates import Certificate, Role
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import CertificateTrust
from tidings.security.encoding import encode_canonical, signing_input
from tidings.security.sealing import envelope
from tidings.security.sealing.envelope import ADDITION, Addition, Seal
from tidings.security.sealing.replay import IngressReplayGuard
from tidings.security.sealing.signatures import Signatures
from tidings.security.tokens.credentials import Credentials, TopicLookup
from tidings.security.tokens.token import Right, Token

FRESHNESS = 300_000_000  # microseconds by which a publisher's clock may be wrong, and for which replays are detected
PROOF = "subscription"  # purpose of a subscriber's signature (see `encoding.signing_input`)


class DeliveryGate(Protocol):
    """What a delivery needs of a gate."""

    def shown(self, event: Event, added: Mapping[str, Any] | None = None) -> Event: ...


class StoredEventGate(Protocol):
    """What a stored notification is checked with before it is delivered. `Gate` says what each of these does."""

    def check_stored(self, event: Event, accepted: int) -> None: ...
    def seal_of(self, event: Event) -> Seal: ...
    def check_get(
        self, token_data: bytes | None, subscriber: str, event: Event, topic: bytes, now: int, *, cut: bool = False
    ) -> None: ...


class Gate:
    """The security checks of one broker for publications, subscriptions and deliveries. See the module docstring."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        verifies: bool = True,
        freshness: int | None = FRESHNESS,
        identity: Identity | None = None,
    ) -> None:
        """Create the gate of a broker.

        Args:
            credentials: The verified topics, tokens, notices and revocations.
            verifies: Verify signatures of events as well, at about 100 us each. Subscribers always do.
            freshness: Microseconds by which a publisher's clock may be wrong. None for events that were accepted
                before and are checked again at the time of their acceptance.
            identity: The broker's identity, which signs attributes that the broker adds to sealed events.
        """
        self.credentials, self.verifies, self.identity = credentials, verifies, identity
        self.ingress = IngressReplayGuard(freshness)
        self.signatures = Signatures()
        self.refused: Counter[str] = Counter()
        self.topics = TopicLookup(credentials)
        self._seal: tuple[bytes, Seal] | None = None  # the last decoded seal, with its bytes

    # Publications

    def admit(self, event: Event, now: int) -> None:
        """Admit an event of a client at ingress, and record it for replay protection. Raises `SecurityError`,
        counted in `refused`."""
        try:
            seal = self.check(event, now)
        except SecurityError as error:
            self.refused[error.check] += 1
            raise
        if seal is not None:
            self.ingress.record(event.publisher, seal)

    def check(self, event: Event, now: int) -> Seal | None:
        """Check an event as `admit` does, without recording or counting it.

        Returns the event's seal, or None if it is on no secure topic.
        """
        if self._is_plain(event):
            return None
        seal, token = self._checked(event, now)
        self.check_epoch(seal, now)
        self.ingress.check(event.publisher, seal, now)
        if self.verifies:
            self._verify(event, seal, token)
        return seal

    def pass_on(self, event: Event, now: int) -> None:
        """Admit an event from another broker.

        The ingress broker has checked epoch and replay; duplicates are found by event id. Raises `SecurityError`,
        counted in `refused`.
        """
        try:
            if self._is_plain(event):
                return
            seal, token = self._checked(event, now, cut=True)
            if self.verifies:
                self._verify(event, seal, token)
        except SecurityError as error:
            self.refused[error.check] += 1
            raise

    def check_stored(self, event: Event, accepted: int) -> None:
        """Check an event from the journal before it is delivered again.

        Raises `SecurityError` if its token does not verify for the time of acceptance, or depends on a
        certificate that was revoked by then. A later revocation does not matter.
        """
        if event.token is not None and event.signature is not None:
            self.credentials.check_trusted(self.credentials.stored_token(event.token, accepted), accepted)

    def take_back(self, event: Event) -> None:
        """Undo the replay record of the publisher's last admitted event, which could not be journaled: it may be
        sent again."""
        if event.signature is not None:
            self.ingress.undo(event.publisher, Seal.of(event))

    def recall(self, event: Event) -> None:
        """Record an event that was accepted before a restart, so that it is not accepted again."""
        if event.token is not None and event.signature is not None:
            self.ingress.record(event.publisher, Seal.of(event))

    def _is_plain(self, event: Event) -> bool:
        """Return whether the event is on no secure topic.

        Raises `SecurityError` if it is on one without a token and a seal, or has only one of the two.
        """
        if event.token is None and event.signature is None:
            record = self.topics.of(event.subject, event.attributes)
            if record is None:
                return True
            raise SecurityError("token", f"the topic {record.template} is secure: publish with a token for it")
        if event.token is None or event.signature is None:
            raise SecurityError("token", "a sealed event has both a token and a seal")
        return False

    def _checked(self, event: Event, now: int, *, cut: bool = False) -> tuple[Seal, Token]:
        """Make the checks that are common to clients and brokers, and return seal and token. `cut`: see `may_get`."""
        self.credentials.revocations.check_fresh(now)
        seal = self.seal_of(event)
        assert event.token is not None  # noqa: S101  # see `_is_plain`
        token = self.publishing(event.token, event.publisher, seal, now)
        check_template(token, event.subject, event.attributes, cut=cut)
        return seal, token

    def publishing(self, token_data: bytes, publisher: str, seal: Seal, now: int) -> Token:
        """Return the publisher's token if it permits to publish with this seal, else raise `SecurityError`.

        Args:
            token_data: The token's bytes.
            publisher: The publisher, who must be the token's holder.
            seal: The event's seal, whose topic and suite must be the token's.
            now: The time, in microseconds.
        """
        token = self.credentials.token(token_data, now)
        self.credentials.check_trusted(token, now)
        token.check_use(Right.PUBLISH, now)
        if seal.topic != token.topic:
            raise SecurityError("topic", "the seal is of another topic than the token")
        if seal.suite != token.record.suite:
            raise SecurityError("form", "the seal is of another suite than the topic")
        if token.holder.name != publisher:
            raise SecurityError("publisher", f"the token is that of {token.holder.name}, not of {publisher}")
        return token

    def seal_of(self, event: Event) -> Seal:
        """Return the event's seal, decoded once as long as no event with another seal is asked for."""
        if self._seal is None or self._seal[0] is not event.signature:
            seal = Seal.of(event)
            self._seal = event.signature or b"", seal
        return self._seal[1]

    def check_epoch(self, seal: Seal, now: int) -> None:
        """Raise `SecurityError` if the topic's notice no longer accepts the epoch that the event is sealed under."""
        notice = self.credentials.notice(seal.topic, now)
        if notice is None or seal.epoch >= notice.epoch:
            return
        if seal.epoch < notice.accepted or now >= notice.accepted_until:
            raise SecurityError("epoch", f"epoch {seal.epoch} is over; fetch the key of epoch {notice.epoch}")

    def _verify(self, event: Event, seal: Seal, token: Token) -> None:
        envelope.check_scope(event, seal)
        envelope.check_attributes(event, seal)
        self.signatures.check(seal.digest(event), seal, token.key)

    # Subscriptions

    def subscription(self, token_data: bytes, subscriber: str, now: int) -> Token:
        """Check the token of a subscription and return it. Raises `SecurityError` and counts it in `refused`."""
        try:
            return self._held_token(token_data, subscriber, Right.SUBSCRIBE, now)
        except SecurityError as error:
            self.refused[error.check] += 1
            raise

    def check_subscription(self, token_data: bytes, subscriber: str, now: int) -> None:
        """Check the token of a subscription without counting a refusal."""
        self._held_token(token_data, subscriber, Right.SUBSCRIBE, now)

    def _held_token(self, token_data: bytes, holder: str, right: Right, now: int) -> Token:
        """Return the token if `holder` holds it and it grants `right` now, else raise `SecurityError`."""
        self.credentials.revocations.check_fresh(now)
        token = self.credentials.token(token_data, now)
        if token.holder.name != holder:
            raise SecurityError("holder", f"the token is that of {token.holder.name}, not of {holder}")
        self.credentials.check_trusted(token, now)
        token.check_use(right, now)
        return token

    def check_proof(self, token_data: bytes, said: bytes, nonce: bytes, signature: bytes, now: int) -> None:
        """Raise `SecurityError` unless the subscriber has the private key of its token. A token alone can be copied
        by anybody.

        Args:
            token_data: The token's bytes.
            said: The subscriber's request, as it was signed.
            nonce: The nonce that this broker gave the session.
            signature: The subscriber's signature over both.
            now: The time, in microseconds.
        """
        token = self.credentials.token(token_data, now)
        try:
            Ed25519PublicKey.from_public_bytes(token.key).verify(signature, proof_of(said, nonce))
        except InvalidSignature:
            self.refused["proof"] += 1
            raise SecurityError("proof", f"this was not signed by the token's holder, {token.holder.name}") from None

    def may_get(
        self, token_data: bytes | None, subscriber: str, event: Event, topic: bytes, now: int, *, cut: bool = False
    ) -> bool:
        """Return whether a sealed event may be delivered to a subscription.

        Args:
            token_data: The subscription's token, if it has one.
            subscriber: The subscriber, who must be the token's holder.
            event: The sealed event.
            topic: The id of the topic that the event is sealed for.
            now: The time, in microseconds.
            cut: Attributes may have been removed from the event; missing ones then do not speak against it.
        """
        try:
            self.check_get(token_data, subscriber, event, topic, now, cut=cut)
        except SecurityError:
            return False
        return True

    def check_get(
        self, token_data: bytes | None, subscriber: str, event: Event, topic: bytes, now: int, *, cut: bool = False
    ) -> None:
        """Raise `SecurityError`, with the reason, if a sealed event may not be delivered to a subscription.

        Args:
            token_data: The subscription's token, if it has one.
            subscriber: The subscriber, who must be the token's holder.
            event: The sealed event.
            topic: The id of the topic that the event is sealed for.
            now: The time, in microseconds.
            cut: Attributes may have been removed from the event; missing ones then do not speak against it.
        """
        if token_data is None:
            raise SecurityError("token", "the event is sealed, and the subscription has no token")
        self._check_part(self._held_token(token_data, subscriber, Right.SUBSCRIBE, now), event, topic, cut=cut)

    def may_govern(self, token_data: bytes, holder: str, event: Event, topic: bytes, now: int) -> bool:
        """Return whether the holder's policies may decide about a sealed event for other clients.

        Args:
            token_data: The holder's token.
            holder: The owner of the policy, who must be the token's holder.
            event: The sealed event.
            topic: The id of the topic that the event is sealed for.
            now: The time, in microseconds.
        """
        try:
            self._check_part(self._held_token(token_data, holder, Right.GOVERN, now), event, topic)
        except SecurityError:
            return False
        return True

    @staticmethod
    def _check_part(token: Token, event: Event, topic: bytes, *, cut: bool = False) -> None:
        if token.topic != topic:
            raise SecurityError("topic", f"the event is on another topic than {token.record.template}")
        if not token.is_whole:
            check_template(token, event.subject, event.attributes, cut=cut)

    # Delivery

    def shown(self, event: Event, added: Mapping[str, Any] | None = None) -> Event:
        """Return a sealed event as a subscriber receives it.

        The salts of removed attributes and of the scope are dropped. Attributes in `added` are signed by this
        broker, if it has an identity.
        """
        if event.signature is None:
            return event
        event = envelope.trim(event, for_subscriber=True, seal=self.seal_of(event), added=added or ())
        if not added or self.identity is None:
            return event
        seal = Seal.of(event)
        signature = self.identity.sign(ADDITION, addition_of(event, dict(added)))
        addition = Addition(dict(added), self.identity.certificate.der, signature)
        return msgspec.structs.replace(
            event, signature=msgspec.structs.replace(seal, additions=(*seal.additions, addition)).data
        )


def check_template(token: Token, subject: str | None, attributes: Mapping[str, Any], *, cut: bool = False) -> None:
    """Raise `SecurityError` unless the event is on the part of the topic that the token is for.

    Args:
        token: The token.
        subject: The event's subject.
        attributes: The event's attributes.
        cut: Attributes may have been removed from the event; missing ones then do not speak against it.
    """
    accepts = token.template.may_match if cut else token.template.matches
    if not accepts(subject, attributes):
        raise SecurityError("topic", f"the event is not on {token.template}, which the token is for")


def proof_of(request: bytes, nonce: bytes) -> bytes:
    """Return what a subscriber signs: its request and the session's nonce, so that the signature is valid in this
    session only."""
    return signing_input(PROOF, encode_canonical((nonce, request)))


def addition_of(event: Event, added: dict[str, Any]) -> bytes:
    """Return what a broker signs for attributes that it adds: they are bound to this event by its id."""
    return encode_canonical((event.id.bytes, added))


def additions(
    event: Event, seal: Seal, trust: CertificateTrust, now: int
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return the attributes that brokers added to an event, and the name of the broker that added each.

    Of several additions of a name the last counts. Raises `SecurityError` if the certificate or the signature of
    an addition is not good.

    Args:
        event: The sealed event.
        seal: The event's seal.
        trust: What the brokers' certificates are checked with.
        now: The time, in microseconds.
    """
    added: dict[str, Any] = {}
    added_by: dict[str, str] = {}
    for addition in seal.additions:
        certificate = Certificate.read(addition.certificate)
        trust.anchor.check(certificate, now, Role.BROKER)
        trust.revocations.check(certificate, now)
        certificate.verify(ADDITION, addition_of(event, addition.attributes), addition.signature)
        added |= addition.attributes
        added_by |= dict.fromkeys(addition.attributes, certificate.name)
    return added, tuple(added_by.items())

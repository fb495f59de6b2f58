"""The gate: what a broker checks of what comes, and of what it hands out. It routes what it cannot read, and refuses
what it cannot trust.

Pure, but for signatures: time is given, and nothing is drawn. What is refused raises a `SecurityError`, and is counted.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security import envelope
from tidings.security.certificates import Certificate, Role
from tidings.security.credentials import Credentials
from tidings.security.encoding import encoded, purpose
from tidings.security.envelope import ADDITION, Addition, Seal
from tidings.security.identity import Identity
from tidings.security.replay import Ingress
from tidings.security.signatures import Signatures
from tidings.security.token import Right, Token
from tidings.security.topics import Topics

FRESHNESS = 300_000_000  # microseconds that a publisher's clock may be wrong by, and that a replay is remembered for
PROOF = "subscription"  # the purpose of a subscriber's signature


class Gate:
    """Of one broker. `verifies`: it checks signatures of events too, at a hundred microseconds each; subscribers always
    do. `freshness`: microseconds that a publisher's clock may be wrong by; None for what was accepted before and is
    judged again, by the time of that. `identity`: the broker's own: with it it signs what it adds to sealed events."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        verifies: bool = True,
        freshness: int | None = FRESHNESS,
        identity: Identity | None = None,
    ) -> None:
        self.credentials, self.verifies, self.identity = credentials, verifies, identity
        self.ingress = Ingress(freshness)
        self.signatures = Signatures()
        self.refused: Counter[str] = Counter()
        self.topics = Topics(credentials)
        self._seal: tuple[bytes, Seal] | None = None  # of the event that was looked at last, and its bytes

    # Publications

    def admit(self, event: Event, now: int) -> None:
        """Of a client, where it enters."""
        try:
            seal = self.check(event, now)
        except SecurityError as error:
            self.refused[error.check] += 1
            raise
        if seal is not None:
            self.ingress.note(event.publisher, seal)

    def check(self, event: Event, now: int) -> Seal | None:
        """What `admit` asks, without taking note of it; the seal of the event, if it has one."""
        if self._is_plain(event):
            return None
        seal, token = self._checked(event, now)
        self.check_epoch(seal, now)
        self.ingress.check(event.publisher, seal, now)
        if self.verifies:
            self._verify(event, seal, token)
        return seal

    def pass_on(self, event: Event, now: int) -> None:
        """Of another broker, where it entered: that it came before is found out by its id."""
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
        """Before an event of a journal is handed out again: of someone who has been revoked since, only what was
        accepted while it was valid."""
        if event.token is not None and event.signature is not None:
            self.credentials.check_trusted(self.credentials.stored_token(event.token, accepted), accepted)

    def take_back(self, event: Event) -> None:
        """The event that was admitted last of its publisher could not be written down: it may come again."""
        if event.signature is not None:
            self.ingress.take_back(event.publisher, Seal.of(event))

    def recall(self, event: Event) -> None:
        """An event that was accepted before a restart: it must not be accepted again."""
        if event.token is not None and event.signature is not None:
            self.ingress.note(event.publisher, Seal.of(event))

    def _is_plain(self, event: Event) -> bool:
        """Whether it is on no secure topic. One that is, or that claims to be, has a token and a seal."""
        if event.token is None and event.signature is None:
            record = self.topics.of(event.subject, event.attributes)
            if record is None:
                return True
            raise SecurityError("token", f"the topic {record.template} is secure: publish with a token for it")
        if event.token is None or event.signature is None:
            raise SecurityError("token", "a sealed event has both a token and a seal")
        return False

    def _checked(self, event: Event, now: int, *, cut: bool = False) -> tuple[Seal, Token]:
        """All that is checked on every path. `cut`: as for `may_get`."""
        self.credentials.revocations.check_fresh(now)
        seal = self.seal_of(event)
        assert event.token is not None  # noqa: S101  # see `_is_plain`
        token = self.publishing(event.token, event.publisher, seal, now)
        check_template(token, event.subject, event.attributes, cut=cut)
        return seal, token

    def publishing(self, token_data: bytes, publisher: str, seal: Seal, now: int) -> Token:
        """The token, if its holder may publish on the topic that the seal is of."""
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
        """The seal of an event, read once as long as no other event is looked at; it is the same for what is left of an
        event after something was taken away."""
        if self._seal is None or self._seal[0] is not event.signature:
            seal = Seal.of(event)
            self._seal = event.signature or b"", seal
        return self._seal[1]

    def check_epoch(self, seal: Seal, now: int) -> None:
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
        """The token of a subscription, when it comes and when it is used."""
        try:
            return self._held(token_data, subscriber, Right.SUBSCRIBE, now)
        except SecurityError as error:
            self.refused[error.check] += 1
            raise

    def check_subscription(self, token_data: bytes, subscriber: str, now: int) -> None:
        """The same, without counting what is refused."""
        self._held(token_data, subscriber, Right.SUBSCRIBE, now)

    def _held(self, token_data: bytes, holder: str, right: Right, now: int) -> Token:
        """The token, if it is good for that, in the hands of its holder."""
        self.credentials.revocations.check_fresh(now)
        token = self.credentials.token(token_data, now)
        if token.holder.name != holder:
            raise SecurityError("holder", f"the token is that of {token.holder.name}, not of {holder}")
        self.credentials.check_trusted(token, now)
        token.check_use(right, now)
        return token

    def check_proof(self, token_data: bytes, said: bytes, nonce: bytes, signature: bytes, now: int) -> None:
        """Whether the subscriber has the key that its token names: a token alone is anybody's. `said` is what it asks
        for, `nonce` what this broker gave it when it came."""
        token = self.credentials.token(token_data, now)
        try:
            Ed25519PublicKey.from_public_bytes(token.key).verify(signature, proof_of(said, nonce))
        except InvalidSignature:
            self.refused["proof"] += 1
            raise SecurityError("proof", f"this was not signed by the token's holder, {token.holder.name}") from None

    def may_get(
        self, token_data: bytes | None, subscriber: str, event: Event, topic: bytes, now: int, *, cut: bool = False
    ) -> bool:
        """Whether an event that is sealed for that topic may be handed to a subscription with that token, if any.
        `cut`: attributes may have been taken away; then it is enough if nothing that is left says no."""
        try:
            self.check_get(token_data, subscriber, event, topic, now, cut=cut)
        except SecurityError:
            return False
        return True

    def check_get(
        self, token_data: bytes | None, subscriber: str, event: Event, topic: bytes, now: int, *, cut: bool = False
    ) -> None:
        """The same, with the reason."""
        if token_data is None:
            raise SecurityError("token", "the event is sealed, and the subscription has no token")
        self._check_part(self._held(token_data, subscriber, Right.SUBSCRIBE, now), event, topic, cut=cut)

    def may_govern(self, token_data: bytes, holder: str, event: Event, topic: bytes, now: int) -> bool:
        """Whether the holder's policies may decide for others what becomes of a sealed event."""
        try:
            self._check_part(self._held(token_data, holder, Right.GOVERN, now), event, topic)
        except SecurityError:
            return False
        return True

    @staticmethod
    def _check_part(token: Token, event: Event, topic: bytes, *, cut: bool = False) -> None:
        if token.topic != topic:
            raise SecurityError("topic", f"the event is on another topic than {token.record.template}")
        if not token.is_whole:
            check_template(token, event.subject, event.attributes, cut=cut)

    # What is handed out

    def shown(self, event: Event, added: Mapping[str, Any] | None = None) -> Event:
        """A sealed event as a subscriber gets it: without the salts of what was taken away, and with what was added
        signed by this broker, if it can."""
        if event.signature is None:
            return event
        event = envelope.trimmed(event, shown=True, seal=self.seal_of(event), added=added or ())
        if not added or self.identity is None:
            return event
        seal = Seal.of(event)
        signature = self.identity.sign(ADDITION, addition_of(event, dict(added)))
        made = Addition(dict(added), self.identity.certificate.der, signature)
        return msgspec.structs.replace(
            event, signature=msgspec.structs.replace(seal, additions=(*seal.additions, made)).data
        )


def check_template(token: Token, subject: str | None, attributes: Mapping[str, Any], *, cut: bool = False) -> None:
    """Whether an event is on the part of the topic that the token is for; `cut`: as for `may_get`."""
    suits = token.template.admits if cut else token.template.matches
    if not suits(subject, attributes):
        raise SecurityError("topic", f"the event is not on {token.template}, which the token is for")


def proof_of(said: bytes, nonce: bytes) -> bytes:
    """What a subscriber signs: with a nonce of the session, so that it cannot be used in another one."""
    return purpose(PROOF, encoded((nonce, said)))


def addition_of(event: Event, added: dict[str, Any]) -> bytes:
    """What a broker signs of what it adds: of this event, and no other."""
    return encoded((event.id.bytes, added))


def additions(
    event: Event, seal: Seal, credentials: Credentials, now: int
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """What brokers have added, as far as they can be trusted, and which of them each is from; the last one counts."""
    added: dict[str, Any] = {}
    by: dict[str, str] = {}
    for one in seal.additions:
        certificate = Certificate.read(one.certificate)
        credentials.anchor.check(certificate, now, Role.BROKER)
        credentials.revocations.check(certificate, now)
        certificate.verify(ADDITION, addition_of(event, one.attributes), one.signature)
        added |= one.attributes
        by |= dict.fromkeys(one.attributes, certificate.name)
    return added, tuple(by.items())

"""Members: entities that seal what they publish on secure topics and open what they receive.

A member holds the entity's tokens and epoch keys. It does no input or output: a connected client sends the key
request (`wants`) to the topic's centre and passes the response to `take`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.model.values import Attributes
from tidings.security.ca.certificates import Certificate
from tidings.security.ca.identity import Identity
from tidings.security.ca.revocation import UpdatableTrust
from tidings.security.gate import additions, proof_of
from tidings.security.rpc.kmc_messages import KeyRequest, KeyResponse
from tidings.security.sealing import envelope
from tidings.security.sealing.envelope import ContentKeys, Seal
from tidings.security.sealing.keys import Keyring
from tidings.security.sealing.replay import ReplayWindow
from tidings.security.sealing.sealer import Sealer
from tidings.security.sealing.signatures import Signatures
from tidings.security.tokens.credentials import Credentials, TopicLookup
from tidings.security.tokens.notices import SignedNotice
from tidings.security.tokens.token import Right, Token
from tidings.security.topic_record import TopicRecord

_SHOWN_TOPICS = 3


class OpenedEvent(NamedTuple):
    """An event with its payload decrypted, and for each attribute that a broker added the pair of its name and the
    broker's name."""

    event: Event
    added: tuple[tuple[str, str], ...] = ()


class OpenerTrust(UpdatableTrust, Protocol):
    """What an opener checks events with. `Credentials` say what each of these does."""

    def token(self, data: bytes, now: int) -> Token: ...
    def check_trusted(self, token: Token, at: int) -> None: ...


class Opener:
    """Verifies and decrypts sealed events with a keyring and credentials. Has its own replay window."""

    def __init__(self, credentials: OpenerTrust, keyring: Keyring) -> None:
        self.credentials, self.keyring = credentials, keyring
        self._keys = ContentKeys(keyring)
        self._window, self._signatures = ReplayWindow(), Signatures()

    def open(self, event: Event, now: int, *, again: bool = False) -> Event:
        """Return the event with its payload decrypted. See `opened`."""
        return self.opened(event, now, again=again).event

    def opened(self, event: Event, now: int, *, again: bool = False) -> OpenedEvent:
        """Verify and decrypt an event; also return which attributes brokers added.

        Attributes that neither the publisher nor a trusted broker signed are dropped. Raises `SecurityError` if
        token, publisher's right, topic, signature or payload are not good, or the event was opened before.

        `now` is the time of the event's acceptance if it comes from a journal. `again` permits an event that was
        opened before.
        """
        seal = Seal.of(event)
        if event.token is None:
            raise SecurityError("token", "the sealed event has no token")
        self.credentials.revocations.check_fresh(now)
        token = self.credentials.token(event.token, now)
        self.credentials.check_trusted(token, now)
        token.check_use(Right.PUBLISH, now)
        if token.holder.name != event.publisher:
            raise SecurityError("publisher", f"the token is that of {token.holder.name}, not of {event.publisher}")
        if seal.topic != token.topic or not token.template.may_match(event.subject, event.attributes):
            raise SecurityError("topic", f"the event is not on {token.template}, which its publisher has a token for")
        added, added_by = additions(event, seal, self.credentials, now) if seal.additions else ({}, ())
        unsigned = [name for name in event.attributes if "a" + name not in seal.salts and name not in added]
        if unsigned:  # neither by the publisher nor by a broker: drop them
            signed = {name: value for name, value in event.attributes.items() if name not in unsigned}
            event = msgspec.structs.replace(event, attributes=Attributes.trusted(signed))
        envelope.check_attributes(event, seal, added)
        header = seal.header(event)
        self._signatures.check(envelope.digest_of(header, event.payload), seal, token.key)
        payload = envelope.decrypt(event, seal, header, self._keys)
        if not again and not self._window.is_new(event.publisher, seal):
            raise SecurityError("replay", "the event came before")
        decrypted = msgspec.structs.replace(event, payload=payload or None, token=None, signature=None)
        if not added_by:
            return OpenedEvent(decrypted)
        return OpenedEvent(
            decrypted,
            tuple(
                addition
                for addition in added_by
                if addition[0] in event.attributes and "a" + addition[0] not in seal.salts
            ),
        )


def open_sealed(event: Event, opener: Opener, *, now: int | None = None) -> Event:
    """Return the event with its payload decrypted, or raise `SecurityError`. `now` defaults to the event's
    timestamp."""
    return opener.open(event, event.timestamp if now is None else now)


class _Membership:
    """A member's token for one topic, when to renew it, and the sealer for the current epoch."""

    def __init__(self, token: Token, messages: int, renew_at: int) -> None:
        self.token, self.messages, self.renew_at = token, messages, renew_at
        self.sealer: Sealer | None = None


class Member:
    """An entity's keys and tokens: seals its publications and opens its notifications.

    Every member generates a signing key that never leaves the process; tokens name its public half.
    """

    def __init__(self, identity: Identity, credentials: Credentials) -> None:
        self.identity, self.credentials = identity, credentials
        self.keyring = Keyring()
        self._signing_key = Ed25519PrivateKey.generate()
        self._topics = TopicLookup(credentials)
        self._opener = Opener(credentials, self.keyring)
        self._memberships: dict[bytes, _Membership] = {}
        self._last_timestamp = 0  # the timestamp of the last seal; each is later than the one before

    @property
    def verification_key(self) -> bytes:
        """The public half of the signing key, which the member's tokens name."""
        return self._signing_key.public_key().public_bytes_raw()

    @property
    def name(self) -> str:
        return self.identity.name

    # Topics and keys

    def topic_of(self, subject: str | None, attributes: Mapping[str, Any]) -> TopicRecord | None:
        """Return the secure topic that an event would be on, among the topics known here, or None."""
        return self._topics.of(subject, attributes)

    def seal_refusal(self) -> SecurityError:
        """Return the error for an event that must be sealed but is on no secure topic known to this member."""
        templates = sorted(str(record.template) for record in self.credentials.topics.values())
        if not templates:
            return SecurityError("topic", f"the event would go in the clear: {self.name} knows no secure topic")
        listed = ", ".join([*templates[:_SHOWN_TOPICS], *(["..."] if len(templates) > _SHOWN_TOPICS else [])])
        return SecurityError(
            "topic",
            f"the event would go in the clear: it is on no secure topic that {self.name} knows ({listed}); "
            "check its subject, and the names and values of its attributes",
        )

    def wants(self, record: TopicRecord, kmc: Certificate) -> KeyRequest:
        """Return the request that asks the topic's key management centre for a token and keys."""
        latest = self.keyring.latest(record.id)
        latest_epoch = 0 if latest is None else latest.epoch
        sealed_count = self._sealed_count(record.id, latest_epoch)
        return KeyRequest.make(record.id, self._signing_key, self.identity.certificate, kmc, latest_epoch, sealed_count)

    def take(self, given: KeyResponse, now: int) -> Token:
        """Verify and store the centre's response to a key request, and return the token.

        Raises `SecurityError` if the token is not valid, is not for this member, or a key is of another topic.
        """
        token = self.credentials.token(given.token, now)
        self.credentials.check_trusted(token, now)
        if token.holder != self.identity.certificate or token.key != self.verification_key:
            raise SecurityError("holder", "the token that the centre has sent is not for this member")
        self.credentials.heed(SignedNotice(given.notice), now)
        for key in given.keys:
            if key.topic != token.topic:
                raise SecurityError("topic", "the centre has sent the key of another topic")
            self.keyring.put(key)
        before = self._memberships.get(token.topic)
        membership = self._memberships[token.topic] = _Membership(token, given.messages, given.renew_at)
        if before is not None and before.sealer is not None and Right.PUBLISH in token.rights:
            membership.sealer = Sealer(before.sealer.key, token, self._signing_key, before.sealer.messages)
        return token

    def token(self, topic: bytes) -> Token | None:
        """Return the member's token for a topic, or None."""
        membership = self._memberships.get(topic)
        return None if membership is None else membership.token

    def needs_renewal(self, topic: bytes, now: int) -> bool:
        """Return whether to send a key request for the topic now.

        True if there is no token or key, if one of them is due for renewal, if the grant was revoked, if a notice
        announced a later epoch, or if the limit of messages for the epoch is reached.
        """
        membership, key = self._memberships.get(topic), self.keyring.latest(topic)
        if membership is None or now >= membership.renew_at:
            return True
        notice = self.credentials.notice(topic)
        if self.was_taken_back(topic):
            return True
        if not membership.token.rights & (Right.PUBLISH | Right.SUBSCRIBE):
            return False  # the right to govern alone needs no key
        if key is None or now >= key.until or (notice is not None and notice.epoch > key.epoch):
            return True
        return self._sealed_count(topic, key.epoch) >= membership.messages

    def was_taken_back(self, topic: bytes) -> bool:
        """Return whether the topic's notice says that the grant of the member's token is revoked."""
        membership, notice = self._memberships.get(topic), self.credentials.notice(topic)
        if membership is None or notice is None:
            return False
        return membership.token.grant < notice.grants.get(self.identity.certificate.fingerprint.hex(), 0)

    def _sealed_count(self, topic: bytes, epoch: int) -> int:
        """Return how many messages this member has sealed in that epoch."""
        membership = self._memberships.get(topic)
        if membership is None or membership.sealer is None or membership.sealer.key.epoch != epoch:
            return 0
        return membership.sealer.messages

    def renew_at(self, topic: bytes) -> int | None:
        """Return the latest time at which to send the next key request, or None without a token or key."""
        membership, key = self._memberships.get(topic), self.keyring.latest(topic)
        return None if membership is None or key is None else min(membership.renew_at, key.until)

    def leave(self, topic: bytes) -> None:
        """Drop the token for a topic, so that the member no longer seals there. Keys stay: it can still open earlier
        events."""
        self._memberships.pop(topic, None)

    def topics(self) -> list[bytes]:
        """Return the ids of the topics that the member has a token for."""
        return list(self._memberships)

    # Sealing and opening

    def seal(self, event: Event, now: int, *, required: bool = False) -> Event:
        """Seal an event if it is on a secure topic, else return it unchanged.

        Raises `SecurityError` if a token or key is missing, or if a seal is `required` and the event is on no
        secure topic. Timestamps of seals rise strictly.
        """
        sealed = self.seal_all([event], now)[0]
        if required and sealed.signature is None:
            raise self.seal_refusal()
        return sealed

    def seal_all(self, events: list[Event], now: int) -> list[Event]:
        """Seal events that are all on one secure topic, with one signature. Returns them unchanged if the first is
        on none."""
        record = self.topic_of(events[0].subject, events[0].attributes)
        return events if record is None else self.seal_on(record, events, now)

    def seal_on(self, record: TopicRecord, events: list[Event], now: int) -> list[Event]:
        """Seal events on a given topic, with one signature."""
        self._last_timestamp = max(self._last_timestamp + 1, now)
        return self._sealer(record, now).seal_all(events, self._last_timestamp)

    def _sealer(self, record: TopicRecord, now: int) -> Sealer:
        """Return the sealer for the topic's current epoch, or raise `SecurityError` if the member may not publish."""
        membership, key = self._memberships.get(record.id), self.keyring.current(record.id, now)
        if membership is None or key is None:
            raise SecurityError(
                "token", f"the topic {record.template} is secure, and {self.name} has no token for it: ask its owner"
            )
        membership.token.check_use(Right.PUBLISH, now)
        if now >= key.until:
            raise SecurityError("epoch", f"the key of {record.template} has expired; fetch another one")
        if membership.sealer is None or membership.sealer.key.epoch != key.epoch:
            membership.sealer = Sealer(key, membership.token, self._signing_key)
        return membership.sealer

    def check_can_publish(self, record: TopicRecord, now: int) -> None:
        """Raise the `SecurityError` that sealing any event on the topic would raise."""
        self._sealer(record, now)

    def open(self, event: Event, accepted: int, *, again: bool = False) -> Event:
        """Return the event with its payload decrypted; `accepted` is the time at which the broker accepted it. See
        `opened`."""
        return self.opened(event, accepted, again=again).event

    def opened(self, event: Event, accepted: int, *, again: bool = False) -> OpenedEvent:
        """Verify and decrypt an event; also return which attributes brokers added. See `Opener.opened`."""
        return self._opener.opened(event, accepted, again=again)

    def opener(self) -> Opener:
        """Return an opener with the same keys and its own replay window, for a separate stream of events."""
        return Opener(self.credentials, self.keyring)

    def prove(self, said: bytes, nonce: bytes) -> bytes:
        """Sign a request with the session's nonce, which proves to a broker that the member has its tokens' key. See
        `Gate.check_proof`."""
        return self._signing_key.sign(proof_of(said, nonce))

    def __repr__(self) -> str:
        return f"<Member {self.name}>"


class SealingMember(Protocol):
    """What seals the publications of a client and opens its notifications. `Member` says what each of these does."""

    @property
    def name(self) -> str: ...
    def token(self, topic: bytes) -> Token | None: ...
    def seal(self, event: Event, now: int, *, required: bool = False) -> Event: ...
    def opened(self, event: Event, accepted: int, *, again: bool = False) -> OpenedEvent: ...


class KeyHolder(Protocol):
    """What asks a key management centre for tokens and keys. `Member` says what each of these does."""

    identity: Identity
    credentials: Credentials

    @property
    def name(self) -> str: ...
    def wants(self, record: TopicRecord, kmc: Certificate) -> KeyRequest: ...
    def take(self, given: KeyResponse, now: int) -> Token: ...


def decode_key_response(body: bytes) -> KeyResponse:
    """Decode the centre's response to a key request. Raises `SecurityError` if it is malformed."""
    try:
        return msgspec.msgpack.decode(body, type=KeyResponse)
    except msgspec.MsgspecError as error:
        raise SecurityError("form", f"the centre's answer cannot be read: {error}") from None

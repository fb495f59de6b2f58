"""A member: an entity with its tokens and keys. It seals what it publishes on secure topics, and opens what it gets.

It asks nobody itself: whoever is connected asks the centre for it (`wants`), and hands over the answer (`take`).
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidings.model.errors import SecurityError
from tidings.model.event import Event
from tidings.security.centre_questions import GivesKeys, WantsKeys
from tidings.security.certificates import Certificate
from tidings.security.credentials import Credentials
from tidings.security.gate import proof_of
from tidings.security.identity import Identity
from tidings.security.keys import Keyring
from tidings.security.notices import SignedNotice
from tidings.security.opening import Opened, Opener
from tidings.security.records import TopicRecord
from tidings.security.sealing import Sealer
from tidings.security.token import Right, Token
from tidings.security.topics import Topics

_SHOWN_TOPICS = 3


class _Membership:
    """Of one topic."""

    def __init__(self, token: Token, messages: int, renew_at: int) -> None:
        self.token, self.messages, self.renew_at = token, messages, renew_at
        self.sealer: Sealer | None = None


class Member:
    """The signing key is new for every member, and never leaves it: a token names its public half."""

    def __init__(self, identity: Identity, credentials: Credentials) -> None:
        self.identity, self.credentials = identity, credentials
        self.keyring = Keyring()
        self._signing_key = Ed25519PrivateKey.generate()
        self._topics = Topics(credentials)
        self._opener = Opener(credentials, self.keyring)
        self._memberships: dict[bytes, _Membership] = {}
        self._last = 0  # the time of the last event that was sealed: each is later

    @property
    def verification_key(self) -> bytes:
        """The public key to what this member signs; tokens are made out to it."""
        return self._signing_key.public_key().public_bytes_raw()

    @property
    def name(self) -> str:
        return self.identity.name

    # Topics and keys

    def topic_of(self, subject: str | None, attributes: Mapping[str, Any]) -> TopicRecord | None:
        """The secure topic that an event would be on, as far as topics are known here."""
        return self._topics.of(subject, attributes)

    def seal_refusal(self) -> SecurityError:
        """Why an event that has to be sealed cannot be: it is on no secure topic that this member knows."""
        known = sorted(str(record.template) for record in self.credentials.topics.values())
        if not known:
            return SecurityError("topic", f"the event would go in the clear: {self.name} knows no secure topic")
        shown = ", ".join([*known[:_SHOWN_TOPICS], *(["..."] if len(known) > _SHOWN_TOPICS else [])])
        return SecurityError(
            "topic",
            f"the event would go in the clear: it is on no secure topic that {self.name} knows ({shown}); "
            "check its subject, and the names and values of its attributes",
        )

    def wants(self, record: TopicRecord, kmc: Certificate) -> WantsKeys:
        """What to ask the topic's centre for."""
        latest = self.keyring.latest(record.id)
        have = 0 if latest is None else latest.epoch
        used = self._sealed_under(record.id, have)
        return WantsKeys.make(record.id, self._signing_key, self.identity.certificate, kmc, have, used)

    def take(self, given: GivesKeys, now: int) -> Token:
        """What the centre has answered: it is checked like anybody else's word."""
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
        held = self._memberships[token.topic] = _Membership(token, given.messages, given.renew_at)
        if before is not None and before.sealer is not None and Right.PUBLISH in token.rights:
            held.sealer = Sealer(before.sealer.key, token, self._signing_key, before.sealer.messages)
        return token

    def token(self, topic: bytes) -> Token | None:
        held = self._memberships.get(topic)
        return None if held is None else held.token

    def needs_renewal(self, topic: bytes, now: int) -> bool:
        """Whether it is time to ask the centre again: there is nothing yet, it ends soon or is used up, or the centre
        has told of another epoch."""
        held, key = self._memberships.get(topic), self.keyring.latest(topic)
        if held is None or now >= held.renew_at:
            return True
        notice = self.credentials.notice(topic)
        if self.was_taken_back(topic):
            return True
        if not held.token.rights & (Right.PUBLISH | Right.SUBSCRIBE):
            return False  # who governs needs no key
        if key is None or now >= key.until or (notice is not None and notice.epoch > key.epoch):
            return True
        return self._sealed_under(topic, key.epoch) >= held.messages

    def was_taken_back(self, topic: bytes) -> bool:
        """Whether the centre has told everybody that what it was granted counts no more."""
        held, notice = self._memberships.get(topic), self.credentials.notice(topic)
        if held is None or notice is None:
            return False
        return held.token.grant < notice.grants.get(self.identity.certificate.fingerprint.hex(), 0)

    def _sealed_under(self, topic: bytes, epoch: int) -> int:
        """How many messages this member has sealed in that epoch."""
        held = self._memberships.get(topic)
        if held is None or held.sealer is None or held.sealer.key.epoch != epoch:
            return 0
        return held.sealer.messages

    def renew_at(self, topic: bytes) -> int | None:
        """When to ask the centre again at the latest; None: it has nothing of that topic."""
        held, key = self._memberships.get(topic), self.keyring.latest(topic)
        return None if held is None or key is None else min(held.renew_at, key.until)

    def leave(self, topic: bytes) -> None:
        """The centre gives it nothing any more: it seals nothing there. What it could open, it still can."""
        self._memberships.pop(topic, None)

    def topics(self) -> list[bytes]:
        """Those that it has a token for."""
        return list(self._memberships)

    # What it does with them

    def seal(self, event: Event, now: int, *, required: bool = False) -> Event:
        """The event sealed, if it is on a secure topic; as it is, if not, unless a seal is `required`. Raises a
        `SecurityError` that says what is missing. Its `timestamp` in the seal is later than that of any one before."""
        sealed = self.seal_all([event], now)[0]
        if required and sealed.signature is None:
            raise self.seal_refusal()
        return sealed

    def seal_all(self, events: list[Event], now: int) -> list[Event]:
        """Events on one secure topic, with one signature."""
        record = self.topic_of(events[0].subject, events[0].attributes)
        return events if record is None else self.seal_on(record, events, now)

    def seal_on(self, record: TopicRecord, events: list[Event], now: int) -> list[Event]:
        """The same, where it is known which topic that is."""
        self._last = max(self._last + 1, now)
        return self._sealer(record, now).seal_all(events, self._last)

    def _sealer(self, record: TopicRecord, now: int) -> Sealer:
        held, key = self._memberships.get(record.id), self.keyring.current(record.id, now)
        if held is None or key is None:
            raise SecurityError(
                "token", f"the topic {record.template} is secure, and {self.name} has no token for it: ask its owner"
            )
        held.token.check_use(Right.PUBLISH, now)
        if now >= key.until:
            raise SecurityError("epoch", f"the key of {record.template} has expired; fetch another one")
        if held.sealer is None or held.sealer.key.epoch != key.epoch:
            held.sealer = Sealer(key, held.token, self._signing_key)
        return held.sealer

    def check_can_publish(self, record: TopicRecord, now: int) -> None:
        """Raises the `SecurityError` that sealing on the topic would raise, whatever the event."""
        self._sealer(record, now)

    def open(self, event: Event, accepted: int, *, again: bool = False) -> Event:
        """The event with its payload readable; `accepted`: when its broker took it."""
        return self.opened(event, accepted, again=again).event

    def opened(self, event: Event, accepted: int, *, again: bool = False) -> Opened:
        """The same, with what of it is not its publisher's."""
        return self._opener.opened(event, accepted, again=again)

    def opener(self) -> Opener:
        """One with the same keys that remembers by itself what came: for a stream of its own."""
        return Opener(self.credentials, self.keyring)

    def prove(self, said: bytes, nonce: bytes) -> bytes:
        """Shows a broker that it is the holder of its tokens; see `Gate.check_proof`."""
        return self._signing_key.sign(proof_of(said, nonce))

    def __repr__(self) -> str:
        return f"<Member {self.name}>"


def read_given(body: bytes) -> GivesKeys:
    try:
        return msgspec.msgpack.decode(body, type=GivesKeys)
    except msgspec.MsgspecError as error:
        raise SecurityError("form", f"the centre's answer cannot be read: {error}") from None

"""A secure topic in memory: an authority, a key management centre, an owner, a publisher and a subscriber."""

import secrets
import time
from typing import Any

from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.security import (
    Authority,
    Credentials,
    EpochKey,
    Gate,
    Identity,
    Member,
    Right,
    Role,
    Suite,
    Token,
    TopicRecord,
)
from tidings.security.rpc.kmc_messages import KeyResponse
from tidings.security.tokens.notices import Notice, SignedNotice

TEMPLATE = "topic=sealed,price=*"
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
_A_DAY = 86_400_000_000  # in microseconds


class SecureTopic:
    """A secure topic with a publisher and a subscriber, each with its own certificate and token."""

    def __init__(self, suite: Suite = Suite.AES_256_GCM) -> None:
        self.now = now = time.time_ns() // 1_000
        self.authority = Authority.found("authority", now)
        self.revocations = self.authority.revocations(now)
        self._centre = self.authority.issue("kmc", Role.KMC, now)
        self.broker = self.authority.issue("bench", Role.BROKER, now, hosts=["127.0.0.1"])
        owner = self.authority.issue("owner", Role.ENTITY, now)
        self.record = TopicRecord.make(
            owner, id=secrets.token_bytes(16), template=TEMPLATE, kmc=self._centre.certificate, suite=suite
        )
        self._key = EpochKey(self.record.id, 1, suite, secrets.token_bytes(suite.key_bytes), now, now + _A_DAY)
        self.notice = SignedNotice.make(self._centre, Notice(self.record.id, 1, 1, 1, 0, now))
        self.identities = {name: self.authority.issue(name, Role.ENTITY, now) for name in (PUBLISHER, SUBSCRIBER)}
        self.publisher = self._member(self.identities[PUBLISHER], Right.PUBLISH)
        self.subscriber = self._member(self.identities[SUBSCRIBER], Right.SUBSCRIBE)

    def _member(self, identity: Identity, right: Right) -> Member:
        """Return a member that has its token and keys, as after a request to the centre."""
        member = Member(identity, self.credentials())
        member.take(self.key_response(member, right), self.now)
        return member

    def key_response(self, member: Member, right: Right = Right.PUBLISH) -> KeyResponse:
        """Return the centre's answer to the member's request for a token and keys."""
        token = Token.make(
            self._centre,
            self.record,
            holder=member.identity.certificate,
            key=member.wants(self.record, self._centre.certificate).key,
            rights=right,
            not_before=self.now - _A_DAY,
            not_after=self.now + _A_DAY,
            grant=1,
        )
        messages, ends = 2**32, self.now + _A_DAY
        return KeyResponse(token.data, (self._key,), self.notice.data, messages, ends)

    def credentials(self) -> Credentials:
        """Return credentials that know the topic and the revocation list."""
        credentials = Credentials(self.authority.anchor)
        credentials.revoke(self.revocations)
        credentials.learn(self.record, self.now)
        return credentials

    def gate(self, *, verifies: bool = True) -> Gate:
        """Return a broker's security gate for the topic."""
        return Gate(self.credentials(), verifies=verifies)


def attributes(number: int, topic: str = "sealed") -> dict[str, Any]:
    """Return the attributes of event `number`."""
    return {"topic": topic, "price": 100 + number / 4, "number": number, "city": "Berlin"}


def event(number: int, size: int, now: int, topic: str = "sealed") -> Event:
    """Return an event, on the secure topic or another one.

    Args:
        number: The event's number, also its sequence.
        size: The bytes of the payload.
        now: The timestamp in microseconds.
        topic: The value of the attribute `topic`.
    """
    return Event.of(
        attributes(number, topic),
        id=uuid7(now, secrets.token_bytes(10)),
        publisher=PUBLISHER,
        timestamp=now,
        sequence=number,
        payload=bytes(size),
    )

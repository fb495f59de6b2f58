"""A secure topic to measure with: an authority, a centre, an owner, and who publishes and subscribes; in memory."""

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
from tidings.security.centre_questions import GivesKeys
from tidings.security.notices import Notice, SignedNotice

TEMPLATE = "topic=sealed,price=*"
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
_A_DAY = 86_400_000_000  # microseconds


class SecureTopic:
    """Each of the two is a member with a certificate and a token of its own."""

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
        """As its centre would have it, after it was asked."""
        member = Member(identity, self.credentials())
        member.take(self.given(member, right), self.now)
        return member

    def given(self, member: Member, right: Right = Right.PUBLISH) -> GivesKeys:
        """What its centre would answer."""
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
        many, until = 2**32, self.now + _A_DAY
        return GivesKeys(token.data, (self._key,), self.notice.data, many, until)

    def credentials(self) -> Credentials:
        made = Credentials(self.authority.anchor)
        made.revoke(self.revocations)
        made.learn(self.record, self.now)
        return made

    def gate(self, *, verifies: bool = True) -> Gate:
        return Gate(self.credentials(), verifies=verifies)


def attributes(number: int, topic: str = "sealed") -> dict[str, Any]:
    return {"topic": topic, "price": 100 + number / 4, "number": number, "city": "Berlin"}


def event(number: int, size: int, now: int, topic: str = "sealed") -> Event:
    """One on the topic, or on another one, with a payload of so many bytes."""
    return Event.of(
        attributes(number, topic),
        id=uuid7(now, secrets.token_bytes(10)),
        publisher=PUBLISHER,
        timestamp=now,
        sequence=number,
        payload=bytes(size),
    )

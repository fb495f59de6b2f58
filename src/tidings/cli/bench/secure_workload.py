"""A secure topic to measure with: an authority, a centre, an owner, and who publishes and subscribes; in memory."""

import secrets
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.security import (
    Authority,
    Credentials,
    EpochKey,
    Gate,
    Identity,
    Keyring,
    Opener,
    Right,
    Role,
    Sealer,
    Suite,
    Token,
    TopicRecord,
)

TEMPLATE = "topic=sealed,price=*"
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
_A_DAY = 86_400_000_000  # microseconds


class SecureTopic:
    """Each of the two has a certificate and a token of its own."""

    def __init__(self, suite: Suite = Suite.AES_256_GCM) -> None:
        self.now = now = time.time_ns() // 1_000
        self.authority = Authority.found("authority", now)
        centre = self.authority.issue("kmc", Role.KMC, now)
        self.broker = self.authority.issue("bench", Role.BROKER, now, hosts=["127.0.0.1"])
        owner = self.authority.issue("owner", Role.ENTITY, now)
        self.record = TopicRecord.make(
            owner, id=secrets.token_bytes(16), template=TEMPLATE, kmc=centre.certificate, suite=suite
        )
        self.identities: dict[str, Identity] = {}
        self.tokens: dict[str, Token] = {}
        self.signing: dict[str, Ed25519PrivateKey] = {}
        for name, right in ((PUBLISHER, Right.PUBLISH), (SUBSCRIBER, Right.SUBSCRIBE)):
            self.identities[name] = self.authority.issue(name, Role.ENTITY, now)
            self.signing[name] = Ed25519PrivateKey.generate()
            self.tokens[name] = Token.make(
                centre,
                self.record,
                holder=self.identities[name].certificate,
                key=self.signing[name].public_key().public_bytes_raw(),
                rights=right,
                not_before=now - _A_DAY,
                not_after=now + _A_DAY,
                grant=1,
            )
        self.key = EpochKey(self.record.id, 1, suite, secrets.token_bytes(suite.key_bytes), now, now + _A_DAY)

    def credentials(self) -> Credentials:
        made = Credentials(self.authority.anchor)
        made.revoke(self.authority.revocations(self.now))
        made.learn(self.record, self.now)
        return made

    def gate(self, *, verifies: bool = True) -> Gate:
        return Gate(self.credentials(), verifies=verifies)

    def sealer(self) -> Sealer:
        return Sealer(self.key, self.tokens[PUBLISHER], self.signing[PUBLISHER])

    def opener(self) -> Opener:
        return Opener(self.credentials(), Keyring([self.key]))

    def save(self, folder: Path) -> None:
        """What a broker is started with: its identity, the topic, and the list of revocations."""
        self.broker.save(folder)
        (folder / "topic").write_bytes(self.record.data)
        (folder / "revocations").write_bytes(self.authority.revocations(self.now).data)


def attributes(number: int, topic: str = "sealed") -> dict[str, Any]:
    return {"topic": topic, "price": 100 + number / 4, "number": number, "city": "Berlin"}


def event(number: int, size: int, now: int) -> Event:
    """One on the topic, with a payload of so many bytes."""
    return Event.of(
        attributes(number),
        id=uuid7(now, secrets.token_bytes(10)),
        publisher=PUBLISHER,
        timestamp=now,
        sequence=number,
        payload=bytes(size),
    )

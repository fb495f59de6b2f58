"""A small world of secure topics: an authority, a centre, an owner, a subscriber, and some who are up to no good."""

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
from tidings.security.tokens.notices import Notice, SignedNotice

NOW = 1_790_000_000_000_000
HOUR = 3_600_000_000
TEMPLATE = "Sports=NBA,Team=*"
TOPIC = bytes(range(16))
_SECRET = bytes(range(32))


class World:
    """`ann` owns the topic and publishes on it, `bob` subscribes; `eve` has a certificate and no token."""

    def __init__(self, suite: Suite = Suite.AES_256_GCM, template: str = TEMPLATE, now: int = NOW) -> None:
        self.now = now
        self.authority = Authority.found("authority", now)
        self.ann, self.bob, self.eve = (self.issue(name, Role.ENTITY) for name in ("ann", "bob", "eve"))
        self.kmc, self.other_kmc = self.issue("kmc", Role.KMC), self.issue("other-kmc", Role.KMC)
        self.broker = self.issue("b1", Role.BROKER)
        self.record = TopicRecord.make(self.ann, id=TOPIC, template=template, kmc=self.kmc.certificate, suite=suite)
        self.signing = {name: Ed25519PrivateKey.generate() for name in ("ann", "bob", "eve")}
        self.key = self.epoch_key(1)

    def issue(self, name: str, role: Role) -> Identity:
        return self.authority.issue(name, role, self.now)

    def epoch_key(self, epoch: int) -> EpochKey:
        suite = self.record.suite
        secret = bytes([epoch]) + _SECRET[1 : suite.key_bytes]
        return EpochKey(self.record.id, epoch, suite, secret, self.now, self.now + 1_000 * HOUR)

    def token(
        self,
        holder: str = "ann",
        rights: Right = Right.PUBLISH | Right.SUBSCRIBE,
        *,
        kmc: Identity | None = None,
        record: TopicRecord | None = None,
        template: str | None = None,
        since: int | None = None,
        until: int | None = None,
        grant: int = 1,
        key: bytes | None = None,
    ) -> Token:
        return Token.make(
            kmc or self.kmc,
            record or self.record,
            holder={"ann": self.ann, "bob": self.bob, "eve": self.eve}[holder].certificate,
            key=self.signing[holder].public_key().public_bytes_raw() if key is None else key,
            rights=rights,
            not_before=self.now - HOUR if since is None else since,
            not_after=self.now + HOUR if until is None else until,
            grant=grant,
            template=template,
        )

    def sealer(self, token: Token | None = None, key: EpochKey | None = None, who: str = "ann") -> Sealer:
        return Sealer(key or self.key, token or self.token(who), self.signing[who])

    def event(self, number: int = 1, publisher: str = "ann", **more: object) -> Event:
        said: dict[str, object] = {
            "attributes": {"Sports": "NBA", "Team": "NYK", "score": number},
            "context": {"x": 1.5, "city": "New York"},
            "payload": b"a secret of the team",
            **more,
        }
        attributes = said.pop("attributes")
        id = uuid7(self.now + number, number.to_bytes(10, "big"))  # noqa: A001 - the event's word
        return Event.of(attributes, id=id, publisher=publisher, timestamp=self.now, sequence=number, **said)  # type: ignore[arg-type]

    def credentials(self) -> Credentials:
        made = Credentials(self.authority.anchor)
        made.revoke(self.authority.revocations(self.now - HOUR))
        return made

    def gate(self, **options: object) -> Gate:
        """Of a broker that knows the topic."""
        credentials = self.credentials()
        credentials.learn(self.record, self.now)
        return Gate(credentials, identity=self.broker, **options)  # type: ignore[arg-type]

    def opener(self, *keys: EpochKey) -> Opener:
        return Opener(self.credentials(), Keyring(keys or [self.key]))

    def notice(self, epoch: int, *, accepted: int | None = None, until: int = 0, version: int = 1) -> SignedNotice:
        said = Notice(self.record.id, version, epoch, epoch if accepted is None else accepted, until, self.now)
        return SignedNotice.make(self.kmc, said)

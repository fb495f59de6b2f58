"""A key management centre with an owner and members, all in one process; time is a number, and chance has a seed."""

import random
from typing import Any

from tidings.model.errors import RefusedError
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.security import (
    Authority,
    Credentials,
    Gate,
    Identity,
    KeyManagementCentre,
    Member,
    Right,
    Role,
    TopicRecord,
)
from tidings.security.encoding import encode_canonical
from tidings.security.kmc import CentreReply
from tidings.security.kmc.state import Change
from tidings.security.member import decode_key_response
from tidings.security.rpc import kmc_messages
from tidings.security.rpc.messages import SeenRequests, answer, ask, read_answer, read_question
from tidings.security.tokens.notices import SignedNotice

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
AUTHORITY = Authority.found("the authority", NOW)
_IDENTITIES: dict[tuple[str, Role], Identity] = {}


def identity(name: str, role: Role = Role.ENTITY) -> Identity:
    """Made once: keys take time."""
    if (name, role) not in _IDENTITIES:
        _IDENTITIES[name, role] = AUTHORITY.issue(name, role, NOW)
    return _IDENTITIES[name, role]


KMC = identity("kmc", Role.KMC)
LIST = AUTHORITY.revocations(NOW, next_update=3_650 * DAY)


def record(template: str = "Sports=NBA", owner: str = "owner", **given: Any) -> TopicRecord:
    id = given.pop("id", template.encode().ljust(16, b"."))[:16]  # noqa: A001
    return TopicRecord.make(identity(owner), id=id, template=template, kmc=given.pop("kmc", KMC.certificate), **given)


class World:
    """Everything that was changed is in `saved`, as the centre's keeper would have it."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.saved: list[Change] = []
        self.told: list[bytes] = []
        self.now = NOW
        self.centre = KeyManagementCentre(KMC, self.chance.randbytes)
        self.took(self.centre.found())
        self.took(self.centre.revocations(LIST, self.now))
        self.asked = SeenRequests()
        self.members: dict[str, Member] = {}
        self.gate = Gate(self.credentials())

    def credentials(self) -> Credentials:
        made = Credentials(AUTHORITY.anchor)
        made.revoke(LIST)
        return made

    def restart(self) -> None:
        self.centre = KeyManagementCentre(KMC, self.chance.randbytes, self.saved)

    def took(self, reply: CentreReply) -> CentreReply:
        self.saved += reply.changes
        self.told += reply.notices
        return reply

    def decide(self, who: Identity, kind: str, body: Any) -> CentreReply:
        return self.took(self.centre.decide(who.certificate, kind, encode_canonical(body), self.now))

    def ask(self, who: Identity, kind: str, body: Any) -> bytes:
        """Over the whole way, sealed and signed; a `RefusedError` if it is refused."""
        pending = ask(who, self.centre.service, kind, encode_canonical(body), self.now)
        question = read_question(
            pending.payload, self.centre.key, KMC.certificate, self.centre.credentials, self.asked, self.now
        )
        reply = self.took(self.centre.handle(question, self.now))
        return read_answer(pending, answer(KMC, question, reply.body, reply.refused))

    # What owners do

    def register(self, made: TopicRecord | None = None, owner: str = "owner", **given: Any) -> TopicRecord:
        made = record(owner=owner) if made is None else made
        self.ask(identity(owner), kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(made.data, **given))
        return made

    def grant(self, topic: TopicRecord, entity: str, *rights: str, until: int | None = None, **given: Any) -> None:
        end = self.now + 300 * DAY if until is None else until
        wanted = kmc_messages.GrantRequest(
            topic.id, entity, int(Right.of(rights or ("publish", "subscribe"))), end, **given
        )
        self.ask(identity(topic.owner.name), kmc_messages.GRANT, wanted)

    def revoke(self, topic: TopicRecord, entity: str) -> None:
        self.ask(identity(topic.owner.name), kmc_messages.REVOKE, kmc_messages.RevokeRequest(entity, topic.id))

    def rotate(self, topic: TopicRecord, *, compromised: bool = False) -> None:
        self.ask(identity(topic.owner.name), kmc_messages.ROTATE, kmc_messages.RotateRequest(topic.id, compromised))

    def pass_time(self, microseconds: int) -> None:
        self.now += microseconds
        self.took(self.centre.tick(self.now))

    # What members do

    def member(self, name: str) -> Member:
        if name not in self.members:
            self.members[name] = Member(identity(name), self.credentials())
        return self.members[name]

    def fetch(self, name: str, topic: TopicRecord) -> kmc_messages.KeyResponse:
        member = self.member(name)
        given = decode_key_response(self.ask(member.identity, kmc_messages.KEYS, member.wants(topic, KMC.certificate)))
        member.take(given, self.now)
        return given

    def may_fetch(self, name: str, topic: TopicRecord) -> bool:
        try:
            self.fetch(name, topic)
        except RefusedError:
            return False
        return True

    def hear(self) -> None:
        """Brokers and members are told what was published for all."""
        for data in self.told:
            notice = SignedNotice(data)
            for one in (self.gate.credentials, *(member.credentials for member in self.members.values())):
                if notice.notice.topic in one.topics:
                    one.heed(notice, self.now)
        self.told.clear()

    def event(self, publisher: str, number: int = 1, **attributes: Any) -> Event:
        return Event.of(
            attributes or {"Sports": "NBA"},
            id=uuid7(self.now // 1000, self.chance.randbytes(10)),
            publisher=publisher,
            timestamp=self.now,
            sequence=number,
            payload=b"what is secret",
        )

"""A key management centre for tests of clients: it keeps nothing, and its clock can be made to run fast."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.cases import address, connect, running
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.client.connector import connect as connect_to
from tidings.client.secure.settings import Security
from tidings.model.errors import RefusedError
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.encoding import decode_canonical, encode_canonical
from tidings.security.member import Member
from tidings.security.rpc.kmc_messages import KEYS, REWRAP, KeyRequest, KeyResponse, RewrapRequest, RewrapResponse
from tidings.security.rpc.messages import RpcRequest, RpcServer, ServiceRecord
from tidings.security.sealing.keys import EpochKey
from tidings.security.tokens.credentials import Credentials
from tidings.security.tokens.notices import Notice, SignedNotice
from tidings.security.tokens.token import Right, Token
from tidings.security.topic_record import TopicRecord
from tidings.services.service import RpcService

HOUR = 3_600_000_000  # microseconds


def now() -> int:
    return time.time_ns() // 1000


START = now()
AUTHORITY = Authority.found("authority", START)
OWNER = AUTHORITY.issue("league", Role.ENTITY, START)
KMC = AUTHORITY.issue("kmc-1", Role.KMC, START)
_ISSUED: dict[str, Identity] = {"kmc-1": KMC}


def entity(name: str) -> Identity:
    """One of each name: certificates cost time."""
    if name not in _ISSUED:
        _ISSUED[name] = AUTHORITY.issue(name, Role.ENTITY, START)
    return _ISSUED[name]


def credentials() -> Credentials:
    made = Credentials(AUTHORITY.anchor)
    made.revoke(AUTHORITY.revocations(now()))
    return made


class Topic:
    """Of the centre: its record, its epochs, and who may do what; `lifetime` of an epoch in microseconds."""

    def __init__(self, template: str, lifetime: int = HOUR, messages: int = 2**32) -> None:
        self.record = TopicRecord.make(OWNER, id=secrets.token_bytes(16), template=template, kmc=KMC.certificate)
        self.lifetime, self.messages = lifetime, messages
        self.epochs: list[EpochKey] = []
        self.rights: dict[str, Right] = {}
        self.since: dict[str, int] = {}  # the first epoch that somebody may have
        self.grants: dict[str, int] = {}
        self.floor: dict[str, int] = {}
        self.accepted, self.version = 1, 0
        self.part: str | None = None
        self.rotate()

    def rotate(self, *, compromised: bool = False) -> None:
        epoch, moment = len(self.epochs) + 1, now()
        key = secrets.token_bytes(self.record.suite.key_bytes)
        self.epochs.append(EpochKey(self.record.id, epoch, self.record.suite, key, moment, moment + self.lifetime))
        self.version += 1
        self.accepted = epoch if compromised else max(self.accepted, epoch - 1)

    def grant(self, name: str, *rights: str) -> None:
        self.rights[name] = Right.of(rights)
        self.since.setdefault(name, len(self.epochs))
        self.grants[name] = self.grants.get(name, 0) + 1

    def revoke(self, name: str) -> None:
        del self.rights[name]
        self.floor[entity(name).certificate.fingerprint.hex()] = self.grants[name] + 1
        self.grants[name] += 1
        self.rotate(compromised=True)

    @property
    def notice(self) -> SignedNotice:
        epoch, moment = len(self.epochs), now()
        return SignedNotice.make(
            KMC,
            Notice(self.record.id, self.version, epoch, self.accepted, moment + self.lifetime, moment, self.floor),
        )


class Centre:
    def __init__(self, client: Client) -> None:
        self.topics: dict[bytes, Topic] = {}
        self.client = client
        self.asked: list[tuple[str, str]] = []  # who has asked, and what
        self.answers = asyncio.Event()  # while it is not set, questions wait
        self.answers.set()
        self.rewraps = True  # what was missed, for who asks
        self._respondent = RpcServer(KMC, credentials())
        self.service: ServiceRecord = self._respondent.service(secrets.token_hex(16), 1)
        self.answering = RpcService(client, self._respondent, self._answer)

    def topic(self, template: str, **given: int) -> Topic:
        made = Topic(template, **given)
        self.topics[made.record.id] = made
        return made

    async def tell(self, topic: Topic) -> None:
        """Everybody, of the epoch that there is now."""
        attributes = {"security": "notice", "topic": topic.record.id.hex()}
        await self.client.publish(attributes, payload=topic.notice.data)

    async def _answer(self, question: RpcRequest) -> bytes:
        name = question.certificate.name
        self.asked.append((name, question.kind))
        await self.answers.wait()
        if question.kind == REWRAP:
            return self._rewrapped(decode_canonical(question.body, RewrapRequest, "question"), name)
        assert question.kind == KEYS
        wanted = decode_canonical(question.body, KeyRequest, "question")
        wanted.check(question.certificate, KMC.certificate)
        topic, moment = self._granted(wanted.topic, name), now()
        if topic.epochs[-1].until - moment < topic.lifetime // 2:
            topic.rotate()
        token = Token.make(
            KMC,
            topic.record,
            holder=question.certificate,
            key=wanted.key,
            rights=topic.rights[name],
            not_before=moment - HOUR,
            not_after=moment + HOUR,
            grant=topic.grants[name],
            template=topic.part,
        )
        keys = tuple(one for one in topic.epochs if one.epoch >= topic.since[name] and one.epoch > wanted.have)
        renew_at = topic.epochs[-1].until - topic.lifetime // 2
        return encode_canonical(KeyResponse(token.data, keys, topic.notice.data, topic.messages, renew_at))

    def _granted(self, id: bytes, name: str) -> Topic:  # noqa: A002
        topic = self.topics[id]
        if name not in topic.rights:
            raise RefusedError("authorize", f"{name} was granted nothing on {topic.record.template}")
        return topic

    def _rewrapped(self, wanted: RewrapRequest, name: str) -> bytes:
        topic = self._granted(wanted.topic, name)
        latest = topic.epochs[-1]
        made = [
            latest.wrap(topic.epochs[epoch - 1].unwrap(wrapped)) if self.rewraps else b""
            for epoch, wrapped, _ in wanted.wrapped
        ]
        return encode_canonical(RewrapResponse(latest.epoch, tuple(made)))


@asynccontextmanager
async def centre(broker: Broker) -> AsyncIterator[Centre]:
    async with connect(broker, "kmc-1") as client:
        await client.advertise()
        made = Centre(client)
        await made.answering.begin(made.service.topic)
        yield made


def member(name: str, *topics: Topic) -> Member:
    made = Member(entity(name), credentials())
    for one in topics:
        made.credentials.learn(one.record, now())
    return made


def secure(broker: Broker, name: str, centre: Centre, *topics: Topic) -> Client:
    """A client that knows these topics, without TLS."""
    return connect_to(address(broker), member=member(name, *topics), security=Security(services=(centre.service,)))


class Files:
    """What brokers with gates read, in a folder; `topics` are those that they know from the start."""

    def __init__(self, folder: Path, *topics: Topic) -> None:
        self._folder = folder
        self._topics = [self._written(f"{one.record.id.hex()}.topic", one.record.data) for one in topics]
        self._list = self._written("revocations", AUTHORITY.revocations(now()).data)

    def _written(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)

    def security(self, name: str) -> dict[str, Any]:
        """Tables of a broker's file: on one machine, so without TLS."""
        path = self._folder / f"{name}-identity"
        if not path.exists():
            AUTHORITY.issue(name, Role.BROKER, START, hosts=["127.0.0.1"]).save(path)
        said = {"identity": str(path), "revocations": self._list, "topics": self._topics}
        return {"security": said, "tls": {"plain": True}}


class Serving:
    """A broker and a centre in a thread of their own, for clients that wait."""

    def __init__(self, tables: dict[str, Any], topic: Topic) -> None:
        self._tables, self._topic = tables, topic
        self._found: Future[tuple[str, ServiceRecord]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with running(**self._tables) as broker, centre(broker) as kmc:
            kmc.topics[self._topic.record.id] = self._topic
            self._found.set_result((address(broker), kmc.service))
            await self._over.wait()

    def __enter__(self) -> tuple[str, ServiceRecord]:
        self._thread.start()
        return self._found.result(20)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

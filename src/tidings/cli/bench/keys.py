"""A key management centre as a process, beside a broker: a request for token and keys, and a rotation for many members.

Members sign their questions before the clock starts, and open the answers after it has stopped: on an overlay each of
them does that on a machine of its own.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import NamedTuple

from tidings.cli.bench import Measurement, median, processor_seconds, steps
from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.own_broker import start
from tidings.client import Client, connect
from tidings.client.asking import ask
from tidings.client.mailbox import Taker
from tidings.client.security import now
from tidings.model.errors import TidingsError
from tidings.security import (
    Authority,
    Credentials,
    Identity,
    KeyManagementCentre,
    Member,
    Right,
    Role,
    TopicRecord,
    exchange,
)
from tidings.security import centre_questions as asked
from tidings.security.encoding import encoded
from tidings.security.exchange import SERVICE_TOPIC, Pending, Service
from tidings.security.member import read_given
from tidings.security.respondent import Respondent
from tidings.security.vault import Vault, new_key_file
from tidings.services.centre_folder import SERVICE, CentreFolder

_PATIENCE = 120.0  # seconds
_OF_A_CLIENT = 50  # members; no client asks more often than a centre lets it
_DAY = 86_400_000_000  # microseconds


class Keys(NamedTuple):
    """What a topic of many members needs, before anybody has asked for anything."""

    authority: Authority
    centre: Identity
    owner: Identity
    record: TopicRecord
    members: list[Member]

    @classmethod
    def of(cls, count: int) -> "Keys":
        authority = Authority.found("authority", now())
        centre = authority.issue("kmc", Role.KMC, now())
        owner = authority.issue("owner", Role.ENTITY, now())
        record = TopicRecord.make(owner, id=secrets.token_bytes(16), template="kind=sealed", kmc=centre.certificate)
        known = Credentials(authority.anchor)
        known.revoke(authority.revocations(now()))
        members = [Member(authority.issue(f"m{one}", Role.ENTITY, now()), known) for one in range(count)]
        return cls(authority, centre, owner, record, members)

    def prepare(self) -> Iterator[tuple[Identity, str, bytes]]:
        """Who asks what, so that everything is there."""
        yield self.owner, asked.TOPIC, encoded(asked.RegistersTopic(self.record.data))
        rights = int(Right.PUBLISH | Right.SUBSCRIBE)
        for one in self.members:
            yield self.owner, asked.GRANT, encoded(asked.Grants(self.record.id, one.name, rights, now() + _DAY))

    @property
    def compromise(self) -> bytes:
        return encoded(asked.Rotates(self.record.id, True))

    def question(self, member: Member, service: Service, reply_to: str | None = None) -> Pending:
        body = encoded(member.wants(self.record, self.centre.certificate))
        return exchange.ask(member.identity, service, asked.KEYS, body, now(), reply_to)

    def take(self, member: Member, pending: Pending, answer: bytes) -> None:
        member.take(read_given(exchange.read_answer(pending, answer)), now())


def measure(members: int, requests: int) -> list[Measurement]:
    keys = Keys.of(members)
    with steps(2) as step:
        step("in one process")
        found = _pure(keys)
        step("processes")
        return found + _live(Keys.of(members), requests)


# In one process: the centre alone


def _pure(keys: Keys) -> list[Measurement]:
    centre = KeyManagementCentre(keys.centre, secrets.token_bytes)
    centre.found()
    centre.revocations(keys.authority.revocations(now()), now())
    respondent = Respondent(keys.centre, centre.credentials, centre.key)
    for who, kind, body in keys.prepare():
        _good(centre.decide(who.certificate, kind, body, now()).refused)

    def answered(pending: Pending) -> bytes:
        question = respondent.read(pending.payload, now())
        reply = centre.handle(question, now())
        return respondent.answer(question, reply.body, reply.refused)

    def answer_all(*, rotated: bool) -> float:
        asking, answers = [keys.question(one, centre.service) for one in keys.members], list[bytes]()

        def work() -> None:
            if rotated:
                _good(centre.decide(keys.owner.certificate, asked.ROTATE, keys.compromise, now()).refused)
            answers.extend(map(answered, asking))

        seconds = processor_seconds(work)
        for member, pending, answer in zip(keys.members, asking, answers, strict=True):
            keys.take(member, pending, answer)
        return seconds

    count = len(keys.members)
    first, rotation = answer_all(rotated=False), answer_all(rotated=True)
    return [
        Measurement("the first token and keys of a member, in process", first / count * 1e6, "us"),
        Measurement("new keys of a member, in process", rotation / count * 1e6, "us"),
        Measurement(f"rotation for {count:,} members, in process", rotation, "s", "under 1 s"),
    ]


# As processes: the way over a broker, and what has to be on the disk first


def _live(keys: Keys, requests: int) -> list[Measurement]:
    with Children() as children:
        key_file, folder = children.folder / "key", children.folder / "kmc"
        with CentreFolder.found(folder, keys.centre, Vault.make(None, new_key_file(key_file))) as held:
            held.commit(held.centre.revocations(keys.authority.revocations(now()), now()), now())
            for who, kind, body in keys.prepare():
                reply = held.centre.decide(who.certificate, kind, body, now())
                _good(reply.refused)
                held.append(reply, now())
        broker = start(children)
        words = ["kmc", "serve", str(folder), "--broker", broker.address, "--plain", "--key-file", str(key_file)]
        children.server("kmc", [sys.executable, "-m", "tidings", *words])
        return asyncio.run(_asked(keys, Service((folder / SERVICE).read_bytes()), broker.address, requests))


async def _asked(keys: Keys, service: Service, address: str, requests: int) -> list[Measurement]:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(connect(address, keys.owner.name))
        await _awaited(owner, keys, service)
        first = keys.members[0]
        times = []
        for _ in range(requests):
            begun = time.perf_counter()
            body = encoded(first.wants(keys.record, keys.centre.certificate))
            first.take(read_given(await ask(owner, first.identity, service, asked.KEYS, body)), now())
            times.append(time.perf_counter() - begun)
        count = -(-len(keys.members) // _OF_A_CLIENT)
        clients = [await stack.enter_async_context(connect(address, f"clients-{one}")) for one in range(count)]
        for client in clients:
            await client.mailbox.open()
        await _round(keys, service, clients, owner, rotated=False)
        whole, told = await _round(keys, service, clients, owner, rotated=True)
    return [
        Measurement("token and keys, end to end", median(times) * 1e3, "ms", "under 10 ms"),
        Measurement(f"rotation until {len(keys.members):,} members are answered, end to end", whole, "s", "under 1 s"),
        Measurement("rotation until everybody is told, end to end", told, "s"),
    ]


async def _awaited(owner: Client, keys: Keys, service: Service) -> None:
    """Until the centre answers."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            await ask(owner, keys.owner, service, asked.LIST, encoded(b""), timeout=2.0)
            return
        except TidingsError:
            if time.monotonic() > deadline:
                raise


async def _round(
    keys: Keys, service: Service, clients: list[Client], owner: Client, *, rotated: bool
) -> tuple[float, float]:
    """Seconds until every member is answered, and until the notice has come."""
    answers: dict[str, bytes] = {}
    complete = asyncio.Event()

    def taker(topic: str, payload: bytes) -> None:
        answers[topic] = payload
        if len(answers) == len(keys.members):
            complete.set()

    with _expecting(clients, taker, len(keys.members)) as topics:
        asking = [keys.question(one, service, topic) for one, topic in zip(keys.members, topics, strict=True)]
        notices = await owner.subscribe("security = 'notice'")
        begun, told = time.perf_counter(), 0.0
        if rotated:
            await ask(owner, keys.owner, service, asked.ROTATE, keys.compromise)
            await notices.take(timeout=_PATIENCE)
            told = time.perf_counter() - begun
        await asyncio.gather(
            *(
                clients[number // _OF_A_CLIENT].publish(
                    {SERVICE_TOPIC: service.topic}, payload=pending.payload, safe="accepted"
                )
                for number, pending in enumerate(asking)
            )
        )
        async with asyncio.timeout(_PATIENCE):
            await complete.wait()
        whole = time.perf_counter() - begun
        await notices.close()
    for member, pending in zip(keys.members, asking, strict=True):
        keys.take(member, pending, answers[pending.reply_to])
    return whole, told


@contextmanager
def _expecting(clients: list[Client], taker: Taker, count: int) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(clients[number // _OF_A_CLIENT].mailbox.expecting(taker)) for number in range(count)]


def _good(refused: str | None) -> None:
    if refused is not None:
        raise TidingsError(refused)

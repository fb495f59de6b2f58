"""Measure a key management centre: requests for a token and keys, and a key rotation for many members.

It is measured in this process, and as a process beside a broker. Members sign their requests before the clock starts
and open the answers after it has stopped, since on an overlay each member does so on its own machine.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import NamedTuple

from benchmarks.brokers.broker_processes import start
from benchmarks.brokers.children import ChildProcesses
from tidings.cli.measurement import Measurement, median, processor_seconds, steps
from tidings.client import Client, connect
from tidings.client.secure.service_rpc import ReplyHandler, ask, now
from tidings.model.errors import TidingsError
from tidings.security import Authority, Credentials, Identity, KeyManagementCentre, Member, Right, Role, TopicRecord
from tidings.security.encoding import encode_canonical
from tidings.security.member import decode_key_response
from tidings.security.rpc import kmc_messages, messages
from tidings.security.rpc.messages import SERVICE_TOPIC, PendingCall, RpcServer, ServiceRecord
from tidings.security.vault import Vault, new_key_file
from tidings.services.kmc_store import SERVICE, KmcStore

_PATIENCE = 120.0  # time limit in seconds
_OF_A_CLIENT = 50  # members that share a client; a centre limits the requests of a client
_DAY = 86_400_000_000  # microseconds


class Keys(NamedTuple):
    """An authority, a centre, and a topic with its owner and members, before any request."""

    authority: Authority
    centre: Identity
    owner: Identity
    record: TopicRecord
    members: list[Member]

    @classmethod
    def of(cls, count: int) -> "Keys":
        """Create identities for `count` members."""
        authority = Authority.found("authority", now())
        centre = authority.issue("kmc", Role.KMC, now())
        owner = authority.issue("owner", Role.ENTITY, now())
        record = TopicRecord.make(owner, id=secrets.token_bytes(16), template="kind=sealed", kmc=centre.certificate)
        credentials = Credentials(authority.anchor)
        credentials.revoke(authority.revocations(now()))
        members = [Member(authority.issue(f"m{number}", Role.ENTITY, now()), credentials) for number in range(count)]
        return cls(authority, centre, owner, record, members)

    def prepare(self) -> Iterator[tuple[Identity, str, bytes]]:
        """Yield the requests that register the topic and grant its rights: the sender, the kind and the body."""
        yield self.owner, kmc_messages.TOPIC, encode_canonical(kmc_messages.RegisterTopicRequest(self.record.data))
        rights = int(Right.PUBLISH | Right.SUBSCRIBE)
        for member in self.members:
            yield (
                self.owner,
                kmc_messages.GRANT,
                encode_canonical(kmc_messages.GrantRequest(self.record.id, member.name, rights, now() + _DAY)),
            )

    @property
    def compromise(self) -> bytes:
        """The body of a request for a new key after a compromise."""
        return encode_canonical(kmc_messages.RotateRequest(self.record.id, True))

    def question(self, member: Member, service: ServiceRecord, reply_to: str | None = None) -> PendingCall:
        """Return a member's signed request for its token and keys."""
        body = encode_canonical(member.wants(self.record, self.centre.certificate))
        return messages.ask(member.identity, service, kmc_messages.KEYS, body, now(), reply_to)

    def take(self, member: Member, pending: PendingCall, answer: bytes) -> None:
        """Open the centre's answer, and hand its token and keys to the member."""
        member.take(decode_key_response(messages.read_answer(pending, answer)), now())


def measure(members: int, requests: int) -> list[Measurement]:
    """Measure requests and a rotation for `members` members, in process and over a broker."""
    keys = Keys.of(members)
    with steps(2) as step:
        step("in one process")
        measurements = _measure_in_process(keys)
        step("processes")
        return measurements + _measure_processes(Keys.of(members), requests)


# In this process: the centre alone


def _measure_in_process(keys: Keys) -> list[Measurement]:
    centre = KeyManagementCentre(keys.centre, secrets.token_bytes)
    centre.found()
    centre.revocations(keys.authority.revocations(now()), now())
    respondent = RpcServer(keys.centre, centre.credentials, centre.key)
    for sender, kind, body in keys.prepare():
        _check_accepted(centre.decide(sender.certificate, kind, body, now()).refused)

    def respond(pending: PendingCall) -> bytes:
        question = respondent.read(pending.payload, now())
        reply = centre.handle(question, now())
        return respondent.answer(question, reply.body, reply.refused)

    def answer_all(*, rotated: bool) -> float:
        calls, answers = [keys.question(member, centre.service) for member in keys.members], list[bytes]()

        def work() -> None:
            if rotated:
                _check_accepted(
                    centre.decide(keys.owner.certificate, kmc_messages.ROTATE, keys.compromise, now()).refused
                )
            answers.extend(map(respond, calls))

        seconds = processor_seconds(work)
        for member, pending, answer in zip(keys.members, calls, answers, strict=True):
            keys.take(member, pending, answer)
        return seconds

    count = len(keys.members)
    first, rotation = answer_all(rotated=False), answer_all(rotated=True)
    return [
        Measurement("the first token and keys of a member, in process", first / count * 1e6, "us"),
        Measurement("new keys of a member, in process", rotation / count * 1e6, "us"),
        Measurement(f"rotation for {count:,} members, in process", rotation, "s", "under 1 s"),
    ]


# As processes: with the broker in between, and the writes to disk before each answer


def _measure_processes(keys: Keys, requests: int) -> list[Measurement]:
    with ChildProcesses() as children:
        key_file, folder = children.folder / "key", children.folder / "kmc"
        with KmcStore.create(folder, keys.centre, Vault.make(None, new_key_file(key_file))) as store:
            store.commit(store.centre.revocations(keys.authority.revocations(now()), now()), now())
            for sender, kind, body in keys.prepare():
                reply = store.centre.decide(sender.certificate, kind, body, now())
                _check_accepted(reply.refused)
                store.append(reply, now())
        broker = start(children)
        arguments = ["kmc", "serve", str(folder), "--broker", broker.address, "--plain", "--key-file", str(key_file)]
        children.server("kmc", [sys.executable, "-m", "tidings", *arguments])
        return asyncio.run(
            _measure_requests(keys, ServiceRecord((folder / SERVICE).read_bytes()), broker.address, requests)
        )


async def _measure_requests(keys: Keys, service: ServiceRecord, address: str, requests: int) -> list[Measurement]:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(connect(address, keys.owner.name))
        await _await_centre(owner, keys, service)
        first = keys.members[0]
        times = []
        for _ in range(requests):
            begin = time.perf_counter()
            body = encode_canonical(first.wants(keys.record, keys.centre.certificate))
            first.take(decode_key_response(await ask(owner, first.identity, service, kmc_messages.KEYS, body)), now())
            times.append(time.perf_counter() - begin)
        count = -(-len(keys.members) // _OF_A_CLIENT)
        clients = [await stack.enter_async_context(connect(address, f"clients-{number}")) for number in range(count)]
        for client in clients:
            await client.mailbox.open()
        await _round(keys, service, clients, owner, rotated=False)
        answered_seconds, notice_seconds = await _round(keys, service, clients, owner, rotated=True)
    return [
        Measurement("token and keys, end to end", median(times) * 1e3, "ms", "under 10 ms"),
        Measurement(
            f"rotation until {len(keys.members):,} members are answered, end to end", answered_seconds, "s", "under 1 s"
        ),
        Measurement("rotation until everybody is told, end to end", notice_seconds, "s"),
    ]


async def _await_centre(owner: Client, keys: Keys, service: ServiceRecord) -> None:
    """Wait until the centre answers."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            await ask(owner, keys.owner, service, kmc_messages.LIST, encode_canonical(b""), timeout=2.0)
            return
        except TidingsError:
            if time.monotonic() > deadline:
                raise


async def _round(
    keys: Keys, service: ServiceRecord, clients: list[Client], owner: Client, *, rotated: bool
) -> tuple[float, float]:
    """Let all members request their keys; return the seconds until all are answered, and until the rotation's notice
    arrived."""
    answers: dict[str, bytes] = {}
    complete = asyncio.Event()

    def handler(topic: str, payload: bytes) -> None:
        answers[topic] = payload
        if len(answers) == len(keys.members):
            complete.set()

    with _reply_topics(clients, handler, len(keys.members)) as topics:
        calls = [keys.question(member, service, topic) for member, topic in zip(keys.members, topics, strict=True)]
        notices = await owner.subscribe("security = 'notice'")
        begin, notice_seconds = time.perf_counter(), 0.0
        if rotated:
            await ask(owner, keys.owner, service, kmc_messages.ROTATE, keys.compromise)
            await notices.take(timeout=_PATIENCE)
            notice_seconds = time.perf_counter() - begin
        await asyncio.gather(
            *(
                clients[number // _OF_A_CLIENT].publish(
                    {SERVICE_TOPIC: service.topic}, payload=pending.payload, safe="accepted"
                )
                for number, pending in enumerate(calls)
            )
        )
        async with asyncio.timeout(_PATIENCE):
            await complete.wait()
        answered_seconds = time.perf_counter() - begin
        await notices.close()
    for member, pending in zip(keys.members, calls, strict=True):
        keys.take(member, pending, answers[pending.reply_to])
    return answered_seconds, notice_seconds


@contextmanager
def _reply_topics(clients: list[Client], handler: ReplyHandler, count: int) -> Iterator[list[str]]:
    """Yield a reply topic for each member, whose payload is passed to `handler`."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(clients[number // _OF_A_CLIENT].mailbox.expecting(handler)) for number in range(count)
        ]


def _check_accepted(refused: str | None) -> None:
    """Raise TidingsError if the centre refused."""
    if refused is not None:
        raise TidingsError(refused)

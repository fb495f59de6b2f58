"""Whatever comes over a socket: an error or a closed connection for whoever sent it, and nothing for anybody else."""

import asyncio
import contextlib
import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidings as td
from tests.broker.cases import KINDS, Raw, connect, framed, hello, publication, run, running, until
from tests.sizes import sized
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.engine.headers import ForwardingHeader, Provenance, Route
from tidings.engine.operations import (
    Advertise,
    Announce,
    ClaimClients,
    Define,
    PhaseDone,
    Publish,
    SetContext,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TransferBacklog,
    Travelling,
    Unsubscribe,
)
from tidings.model.advertisement import Advertisement
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_FRAME_BYTES, MAX_PAYLOAD_BYTES
from tidings.model.notification import Notification
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import HEAD_BYTES, FrameKind, frame
from tidings.protocol.handshake import Bye, Challenge, Ping, Proof, SubjectBound, Welcome
from tidings.protocol.operations import operation_frame
from tidings.protocol.publications import encode_prefix
from tidings.routing.linkstate import LinkState

FRAMES = sized(3_000, 100_000)
HUNDREDS = 300
TRIM = str(td.policies.trim())
STRUCTURE = '{"subject":"Loop","versions":[{"li":"int"}],"names":["li"],"absent":[]}'
EVENT = td.Event.of({"a": 1, "s": "x"}, id=uuid7(5_000, bytes(10)), publisher="far", timestamp=5, sequence=1)
NOTE = Notification(event=EVENT, subscription="s", subscriber="car", attributes=EVENT.attributes)
WAY = Provenance("b2", (1, 1), "")

CLIENT_FRAMES = [
    *map(
        framed,
        [
            hello("again"),
            Ping(5),
            requests.SubscribeRequest(
                1, "s", "a > 3 and s like 'x%'", "x = this.x", TRIM, None, "client", "Loop", STRUCTURE, 5
            ),
            requests.SubscribeRequest(2, "d", "a in (1, 2)", durable="all"),
            requests.UnsubscribeRequest(3, "s", TRIM),
            requests.AdvertiseRequest(4, "o", "a > 0", ("x",), "x > 5", TRIM),
            requests.UnadvertiseRequest(5, "o"),
            requests.SetContextRequest(6, {"x": 1, "name": "ä", "f": 0.5, "b": True}),
            requests.DelegateContextRequest(7, "other"),
            requests.SetPolicyRequest(8, "d", TRIM),
            requests.DefineSchemaRequest(9, "Loop", ({"li": "int", "lo": "str"}, {"ts": "float"})),
            requests.AcknowledgeRequest("d", (bytes(16),)),
            *(requests.QueryRequest(10, one) for one in ("status", "stats", "topics", "tables")),
            requests.QueryRequest(11, "schema", {"subject": "Loop"}),
            requests.QueryRequest(12, "explain", {"event": {"a": 1}, "publisher": "x", "payload": b"x"}),
            requests.QueryRequest(13, "replay", {"subscriptions": ["d"], "since": 1, "offset": 2}),
        ],
    ),
    publication(14, {"a": 5, "s": "x"}, context={"x": 1}, subscribers="x > this.x", policy=TRIM, payload=b"p" * 50),
    publication(15, {"li": 5}, encode_prefix(1, 1)),
]
OPERATIONS: list[Travelling] = [
    Advertise(Advertisement.of(td.Filter.parse("a > 0"), id="o", publisher="far", publisher_context=["x"]), WAY),
    Subscribe(Subscription.of(td.Filter.parse("a > 0"), id="f", subscriber="far", policy=TRIM), WAY),
    Unsubscribe("far", "f", None, WAY),
    SetContext("far", Context({"x": 1}), None, WAY),
    SetPolicy("far", "f", TRIM, WAY),
    Define("far", td.Schema("Far", {"li": int})),
    Publish(EVENT, ForwardingHeader(route=Route("b2", "", True))),
    TellLinks((LinkState("b2", 5, {"b1": 1}),)),
    PhaseDone("d", 1),
    Announce("b2", "d", 1, (Context({"x": 1}), None), (bytes(16),)),
    ClaimClients("b2", "d", {"far": 5}),
    TransferBacklog("b2", "b1", 5, ((NOTE, "all"),)),
    Settle(((EVENT.id, 0),)),
]
BROKER_FRAMES = [*map(operation_frame, OPERATIONS), framed(SubjectBound(1, "Loop", ({"li": "int"},))), framed(Ping())]
BROKER_FRAMES.insert(0, framed(Challenge(1, bytes(32), "A")))
PROOFS = [framed(Proof(1, bytes(32), bytes(32))), framed(Proof(-1, b"", bytes(72)))]  # of both
EVERY_FRAME = [*CLIENT_FRAMES, *BROKER_FRAMES, *PROOFS]


def mutated(draw: random.Random, data: bytes) -> bytes:
    """A frame with something wrong: within it, with a length that fits again, or of it."""
    kind, body = data[HEAD_BYTES - 1], bytearray(data[HEAD_BYTES:])
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(body) + 1)
        match draw.randrange(6):
            case 0 if at < len(body):
                body[at] ^= 1 << draw.randrange(8)
            case 1:
                body[at:at] = draw.randbytes(draw.randint(1, 8))
            case 2:
                del body[at : at + draw.randint(1, 8)]
            case 3:
                del body[at:]
            case 4:
                body[at:at] = body[at : at + draw.randint(1, 40)]
            case _ if at < len(body):
                body[at] = draw.randrange(256)
    if draw.random() < 0.05:
        kind = draw.randrange(256)
    made = frame(kind, bytes(body))
    if draw.random() < 0.02:
        made = draw.randbytes(4) + made[4:]
    return made


class Neighbour:
    """A well-behaved client beside: it must be served on, whatever others do."""

    def __init__(self, client: Client, held: Any) -> None:
        self._client, self._held = client, held
        self._number = 0

    async def is_served(self) -> None:
        self._number += 1
        await self._client.publish({"beside": self._number})
        notes = await self._held.take(timeout=60)
        assert [note.attributes["beside"] for note in notes] == [self._number]


@contextlib.asynccontextmanager
async def beside(broker: Broker) -> AsyncIterator[Neighbour]:
    async with connect(broker, "beside") as client:
        held = await client.subscribe("beside > 0")
        neighbour = Neighbour(client, held)
        await neighbour.is_served()
        yield neighbour
        await neighbour.is_served()
        assert client.session.connections == 1


def memory() -> int:
    """Of this process, at most so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("role", ["client", "broker", "nobody"])
def test_mutated_frames_end_in_errors_or_closed_connections(role: str) -> None:
    async def scenario() -> None:
        draw = random.Random(f"{role} {FRAMES}")
        frames = {
            "client": [*CLIENT_FRAMES, *PROOFS],
            "broker": [*BROKER_FRAMES, *PROOFS],
            "nobody": EVERY_FRAME,
        }[role]
        limits = {"handshake_seconds": 1.0}
        links = [{"broker": "b2"}]
        async with running(links=links, limits=limits) as broker, beside(broker) as neighbour:
            sent = session = 0
            before = memory()
            while sent < FRAMES // 3:
                session += 1
                async with Raw.to(broker) as raw:
                    if role != "nobody":
                        raw.say(hello("b2" if role == "broker" else "raw", session, role=role))
                    with contextlib.suppress(OSError):  # the broker may end the connection at any moment
                        for _ in range(draw.randint(1, 2 if role == "broker" else 40)):  # the first ends a link
                            raw.send(mutated(draw, draw.choice(frames)))
                            sent += 1
                            await raw.writer.drain()
                        raw.writer.write_eof()
                        while await raw.reader.read(65_536):
                            pass
                if session % 50 == 0:
                    await neighbour.is_served()
            assert memory() - before < 200 * 1024 * 1024
            await until(lambda: "raw" not in broker.sessions and not broker.links)

    run(scenario(), 600)


def test_half_open_connections_by_the_hundred_are_closed_in_time() -> None:
    async def scenario() -> None:
        beginnings = [b"", framed(hello("half"))[:9], b"\0\0", b"\0\0\0\x05\x01"]
        limits = {"handshake_seconds": 0.5}
        heartbeat = {"interval_ms": 200, "patience": 10}
        async with running(limits=limits, heartbeat=heartbeat) as broker, beside(broker) as neighbour:
            async with contextlib.AsyncExitStack() as stack:
                opened = [await stack.enter_async_context(Raw.to(broker)) for _ in range(HUNDREDS)]
                for number, raw in enumerate(opened):
                    raw.send(beginnings[number % len(beginnings)])
                silent = [await stack.enter_async_context(Raw.client(broker, f"silent-{n}")) for n in range(50)]
                await neighbour.is_served()
                for raw in opened:
                    assert [type(one) for one in await raw.end()] == [Bye]
                await neighbour.is_served()
                for raw in silent:
                    await raw.end()
            await until(lambda: list(broker.sessions) == ["beside"])
            assert not broker.parts.admission.handshakes
            assert broker.parts.admission.connections.total() == 1

    run(scenario())


def test_who_writes_a_byte_at_a_time_is_read_a_byte_at_a_time() -> None:
    async def scenario() -> None:
        limits = {"handshake_seconds": 60.0}
        async with running(limits=limits) as broker, beside(broker) as neighbour, contextlib.AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(Raw.to(broker)) for _ in range(20)]
            streams = [framed(hello(f"slow-{n}")) + publication(n + 1, {"a": n}) for n in range(20)]
            for at in range(max(map(len, streams))):
                for raw, stream in zip(slow, streams, strict=True):
                    raw.send(stream[at : at + 1])
                await asyncio.sleep(0.001)
            await neighbour.is_served()
            for raw in slow:
                assert isinstance(await raw.told(), Welcome)
                assert isinstance(await raw.answered(), answers.PublicationReceipts)

    run(scenario())


def test_who_says_hello_too_slowly_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with running(limits={"handshake_seconds": 0.3}) as broker, Raw.to(broker) as raw:
            stream, told = framed(hello("slow")), asyncio.ensure_future(raw.end())
            for at in range(len(stream)):
                raw.send(stream[at : at + 1])
                await asyncio.sleep(0.05)
                if told.done():
                    break
            [bye] = await told
            assert "no HELLO came in time" in bye.reason

    run(scenario())


LENGTHS = [b"\0\0\0\0", b"\x80\0\0\0\x0a", b"\xff\xff\xff\xff\x0a", (MAX_FRAME_BYTES + 1).to_bytes(4, "big")]


@pytest.mark.parametrize("data", LENGTHS)
def test_lengths_that_cannot_be_close_the_connection_and_take_no_room(data: bytes) -> None:
    async def scenario() -> None:
        async with running() as broker, beside(broker):
            before = memory()
            async with Raw.client(broker) as raw:
                raw.send(publication(1, {"a": 1}) + data)
                told = await raw.end()
                assert [type(one) for one in told] == [answers.PublicationReceipts, Bye]
                assert "a frame of" in told[-1].reason
            async with Raw.to(broker) as raw:
                raw.send(data)
                assert [type(one) for one in await raw.end()] == [Bye]
            assert memory() - before < 20 * 1024 * 1024

    run(scenario())


def test_who_says_hello_twice_or_what_is_not_its_to_say_is_told_so() -> None:
    async def scenario() -> None:
        async with running(links=[{"broker": "b2"}]) as broker, beside(broker):
            async with Raw.client(broker) as raw:
                for number, data in enumerate([framed(hello("raw", 2)), *BROKER_FRAMES[:-1]]):
                    raw.send(data)
                    refused = await raw.answered()
                    assert "a client does not send frames of the kind" in refused.reason, number
                for kind in set(range(256)) - {int(kind) for kind in FrameKind}:
                    raw.send(frame(kind, b"\x90"))
                    assert f"of the kind {kind}" in (await raw.answered()).reason
                raw.send(publication(1, {"a": 1}))
                assert isinstance(await raw.answered(), answers.PublicationReceipts)
            for number, data in enumerate([framed(hello("b2", 99, role="broker")), *CLIENT_FRAMES[2:]]):
                async with Raw.to(broker) as link:
                    link.say(hello("b2", number + 1, role="broker"))
                    assert isinstance(await link.told(), Welcome)
                    link.send(data)
                    told = (await link.end())[-1]
                    assert "a broker does not send frames of the kind" in told.reason
                await until(lambda: not broker.links)

    run(scenario())


def test_requests_that_ask_too_much_are_refused_and_the_connection_goes_on() -> None:
    deep = b"\x93\x01\xa6status\x81\xa1x" + b"\x91" * 500_000 + b"\x01"
    wide = "a in (" + ", ".join(map(str, range(5_000))) + ")"
    long = " and ".join(f"a{n} = {n}" for n in range(2_000))
    nest = "(" * 1_000 + "a = 1" + ")" * 1_000
    huge = "a = '" + "x" * 100_000 + "'"
    requested: list[tuple[bytes, int]] = [
        (frame(FrameKind.ASK, deep), 1),
        (frame(FrameKind.SUBSCRIBE, b"\x91" * 500_000), 0),
        (frame(FrameKind.PUBLISH, encode_prefix() + b"\x95\x01" + b"\x81\xa1x" * 100_000), 1),
        *((framed(requests.SubscribeRequest(2, "s", one)), 2) for one in (wide, long, nest, huge)),
        (framed(requests.SubscribeRequest(3, "s", "", "x = " + "(" * 500 + "1" + ")" * 500)), 3),
        (framed(requests.SubscribeRequest(4, "s", structure="[" * 100_000)), 4),
        (framed(requests.SubscribeRequest(5, "s", policy="{" * 60_000)), 5),
        (framed(requests.SetContextRequest(6, {f"x{n}": n for n in range(10_000)})), 6),
        (framed(requests.DefineSchemaRequest(7, "Big", ({f"x{n}": "int" for n in range(10_000)},))), 7),
        (framed(requests.DefineSchemaRequest(8, "Odd", ({"a": "int"}, {}))), 8),
        (publication(9, {f"a{n}": n for n in range(10_000)}), 9),
        (publication(10, {"a": "x" * 100_000}), 10),
        (publication(11, {"a": 1}, payload=bytes(MAX_PAYLOAD_BYTES + 1)), 11),
        (publication(12, {"a": 2**64 - 1}), 12),
        (publication(13, {"a": float("nan")}), 13),
        (framed(requests.QueryRequest(14, "replay", {"subscriptions": ["nobody"]})), 14),
        (framed(requests.QueryRequest(15, "explain", {"event": "no uuid"})), 15),
        (framed(requests.QueryRequest(16, "explain", {"event": {"$x": 1}})), 16),
        (framed(requests.QueryRequest(17, "x" * 10_000)), 17),
    ]

    async def scenario() -> None:
        async with running() as broker, beside(broker) as neighbour, Raw.client(broker) as raw:
            for data, number in requested:
                raw.send(data)
                refused = await raw.answered()
                assert isinstance(refused, answers.RequestRefused), (number, refused)
                assert refused.request == number
                assert len(refused.reason) < 1_000
            await neighbour.is_served()
            raw.send(publication(99, {"a": 1}))
            assert isinstance(await raw.answered(), answers.PublicationReceipts)

    run(scenario())


def test_names_are_taken_over_by_the_hundred_and_nothing_is_left_of_them() -> None:
    async def scenario() -> None:
        async with running() as broker, beside(broker):
            async with contextlib.AsyncExitStack() as stack:
                for session in range(1, HUNDREDS):
                    raw = await stack.enter_async_context(Raw.client(broker, "same", session))
                    assert isinstance(await raw.asked(requests.SubscribeRequest(1, "s")), answers.RequestDone)
                await until(lambda: broker.parts.admission.connections.total() == 2)
                assert sorted(broker.sessions) == ["beside", "same"]
            await until(lambda: broker.parts.admission.connections.total() == 1)
            assert broker.node.registry.count("same") == 0

    run(scenario())


def test_every_kind_of_frame_is_among_those_that_are_mutated() -> None:
    told = {
        FrameKind.WELCOME,
        FrameKind.PONG,
        FrameKind.BYE,
        *(KINDS[one] for one in KINDS if one.__module__.endswith("answers")),
    }
    assert {data[HEAD_BYTES - 1] for data in EVERY_FRAME} == set(FrameKind) - told - {FrameKind.NOTIFICATION}
    for data in CLIENT_FRAMES[:-2]:
        msgspec.msgpack.decode(data[HEAD_BYTES:])


def test_questions_that_are_asked_faster_than_answered_wait_with_who_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(journal={"folder": str(tmp_path)}) as broker, Raw.client(broker, "curious") as raw:
            assert isinstance(
                await raw.asked(requests.SubscribeRequest(1, "s", "", durable="all")), answers.RequestDone
            )
            payload = bytes(64 * 1024)
            for number in range(2, 42):
                raw.send(publication(number, {"n": number}, payload=payload, safe=1))
            await until(lambda: broker.metrics.operations.accepted == 40)
            questions = [
                framed(requests.QueryRequest(1_000 + number, "replay", {"subscriptions": ["s"]}))  # some 1 MiB to each
                for number in range(5_000)
            ]
            raw.send(b"".join(questions))
            session = broker.sessions["curious"]
            await until(lambda: session.connection.flow.is_stalled)
            await asyncio.sleep(0.5)
            assert session.connection.flow.waiting_bytes < 16 * 1024 * 1024
            assert broker.parts.scheduler.readers._work_queue.qsize() <= 1
            async with connect(broker, "other") as other:  # whose questions are not behind them
                assert (await other.ask("status"))["clients"] == 2
            told = [one for _ in range(100) if isinstance(one := await raw.told(), answers.QueryAnswer)]
            assert [one.request for one in told] == list(range(1_000, 1_000 + len(told)))

    run(scenario())

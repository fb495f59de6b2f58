"""Brokers and clients within one test: brokers in the test's own loop, and bare connections that say what they like."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self, TypeVar

import msgspec

import tidings as td
from tests.limits import PATIENCE
from tidings.broker.broker import Broker
from tidings.broker.config import BrokerConfiguration
from tidings.client import Client
from tidings.journal.disk import Disk
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_RECORD_BYTES
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind, FrameSplitter, frame
from tidings.protocol.handshake import MAGIC, VERSION, Bye, Challenge, Hello, Ping, Proof, SubjectBound, Welcome
from tidings.protocol.notifications import WireNotification
from tidings.protocol.publications import WirePublication, encode_prefix

_Answer = TypeVar("_Answer")
_ENCODE = msgspec.msgpack.Encoder().encode

KINDS: dict[type, FrameKind] = {
    Hello: FrameKind.HELLO,
    Welcome: FrameKind.WELCOME,
    Ping: FrameKind.PING,
    Bye: FrameKind.BYE,
    SubjectBound: FrameKind.BOUND,
    requests.SubscribeRequest: FrameKind.SUBSCRIBE,
    requests.UnsubscribeRequest: FrameKind.UNSUBSCRIBE,
    requests.AdvertiseRequest: FrameKind.ADVERTISE,
    requests.UnadvertiseRequest: FrameKind.UNADVERTISE,
    requests.SetContextRequest: FrameKind.SET_CONTEXT,
    requests.DelegateContextRequest: FrameKind.ENTRUST,
    requests.SetPolicyRequest: FrameKind.SET_POLICY,
    requests.DefineSchemaRequest: FrameKind.DEFINE,
    requests.AcknowledgeRequest: FrameKind.ACKNOWLEDGE,
    requests.QueryRequest: FrameKind.ASK,
    answers.RequestDone: FrameKind.DONE,
    answers.RequestRefused: FrameKind.REFUSED,
    answers.PublicationReceipts: FrameKind.RECEIPTS,
    answers.NotificationsLost: FrameKind.LOST,
    answers.ContextChanged: FrameKind.CONTEXT,
    answers.QueryAnswer: FrameKind.ANSWER,
    WireNotification: FrameKind.NOTIFICATION,
    Challenge: FrameKind.CHALLENGE,
    Proof: FrameKind.PROOF,
}
_NOT_TOLD = (FrameKind.PING, FrameKind.PONG, FrameKind.OPERATION, FrameKind.PASS)
_TOLD = {kind: message for message, kind in KINDS.items()}


def run(scenario: Coroutine[Any, Any, _Answer], seconds: float = PATIENCE) -> _Answer:
    """Plays it in a loop of its own, which must have nothing to complain about: no task, future or callback failed
    unseen."""
    complaints: list[dict[str, Any]] = []

    async def playing() -> _Answer:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        async with asyncio.timeout(seconds):
            return await scenario

    answer = asyncio.run(playing())
    gc.collect()  # what was never looked at complains when it goes
    assert not complaints, complaints
    return answer


def configuration(name: str = "b1", **tables: Any) -> BrokerConfiguration:
    """Of a broker at a port of its own; tables are as in its file."""
    broker = {"name": name, "listen": "127.0.0.1:0", "stop_seconds": 1.0, **tables.pop("broker", {})}
    heartbeat = {"interval_ms": 1000, "patience": 20}  # a machine with much to do is no dead one
    return BrokerConfiguration.from_values({"broker": broker, "heartbeat": heartbeat, **tables})


@contextlib.asynccontextmanager
async def running(name: str = "b1", disk: Disk | None = None, **tables: Any) -> AsyncIterator[Broker]:
    broker = Broker(configuration(name, **tables), disk)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def address(broker: Broker) -> str:
    return f"tidings://{broker.address}"


def connect(broker: Broker, name: str, **given: Any) -> Client:
    return td.connect(address(broker), name, **given)


async def until(happened: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Returns once it is so."""
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.002)


def hello(name: str, session: int = 1, **given: Any) -> Hello:
    return Hello(MAGIC, (VERSION,), given.pop("role", "client"), name, session, **given)


def framed(message: msgspec.Struct) -> bytes:
    return frame(KINDS[type(message)], _ENCODE(message))


def publication(number: int, attributes: dict[str, Any], ahead: bytes = encode_prefix(), **given: Any) -> bytes:
    """The frame of a publication; its request, its sequence and its id are the number."""
    id = uuid7(number * 1000, number.to_bytes(10, "big")).bytes  # noqa: A001
    published = WirePublication(
        number, given.pop("id", id), given.pop("sequence", number), given.pop("safe", 0), attributes
    )
    return frame(FrameKind.PUBLISH, ahead + _ENCODE(msgspec.structs.replace(published, **given)))


class Raw:
    """A connection that does nothing by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._splitter = FrameSplitter(MAX_RECORD_BYTES)
        self._frames: list[tuple[int, bytes]] = []
        self.welcome: Welcome

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, broker: Broker) -> AsyncIterator[Self]:
        made = cls(*await asyncio.open_connection(broker.address.host, broker.address.port))
        try:
            yield made
        finally:
            made.writer.transport.abort()
            with contextlib.suppress(OSError):
                await made.writer.wait_closed()

    @classmethod
    @contextlib.asynccontextmanager
    async def client(cls, broker: Broker, name: str = "raw", session: int = 1) -> AsyncIterator[Self]:
        """One that has said hello, and was welcomed."""
        async with cls.to(broker) as made:
            made.say(hello(name, session))
            welcome = await made.told()
            assert isinstance(welcome, Welcome)
            made.welcome = welcome
            yield made

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def say(self, *messages: msgspec.Struct) -> None:
        self.send(b"".join(map(framed, messages)))

    async def told(self, seconds: float = PATIENCE) -> Any:
        """The next message that is neither a heartbeat nor between brokers; None at the end of the connection."""
        async with asyncio.timeout(seconds):
            while True:
                while self._frames:
                    kind, body = self._frames.pop(0)
                    if kind not in _NOT_TOLD:
                        return msgspec.msgpack.decode(body, type=_TOLD[FrameKind(kind)])
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._frames = self._splitter.feed(data)

    async def asked(self, message: msgspec.Struct) -> Any:
        """What it is answered; notifications and bindings on the way are passed over."""
        self.say(message)
        return await self.answered()

    async def answered(self) -> Any:
        while isinstance(found := await self.told(), WireNotification | SubjectBound):
            pass
        return found

    async def next_note(self) -> WireNotification:
        while not isinstance(found := await self.told(), WireNotification):
            assert found is not None, "the connection has ended"
        return found

    async def end(self) -> list[Any]:
        """What is told until the broker closes the connection."""
        told: list[Any] = []
        while (one := await self.told()) is not None:
            told.append(one)
        return told

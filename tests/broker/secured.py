"""Live brokers with gates, and clients that say by hand what members would: so they can say it wrongly, too."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.broker.cases import Raw, configuration, publication, until
from tests.security.world import World
from tidings.broker.broker import Broker
from tidings.model.event import Event
from tidings.protocol import requests
from tidings.protocol.events import from_wire
from tidings.protocol.notifications import WireNotification
from tidings.security import Right, Role, Token
from tidings.security.ca.revocation import RevocationUpdate
from tidings.security.gate import proof_of

SECOND = 1_000_000
_ENCODE = msgspec.msgpack.Encoder().encode


def now() -> int:
    """By the clock that brokers go by."""
    return time.time_ns() // 1000


class LiveWorld(World):
    """Of today. Its brokers' identities, the list of revocations and the topic's record are files in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(now=now())
        self.folder = folder
        self.record_file = folder / "sports.topic"
        self.record_file.write_bytes(self.record.data)
        self.list_file = folder / "revocations"
        self.list_file.write_bytes(self.update().data)
        self.ann_seals = self.sealer()

    def update(self, *, after: int = 0, **given: Any) -> RevocationUpdate:
        return self.authority.revocations(now(), after=after, **given)

    def revoked(self, name: str) -> RevocationUpdate:
        """What the authority says once that one is revoked."""
        self.authority.revoke(name, now())
        return self.update()

    def identity(self, name: str, role: Role = Role.BROKER) -> Path:
        path = self.folder / f"{name}-identity"
        if not path.exists():
            self.authority.issue(name, role, self.now, hosts=["127.0.0.1"]).save(path)
        return path

    def security(self, name: str, **given: Any) -> dict[str, Any]:
        """Tables of a broker's file: on one machine, so without TLS."""
        said = {
            "identity": str(self.identity(name)),
            "revocations": str(self.list_file),
            "topics": [str(self.record_file)],
            **given,
        }
        return {"security": said, "tls": {"plain": True}}

    def sealed(self, number: int, **more: Any) -> Event:
        """Of `ann`, right now."""
        return self.ann_seals.seal(self.event(number, **more), now(), number)


@contextlib.asynccontextmanager
async def line(
    world: LiveWorld, names: Iterable[str], *, journal: Path | None = None, **tables: Any
) -> AsyncIterator[list[Broker]]:
    """Brokers in a row, each linked to the one before; all have gates, by files of their own."""
    async with contextlib.AsyncExitStack() as stack:
        brokers: list[Broker] = []
        names = list(names)
        for place, name in enumerate(names):
            links = [{"broker": names[place + 1]}] if place + 1 < len(names) else []
            if brokers:
                links.append({"broker": brokers[-1].name, "address": str(brokers[-1].address)})
            given = {
                "links": links,
                "broker": {"settling_ms": 20},
                **({} if journal is None else {"journal": {"folder": str(journal / name)}}),
                **world.security(name),
                **tables.get(name, {}),
            }
            broker = Broker(configuration(name, **given))
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await settled(brokers)
        yield brokers


async def settled(brokers: list[Broker]) -> None:
    """All links are up, and nothing is under way."""
    await until(lambda: all(len(one.links) == len(one.configuration.links) for one in brokers), 20)
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0.002)
        quiet = quiet + 1 if _is_quiet(brokers) else 0


def _is_quiet(brokers: list[Broker]) -> bool:
    by_name = {one.name: one for one in brokers}
    return all(one.is_settled for one in brokers) and all(
        link.sent == by_name[neighbour].links[broker.name].received
        for broker in brokers
        for neighbour, link in broker.links.items()
    )


def publish(event: Event, request: int, safe: int = 0) -> bytes:
    """The frame with which a client publishes an event that it has sealed."""
    return publication(
        request,
        dict(event.attributes),
        id=event.id.bytes,
        sequence=event.sequence,
        safe=safe,
        subject=event.subject,
        payload=event.payload,
        context=dict(event.context),
        subscribers=None if event.subscribers is None else str(event.subscribers),
        policy=event.policy,
        token=event.token,
        signature=event.signature,
    )


def proven(world: World, wanted: requests.SubscribeRequest, raw: Raw, who: str = "bob") -> requests.SubscribeRequest:
    """With the proof that the broker at the other end of this connection asks for."""
    said = requests.signed_request_bytes(wanted, raw.welcome.broker)
    return msgspec.structs.replace(wanted, proof=world.signing[who].sign(proof_of(said, raw.welcome.nonce)))


def wanted(world: World, token: Token | None = None, **given: Any) -> requests.SubscribeRequest:
    """What `bob` asks for, with his token and without a proof."""
    held = world.token("bob", Right.SUBSCRIBE) if token is None else token
    said = {"content": "Sports = 'NBA'", "token": held.data, **given}
    return requests.SubscribeRequest(1, said.pop("id", "bob.1"), **said)


async def advertised(raw: Raw, name: str = "ann") -> None:
    """Anything: where advertisements lead the way, one may publish only what one has advertised."""
    await raw.asked(requests.AdvertiseRequest(9_999, f"{name}.all"))


def carried(attribute: str, payload: bytes, number: int) -> bytes:
    """The frame with which anybody brings something to brokers' gates."""
    return publication(number, {"security": attribute}, payload=payload)


def event_of(note: WireNotification) -> Event:
    return from_wire(note.event)

"""A key management centre on a live broker, its topics' owner, and members that are clients."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import tidings as td
from tests.broker.cases import address, connect
from tests.client.kmc import AUTHORITY, HOUR, KMC, OWNER, entity, now
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.client.secure.service_rpc import ask
from tidings.client.secure.settings import Security
from tidings.security import Member, Right, TopicRecord
from tidings.security.ca.identity import Identity
from tidings.security.encoding import encode_canonical
from tidings.security.rpc import kmc_messages
from tidings.security.vault import Vault
from tidings.services.kmc import KmcServer
from tidings.services.kmc_store import KmcStore

KEY = bytes(range(32))
_Body = TypeVar("_Body")


class Centre:
    """What owners do with it, each in one line."""

    def __init__(self, broker: Broker, server: KmcServer, owner: Client) -> None:
        self.broker, self.server, self._owner = broker, server, owner
        self.members: dict[str, Member] = {}

    @property
    def service(self) -> Any:
        return self.server.centre.service

    async def ask(self, kind: str, body: Any, who: Identity = OWNER, **given: Any) -> bytes:
        return await ask(self._owner, who, self.service, kind, encode_canonical(body), **given)

    async def topic(self, template: str = "Sports=NBA", **given: int) -> TopicRecord:
        made = TopicRecord.make(
            OWNER, id=template.encode().ljust(16, b".")[:16], template=template, kmc=KMC.certificate
        )
        await self.ask(kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(made.data, **given))
        return made

    async def grant(self, topic: TopicRecord, name: str, *rights: str, until: int = 24 * HOUR) -> None:
        wanted = int(Right.of(rights or ("publish", "subscribe")))
        await self.ask(kmc_messages.GRANT, kmc_messages.GrantRequest(topic.id, name, wanted, now() + until))

    async def revoke(self, topic: TopicRecord, name: str) -> None:
        await self.ask(kmc_messages.REVOKE, kmc_messages.RevokeRequest(name, topic.id))

    def member(self, name: str, *topics: TopicRecord) -> Client:
        known = Security((self.service,), topics, AUTHORITY.revocations(now()))
        member = self.members[name] = known.member(entity(name))
        return td.connect(address(self.broker), name, member=member, security=known)


@contextlib.asynccontextmanager
async def centre(broker: Broker, folder: Path, **given: Any) -> AsyncIterator[Centre]:
    """One that is in the folder, or a new one."""
    path = folder / "kmc"
    if path.exists():
        held = KmcStore.open(path, lambda lock: Vault.unlock(lock, None, KEY))
    else:
        held = KmcStore.create(path, KMC, Vault.make(None, KEY))
        held.commit(held.centre.revocations(AUTHORITY.revocations(now()), now()), now())
    async with connect(broker, KMC.name) as client, connect(broker, OWNER.name) as owner:
        with held:
            async with KmcServer(held, client, **given) as server:
                yield Centre(broker, server, owner)


def read(body: bytes, kind: type[_Body]) -> _Body:
    return msgspec.msgpack.decode(body, type=kind)

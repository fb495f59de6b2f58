"""The scene of a sealed topic on real brokers: they route number plates that they cannot read.

Then a patrol is revoked.

The authority, the key management centre, the topic's owner, a camera and two patrols all run in this process, as they
would on machines of their own.
"""

import asyncio
import logging
import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tidings.cli.demo.stories import Scene, dim, green, plain, red
from tidings.cli.overlay import LocalOverlay
from tidings.cli.overlay.local import JOURNAL
from tidings.client import Client, ClientSubscription, connect
from tidings.client.secure.service_rpc import ask, now
from tidings.client.secure.settings import Security
from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.security import Authority, Identity, Member, Right, Role, TopicRecord
from tidings.security.encoding import encode_canonical
from tidings.security.rpc.kmc_messages import GRANT, REVOKE, TOPIC, GrantRequest, RegisterTopicRequest, RevokeRequest
from tidings.security.sealing.envelope import Seal
from tidings.security.vault import Vault
from tidings.services.kmc import KmcServer
from tidings.services.kmc_store import KmcStore
from tidings.simulation.topologies import line

TEMPLATE = "class=plate,city=*"
SEEN = {"class": "plate", "city": "Austin"}
_FIRST, _SECOND = b"ATX 417, northbound", b"ATX 932, southbound"
_HOUR = 3_600_000_000  # microseconds


class SealedDemoResult(NamedTuple):
    """What the patrols, an outsider and the brokers saw of the sealed events."""

    opened: list[bytes]  # payloads that the patrols opened before the revocation
    after: list[bytes]  # payloads that the remaining patrol opened after the revocation
    revoked: int  # number of notifications to the revoked patrol after the revocation
    outsider: int  # number of notifications to an outsider that subscribed to everything
    refusal: str  # the error on the outsider's subscription to the topic
    sealed: bytes  # the payload as brokers saw it
    epochs: tuple[int, int]
    milliseconds: float


class SealedDemoWorld:
    """The authority, identities, revocation list and topic record of the scene, as `tidings ca` and `kmc` would make
    them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.authority = Authority.found("city", now())
        self.kmc, self.owner = self._issue("centre", Role.KMC), self._issue("police", Role.ENTITY)
        self.revocation_list = self.authority.revocations(now())
        (folder / "revocations").write_bytes(self.revocation_list.data)
        self.record = TopicRecord.make(
            self.owner, id=secrets.token_bytes(16), template=TEMPLATE, kmc=self.kmc.certificate
        )
        (folder / "topic").write_bytes(self.record.data)

    def _issue(self, name: str, role: Role) -> Identity:
        return self.authority.issue(name, role, now())

    def tables(self, broker: str) -> dict[str, dict[str, Any]]:
        """Return the configuration tables of a broker that guards the topic; it uses no TLS, since all run on one
        machine."""
        self.authority.issue(broker, Role.BROKER, now()).save(self.folder / broker)
        security = {
            "identity": str(self.folder / broker),
            "revocations": str(self.folder / "revocations"),
            "topics": [str(self.folder / "topic")],
        }
        return {"security": security, "tls": {"plain": True}}

    def member(self, name: str) -> Member:
        """Issue an identity, and return the member of secure topics under it."""
        return self._security().member(self._issue(name, Role.ENTITY))

    def _security(self) -> Security:
        return Security(topics=(self.record,), revocations=self.revocation_list)


def sealed_topic(folder: Path) -> Scene:
    """Run the scene on two brokers.

    Raises TidingsError if a journal contains a payload in the clear, or if the payloads did not reach exactly the
    patrols.
    """
    world = SealedDemoWorld(folder)
    logging.getLogger("tidings").addHandler(logging.NullHandler())  # the revoked patrol's warning is expected
    with LocalOverlay(line(2), folder / "overlay", broker_tables=world.tables) as overlay:
        result = asyncio.run(_play(world, overlay.addresses))
    journals = b"".join(
        path.read_bytes() for path in (folder / "overlay").rglob("*") if JOURNAL in str(path) and path.is_file()
    )
    if any(payload in journals for payload in (_FIRST, _SECOND)) or b"plate" not in journals:
        raise TidingsError("a broker's journal shows what was sealed: please report this")
    if result.opened != [_FIRST] * 2 or result.after != [_SECOND] or result.revoked or result.outsider:
        raise TidingsError(
            "what was sealed has not come to those whom it was for, and to nobody else: please report this"
        )
    return _scene(result)


async def _play(world: SealedDemoWorld, addresses: dict[str, str]) -> SealedDemoResult:
    first, second = addresses.values()
    vault = Vault.make(None, secrets.token_bytes(32))
    async with AsyncExitStack() as stack:
        store = stack.enter_context(KmcStore.create(world.folder / "centre", world.kmc, vault))
        store.commit(store.centre.revocations(world.revocation_list, now()), now())
        centre_client = await stack.enter_async_context(connect(first, world.kmc.name))
        server = await stack.enter_async_context(KmcServer(store, centre_client))
        owner = await stack.enter_async_context(connect(second, world.owner.name))

        async def request(kind: str, body: object) -> None:
            await ask(owner, world.owner, server.centre.service, kind, encode_canonical(body))

        await request(TOPIC, RegisterTopicRequest(world.record.data))
        members = {"camera": Right.PUBLISH, "patrol-1": Right.SUBSCRIBE, "patrol-2": Right.SUBSCRIBE}
        clients: dict[str, Client] = {}
        for name, right in members.items():
            await request(GRANT, GrantRequest(world.record.id, name, int(right), now() + _HOUR))
            security = Security(services=(server.centre.service,))
            client = connect(first if name == "camera" else second, name, member=world.member(name), security=security)
            clients[name] = await stack.enter_async_context(client)
        patrols = [await clients[name].subscribe("class = 'plate'") for name in ("patrol-1", "patrol-2")]
        outsider = await stack.enter_async_context(connect(second, "outsider"))
        everything = await outsider.subscribe("", raw=True)
        refusal = await _refusal_of(outsider)
        camera = clients["camera"]
        await camera.advertise("class = 'plate'")
        watcher = await clients["patrol-1"].subscribe("class = 'plate'", raw=True, id="as brokers see it")
        await camera.publish(SEEN, payload=_FIRST, safe="settled")
        opened = [note.payload or b"" for patrol in patrols for note in await patrol.take(timeout=20)]
        (raw,) = await watcher.take(timeout=20)
        begin = time.perf_counter()
        await request(REVOKE, RevokeRequest("patrol-2", world.record.id))
        await camera.publish(SEEN, payload=_SECOND, safe="settled")
        after = [note.payload or b"" for note in await patrols[0].take(timeout=20)]
        milliseconds = (time.perf_counter() - begin) * 1_000
        revoked, others = await _count_plates(patrols[1]), await _count_plates(everything)
        (later,) = await watcher.take(timeout=20)
        epochs = Seal.of(raw.event).epoch, Seal.of(later.event).epoch
        return SealedDemoResult(opened, after, revoked, others, refusal, raw.payload or b"", epochs, milliseconds)


async def _refusal_of(outsider: Client) -> str:
    """Return the error that the outsider gets when it subscribes to the topic without a token."""
    try:
        await outsider.subscribe("class = 'plate' AND city = 'Austin'")
    except (RefusedError, SecurityError) as error:
        return str(error)
    return "nothing"


async def _count_plates(subscription: ClientSubscription) -> int:
    """Return how many plates a subscription has received, without waiting; events about the topic itself do not
    count."""
    try:
        notes = await subscription.take(timeout=0)
    except SecurityError:  # the subscription ended when its right was revoked
        return 0
    return sum(note.attributes.get("class") == "plate" for note in notes)


def _scene(result: SealedDemoResult) -> Scene:
    before, after = result.epochs
    revocation = (
        f"patrol-2 is revoked:  epoch {before} becomes {green(after)}; the next event is sealed under "
        f"that, and read by patrol-1 {result.milliseconds:.0f} ms later; patrol-2 gets {green(result.revoked)} events"
    )
    outsider = green(result.outsider)
    lines = [
        f"A topic on two brokers, {TEMPLATE}, owned by the police; a camera may publish, two patrols may subscribe",
        f"a patrol reads        {green(result.opened[0].decode())}",
        f"a broker has          {plain(SEEN)}, and {len(result.sealed)} bytes: {red(result.sealed[:16].hex(' '))} ...",
        f"an outsider gets      {outsider} of 2 events by a subscription to everything; and for the topic:",
        dim(result.refusal),
        revocation,
    ]
    facts = {
        "opened": len(result.opened) + len(result.after),
        "outsider": result.outsider,
        "revoked": result.revoked,
        "epochs": list(result.epochs),
    }
    return Scene("A sealed topic, and a revocation", lines, {"sealed": facts})

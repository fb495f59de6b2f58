"""A sealed topic on real brokers: number plates, which brokers route and cannot read. A patrol is revoked.

Authority, key management centre, owner, camera and patrols are all here, as they would be on machines of their own.
"""

import asyncio
import logging
import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tidings.cli.demo.scene import Scene, bad, good, plain, quiet
from tidings.cli.overlay import LocalOverlay
from tidings.cli.overlay.files import JOURNAL
from tidings.client import Client, Subscription, connect
from tidings.client.asking import ask
from tidings.client.security import Security, now
from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.security import Authority, Identity, Member, Right, Role, TopicRecord
from tidings.security.centre_questions import GRANT, REVOKE, TOPIC, Grants, RegistersTopic, Revokes
from tidings.security.encoding import encoded
from tidings.security.envelope import Seal
from tidings.security.vault import Vault
from tidings.services.centre_folder import CentreFolder
from tidings.services.kmc import CentreServer
from tidings.simulation.topologies import line

TEMPLATE = "class=plate,city=*"
SEEN = {"class": "plate", "city": "Austin"}
_FIRST, _SECOND = b"ATX 417, northbound", b"ATX 932, southbound"
_HOUR = 3_600_000_000  # microseconds


class Seen(NamedTuple):
    """What became of it, as each of them saw it."""

    opened: list[bytes]  # by the patrols, before the revocation
    after: list[bytes]  # by the one that stayed
    revoked: int  # how many notifications the other one got after it
    outsider: int  # notifications of one who subscribed to everything
    refusal: str  # what one was told who asked for the topic
    sealed: bytes  # the payload as brokers had it
    epochs: tuple[int, int]
    milliseconds: float


class World:
    """Identities, as `tidings ca` would issue them, in folders; and what every member knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.authority = Authority.found("city", now())
        self.kmc, self.owner = self._issued("centre", Role.KMC), self._issued("police", Role.ENTITY)
        self.list = self.authority.revocations(now())
        (folder / "revocations").write_bytes(self.list.data)
        self.record = TopicRecord.make(
            self.owner, id=secrets.token_bytes(16), template=TEMPLATE, kmc=self.kmc.certificate
        )
        (folder / "topic").write_bytes(self.record.data)

    def _issued(self, name: str, role: Role) -> Identity:
        return self.authority.issue(name, role, now())

    def tables(self, broker: str) -> dict[str, dict[str, Any]]:
        """What makes a broker one that knows of the topic. On one machine it goes without TLS."""
        self.authority.issue(broker, Role.BROKER, now()).save(self.folder / broker)
        said = {
            "identity": str(self.folder / broker),
            "revocations": str(self.folder / "revocations"),
            "topics": [str(self.folder / "topic")],
        }
        return {"security": said, "tls": {"plain": True}}

    def member(self, name: str) -> Member:
        return self._knows().member(self._issued(name, Role.ENTITY))

    def _knows(self) -> Security:
        return Security(topics=(self.record,), revocations=self.list)


def sealed_topic(folder: Path) -> Scene:
    world = World(folder)
    logging.getLogger("tidings").addHandler(logging.NullHandler())  # that a patrol gets no keys is part of the story
    with LocalOverlay(line(2), folder / "overlay", own=world.tables) as overlay:
        seen = asyncio.run(_played(world, overlay.addresses))
    journals = b"".join(
        path.read_bytes() for path in (folder / "overlay").rglob("*") if JOURNAL in str(path) and path.is_file()
    )
    if any(one in journals for one in (_FIRST, _SECOND)) or b"plate" not in journals:
        raise TidingsError("a broker's journal shows what was sealed: please report this")
    if seen.opened != [_FIRST] * 2 or seen.after != [_SECOND] or seen.revoked or seen.outsider:
        raise TidingsError(
            "what was sealed has not come to those whom it was for, and to nobody else: please report this"
        )
    return _scene(seen)


async def _played(world: World, addresses: dict[str, str]) -> Seen:
    first, second = addresses.values()
    vault = Vault.make(None, secrets.token_bytes(32))
    async with AsyncExitStack() as stack:
        held = stack.enter_context(CentreFolder.found(world.folder / "centre", world.kmc, vault))
        held.commit(held.centre.revocations(world.list, now()), now())
        centre_client = await stack.enter_async_context(connect(first, world.kmc.name))
        server = await stack.enter_async_context(CentreServer(held, centre_client))
        owner = await stack.enter_async_context(connect(second, world.owner.name))

        async def demand(kind: str, body: object) -> None:
            await ask(owner, world.owner, server.centre.service, kind, encoded(body))

        await demand(TOPIC, RegistersTopic(world.record.data))
        members = {"camera": Right.PUBLISH, "patrol-1": Right.SUBSCRIBE, "patrol-2": Right.SUBSCRIBE}
        clients: dict[str, Client] = {}
        for name, right in members.items():
            await demand(GRANT, Grants(world.record.id, name, int(right), now() + _HOUR))
            known = Security(services=(server.centre.service,))
            client = connect(first if name == "camera" else second, name, member=world.member(name), security=known)
            clients[name] = await stack.enter_async_context(client)
        patrols = [await clients[name].subscribe("class = 'plate'") for name in ("patrol-1", "patrol-2")]
        outsider = await stack.enter_async_context(connect(second, "outsider"))
        everything = await outsider.subscribe("", raw=True)
        refusal = await _refused(outsider)
        camera = clients["camera"]
        await camera.advertise("class = 'plate'")
        watcher = await clients["patrol-1"].subscribe("class = 'plate'", raw=True, id="as brokers see it")
        await camera.publish(SEEN, payload=_FIRST, safe="settled")
        opened = [note.payload or b"" for one in patrols for note in await one.take(timeout=20)]
        (raw,) = await watcher.take(timeout=20)
        begin = time.perf_counter()
        await demand(REVOKE, Revokes("patrol-2", world.record.id))
        await camera.publish(SEEN, payload=_SECOND, safe="settled")
        after = [note.payload or b"" for note in await patrols[0].take(timeout=20)]
        milliseconds = (time.perf_counter() - begin) * 1_000
        revoked, others = await _still(patrols[1]), await _still(everything)
        (later,) = await watcher.take(timeout=20)
        epochs = Seal.of(raw.event).epoch, Seal.of(later.event).epoch
        return Seen(opened, after, revoked, others, refusal, raw.payload or b"", epochs, milliseconds)


async def _refused(outsider: Client) -> str:
    """What one without a token is told that wants the topic."""
    try:
        await outsider.subscribe("class = 'plate' AND city = 'Austin'")
    except (RefusedError, SecurityError) as error:
        return str(error)
    return "nothing"


async def _still(subscription: Subscription) -> int:
    """How many plates are there, all that were due having arrived; what tells of the topic itself is for everybody."""
    try:
        notes = await subscription.take(timeout=0)
    except SecurityError:  # it has ended, since its right was taken back
        return 0
    return sum(note.attributes.get("class") == "plate" for note in notes)


def _scene(seen: Seen) -> Scene:
    revocation = (
        f"patrol-2 is revoked:  epoch {seen.epochs[0]} becomes {good(seen.epochs[1])}; the next event is sealed under "
        f"that, and read by patrol-1 {seen.milliseconds:.0f} ms later; patrol-2 gets {good(seen.revoked)} events"
    )
    lines = [
        f"A topic on two brokers, {TEMPLATE}, owned by the police; a camera may publish, two patrols may subscribe",
        f"a patrol reads        {good(seen.opened[0].decode())}",
        f"a broker has          {plain(SEEN)}, and {len(seen.sealed)} bytes: {bad(seen.sealed[:16].hex(' '))} ...",
        f"an outsider gets      {good(seen.outsider)} of 2 events by a subscription to everything; and for the topic:",
        quiet(seen.refusal),
        revocation,
    ]
    facts = {
        "opened": len(seen.opened) + len(seen.after),
        "outsider": seen.outsider,
        "revoked": seen.revoked,
        "epochs": list(seen.epochs),
    }
    return Scene("A sealed topic, and a revocation", lines, {"sealed": facts})

"""Discovery nodes on a live broker: found by who may, the same at all nodes, there again after a restart."""

import contextlib
import errno
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cases import connect, run, running, until
from tests.broker.secured import LiveWorld, line
from tests.journal.cases import FailingDisk
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.client.secure.discovery import Discovery, DiscoveryPage
from tidings.client.secure.service_rpc import ask
from tidings.model.errors import (
    InvalidValueError,
    JournalError,
    JournalLockedError,
    RefusedError,
    SecurityError,
    UnreachableError,
)
from tidings.security.ca.authority import Authority
from tidings.security.ca.certificates import Role
from tidings.security.ca.identity import Identity
from tidings.security.encoding import encode_canonical
from tidings.security.rpc.messages import SERVICE_TOPIC, RpcServer, ServiceRecord
from tidings.security.rpc.tdn_messages import ASK, HELLO, REPLICATE, REPLY_TO, TOPIC, FindResponse, ReplicateRequest
from tidings.security.tdn.discovery_records import DiscoveryRecord, RecordKind, Visibility
from tidings.security.tokens.credentials import Credentials
from tidings.security.topic_record import TopicRecord
from tidings.services.tdn import DiscoveryService

NOW = time.time_ns() // 1000
AUTHORITY = Authority.found("authority", NOW)
NODES = [AUTHORITY.issue(f"tdn-{number}", Role.TDN, NOW) for number in range(3)]
KMC = AUTHORITY.issue("kmc-1", Role.KMC, NOW)
ANNA, BERT, CARL = (AUTHORITY.issue(name, Role.ENTITY, NOW) for name in ("anna", "bert", "carl"))
REVOCATIONS = AUTHORITY.revocations(NOW)
SOON = 0.3  # seconds between two looks of a node at the others


def now() -> int:
    return time.time_ns() // 1000


def credentials() -> Credentials:
    made = Credentials(AUTHORITY.anchor)
    made.revoke(REVOCATIONS)
    return made


def topic(owner: Identity, template: str, **given: Any) -> DiscoveryRecord:
    id = (owner.name + template).encode().ljust(16, b".")[:16]  # noqa: A001
    record = TopicRecord.make(owner, id=id, template=template, kmc=KMC.certificate)
    return DiscoveryRecord.topic(owner, record, now(), **given)


@contextlib.asynccontextmanager
async def serving(broker: Broker, identity: Identity, folder: Path, **given: Any) -> AsyncIterator[DiscoveryService]:
    given = {"interval": SOON, "revocations": REVOCATIONS, **given}
    async with (
        connect(broker, identity.name) as client,
        DiscoveryService(client, identity, folder / identity.name, **given) as made,
    ):
        yield made


def looking(client: Client, identity: Identity) -> Discovery:
    return Discovery(client, identity, credentials())


async def names(discovery: Discovery, query: str) -> list[str]:
    found = await discovery.find(query, timeout=60)
    return sorted(str(one.record.template) if one.record else one.owner.name for one in found)


def test_a_topic_and_its_centre_are_found_by_who_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running() as broker,
            serving(broker, NODES[0], tmp_path) as node,
            connect(broker, "anna") as anna,
            connect(broker, "bert") as bert,
            connect(broker, "carl") as carl,
            connect(broker, "kmc-1") as kmc,
        ):
            secret = topic(ANNA, "x=1", restriction=Visibility(("bert",)))
            assert await looking(anna, ANNA).advertise(secret) == ["tdn-0"]
            service = RpcServer(KMC, credentials()).service("aa", 1)
            assert await looking(kmc, KMC).advertise(DiscoveryRecord.of_service(KMC, service, now())) == ["tdn-0"]
            assert await names(looking(bert, BERT), "x=1") == ["kmc-1", "x=1"]
            assert await names(looking(carl, CARL), "*") == ["kmc-1"]
            (found,) = await looking(carl, CARL).find(centre=KMC.certificate.fingerprint)
            assert found.kind is RecordKind.SERVICE
            assert found.service is not None
            assert found.service.topic == "aa"
            with pytest.raises(RefusedError, match=r"overlaps a topic of another owner"):
                await looking(carl, CARL).advertise(topic(CARL, "x=1,y=2"))
            gone = DiscoveryRecord.withdrawal(ANNA, secret.id, now())
            assert await looking(anna, ANNA).withdraw(gone) == ["tdn-0"]
            assert await names(looking(bert, BERT), "x=1") == []
            assert node.answering.refused == {}

    run(scenario())


def test_all_pages_are_walked_up_to_a_limit_and_by_another_node_if_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with (
            running() as broker,
            serving(broker, NODES[0], tmp_path),
            connect(broker, "anna") as anna,
            connect(broker, "carl") as carl,
        ):
            owner, reader = looking(anna, ANNA), looking(carl, CARL)
            made = [topic(ANNA, f"/{number}") for number in range(8)]
            monkeypatch.setattr("tidings.security.tdn.discovery_node.MAX_FOUND_BYTES", 3 * (len(made[0].data) + 100))
            async with serving(broker, NODES[1], tmp_path):
                for one in made:
                    assert await owner.advertise(one) == ["tdn-0", "tdn-1"]
                expected = sorted(one.key for one in made)
                assert [one.key for one in await reader.find("*")] == expected
                assert [one.key for one in await reader.find("*", limit=4)] == expected[:4]
                assert [one.key for one in await reader.find("*", limit=8)] == expected
                pages = reader.pages("*", timeout=60)
                found = await anext(pages)
                assert len(found) == 3
                (first, *_) = reader.known  # from now on it does not answer
                monkeypatch.setattr("tidings.client.secure.discovery._KNOWN_NODE_SECONDS", 0.1)
                reader.known[first] = RpcServer(NODES[2], credentials()).service("nobody", now())
            async for page in pages:
                found += page
            assert [one.key for one in found] == expected
            with pytest.raises(InvalidValueError, match="limit: at least 1"):
                await reader.find("*", limit=0)

    run(scenario())


ONE, TWO = sorted((topic(ANNA, "/1"), topic(ANNA, "/2")), key=lambda one: one.key)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (None, FindResponse((), more=True)),
        (None, FindResponse((TWO.data, ONE.data))),
        (None, FindResponse((ONE.data, ONE.data))),
        (ONE.key, FindResponse((ONE.data,), more=True)),
        (TWO.key, FindResponse((ONE.data,))),
    ],
)
def test_a_page_that_leads_nowhere_is_not_taken(after: tuple[bytes, str] | None, found: FindResponse) -> None:
    with pytest.raises(SecurityError, match="the discovery node"):
        DiscoveryPage(after, encode_canonical(found))
    assert [one.key for one in DiscoveryPage(ONE.key, encode_canonical(FindResponse((TWO.data,)))).advertised] == [
        TWO.key
    ]


def test_what_one_node_was_told_is_known_to_all_that_come_later_and_survives_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "anna") as anna:
            discovery = looking(anna, ANNA)
            async with serving(broker, NODES[0], tmp_path) as one, serving(broker, NODES[1], tmp_path) as two:
                await until(lambda: one.others.known and two.others.known)
                await discovery.nodes()
                assert await discovery.advertise(topic(ANNA, "x=1")) == ["tdn-0", "tdn-1"]
                direct = one.node.advertise(topic(ANNA, "x=2").data, ANNA.certificate, now())
                assert direct is not None
                async with serving(broker, NODES[2], tmp_path) as three:
                    await until(lambda: len(three.node.shown()) == 2)
                    await until(lambda: len(two.node.shown()) == 2)
            with pytest.raises(UnreachableError, match="no discovery node has answered"):
                await discovery.find("*", timeout=0.5)
            async with serving(broker, NODES[2], tmp_path):  # the only one that is left
                assert await names(discovery, "*") == ["x=1", "x=2"]

    run(scenario())


def test_nodes_that_were_apart_agree_who_was_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "anna") as anna, connect(broker, "bert") as bert:
            async with serving(broker, NODES[0], tmp_path):
                await looking(anna, ANNA).advertise(topic(ANNA, "x=1"))
            async with serving(broker, NODES[1], tmp_path):
                await looking(bert, BERT).advertise(topic(BERT, "x=1,y=2"))
            async with serving(broker, NODES[0], tmp_path) as one, serving(broker, NODES[1], tmp_path) as two:
                await until(lambda: len(one.node.kept()) == len(two.node.kept()) == 2)
                assert [said.owner.name for node in (one, two) for said in node.node.shown()] == ["anna", "anna"]

    run(scenario())


def test_a_node_that_restarts_has_what_it_acknowledged_and_the_revocations(tmp_path: Path) -> None:
    authority = Authority.found("authority", NOW)
    tdn, owner, other = (
        authority.issue(name, role, NOW)
        for name, role in (("tdn-0", Role.TDN), ("owner", Role.ENTITY), ("other", Role.ENTITY))
    )

    async def scenario() -> None:
        async with running() as broker, connect(broker, "owner") as client, connect(broker, "ca") as ca:
            known = Credentials(authority.anchor)
            discovery = Discovery(client, owner, known)
            async with serving(broker, tdn, tmp_path, revocations=None) as node:
                with pytest.raises(UnreachableError):  # without a list nobody is trusted
                    await discovery.find("*", timeout=0.5)
                assert node.answering.refused["revocations"] > 0
                update = authority.revocations(now())
                await ca.publish({"security": "revocations"}, payload=b"nonsense")
                await ca.publish({"security": "revocations"}, payload=update.data)
                await discovery.advertise(topic(owner, "x=1"))
                await discovery.advertise(topic(owner, "x=2"))
            async with serving(broker, tdn, tmp_path, revocations=None) as node:
                assert await names(discovery, "*") == ["x=1", "x=2"]
                assert known.revocations.head is not None
                authority.revoke("owner", now())
                await ca.publish({"security": "revocations"}, payload=authority.revocations(now()).data)
                await until(lambda: not node.node.shown())
            async with serving(broker, tdn, tmp_path, revocations=None) as node:
                assert node.node.shown() == []
                assert len(node.node.kept()) == 2
                with pytest.raises(UnreachableError):
                    await discovery.find("*", timeout=0.5)
                assert await names(Discovery(client, other, Credentials(authority.anchor)), "*") == []

    run(scenario())


def test_only_discovery_nodes_get_copies_and_give_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running() as broker,
            serving(broker, NODES[0], tmp_path) as node,
            connect(broker, "anna") as anna,
        ):
            (service,) = await looking(anna, ANNA).nodes()
            with pytest.raises(RefusedError, match="anna is no discovery node"):
                await ask(anna, ANNA, service, REPLICATE, encode_canonical(ReplicateRequest()))
            with pytest.raises(RefusedError, match="does not know the question"):
                await ask(anna, ANNA, service, "everything")
            with pytest.raises(RefusedError, match="this is no question"):
                await ask(anna, ANNA, service, "find", b"nonsense")
            # Somebody else who answers, even with a certificate, is no discovery node.
            impostor = ServiceRecord.make(BERT, "bb", b"k" * 32, now())
            stranger = ServiceRecord.make(
                Authority.found("authority", NOW).issue("tdn-9", Role.TDN, NOW), "cc", b"k" * 32, 1
            )
            async with connect(broker, "bert") as bert:

                async def answer(note: Any) -> None:
                    for payload in (impostor.data, stranger.data, b"nonsense"):
                        await bert.publish({SERVICE_TOPIC: note.attributes[REPLY_TO]}, payload=payload)

                await bert.subscribe(f"{SERVICE_TOPIC} = '{TOPIC}' AND {ASK} = '{HELLO}'", callback=answer)
                heard = [one.certificate.name for one in await looking(anna, ANNA).nodes()]
                assert heard == ["tdn-0"]
                assert await node.replicate() == 0

    run(scenario())


def test_a_node_goes_on_after_its_broker_was_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as first:
            broker = await first.enter_async_context(running())
            async with serving(broker, NODES[0], tmp_path), connect(broker, "anna") as anna:
                discovery = looking(anna, ANNA)
                await discovery.advertise(topic(ANNA, "x=1"))
                await first.aclose()
                async with running(broker={"listen": str(broker.address)}):
                    assert await names(discovery, "*") == ["x=1"]

    run(scenario())


def test_a_node_has_the_right_role_and_a_folder_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "anna") as anna:
            with pytest.raises(InvalidValueError, match="has the role tdn, not entity"):
                DiscoveryService(anna, ANNA, tmp_path)
            async with serving(broker, NODES[0], tmp_path):
                with pytest.raises(JournalLockedError, match=r"^the discovery node in "):
                    DiscoveryService(anna, NODES[0], tmp_path / "tdn-0")

    run(scenario())


def test_the_ledger_is_rewritten_when_most_of_it_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.services.tdn._LARGE", 10_000)

    async def scenario() -> None:
        async with running() as broker, connect(broker, "anna") as anna:
            discovery = looking(anna, ANNA)
            async with serving(broker, NODES[0], tmp_path):
                for _ in range(12):
                    await discovery.advertise(topic(ANNA, "x=1"))
            before = (tmp_path / "tdn-0" / "ledger").stat().st_size
            async with serving(broker, NODES[0], tmp_path):
                assert (tmp_path / "tdn-0" / "ledger").stat().st_size < before / 5
                assert await names(discovery, "*") == ["x=1"]
            async with serving(broker, NODES[0], tmp_path):
                assert await names(discovery, "*") == ["x=1"]

    run(scenario())


def test_over_several_brokers_with_gates_nodes_get_the_revocations_from_them(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    tdns = [world.authority.issue(f"tdn-{number}", Role.TDN, now()) for number in range(2)]
    carl = world.authority.issue("carl", Role.ENTITY, now())

    async def scenario() -> None:
        async with (
            line(world, ["b1", "b2", "b3"]) as brokers,
            serving(brokers[0], tdns[0], tmp_path, revocations=None) as one,
            serving(brokers[2], tdns[1], tmp_path, revocations=None) as two,
            connect(brokers[1], "ann") as ann,
            connect(brokers[2], "carl") as client,
        ):
            discovery = Discovery(ann, world.ann, Credentials(world.authority.anchor))
            await until(lambda: not one.lacks_revocations and not two.lacks_revocations)
            await until(lambda: one.others.known and two.others.known)
            said = DiscoveryRecord.topic(world.ann, world.record, now(), restriction=Visibility(("carl",)))
            assert await discovery.advertise(said) == ["tdn-0", "tdn-1"]
            found = await Discovery(client, carl, Credentials(world.authority.anchor)).find("Sports=NBA")
            assert [one.data for one in found] == [said.data]

    run(scenario())


def test_what_the_disk_did_not_take_is_not_acknowledged_when_it_is_said_again(tmp_path: Path) -> None:
    said = topic(ANNA, "Sports=NBA")

    async def scenario() -> None:
        async with running() as broker, connect(broker, "anna") as anna:
            disk = FailingDisk()
            async with serving(broker, NODES[0], tmp_path, disk=disk) as node:
                disk.write_error = errno.ENOSPC
                for _ in range(2):
                    with pytest.raises(RefusedError, match="nothing was written"):
                        await looking(anna, ANNA).advertise(said, timeout=5)
                disk.write_error = None
                await looking(anna, ANNA).advertise(said, timeout=5)
            async with serving(broker, NODES[0], tmp_path) as node:
                assert [one.data for one in node.node.shown()] == [said.data]

    run(scenario())


def test_a_list_of_revocations_that_the_disk_did_not_take_is_kept_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        async with running() as broker, serving(broker, NODES[0], tmp_path, revocations=None, disk=disk) as node:
            disk.write_error = errno.ENOSPC
            with pytest.raises(JournalError, match="No space left"):
                node.revoke(REVOCATIONS)
            assert node.folder.revocations() is None
            disk.write_error = None
            node.revoke(REVOCATIONS)
            assert node.folder.revocations() is not None

    run(scenario())

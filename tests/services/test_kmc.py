"""A key management centre on a live broker: topics, grants and keys, rotations without a gap, revocations, floods."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cases import connect, run, running, until
from tests.client.kmc import AUTHORITY, KMC, OWNER, START, credentials, entity, now
from tests.services.kmc_cases import Centre, centre, read
from tidings.client.secure.discovery import Discovery
from tidings.journal.disk import Disk
from tidings.model.errors import ClosedError, JournalFailedError, RefusedError, SecurityError, UnreachableError
from tidings.security import Member, Role
from tidings.security.rpc import kmc_messages
from tidings.security.rpc.messages import SERVICE_TOPIC, ServiceRecord
from tidings.security.sealing.envelope import Seal
from tidings.security.tdn.discovery_records import Visibility
from tidings.security.tokens.notices import SignedNotice
from tidings.security.vault import Vault
from tidings.services.kmc import KmcServer
from tidings.services.kmc_store import KmcStore
from tidings.services.tdn import DiscoveryService
from tidings.testing import BrokerThread


def test_who_was_granted_it_publishes_and_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            await kmc.grant(topic, "pub", "publish")
            await kmc.grant(topic, "fan", "subscribe")
            async with kmc.member("pub", topic) as pub, kmc.member("fan", topic) as fan:
                held = await fan.subscribe("Sports = 'NBA'")
                await pub.publish({"Sports": "NBA"}, payload=b"99:98")
                (note,) = await held.take(timeout=60)
                assert note.payload == b"99:98"

    run(scenario())


def test_who_was_granted_nothing_is_told_whom_to_ask(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            async with kmc.member("mallory", topic) as mallory:
                with pytest.raises(SecurityError, match="mallory has no rights on Sports=NBA: ask league"):
                    await mallory.publish({"Sports": "NBA"}, payload=b"?")

    run(scenario())


def test_keys_of_a_second_are_renewed_without_a_gap_in_the_stream(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc, connect(broker, "spy") as spy:
            topic = await kmc.topic(lifetime=1, grace=5)
            await kmc.grant(topic, "pub", "publish")
            await kmc.grant(topic, "fan", "subscribe")
            seen = await spy.subscribe("Sports = 'NBA'", raw=True)
            async with kmc.member("pub", topic) as pub, kmc.member("fan", topic) as fan:
                held = await fan.subscribe("Sports = 'NBA'")
                for number in range(175):
                    await pub.publish({"Sports": "NBA"}, payload=b"%d" % number)
                    await asyncio.sleep(0.02)
                got: list[bytes | None] = []
                while len(got) < 175:
                    got += [note.payload for note in await held.take(timeout=60)]
                assert got == [b"%d" % number for number in range(175)]
                assert held.refused == 0
            epochs = [Seal.of(note.event).epoch for note in await seen.take()]
            assert epochs == sorted(epochs)
            assert len(set(epochs)) >= 3

    run(scenario())


def test_who_is_revoked_reads_nothing_after_it_and_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            for name in ("pub", "fan", "spy"):
                await kmc.grant(topic, name)
            async with (
                kmc.member("pub", topic) as pub,
                kmc.member("fan", topic) as fan,
                kmc.member("spy", topic) as spy,
            ):
                good, bad = [await one.subscribe("Sports = 'NBA'") for one in (fan, spy)]
                await pub.publish({"Sports": "NBA"}, payload=b"before")
                assert [note.payload for one in (good, bad) for note in await one.take(timeout=60)] == [b"before"] * 2
                notices = await pub.subscribe("security = 'notice'")
                await kmc.revoke(topic, "spy")
                assert await notices.take(timeout=60)
                await until(lambda: len(list(kmc.members["pub"].keyring)) == 2)
                await until(lambda: not kmc.members["pub"].needs_renewal(topic.id, now()))
                await pub.publish({"Sports": "NBA"}, payload=b"after")
                assert [note.payload for note in await good.take(timeout=60)] == [b"after"]
                with pytest.raises(SecurityError, match="spy has no rights"):  # and no other event came before that
                    await anext(bad)
                with pytest.raises(SecurityError, match="spy has no rights"):
                    await spy.publish({"Sports": "NBA"}, payload=b"?")

    run(scenario())


def test_a_revocation_of_the_authority_reaches_the_centre_over_the_overlay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc, connect(broker, "anybody") as anybody:
            topic = await kmc.topic()
            await kmc.grant(topic, "gone")
            gone = AUTHORITY.issue("gone", Role.ENTITY, START)
            held = Member(gone, kmc.server.centre.credentials)
            await kmc.ask(kmc_messages.KEYS, held.wants(topic, KMC.certificate), gone)
            told = await anybody.subscribe("security = 'notice'")
            revoked = len(AUTHORITY.revoked)
            AUTHORITY.revoke("gone", now())
            try:
                update = AUTHORITY.revocations(now())
            finally:
                del AUTHORITY.revoked[revoked:]
            await anybody.publish({"security": "revocations"}, payload=b"no list")
            await anybody.publish({"security": "revocations"}, payload=update.data)
            notice = SignedNotice((await anext(told)).payload or b"").notice
            while notice.epoch < 2:
                notice = SignedNotice((await anext(told)).payload or b"").notice
            assert (notice.epoch, notice.accepted, set(notice.grants)) == (2, 2, {gone.certificate.fingerprint.hex()})
            with pytest.raises(UnreachableError):  # whom nobody trusts gets no answer
                await kmc.ask(kmc_messages.KEYS, held.wants(topic, KMC.certificate), gone, timeout=1.0)

    run(scenario())


def test_a_centre_that_was_restarted_goes_on_with_the_same_keys(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker:
            async with centre(broker, tmp_path) as kmc:
                service = kmc.service
                topic = await kmc.topic()
                await kmc.grant(topic, "pub")
                async with kmc.member("pub", topic) as pub:
                    await pub.publish({"Sports": "NBA"}, payload=b"1")
                    before = kmc.members["pub"].keyring.latest(topic.id)
            async with centre(broker, tmp_path) as kmc:
                assert (kmc.service.topic, kmc.service.kem) == (service.topic, service.kem)
                async with kmc.member("pub", topic) as pub:
                    await pub.publish({"Sports": "NBA"}, payload=b"2")
                    assert kmc.members["pub"].keyring.latest(topic.id) == before

    run(scenario())


def test_a_centre_ends_also_when_its_broker_is_gone(tmp_path: Path) -> None:
    """Whoever stops a machine stops both, in whatever order."""

    async def scenario() -> None:
        with BrokerThread() as served:
            async with centre(served.broker, tmp_path) as kmc:
                await asyncio.to_thread(served.stop)
                await asyncio.wait_for(kmc.server.end(), 60)

    run(scenario())


def test_a_centre_that_is_flooded_moves_and_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path, bogus=100) as kmc:
            topic = await kmc.topic()
            before = kmc.service.topic
            async with connect(broker, "mallory") as mallory:
                await asyncio.gather(
                    *(mallory.publish({SERVICE_TOPIC: before}, payload=os.urandom(100)) for _ in range(150))
                )
                await until(lambda: kmc.service.version == 2)
            assert kmc.service.topic != before
            await until(
                lambda: ServiceRecord((tmp_path / "kmc" / "service.bin").read_bytes()).topic == kmc.service.topic
            )
            await kmc.grant(topic, "pub")
            refused = kmc.server.answering.refused.total()
            async with connect(broker, "mallory") as mallory:
                await mallory.publish({SERVICE_TOPIC: before}, payload=b"?")
            await kmc.grant(topic, "pub")
            assert kmc.server.answering.refused.total() == refused  # nobody listens there any more

    run(scenario())


def test_questions_that_come_together_are_all_answered_and_share_what_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            await asyncio.gather(*(kmc.grant(topic, f"p{number}") for number in range(100)))
            (listed,) = read(await kmc.ask(kmc_messages.LIST, b""), kmc_messages.ListResponse).topics
            assert len(listed.grants) == 100
            assert sorted(one.version for one in listed.grants) == list(range(1, 101))

    run(scenario())


class Failing(Disk):
    fails = False

    def sync(self, fd: int) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        super().sync(fd)


def test_a_disk_that_fails_ends_the_centre_and_nothing_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = Failing()
        folder = KmcStore.create(tmp_path / "kmc", KMC, Vault.make(None, bytes(32)), disk=disk)
        folder.commit(folder.centre.revocations(AUTHORITY.revocations(now()), now()), now())
        async with (
            running() as broker,
            connect(broker, KMC.name) as client,
            connect(broker, OWNER.name) as owner,
            KmcServer(folder, client) as server,
        ):
            serving = asyncio.create_task(server.serve())
            kmc = Centre(broker, server, owner)
            topic = await kmc.topic()
            told = await owner.subscribe("security = 'notice'")
            disk.fails = True
            with pytest.raises(RefusedError, match="cannot keep its state"):
                await kmc.ask(kmc_messages.ROTATE, kmc_messages.RotateRequest(topic.id, True))
            with pytest.raises(JournalFailedError):
                await serving
            with pytest.raises(RefusedError, match="cannot keep its state"):
                await kmc.grant(topic, "pub")
            assert {SignedNotice(one.payload or b"").notice.epoch for one in await told.take(timeout=0.2)} <= {1}
        disk.fails = False
        folder.close()

    run(scenario())


def test_a_centre_whose_connection_the_broker_has_ended_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            serving = asyncio.create_task(kmc.server.serve())
            async with connect(broker, KMC.name):  # another one that has its name
                with pytest.raises(ClosedError, match="another program has connected as"):
                    await serving

    run(scenario())


def test_a_centre_that_could_not_move_tries_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path, bogus=5) as kmc, connect(broker, "noise") as noise:
            moved, begin = 0, kmc.server.answering.begin

            async def refused(where: str) -> Any:
                nonlocal moved
                moved += 1
                if moved == 1:
                    raise RefusedError("admit", "not at the moment")
                return await begin(where)

            kmc.server.answering.begin = refused  # type: ignore[method-assign, assignment]
            for _ in range(10):
                await noise.publish({SERVICE_TOPIC: kmc.service.topic}, payload=b"?")
            await until(lambda: moved > 1)
            await kmc.topic()  # asked for where the centre is now

    run(scenario())


def test_a_query_is_asked_and_answered_over_the_overlay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tidings.kmc")

    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic(challenge=1)
            await kmc.grant(topic, "pub")
            pub = entity("pub")
            await kmc.ask(kmc_messages.ENROL, kmc_messages.EnrolRequest((("the first pet?", "Rex"),)), pub)
            await asyncio.sleep(1.1)
            member = Member(pub, kmc.server.centre.credentials)
            with pytest.raises(RefusedError, match=r"challenge: the first pet\?"):
                await kmc.ask(kmc_messages.KEYS, member.wants(topic, KMC.certificate), pub)
            await kmc.ask(kmc_messages.CHALLENGE, kmc_messages.AnswerChallengeRequest("the first pet?", "rex"), pub)
            await kmc.ask(kmc_messages.KEYS, member.wants(topic, KMC.certificate), pub)

    run(scenario())
    assert "pub was refused keys: a query is to be answered first" in caplog.text
    assert "pet" not in caplog.text
    assert "rex" not in caplog.text.lower()


def test_a_centre_is_found_at_discovery_nodes_wherever_it_moves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "tdn") as node_client, connect(broker, "pub") as client:
            node = AUTHORITY.issue("tdn", Role.TDN, START)
            update = AUTHORITY.revocations(now())
            async with (
                DiscoveryService(node_client, node, tmp_path / "tdn", revocations=update),
                centre(broker, tmp_path, bogus=10, restriction=Visibility(("pub",))) as kmc,
            ):
                looking = Discovery(client, entity("pub"), credentials())
                blind = Discovery(client, entity("mallory"), credentials())

                async def found_at(topic: str) -> None:
                    while True:
                        found = await looking.find(centre=KMC.certificate.fingerprint)
                        if [one.service.topic for one in found if one.service is not None] == [topic]:
                            return
                        await asyncio.sleep(0.05)

                before = kmc.service.topic
                await found_at(before)
                assert await blind.find(centre=KMC.certificate.fingerprint) == []
                for _ in range(20):
                    await client.publish({SERVICE_TOPIC: before}, payload=b"?")
                await until(lambda: kmc.service.version == 2)
                await found_at(kmc.service.topic)

    run(scenario())


def checking(folder: Path) -> dict[str, Any]:
    """Tables of a broker that checks tokens and seals."""
    AUTHORITY.issue("b1", Role.BROKER, START, hosts=["127.0.0.1"]).save(folder / "b1")
    (folder / "revocations").write_bytes(AUTHORITY.revocations(now()).data)
    said = {"identity": str(folder / "b1"), "revocations": str(folder / "revocations")}
    return {"security": said, "tls": {"plain": True}}


def test_brokers_learn_topics_from_the_centre_and_refuse_whom_it_has_revoked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(**checking(tmp_path)) as broker, centre(broker, tmp_path) as kmc:
            assert broker.gate is not None
            known = broker.gate.credentials
            topic = await kmc.topic()
            await until(lambda: topic.id in known.topics and known.notice(topic.id) is not None)
            async with connect(broker, "anybody") as anybody:
                with pytest.raises(RefusedError, match="the topic Sports=NBA is secure"):
                    await anybody.publish({"Sports": "NBA"}, payload=b"in the clear")
            for name in ("pub", "fan", "spy"):
                await kmc.grant(topic, name)
            clients = (kmc.member(name, topic) for name in ("pub", "fan", "spy"))
            async with next(clients) as pub, next(clients) as fan, next(clients) as spy:
                good, bad = [await one.subscribe("Sports = 'NBA'") for one in (fan, spy)]
                await pub.publish({"Sports": "NBA"}, payload=b"before")
                assert [note.payload for one in (good, bad) for note in await one.take(timeout=60)] == [b"before"] * 2
                await kmc.revoke(topic, "spy")
                await until(lambda: [one.notice.epoch for one in known.notices.values()] == [2])
                await pub.publish({"Sports": "NBA"}, payload=b"after")  # the broker refuses the old epoch, once
                assert [note.payload for note in await good.take(timeout=60)] == [b"after"]
                with pytest.raises(SecurityError, match="no rights"):
                    await bad.take(timeout=60)
                with pytest.raises(SecurityError):
                    await spy.publish({"Sports": "NBA"}, payload=b"?")

    run(scenario())

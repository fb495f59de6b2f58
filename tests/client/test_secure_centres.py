"""Centres, as clients meet them: found at discovery nodes, moved, asking who is there, or nowhere to be found."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import address, connect, run, running, until
from tests.client.kmc import AUTHORITY, KMC, OWNER, START, credentials, entity, now
from tests.services.kmc_cases import Centre, centre
from tidings.broker.broker import Broker
from tidings.client import Client, Security
from tidings.client.secure.discovery import Discovery
from tidings.model.errors import SecurityError, UnreachableError
from tidings.security import Role, TopicRecord
from tidings.security.rpc import kmc_messages
from tidings.security.rpc.messages import SERVICE_TOPIC, ServiceRecord
from tidings.security.tdn.discovery_records import DiscoveryRecord
from tidings.services.tdn import DiscoveryService

NODE = AUTHORITY.issue("tdn-1", Role.TDN, START)


def client_of(broker: Broker, name: str, **known: Any) -> Client:
    given = Security(revocations=AUTHORITY.revocations(now()), **known)
    return td.connect(address(broker), member=given.member(entity(name)), security=given)


@asynccontextmanager
async def discovery(broker: Broker, folder: Path) -> AsyncIterator[None]:
    update = AUTHORITY.revocations(now())
    async with (
        connect(broker, NODE.name) as client,
        DiscoveryService(client, NODE, folder / "tdn", revocations=update),
    ):
        yield


async def advertised(broker: Broker, kmc: Centre, topic: TopicRecord) -> None:
    """At the node, by its owner; and the centre is there, too."""
    async with connect(broker, "owner-2") as client:
        looking = Discovery(client, OWNER, credentials())
        await looking.advertise(DiscoveryRecord.topic(OWNER, topic, now()))
        async with asyncio.timeout(10):
            while not any(
                one.service is not None and one.service.topic == kmc.service.topic
                for one in await looking.find(centre=KMC.certificate.fingerprint)
            ):
                await asyncio.sleep(0.05)


def test_who_is_given_nothing_finds_topics_and_centres_at_discovery_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, discovery(broker, tmp_path), centre(broker, tmp_path, bogus=10) as kmc:
            topic = await kmc.topic()
            await kmc.grant(topic, "pub")
            await advertised(broker, kmc, topic)
            async with client_of(broker, "pub", finds="Sports=*") as pub:
                held = await pub.subscribe("Sports = 'NBA'")
                await pub.publish({"Sports": "NBA"}, payload=b"1")
                assert [one.payload for one in await held.take(timeout=60)] == [b"1"]
                for _ in range(20):  # so many that the centre moves
                    await pub.publish({SERVICE_TOPIC: kmc.service.topic}, payload=b"?")
                await until(lambda: kmc.service.version == 2)
                await advertised(broker, kmc, topic)
                assert pub.membership is not None
                await pub.membership.obtain(topic)

    run(scenario(), 60)


def test_who_begins_with_topics_that_nobody_tells_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would publish in the clear what is to be sealed."""
    monkeypatch.setattr("tidings.client.secure.kmc_client._ANSWER_SECONDS", 0.2)

    async def scenario() -> None:
        async with running() as broker:
            with pytest.raises(UnreachableError, match="no discovery node"):
                await client_of(broker, "pub", finds="*").__aenter__()
            await until(lambda: "pub" not in broker.sessions)

    run(scenario())


def test_with_a_list_that_is_out_of_date_that_is_why_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.client.secure.kmc_client._ANSWER_SECONDS", 0.2)
    given = Security(revocations=AUTHORITY.revocations(START, next_update=1), finds="*")

    async def scenario() -> None:
        async with running() as broker:
            with pytest.raises(SecurityError, match="the list of revocations is out of date"):
                await td.connect(address(broker), member=given.member(entity("pub")), security=given).__aenter__()

    run(scenario())


def test_a_centre_that_nobody_knows_is_named_as_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.client.secure.kmc_client._ANSWER_SECONDS", 0.2)
    topic = TopicRecord.make(OWNER, id=bytes(16), template="Sports=NBA", kmc=KMC.certificate)

    async def scenario() -> None:
        async with running() as broker, client_of(broker, "pub", topics=(topic,)) as pub:
            with pytest.raises(SecurityError, match="the key management centre of Sports=NBA cannot be found"):
                await pub.publish({"Sports": "NBA"})

    run(scenario())


@pytest.mark.parametrize("answer", ["Rex", "Bello", None], ids=["right", "wrong", "none"])
def test_a_query_of_the_centre_is_answered_by_the_function_that_was_given(tmp_path: Path, answer: str | None) -> None:
    async def answering(query: str) -> str:
        assert query == "the first pet?"
        return str(answer)

    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic(challenge=1)
            await kmc.grant(topic, "pub")
            await kmc.ask(kmc_messages.ENROL, kmc_messages.EnrolRequest((("the first pet?", "Rex"),)), entity("pub"))
            await asyncio.sleep(1.1)  # after which it is asked
            known = {"services": (kmc.service,), "topics": (topic,), "answer": answer and answering}
            async with client_of(broker, "pub", **known) as pub:
                if answer == "Rex":
                    await pub.publish({"Sports": "NBA"}, payload=b"1")
                    return
                told = "the answer is wrong" if answer else r"challenge: the first pet\? Answer .*`tidings kmc answer`"
                with pytest.raises(SecurityError, match=told):
                    await pub.publish({"Sports": "NBA"}, payload=b"1")

    run(scenario())


@pytest.mark.parametrize("lacking", ["centre", "answer"])
def test_who_cannot_get_a_token_for_now_does_not_come_back_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """Else what has waited for a durable subscription would be gone."""
    monkeypatch.setattr("tidings.client.secure.kmc_client._ANSWER_SECONDS", 0.5)
    AUTHORITY.issue("b1", Role.BROKER, now()).save(tmp_path / "b1")
    (tmp_path / "revocations").write_bytes(AUTHORITY.revocations(now()).data)
    tables: dict[str, Any] = {
        "journal": {"folder": str(tmp_path / "journal")},
        "security": {"identity": str(tmp_path / "b1"), "revocations": str(tmp_path / "revocations")},
        "tls": {"plain": True},
    }

    async def scenario() -> None:
        async with running("b1", **tables) as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic("Sports=NBA,Team=*")
            for name in ("pub", "fan"):
                await kmc.grant(topic, name)
            there, elsewhere = kmc.service, ServiceRecord.make(KMC, "0" * 32, kmc.service.kem, kmc.service.version)
            async with client_of(broker, "fan", services=(there,), topics=(topic,)) as fan:
                await fan.subscribe("Sports = 'NBA'", durable="mine")
            async with client_of(broker, "pub", services=(there,), topics=(topic,)) as pub:
                await pub.publish({"Sports": "NBA", "Team": "NYK"}, payload=b"1")
            if lacking == "answer":
                await kmc.ask(
                    kmc_messages.ENROL, kmc_messages.EnrolRequest((("the first pet?", "Rex"),)), entity("fan")
                )
                await kmc.ask(kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(topic.data, challenge=1))
                await asyncio.sleep(1.1)  # after which it is asked
            asks = there if lacking == "answer" else elsewhere
            async with client_of(broker, "fan", services=(asks,), topics=(topic,)) as fan:
                with pytest.raises((UnreachableError, SecurityError), match=r"has not answered|the first pet\?"):
                    await fan.subscribe("Sports = 'NBA'", durable="mine")
            answering = {"answer": lambda _: "Rex"}
            async with client_of(broker, "fan", services=(there,), topics=(topic,), **answering) as fan:
                held = await fan.subscribe("Sports = 'NBA'", durable="mine")
                assert [one.payload for one in await held.take(timeout=60)] == [b"1"]

    run(scenario(), 60)


def test_a_centre_that_refuses_is_not_asked_with_every_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            async with client_of(broker, "pub", services=(kmc.service,), topics=(topic,)) as pub:
                before = kmc.server.answering.answered
                for _ in range(20):
                    with pytest.raises(SecurityError, match="pub has no rights on Sports=NBA"):
                        await pub.publish({"Sports": "NBA"})
                assert kmc.server.answering.answered - before <= 3

    with caplog.at_level(logging.WARNING, "tidings.client"):
        run(scenario())
    assert not caplog.records


def test_secrets_are_in_no_repr_of_a_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker, tmp_path) as kmc:
            topic = await kmc.topic()
            await kmc.grant(topic, "pub")
            async with client_of(broker, "pub", services=(kmc.service,), topics=(topic,)) as pub:
                await pub.publish({"Sports": "NBA"}, payload=b"1")
                membership = pub.membership
                assert membership is not None
                key = membership.member.keyring.latest(topic.id)
                assert key is not None
                for one in (pub, membership.member, membership.member.keyring, key, pub.session, membership):
                    assert key.key.hex() not in repr(one)
                    assert repr(key.key) not in repr(one)

    run(scenario())

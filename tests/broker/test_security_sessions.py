"""Who is at the other end: proofs of subscribers, revoked certificates, and what can be seen of it all from outside."""

import asyncio
import ssl
from pathlib import Path
from struct import pack
from typing import Any

import msgspec
import pytest

from tests.broker.cases import Raw, framed, hello, run, running, until
from tests.broker.secured import (
    LiveWorld,
    advertised,
    carried,
    event_of,
    line,
    now,
    proven,
    publish,
    settled,
    wanted,
)
from tidings.broker.broker import Broker
from tidings.broker.ops.prometheus import PrometheusPage
from tidings.engine.operations import Publish
from tidings.model.errors import InvalidValueError
from tidings.model.values import Attributes
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind, frame
from tidings.protocol.handshake import Bye, Welcome
from tidings.protocol.operations import operation_frame
from tidings.security import Right, Role


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def test_every_connection_has_a_nonce_of_its_own_and_none_without_a_gate(world: LiveWorld) -> None:
    async def scenario() -> list[bytes]:
        nonces = []
        async with running("b1", **world.security("b1")) as broker:
            for session in (1, 2):
                async with Raw.client(broker, "bob", session) as bob:
                    nonces.append(bob.welcome.nonce)
        async with running("b2") as plain, Raw.client(plain, "bob") as bob:
            return [*nonces, bob.welcome.nonce]

    first, second, none = run(scenario())
    assert len(first) == len(second) == 32
    assert first != second
    assert none == b""


def test_a_token_without_a_good_proof_is_refused(world: LiveWorld) -> None:
    async def scenario() -> dict[str, Any]:
        async with (
            running("b1", **world.security("b1")) as broker,
            Raw.client(broker, "bob") as bob,
            Raw.client(broker, "eve") as eve,
        ):
            asked = wanted(world)
            good = proven(world, asked, bob)
            tried = {
                "no proof": asked,
                "no signature": msgspec.structs.replace(asked, proof=b"x"),
                "by another key": proven(world, asked, bob, "eve"),
                "of another request": msgspec.structs.replace(good, content="Sports = 'NBA' or score > 3"),
                "of another session": proven(world, asked, eve),
                "a token that is none": msgspec.structs.replace(good, token=b"none"),
            }
            told = {wrong: await bob.asked(one) for wrong, one in tried.items()}
            told["held by another"] = await eve.asked(proven(world, wanted(world, id="eve.1"), eve))
            assert broker.gate is not None
            assert broker.gate.refused["proof"] == 5
            assert not [one for one in broker.node.engine.state.filters.subscriptions if one.owner in ("bob", "eve")]
            assert isinstance(await bob.asked(good), answers.RequestDone)
            return told

    told = run(scenario())
    assert {type(one) for one in told.values()} == {answers.RequestRefused}
    proofs = ("no proof", "no signature", "by another key", "of another request", "of another session")
    assert {told[one].step for one in proofs} == {"proof"}
    assert told["a token that is none"].error == "SecurityError"


def test_a_proof_for_one_broker_is_none_for_another(world: LiveWorld) -> None:
    async def scenario() -> Any:
        async with line(world, ("b1", "b2")) as brokers, Raw.client(brokers[1], "bob") as bob:
            asked = wanted(world)
            bob.welcome = msgspec.structs.replace(bob.welcome, broker="b1")
            return await bob.asked(proven(world, asked, bob))

    assert run(scenario()).step == "proof"


def shortest(value: Any) -> bytes:
    """MessagePack as the page of the wire protocol asks for it: of what a subscription is made of."""
    match value:
        case None:
            return b"\xc0"
        case int():
            return pack("B", value)
        case str():
            text = value.encode()
            return (pack("B", 0xA0 | len(text)) if len(text) < 32 else pack("BB", 0xD9, len(text))) + text
        case bytes():
            return (pack("BB", 0xC4, len(value)) if len(value) < 256 else pack(">BH", 0xC5, len(value))) + value
    return pack("B", 0x90 | len(value)) + b"".join(map(shortest, value))


def test_a_proof_is_made_as_the_page_of_the_wire_protocol_says(world: LiveWorld) -> None:

    async def scenario() -> Any:
        async with running("b1", **world.security("b1")) as broker, Raw.client(broker, "bob") as bob:
            token = world.token("bob", Right.SUBSCRIBE).data
            asked = [0, "bob.1", "Sports = 'NBA'", *[None] * 3, "subscription", *[None] * 3, token, None]
            signed = shortest([bob.welcome.nonce, shortest([bob.welcome.broker, asked])])
            asked[-1] = world.signing["bob"].sign(b"tidings/1/subscription\0" + signed)
            bob.send(frame(FrameKind.SUBSCRIBE, shortest([7, *asked[1:]])))
            return await bob.answered()

    assert run(scenario()) == answers.RequestDone(7, (), "bob.1")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ({"rights": Right.PUBLISH}, "no right to subscribe"),
        ({"since": 2**60, "until": 2**61}, "not valid yet"),
        ({"since": 0, "until": 1}, "has expired"),
    ],
    ids=str,
)
def test_a_token_that_does_not_give_the_right_is_refused_with_the_reason(
    world: LiveWorld, token: dict[str, Any], reason: str
) -> None:
    async def scenario() -> Any:
        async with running("b1", **world.security("b1")) as broker, Raw.client(broker, "bob") as bob:
            asked = wanted(world, world.token("bob", **token))
            return await bob.asked(proven(world, asked, bob))

    assert reason in run(scenario()).reason


# Certificates


async def connected(broker: Broker, world: LiveWorld, name: str, role: Role = Role.ENTITY, says: str = "client") -> Raw:
    folder = world.identity(name, role)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    raw = Raw(*await asyncio.open_connection(broker.address.host, broker.address.port, ssl=context))
    raw.send(framed(hello(name, role=says)))
    return raw


def secured(world: LiveWorld, name: str = "b1") -> dict[str, Any]:
    return {**world.security(name), "tls": {}}


def test_connections_of_a_revoked_certificate_are_closed_at_once_and_not_opened_again(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with running("b1", **secured(world)) as broker:
            ann, eve = [await connected(broker, world, name) for name in ("ann", "eve")]
            assert isinstance(await ann.told(), Welcome)
            assert isinstance(await eve.told(), Welcome)
            await ann.asked(requests.AdvertiseRequest(1, "ann.1"))
            ann.send(carried("revocations", world.revoked("eve").data, 2))
            ended = await eve.end()
            assert isinstance(ended[-1], Bye)
            assert "revoked" in ended[-1].reason
            assert ended[-1].again is False
            assert isinstance(await ann.answered(), answers.PublicationReceipts)
            again = await connected(broker, world, "eve")
            [refused] = await again.end()
            assert isinstance(refused, Bye)
            assert "revoked" in refused.reason
            assert set(broker.sessions) == {"ann"}
            for one in (ann, eve, again):
                one.writer.transport.abort()

    run(scenario())


def test_only_a_brokers_certificate_makes_a_neighbour(world: LiveWorld) -> None:
    async def scenario() -> Any:
        async with running("b1", links=[{"broker": "b2"}], **secured(world)) as broker:
            false = await connected(broker, world, "b2", Role.ENTITY, says="broker")
            told = await false.end()
            false.writer.transport.abort()
            return told

    [told] = run(scenario())
    assert "is that of a entity, not of a broker" in told.reason


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"identity": "nowhere"}, "security.identity: identity: nowhere/authority.pem"),
        ({"identity": "ann"}, "is that of ann, entity; it must be that of b1, broker"),
        ({"revocations": "nowhere"}, "security.revocations: nowhere: No such file"),
        ({"revocations": "record"}, "security.revocations: .*: this is no update of revocations"),
        ({"topics": ["list"]}, "security.topics: .*: this is no topic record"),
    ],
    ids=str,
)
def test_a_broker_whose_files_are_wrong_does_not_start(world: LiveWorld, change: dict[str, Any], told: str) -> None:
    files = {"ann": world.identity("ann", Role.ENTITY), "record": world.record_file, "list": world.list_file}
    change = {
        key: [str(files.get(one, one)) for one in value] if isinstance(value, list) else str(files.get(value, value))
        for key, value in change.items()
    }

    async def scenario() -> None:
        async with running("b1", **world.security("b1", **change)):
            pass

    with pytest.raises(InvalidValueError, match=told):
        run(scenario())


def test_brokers_with_identities_link_over_tls_and_pass_sealed_events_on(world: LiveWorld) -> None:
    async def scenario() -> None:
        tls: dict[str, Any] = {name: {"tls": {}} for name in ("b1", "b2")}
        async with line(world, ("b1", "b2"), **tls) as brokers:
            world.ann.save(world.folder / "ann-identity")
            world.bob.save(world.folder / "bob-identity")
            ann, bob = await connected(brokers[0], world, "ann"), await connected(brokers[1], world, "bob")
            await ann.told()
            bob.welcome = await bob.told()
            await advertised(ann)
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.RequestDone)
            await settled(brokers)
            ann.send(publish(world.sealed(1), 1))
            got = event_of(await bob.next_note())
            assert world.opener().open(got, got.timestamp).payload == b"a secret of the team"
            ann.send(carried("revocations", world.revoked("b2").data, 2))
            await until(lambda: not brokers[0].links)  # a neighbour is one as long as its certificate counts
            for one in (ann, bob):
                one.writer.transport.abort()

    run(scenario())


def test_what_a_false_neighbour_lets_pass_without_a_token_goes_no_further(world: LiveWorld) -> None:
    async def scenario() -> None:
        tables = world.security("b1")
        async with (
            running("b1", links=[{"broker": "b2"}], **tables) as broker,
            Raw.client(broker, "bob") as bob,
            Raw.to(broker) as false,
        ):
            await bob.asked(proven(world, wanted(world), bob))
            false.say(hello("b2", role="broker"))
            assert isinstance(await false.told(), Welcome)
            good = world.sealed(1)
            replaced = msgspec.structs.replace
            tried = [
                world.event(2),
                replaced(good, payload=b"x" * 40),
                replaced(good, attributes=Attributes({**good.attributes, "score": 7})),
                replaced(good, publisher="eve"),
                replaced(good, token=world.token("bob").data),
            ]
            for event in tried:
                false.send(operation_frame(Publish(event)))
            assert broker.gate is not None
            refused = broker.gate.refused
            await until(lambda: refused.total() == len(tried))
            false.send(operation_frame(Publish(good)))
            assert event_of(await bob.next_note()).id == good.id

    run(scenario())


# What can be seen


def test_status_and_metrics_show_topics_the_list_and_what_was_refused(world: LiveWorld) -> None:
    async def scenario() -> tuple[dict[str, Any], str]:
        async with running("b1", **world.security("b1")) as broker, Raw.client(broker, "bob") as bob:
            await bob.asked(wanted(world))
            answer = await bob.asked(requests.QueryRequest(2, "status"))
            page = PrometheusPage("b1", broker.metrics, broker.parts.health.gauges).page()[0].decode()
            return answer.answer["security"], page

    status, page = run(scenario())
    assert status["topics"] == 1
    assert status["refused"] == {"proof": 1}
    assert status["revocations"]["version"] == 0
    assert status["revocations"]["in_force"] is True
    assert 0 <= status["revocations"]["age"] < 3_600
    assert 'tidings_security_refusals_total{check="proof"} 1.0' in page
    assert "tidings_secure_topics 1.0" in page
    assert "tidings_revocation_list_version 0.0" in page
    [line_] = [one for one in page.splitlines() if one.startswith("tidings_revocation_list_expiry_timestamp_seconds")]
    assert float(line_.split()[1]) > now() / 1_000_000


def test_a_reload_reads_the_files_anew(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with running("b1", **world.security("b1")) as broker:
            assert broker.gate is not None
            revocations = broker.gate.credentials.revocations
            world.list_file.write_bytes(world.revoked("eve").data)
            await broker.reload(broker.configuration)
            assert revocations.version == 1
            world.list_file.write_bytes(b"no list")
            with pytest.raises(InvalidValueError, match=r"security\.revocations"):
                await broker.reload(broker.configuration)
            assert revocations.version == 1

    run(scenario())

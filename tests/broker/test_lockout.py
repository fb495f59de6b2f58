"""Floods: who makes too many attempts that are refused is shut out, before anything costly; others are served."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.cases import Raw, connect, framed, hello, run, running, until
from tests.broker.certified import Certified
from tests.broker.secured import LiveWorld, now, publish
from tests.sizes import examples
from tidings.broker.broker import Broker
from tidings.broker.config.tables import LimitsTable
from tidings.broker.net.rate_limits import Lockout
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_WATCHED_PARTIES
from tidings.protocol import answers

FEW = {"bogus_attempts": 5, "bogus_seconds": 60.0, "shut_out_seconds": 600.0, "handshake_seconds": 0.2}


# Counting


def test_attempts_are_forgiven_and_more_of_them_punished_for_ever_longer() -> None:
    attempts = Lockout(LimitsTable(bogus_attempts=3, bogus_seconds=30.0, shut_out_seconds=10.0))
    assert [attempts.record_refused("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert attempts.record_refused("a", 0.0) == 10.0
    assert attempts.check("a", 4.0) == 6.0
    assert attempts.check("b", 4.0) == 0.0
    assert attempts.check("a", 10.0) == 0.0
    assert attempts.record_refused("a", 20.0) == 0.0  # two thirds of the time are over: two are forgiven
    assert attempts.record_refused("a", 20.0) == 20.0
    assert attempts.record_refused("a", 21.0) == 19.0  # while it is shut out, it is not punished for more
    assert attempts.record_refused("a", 1e6) == 0.0


def test_nobody_is_shut_out_for_more_than_an_hour() -> None:
    attempts = Lockout(LimitsTable(bogus_attempts=1, bogus_seconds=1e-3, shut_out_seconds=600.0))
    now = longest = 0.0
    for _ in range(100):
        longest = max(longest, attempts.record_refused("a", now))
        now += attempts.check("a", now)
    assert longest == 3_600.0


def test_a_flood_of_addresses_takes_bounded_room() -> None:
    attempts = Lockout(LimitsTable(bogus_attempts=1))
    for number in range(MAX_WATCHED_PARTIES + 10):
        attempts.record_refused(str(number), 0.0)
        attempts.record_refused(str(number), 0.0)
    assert len(attempts) == MAX_WATCHED_PARTIES
    assert attempts.check("0", 0.0) == 0.0
    assert attempts.check(str(MAX_WATCHED_PARTIES), 0.0) > 0.0


@examples(100, 2_000)
@given(st.lists(st.floats(0, 20), max_size=60), st.integers(1, 10))
def test_who_stays_below_the_rate_is_never_shut_out(pauses: list[float], limit: int) -> None:
    attempts = Lockout(LimitsTable(bogus_attempts=limit, bogus_seconds=10.0))
    now = 0.0
    noted: list[float] = []
    for pause in pauses:
        now += pause
        lately = [one for one in noted if one > now - 10.0]
        if len(lately) < limit - 1:
            noted.append(now)
            assert attempts.record_refused("a", now) == 0.0


# Brokers


async def attempt(broker: Broker, data: bytes, host: str = "127.0.0.1") -> bytes:
    """What a broker says to that, before it closes the connection."""
    try:
        reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port, local_addr=(host, 0))
    except ConnectionError:
        return b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        said = await reader.read()
        writer.close()
        return said
    return b""


BOGUS = [b"GET / HTTP/1.1\r\n\r\n" * 20, b"\x00\x00\x00\x05\x0aabcd", framed(hello("car"))[:-3], framed(hello("b1"))]


@pytest.mark.parametrize("data", BOGUS, ids=["another protocol", "no hello", "half a hello", "a name not its own"])
def test_a_flood_from_one_address_is_shut_out_and_another_address_is_served(data: bytes) -> None:
    async def scenario() -> None:
        async with running("b1", limits=FEW) as broker:
            said = [await attempt(broker, data) for _ in range(10)]
            assert all(said[:5])
            assert said[6:] == [b""] * 4
            assert broker.metrics.security.shut_out == 10 - broker.metrics.security.bogus >= 4
            with pytest.raises(ConnectionError):
                await well_behaved(broker, "127.0.0.1")
            await well_behaved(broker, "127.0.0.2")
            assert not broker.parts.admission.connections["127.0.0.1"]

    run(scenario())


async def well_behaved(broker: Broker, host: str) -> None:
    reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port, local_addr=(host, 0))
    writer.write(framed(hello(f"car-{host}")))
    try:
        await reader.readexactly(20)
    except asyncio.IncompleteReadError:
        raise ConnectionError("shut out") from None
    finally:
        writer.close()


def test_who_is_connected_stays_when_its_address_is_shut_out() -> None:
    async def scenario() -> None:
        async with running("b1", limits=FEW) as broker, connect(broker, "car") as car:
            for _ in range(10):
                await attempt(broker, BOGUS[0])
            assert broker.metrics.security.shut_out
            assert await car.ask("status")

    run(scenario())


def test_failed_tls_handshakes_count_and_no_more_are_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        certified = Certified(tmp_path)
        async with running("b1", tls=certified.tls("b1"), limits=FEW) as broker:
            stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
            for _ in range(3):
                with contextlib.suppress(OSError):  # without a certificate
                    reader, writer = await asyncio.open_connection(
                        broker.address.host, broker.address.port, ssl=stranger
                    )
                    await reader.read()
                    writer.close()
            for _ in range(3):
                await attempt(broker, BOGUS[0])
            await until(lambda: broker.metrics.security.bogus == 6)
            handshakes = broker.parts.certificates.server.session_stats()["accept"]  # type: ignore[union-attr]
            for _ in range(10):
                await attempt(broker, BOGUS[0])
            assert broker.metrics.security.shut_out == 10
            assert broker.parts.certificates.server.session_stats()["accept"] == handshakes  # type: ignore[union-attr]

    run(scenario())


def test_connections_that_say_nothing_are_counted_when_their_time_is_over() -> None:
    async def scenario() -> None:
        async with running("b1", limits=FEW) as broker:
            silent = [socket.create_connection((broker.address.host, broker.address.port)) for _ in range(6)]
            await until(lambda: broker.metrics.security.bogus == 6)
            for one in silent:
                one.close()
            assert await attempt(broker, framed(hello("car"))) == b""

    run(scenario())


def test_an_identity_is_shut_out_only_by_what_its_own_certificate_has_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        certified = Certified(tmp_path)
        limits = {**FEW, "bogus_attempts": 2}
        async with running("b1", tls=certified.tls("b1"), limits=limits) as broker:
            async with connect(broker, "car", identity=certified.client("car")) as car:
                session = broker.sessions["car"]
                session.connection.peer.host = "192.0.2.1"  # as if from elsewhere
                for _ in range(3):
                    broker.parts.attempts.record(session.connection, "bus")
                assert not broker.parts.attempts.certificate_wait("bus")
                session.connection.peer.host = "192.0.2.2"
                for _ in range(3):
                    broker.parts.attempts.record(session.connection, "car")
                session.connection.peer.host = "127.0.0.1"
                await until(lambda: "car" not in broker.sessions)
                assert car
            assert broker.parts.attempts.certificate_wait("car") > 0
            async with connect(broker, "bus", identity=certified.client("bus")) as bus:
                assert await bus.ask("status")

    run(scenario())


def test_a_flood_of_forged_tokens_ends_the_connection_and_an_expired_one_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = LiveWorld(tmp_path)
        tables = {**world.security("b1"), "limits": FEW, "broker": {"advertisements_required": False}}
        late = world.sealer(world.token(until=now() - 1)).seal(world.event(1), now(), 1)
        forged = msgspec.structs.replace(late, token=b"token")
        async with running("b1", **tables) as broker, Raw.client(broker, "ann") as ann:
            for number in range(1, 21):
                ann.send(publish(late, number))
                assert isinstance(await ann.answered(), answers.RequestRefused)
            assert broker.metrics.security.bogus == 0
            for number in range(21, 30):
                ann.send(publish(forged, number))
            assert "too many attempts were refused" in (await ann.end())[-1].reason
            assert broker.metrics.security.bogus >= 6
            assert await attempt(broker, framed(hello("ann", 2))) == b""

    run(scenario())


def test_a_flood_of_false_news_for_the_gate_ends_the_connection_and_an_old_list_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = LiveWorld(tmp_path)
        tables = {**world.security("b1"), "limits": FEW, "broker": {"advertisements_required": False}}
        async with running("b1", **tables) as broker, Raw.client(broker, "ann") as ann:
            for number, payload in enumerate([world.authority.revocations(now() - 1).data] * 20 + [b"news"] * 9, 1):
                said = Event.of(
                    {"security": "record" if payload == b"news" else "revocations"},
                    id=uuid7(now(), number.to_bytes(10, "big")),
                    publisher="ann",
                    timestamp=0,
                    sequence=number,
                    payload=payload,
                )
                ann.send(publish(said, number))
                if number <= 20:
                    assert isinstance(await ann.answered(), answers.PublicationReceipts)
            assert "too many attempts were refused" in (await ann.end())[-1].reason
            assert broker.metrics.security.bogus >= 6

    run(scenario())

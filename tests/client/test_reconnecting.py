"""A client whose connection breaks goes on as if nothing had been, at the same broker or at another."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import Raw, address, connect, hello, run, running, until
from tests.broker.certified import Certified
from tidings.broker.broker import Broker
from tidings.client import Client, ClientSubscription, TlsIdentity
from tidings.model.errors import ClosedError, InvalidValueError, PublishedBeforeError, UnreachableError
from tidings.protocol.frames import FrameKind
from tidings.runtime.durable_inbox import DurableInbox

LOOP = td.Schema("Loop", {"li": int, "lo": str})


def numbers(notes: list[td.Notification]) -> list[Any]:
    return [note.attributes["n"] for note in notes]


def at(broker: Broker) -> dict[str, Any]:
    """For a broker that is started again where that one was."""
    return {"listen": str(broker.address)}


async def cut(broker: Broker, client: Client) -> None:
    """As if the cable were pulled, and put in again."""
    before = client.session.connections
    broker.sessions[client.name].connection.abort("cut off by the test")
    await until(lambda: client.session.connections > before)


async def all_of(held: ClientSubscription, count: int) -> list[Any]:
    """The numbers of so many notifications, after which no more come."""
    got: list[td.Notification] = []
    while len(got) < count and (more := await held.take(timeout=60)):
        got += more
        if held.durable is not None:
            await held.acknowledge_all()
    return numbers([*got, *await held.take(timeout=0.05)])


class Talker(asyncio.Protocol):
    """Listens, and says always the same."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def connection_made(self, transport: Any) -> None:
        transport.write(self._said)


async def talking(said: bytes) -> tuple[asyncio.Server, str]:
    server = await asyncio.get_running_loop().create_server(lambda: Talker(said), "127.0.0.1", 0)
    return server, f"tidings://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_everything_is_said_again_to_a_broker_that_was_started_anew() -> None:
    async def scenario() -> None:
        async with running() as broker:
            car, camera = connect(broker, "car-1"), connect(broker, "cam-1")
            await car.__aenter__()
            await camera.__aenter__()
            await car.set_context(x=1)
            await car.let_set_context("gps")
            await car.schema(LOOP)
            near = await car.subscribe("n > 0", publishers="x = this.x")
            await camera.set_context(x=1)
            offer = await camera.advertise("n > 0", publisher_context=["x"], id="offer")
            where = at(broker)
        await until(lambda: not car.is_connected and not camera.is_connected)
        async with running(broker=where) as broker:
            await until(lambda: car.is_connected and camera.is_connected)
            await until(lambda: broker.node.registry.count("car-1") == 1 and "cam-1" in broker.sessions)
            assert (await car.schema("Loop")) == LOOP
            assert [one["id"] for one in (await camera.topics())["advertisements"]] == [offer.id]
            assert broker.node.registry.contexts["car-1"] == {"x": 1}
            await camera.publish({"n": 1})
            assert numbers(await near.take(timeout=60)) == [1]
            async with connect(broker, "gps") as gps:
                await gps.set_context({"x": 2}, of="car-1")
            await until(lambda: car.context == {"x": 2})
            await car.close()
            await camera.close()

    run(scenario())


@pytest.mark.parametrize("safe", ["accepted", "journaled", "settled"])
def test_publications_under_way_arrive_once_and_in_order_however_often_it_is_cut_off(tmp_path: Path, safe: str) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with (
            running(journal=journal) as broker,
            connect(broker, "car-1") as car,
            connect(broker, "cam-1") as camera,
        ):
            held = await car.subscribe("")
            publishing = []
            for begin in range(0, 300, 60):
                publishing += [asyncio.ensure_future(camera.publish({"n": begin + n}, safe=safe)) for n in range(60)]
                await asyncio.sleep(0.002)
                await cut(broker, camera)
            receipts = await asyncio.gather(*publishing)
            assert [one.event.sequence for one in receipts] == list(range(1, 301))
            at_least = "journaled" if safe == "settled" else safe  # of one whose receipt was lost, no more is known
            assert {one.safe for one in receipts if one.offset < 0} <= {at_least}
            assert {one.safe for one in receipts if one.offset >= 0} <= {safe}
            assert await all_of(held, 300) == list(range(300))

    run(scenario())


def test_publications_under_way_outlive_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with running(journal=journal) as broker:
            car, camera = connect(broker, "car-1"), connect(broker, "cam-1")
            await car.__aenter__()
            await camera.__aenter__()
            held = await car.subscribe("", durable="all")
            first = [asyncio.ensure_future(camera.publish({"n": n})) for n in range(200)]
            await asyncio.sleep(0.005)
            where = at(broker)
        meanwhile = [asyncio.ensure_future(camera.publish({"n": n})) for n in range(200, 220)]
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in meanwhile)
        async with running(journal=journal, broker=where) as broker:
            await asyncio.gather(*first, *meanwhile)
            assert await all_of(held, 220) == list(range(220))
            await car.close()
            await camera.close()

    run(scenario())


def test_what_was_never_sent_is_not_taken_for_sent_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with running(journal=journal) as broker:
            client = connect(broker, "cam-1")
            await client.__aenter__()
            known = await client.publish({"n": 1})
            where = at(broker)
        await until(lambda: not client.is_connected)
        again = asyncio.ensure_future(client.publish({"n": 2}, id=known.event.id))
        await asyncio.sleep(0)
        async with running(broker=where, journal=journal):
            with pytest.raises(PublishedBeforeError):
                await again
            await client.close()

    run(scenario())


# Durable subscriptions


def test_what_was_acknowledged_never_comes_again_and_the_rest_does_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with running(journal=journal) as broker, connect(broker, "cam-1") as camera:
            async with connect(broker, "car-1") as car:
                held = await car.subscribe("", durable="all")
                for n in range(6):
                    await camera.publish({"n": n})
                await until(lambda: held.waiting == 6)
                taken = await held.take(5)
                assert numbers(taken) == [0, 1, 2, 3, 4]
                assert await held.acknowledge(taken[0], taken[3]) == 2
                assert await held.acknowledge(taken[0]) == 0
            await camera.publish({"n": 6})
            async with connect(broker, "car-1") as car:
                held = await car.subscribe("", durable="all")
                await until(lambda: held.waiting == 5)
                assert numbers(await held.take()) == [1, 2, 4, 5, 6]
                assert await held.acknowledge_all() == 5
            where = at(broker)
        async with running(journal=journal, broker=where) as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("", durable="all")
            async with connect(broker, "cam-1") as camera:
                await camera.publish({"n": 7})
            assert numbers(await held.take(timeout=60)) == [7]
            await held.unsubscribe()

    run(scenario())


def test_a_program_that_holds_its_notifications_does_not_see_them_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with running(journal=journal) as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            held = await car.subscribe("", durable="all")
            for n in range(4):
                await car.publish({"n": n})
            await until(lambda: held.waiting == 4)
            taken = await held.take(2)
            where = at(broker)
        await until(lambda: not car.is_connected)
        await held.acknowledge(taken[0])  # nobody hears it
        async with running(broker=where, journal=journal) as broker:
            await car.publish({"n": 4})
            await until(lambda: held.waiting == 3)
            assert numbers(await held.take()) == [2, 3, 4]
            await held.acknowledge_all()
            await until(lambda: broker.node.registry.subscriptions_of("car-1")[0].waiting == 0)
            inbox = broker.node.registry.subscriptions_of("car-1")[0].inbox
            assert isinstance(inbox, DurableInbox)
            await until(lambda: not inbox.taken_events())
            await car.close()

    run(scenario())


def test_a_durable_subscription_that_is_closed_collects_at_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(journal={"folder": str(tmp_path)}) as broker, connect(broker, "car-1") as car:
            first = await car.subscribe("", durable="all")
            await car.publish({"n": 1})
            assert numbers(await first.take(timeout=60)) == [1]
            await first.close()
            await car.publish({"n": 2})
            await cut(broker, car)
            await car.publish({"n": 3})
            second = await car.subscribe("", durable="all")
            await until(lambda: second.waiting == 3)
            assert numbers(await second.take()) == [1, 2, 3]
            third = await car.subscribe("", durable="all")
            assert second.closed
            await until(lambda: third.waiting == 3)
            await third.take()
            assert await third.acknowledge_all() == 3

    run(scenario())


def test_a_subscription_may_turn_durable_and_back() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            for turn in range(3):
                durable = await car.subscribe("", durable="all", id="s")
                await car.publish({"n": turn})
                assert numbers(await durable.take(timeout=60)) == [turn]
                await durable.acknowledge_all()
                plain = await car.subscribe("", id="s")
                assert durable.closed
                await car.publish({"n": turn + 10})
                assert numbers(await plain.take(timeout=60)) == [turn + 10]

    run(scenario())


# Where to


def test_what_was_taken_back_before_the_connection_broke_is_no_error() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("a = 1")
            offer = await car.advertise("a = 1")
            assert car.session.transport is not None
            car.session.transport.on_frames = lambda frames: None  # the answers are lost on the way
            doing = [asyncio.ensure_future(held.unsubscribe()), asyncio.ensure_future(car.unadvertise(offer))]
            await until(lambda: not broker.node.engine.state.filters.advertisements.of("car-1"))
            assert not any(one.done() for one in doing)
            await cut(broker, car)
            await asyncio.gather(*doing)

    run(scenario())


def test_of_several_brokers_the_first_that_answers_is_taken_and_the_next_when_it_is_gone() -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            dead = f"tidings://127.0.0.1:{nobody.getsockname()[1]}"
            async with running("b2") as b2:
                async with running("b1") as b1:
                    client = td.connect([dead, address(b1), address(b2)], "car-1")
                    await client.__aenter__()
                    assert client.broker == "b1"
                    held = await client.subscribe("")
                await until(lambda: client.is_connected and client.broker == "b2")
                await client.publish({"n": 1})
                assert numbers(await held.take(timeout=60)) == [1]
                await client.close()

    run(scenario())


def test_a_client_moves_with_all_that_it_has() -> None:
    async def scenario() -> None:
        async with running("b1", links=[{"broker": "b2"}]) as b1:
            links = [{"broker": "b1", "address": str(b1.address)}]
            async with running("b2", links=links) as b2, connect(b2, "cam-1") as camera:
                await until(lambda: b1.is_settled and b2.is_settled and b1.links)
                async with connect(b1, "car-1") as car:
                    await car.set_context(x=1)
                    held = await car.subscribe("", publishers="x = this.x")
                    await camera.set_context(x=1)
                    offer = await camera.advertise("", publisher_context=["x"])
                    await until(lambda: b1.is_settled and b2.is_settled)
                    await camera.publish({"n": 1}, safe="settled")
                    assert numbers(await held.take(timeout=60)) == [1]
                    await car.move(address(b2))
                    assert car.broker == "b2"
                    await camera.publish({"n": 2}, safe="settled")
                    assert numbers(await held.take(timeout=60)) == [2]
                    await car.move(address(b1))
                    assert car.broker == "b1"
                    await until(lambda: b1.is_settled and b2.is_settled)
                    await camera.publish({"n": 3}, safe="settled")
                    assert numbers(await held.take(timeout=60)) == [3]
                    await camera.unadvertise(offer)

    run(scenario())


def test_what_waits_for_a_client_follows_it_however_large_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        given = {"frame_bytes": 2 * 1024 * 1024}
        b1_folder, b2_folder = ({"folder": str(tmp_path / name)} for name in ("b1", "b2"))
        async with running("b1", links=[{"broker": "b2"}], journal=b1_folder, limits=given) as b1:
            links = [{"broker": "b1", "address": str(b1.address)}]
            async with (
                running("b2", links=links, journal=b2_folder, limits=given) as b2,
                connect(b2, "cam-1") as camera,
            ):
                await until(lambda: b1.links and b1.is_settled and b2.is_settled)
                await camera.advertise("")
                async with connect(b1, "car-1") as car:
                    held = await car.subscribe("", durable="all")
                    await until(lambda: b1.is_settled and b2.is_settled)
                payload = bytes(1024 * 1024)
                await asyncio.gather(*[camera.publish({"n": n}, payload=payload, safe="settled") for n in range(20)])
                async with connect(b2, "car-1") as car:
                    held = await car.subscribe("", durable="all")
                    assert await all_of(held, 20) == list(range(20))
                assert b1.links
                assert b1.metrics.traffic.misunderstood == b2.metrics.traffic.misunderstood == 0
                assert b1.metrics.traffic.broken_connections == b2.metrics.traffic.broken_connections == 0

    run(scenario())


def test_who_cannot_move_is_told_and_goes_back() -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            async with running() as broker, connect(broker, "car-1") as car:
                with pytest.raises(UnreachableError, match="the client is at b1"):
                    await car.move(f"tidings://127.0.0.1:{nobody.getsockname()[1]}")
                assert car.broker == "b1"
                await car.publish({"n": 1})

    run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "a" * 70 + ".example", "no-such-host.invalid"])
def test_where_nobody_answers_patience_ends_with_reasons(host: str) -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            client = td.connect(f"tidings://{host}:{nobody.getsockname()[1]}", "car-1", patience=0.2)
            with pytest.raises(UnreachableError, match="no broker could be reached"):
                await client.__aenter__()
            with pytest.raises(ClosedError):
                await client.publish({"n": 1})
            await client.close()

    run(scenario())


def test_who_listens_and_says_nothing_is_no_broker() -> None:
    async def scenario() -> None:
        server, where = await talking(b"")
        async with server:
            with pytest.raises(UnreachableError, match="no answer within"):
                await td.connect(where, "car-1", patience=0.3).__aenter__()

    run(scenario())


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0", b"\0\0\0\3\x02\xc1\xc1", b"\0\0\0\3\x21ab", b"\xff" * 9]
)
def test_a_broker_that_talks_nonsense_is_left(said: bytes) -> None:
    async def scenario() -> None:
        server, where = await talking(said)
        async with server:
            with pytest.raises(UnreachableError, match="the broker sent"):
                await td.connect(where, "car-1", patience=0.3).__aenter__()

    run(scenario())


@pytest.mark.parametrize("given", ["", "tidings://", "http://x:1", "x:0", "x:99999", ["a:1", ""], []])
def test_addresses_that_are_none_are_refused_at_once(given: Any) -> None:
    with pytest.raises(InvalidValueError, match="address"):
        td.connect(given, "car-1")


# The end


def test_closing_waits_for_what_was_published() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("")
            camera = connect(broker, "cam-1")
            await camera.__aenter__()
            publishing = [asyncio.ensure_future(camera.publish({"n": n})) for n in range(100)]
            await asyncio.sleep(0)
            await camera.close()
            receipts = await asyncio.gather(*publishing)
            assert all(one.offset >= 0 for one in receipts)
            assert await all_of(held, 100) == list(range(100))
            with pytest.raises(ClosedError):
                await camera.publish({"n": 1})
            await camera.close()

    run(scenario())


def test_what_waits_for_a_broker_that_is_gone_ends_with_the_client() -> None:
    async def scenario() -> None:
        async with running() as broker:
            client = connect(broker, "car-1", patience=0.2)
            await client.__aenter__()
            held = await client.subscribe("")
        waiting = [
            asyncio.ensure_future(client.publish({"n": 1})),
            asyncio.ensure_future(client.ask("status")),
            asyncio.ensure_future(anext(aiter(held))),
        ]
        await asyncio.sleep(0.05)
        await client.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ends] == [ClosedError, ClosedError, StopAsyncIteration]

    run(scenario())


def test_a_broker_that_does_not_read_does_not_keep_a_client_from_closing() -> None:
    async def scenario() -> None:
        async with running() as broker:
            client = connect(broker, "cam-1", patience=0.1)
            await client.__aenter__()
            broker.sessions["cam-1"].connection.flow.set_reading(False)
            payload = bytes(1024 * 1024)
            publishing = [asyncio.ensure_future(client.publish({"n": n}, payload=payload)) for n in range(32)]
            await asyncio.sleep(0.05)
            await client.close()
            ends = await asyncio.gather(*publishing, return_exceptions=True)
            assert all(isinstance(one, ClosedError) for one in ends)

    run(scenario())


def test_a_task_that_is_cancelled_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            publishing = asyncio.ensure_future(car.publish({"n": 1}))
            subscribing = asyncio.ensure_future(_begun(car.subscribe("n > 0")))
            await asyncio.sleep(0)
            publishing.cancel()
            subscribing.cancel()
            await asyncio.wait([publishing, subscribing])
            assert publishing.cancelled()
            assert subscribing.cancelled()
            await car.ask("status")
            assert broker.node.registry.count("car-1") == 0
            assert (await car.publish({"n": 2})).event.sequence == 2

    run(scenario())


async def _begun(subscription: Any) -> Any:
    return await subscription


def test_who_waits_for_room_may_be_cancelled_and_the_others_go_on_in_order() -> None:
    async def scenario() -> None:
        async with running(limits={"in_flight": 2}) as broker, connect(broker, "car-1") as car:
            held = await car.subscribe("")
            publishing = [asyncio.ensure_future(car.publish({"n": n})) for n in range(40)]
            await asyncio.sleep(0)
            for number in range(10, 40, 3):
                publishing[number].cancel()
            await asyncio.wait(publishing)
            wanted = [n for n in range(40) if not (n >= 10 and (n - 10) % 3 == 0)]
            assert await all_of(held, len(wanted)) == wanted

    run(scenario())


def test_what_is_too_large_is_refused_here_and_the_connection_stays() -> None:
    async def scenario() -> None:
        async with running(limits={"frame_bytes": 20_000}) as broker, connect(broker, "car-1") as car:
            with pytest.raises(InvalidValueError, match="the broker accepts at most 20,000"):
                await car.publish({}, payload=bytes(20_000))
            with pytest.raises(InvalidValueError, match="the broker accepts at most 20,000"):
                await car.subscribe("a in (" + ", ".join(f"'{n:08}'" for n in range(3_000)) + ")")
            await car.publish({}, payload=bytes(19_000))
            assert car.session.connections == 1

    run(scenario())


def test_a_frame_of_another_version_of_the_protocol_is_passed_over() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car:
            connection = broker.sessions["car-1"].connection
            connection.send(b"\0\0\0\2\xc8x")
            await car.publish({"n": 1})
            async with Raw.to(broker) as raw:
                raw.say(hello("raw"))
                await raw.told()
                raw.send(b"\0\0\0\2" + bytes([FrameKind.NOTIFICATION]) + b"x")
                assert "does not send frames of the kind 33" in (await raw.answered()).reason

    run(scenario())


def test_a_connection_that_is_lost_while_it_is_made_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost_at_once(make: Callable[[], asyncio.Protocol], *_: object, **__: object) -> None:
        make().connection_lost(None)
        raise ConnectionResetError("reset")

    async def scenario() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", lost_at_once)
        with pytest.raises(UnreachableError, match="reset"):
            await td.connect("tidings://127.0.0.1:7450", "car-1", patience=0.05).__aenter__()

    run(scenario())


def test_a_broker_that_speaks_no_tls_is_told_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as broker:
            with pytest.raises(UnreachableError, match="it speaks no TLS"):
                await connect(broker, "car", identity=Certified(tmp_path).client("car"), patience=0.2).__aenter__()

    run(scenario())


@pytest.mark.parametrize("has_certificate", [False, True], ids=["none", "of another authority"])
def test_a_broker_that_closes_without_a_word_may_want_another_certificate(
    tmp_path: Path, has_certificate: bool
) -> None:
    ours, others = Certified(tmp_path / "ours"), Certified(tmp_path / "others")
    identity = None
    if has_certificate:
        shown = others.client("car")
        identity = TlsIdentity(ours.client("anybody").authority, shown.certificate, shown.key)

    async def scenario() -> None:
        async with running(tls=ours.tls("b1")) as broker:
            told = "authority of this client's" if has_certificate else "give an identity"
            with pytest.raises(UnreachableError, match=f"closed the connection without a word; .*{told}"):
                await connect(broker, "car", identity=identity, patience=0.2).__aenter__()

    run(scenario())


def test_a_handshake_that_breaks_off_is_told_with_a_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(tls=Certified(tmp_path).tls("b1")) as broker:
            _, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
            writer.close()
            await until(lambda: broker.metrics.security.bogus)

    with caplog.at_level("DEBUG", logger="tidings.broker"):
        run(scenario())
    assert "has failed: the other side has closed it in the TLS handshake" in caplog.text

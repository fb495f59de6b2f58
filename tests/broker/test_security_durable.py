"""Sealed events that wait, move, or are sent again: they stay as they were, and are judged when they are handed out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cases import Raw, configuration, run, until
from tests.broker.secured import (
    SECOND,
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
from tidings.protocol import answers, requests
from tidings.protocol.notifications import WireNotification
from tidings.security import Right

DURABLE: dict[str, Any] = {"durable": "d", "limit": 1}


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


async def acknowledged(raw: Raw, note: WireNotification) -> None:
    raw.say(requests.AcknowledgeRequest(note.subscription, (note.event.id,)))
    await raw.asked(requests.QueryRequest(50, "status"))  # which is answered after it


def test_what_waited_is_opened_after_a_restart_as_it_was_sealed(world: LiveWorld, tmp_path: Path) -> None:
    sealed = [world.sealed(number) for number in (1, 2, 3)]

    async def before() -> None:
        async with line(world, ("b1",), journal=tmp_path) as [broker], Raw.client(broker, "bob") as bob:
            assert isinstance(await bob.asked(proven(world, wanted(world, durable="d"), bob)), answers.RequestDone)
            bob.writer.transport.abort()
            await until(lambda: "bob" not in broker.sessions)
            async with Raw.client(broker, "ann") as ann:
                await advertised(ann)
                for number, event in enumerate(sealed, 1):
                    ann.send(publish(event, number, safe=1))
                    assert isinstance(await ann.answered(), answers.PublicationReceipts)

    async def after() -> None:
        opener = world.opener()
        async with line(world, ("b1",), journal=tmp_path) as [broker], Raw.client(broker, "bob", 2) as bob:
            bob.say(proven(world, wanted(world, durable="d"), bob))
            for event in sealed:
                got = event_of(await bob.next_note())
                assert got.payload == event.payload
                assert opener.open(got, got.timestamp).payload == b"a secret of the team"

    run(before())
    run(after())


def test_what_a_revoked_publisher_had_accepted_too_late_is_not_handed_out_and_holds_up_nothing(
    world: LiveWorld, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            line(world, ("b1",), journal=tmp_path) as [broker],
            Raw.client(broker, "ann") as ann,
            Raw.client(broker, "eve") as eve,
            Raw.client(broker, "bob") as bob,
        ):
            await advertised(ann)
            await advertised(eve, "eve")
            await bob.asked(proven(world, wanted(world, **DURABLE), bob))
            by_eve = world.sealer(world.token("eve"), who="eve")
            ann.send(publish(world.sealed(1), 1))
            first = await bob.next_note()
            eve.send(publish(by_eve.seal(world.event(2, "eve"), now(), 2), 2))
            await eve.answered()
            ann.send(publish(world.sealed(3), 3))
            await until(lambda: broker.metrics.operations.accepted == 3)
            world.authority.revoke("eve", now(), since=world.now)
            ann.send(carried("revocations", world.update().data, 4))
            await until(lambda: broker.metrics.operations.accepted == 4)
            await acknowledged(bob, first)
            assert event_of(await bob.next_note()).sequence == 3

    run(scenario())


def test_when_a_token_has_expired_the_rest_waits_for_a_fresh_one(world: LiveWorld, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            line(world, ("b1",), journal=tmp_path) as [broker],
            Raw.client(broker, "ann") as ann,
            Raw.client(broker, "bob") as bob,
        ):
            await advertised(ann)
            ends = now() + 2 * SECOND  # time enough to subscribe and be told the first
            short = world.token("bob", Right.SUBSCRIBE, until=ends)
            await bob.asked(proven(world, wanted(world, short, **DURABLE), bob))
            for number in (1, 2):
                ann.send(publish(world.sealed(number), number))
            first = await bob.next_note()
            await until(lambda: broker.metrics.operations.accepted == 2)
            await asyncio.sleep(max(0, ends - now()) / SECOND + 0.01)
            await acknowledged(bob, first)
            with pytest.raises(TimeoutError):
                await bob.told(0.1)
            bob.say(proven(world, wanted(world, **DURABLE), bob))
            assert event_of(await bob.next_note()).sequence == 2

    run(scenario())


def test_what_waits_follows_its_subscriber_to_another_broker(world: LiveWorld, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            line(world, ("b1", "b2"), journal=tmp_path) as brokers,
            Raw.client(brokers[0], "ann") as ann,
        ):
            await advertised(ann)
            async with Raw.client(brokers[0], "bob") as bob:
                await bob.asked(proven(world, wanted(world, durable="d"), bob))
            await until(lambda: "bob" not in brokers[0].sessions)
            event = world.sealed(1)
            ann.send(publish(event, 1, safe=1))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)
            async with Raw.client(brokers[1], "bob", 2) as bob:
                bob.say(proven(world, wanted(world, durable="d"), bob))
                got = event_of(await bob.next_note())
                assert got.payload == event.payload
                assert world.opener().open(got, got.timestamp).payload == b"a secret of the team"

    run(scenario())


def test_what_is_sent_again_from_the_journal_is_no_replay(world: LiveWorld, tmp_path: Path) -> None:
    """A broker was away: what is for its clients is kept by the other one, and sent again when it is back."""

    def given(name: str, links: list[dict[str, Any]]) -> Any:
        folder = {"folder": str(tmp_path / name)}
        more = {"broker": {"settling_ms": 20, "listen": f"127.0.0.1:{ports.get(name, 0)}"}}
        return configuration(name, links=links, journal=folder, **more, **world.security(name))

    ports: dict[str, int] = {}

    async def scenario() -> None:
        first = Broker(given("b1", [{"broker": "b2"}]))
        await first.start()
        calls = [{"broker": "b1", "address": str(first.address)}]
        second = Broker(given("b2", calls))
        await second.start()
        await settled([first, second])
        async with Raw.client(first, "ann") as ann:
            await advertised(ann)
            async with Raw.client(second, "bob") as bob:
                await bob.asked(proven(world, wanted(world, durable="d"), bob))
                await settled([first, second])
            await second.stop()
            await until(lambda: not first.links)
            event = world.sealed(1)
            ann.send(publish(event, 1, safe=1))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)
            second = Broker(given("b2", calls))
            await second.start()
            async with Raw.client(second, "bob", 2) as bob:
                bob.say(proven(world, wanted(world, durable="d"), bob))
                got = event_of(await bob.next_note())
                assert got.payload == event.payload
                assert world.opener().open(got, got.timestamp).payload == b"a secret of the team"
        await second.stop()
        await first.stop()

    run(scenario())

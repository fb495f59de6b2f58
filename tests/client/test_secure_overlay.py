"""Secure topics over two brokers that check everything: keys end, are renewed and taken away while events flow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.cases import address, connect, run, until
from tests.broker.secured import line, settled
from tests.client.kmc import Centre, Files, Topic, centre, secure
from tidings.broker.broker import Broker
from tidings.client import Client, ClientSubscription
from tidings.model.errors import RefusedError, SecurityError
from tidings.model.notification import Notification
from tidings.security.sealing.envelope import Seal

NBA = "Sports=NBA,Team=*"
GAME = {"Sports": "NBA", "Team": "NYK"}


class Overlay(NamedTuple):
    brokers: list[Broker]
    kmc: Centre
    topic: Topic


@asynccontextmanager
async def overlay(folder: Path, template: str = NBA, *, known: bool = True, **given: int) -> AsyncIterator[Overlay]:
    """`pub` may publish, `fan` and `other` may subscribe; `known`: brokers know the topic from the start."""
    topic = Topic(template, **given)
    topic.grant("pub", "publish")
    topic.grant("fan", "subscribe")
    topic.grant("other", "subscribe")
    files = Files(folder, *([topic] if known else []))
    async with line(files, ("b1", "b2")) as brokers, centre(brokers[0]) as kmc:  # type: ignore[arg-type]
        kmc.topics[topic.record.id] = topic
        yield Overlay(brokers, kmc, topic)


async def taken(held: ClientSubscription, count: int) -> list[Notification]:
    notes: list[Notification] = []
    async with asyncio.timeout(10):
        while len(notes) < count:
            notes += await held.take(timeout=None)
    return notes


async def advertised(overlay: Overlay, client: Client) -> None:
    await client.advertise()
    await settled(overlay.brokers)


def test_who_knows_nothing_of_the_topic_is_told_by_its_broker_and_may_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc) as pub,
            secure(there.brokers[1], "fan", there.kmc) as fan,
        ):
            await advertised(there, pub)
            held = await fan.subscribe("Sports = 'NBA' AND Team = 'NYK'")
            await settled(there.brokers)
            receipts = await asyncio.gather(*(pub.publish({**GAME, "n": n}, payload=b"%d" % n) for n in range(20)))
            assert [one.event.attributes["n"] for one in receipts] == list(range(20))
            assert [one.payload for one in await taken(held, 20)] == [b"%d" % n for n in range(20)]
            gate = there.brokers[0].gate
            assert gate is not None
            assert set(gate.refused) == {"token"}

    run(scenario())


def test_keys_that_last_a_second_are_renewed_without_a_gap(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path, lifetime=1_000_000) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held, sealed = await fan.subscribe("Sports = 'NBA'"), await fan.subscribe("Sports = 'NBA'", raw=True)
            await settled(there.brokers)
            for n in range(120):
                await pub.publish({**GAME, "n": n}, payload=b"%d" % n)
                await asyncio.sleep(0.02)
            assert [one.payload for one in await taken(held, 120)] == [b"%d" % n for n in range(120)]
            assert held.refused == 0
            epochs = [Seal.of(one.event).epoch for one in await taken(sealed, 120)]
            assert epochs == sorted(epochs)
            assert len(set(epochs)) >= 3

    run(scenario())


def test_keys_are_renewed_after_so_many_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path, messages=10) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
        ):
            await advertised(there, pub)
            for n in range(10):
                await pub.publish(GAME, payload=b"%d" % n)
            await until(lambda: there.kmc.asked.count(("pub", "keys")) > 1)

    run(scenario())


def test_who_is_revoked_reads_nothing_more_and_others_get_new_keys_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
            secure(there.brokers[1], "other", there.kmc, there.topic) as other,
        ):
            await advertised(there, pub)
            lost, kept = await fan.subscribe("Sports = 'NBA'"), await other.subscribe("Sports = 'NBA'")
            confined = await fan.subscribe("Sports = 'NBA' AND Team = 'NYK'")
            await settled(there.brokers)
            await pub.publish(GAME, payload=b"before", safe="settled")
            assert [one.payload for one in await taken(lost, 1)] == [b"before"]
            there.topic.revoke("fan")
            await there.kmc.tell(there.topic)
            await until(lambda: there.kmc.asked.count(("other", "keys")) > 1)
            await pub.publish(GAME, payload=b"after", safe="settled")
            assert [one.payload for one in await taken(kept, 2)] == [b"before", b"after"]
            assert lost.waiting == 0
            assert [one.payload for one in await taken(confined, 1)] == [b"before"]
            with pytest.raises(SecurityError, match=r"fan cannot subscribe .* granted nothing on Sports=NBA,Team=\*"):
                await anext(confined)
            with pytest.raises(SecurityError, match=r"fan was granted nothing on Sports=NBA,Team=\*.*league"):
                await fan.subscribe("Sports = 'NBA' AND Team = 'NYK'")

    run(scenario())


def test_a_publisher_that_is_revoked_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
        ):
            await advertised(there, pub)
            await pub.publish(GAME)
            there.topic.revoke("pub")
            await there.kmc.tell(there.topic)
            with pytest.raises(SecurityError, match=r"pub cannot publish on.*granted nothing"):
                await pub.publish(GAME)

    run(scenario())


def test_an_epoch_that_ended_before_its_publisher_heard_of_it_costs_no_event(tmp_path: Path) -> None:
    """The broker refuses what is sealed under the old one; it is sealed anew."""

    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held = await fan.subscribe("Sports = 'NBA'")
            await settled(there.brokers)
            await pub.publish(GAME, payload=b"0")
            there.topic.rotate(compromised=True)
            telling = asyncio.create_task(there.kmc.tell(there.topic))
            await asyncio.gather(*(pub.publish(GAME, payload=b"%d" % n) for n in range(1, 30)))
            await telling
            assert [one.payload for one in await taken(held, 30)] == [b"%d" % n for n in range(30)]

    run(scenario())


def test_who_moves_to_another_broker_proves_its_token_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held = await fan.subscribe("Sports = 'NBA'")
            await settled(there.brokers)
            await pub.publish(GAME, payload=b"1", safe="settled")
            assert [one.payload for one in await taken(held, 1)] == [b"1"]
            await fan.move(address(there.brokers[0]))
            await pub.move(address(there.brokers[1]))
            await settled(there.brokers)
            await pub.publish(GAME, payload=b"2", safe="settled")
            assert [one.payload for one in await taken(held, 1)] == [b"2"]
            assert held.refused == 0

    run(scenario())


def test_a_topic_that_is_not_meant_by_itself_can_be_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            all_there_is, named = await fan.subscribe("n >= 0"), await fan.subscribe("n >= 0", topic=NBA)
            await settled(there.brokers)
            await pub.publish({**GAME, "n": 1}, payload=b"sealed", safe="settled")
            await pub.publish({"Sports": "NFL", "n": 2}, payload=b"plain", safe="settled")
            assert [one.payload for one in await taken(named, 2)] == [b"sealed", b"plain"]
            assert [one.payload for one in await taken(all_there_is, 1)] == [b"plain"]

    run(scenario())


def test_a_client_without_an_identity_is_refused_by_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with overlay(tmp_path) as there, connect(there.brokers[0], "eve") as eve:
            await advertised(there, eve)
            with pytest.raises(RefusedError, match="is secure: publish with a token"):
                await eve.publish(GAME)

    run(scenario())

"""Secure topics where connections break: the same bytes are sent again, tokens are proved anew, keys are caught up."""

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.cases import connect, run, running, until
from tests.broker.secured import settled
from tests.client.kmc import Centre, Files, Topic, centre, secure
from tests.client.test_reconnecting import at, cut
from tests.client.test_secure_overlay import GAME, NBA, advertised, overlay, taken
from tidings.client import Client


async def holds(client: Client, topic: Topic, epoch: int) -> None:
    """Returns once it has the key of that epoch."""
    assert client.membership is not None
    keyring = client.membership.member.keyring
    await until(lambda: keyring.get(topic.record.id, epoch) is not None)


def test_what_is_sent_again_is_the_same_and_arrives_once_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held = await fan.subscribe("Sports = 'NBA'")
            await settled(there.brokers)
            publishing = []
            for n in range(300):
                publishing.append(asyncio.create_task(pub.publish({**GAME, "n": n}, payload=b"%d" % n)))
                if n in (50, 150, 151, 250):
                    await asyncio.sleep(0)
                    await cut(there.brokers[0], pub)
            await asyncio.gather(*publishing)
            assert [one.payload for one in await taken(held, 300)] == [b"%d" % n for n in range(300)]
            gate = there.brokers[0].gate
            assert gate is not None
            assert not gate.refused

    run(scenario())


def test_a_subscription_is_proved_anew_wherever_its_client_connects(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[1], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held = await fan.subscribe("Sports = 'NBA'")
            for n in range(3):
                await settled(there.brokers)
                await pub.publish(GAME, payload=b"%d" % n, safe="settled")
                assert [one.payload for one in await taken(held, 1)] == [b"%d" % n]
                await cut(there.brokers[1], fan)
                await until(lambda: there.brokers[1].node.registry.count("fan") >= 2)

    run(scenario())


def test_who_was_away_while_the_epoch_changed_catches_up(tmp_path: Path) -> None:
    """Nobody tells it: it asks by itself when it is back."""

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
            there.topic.rotate()
            for broker, client in zip(there.brokers, (pub, fan), strict=True):
                await cut(broker, client)
                await holds(client, there.topic, 2)
            await settled(there.brokers)
            await pub.publish(GAME, payload=b"2", safe="settled")
            assert [one.payload for one in await taken(held, 2)] == [b"1", b"2"]

    run(scenario())


def test_what_was_kept_for_a_durable_subscription_is_opened_by_another_process_of_its_name(tmp_path: Path) -> None:
    """It has a new signing key and no keys: the centre gives it those that it may have, and wraps the rest anew."""

    async def scenario() -> None:
        topic = Topic(NBA)
        topic.grant("pub", "publish")
        topic.grant("fan", "subscribe")
        tables = Files(tmp_path, topic).security("b1")
        async with (
            running(journal={"folder": str(tmp_path / "journal")}, **tables) as broker,
            centre(broker) as kmc,
            secure(broker, "pub", kmc, topic) as pub,
        ):
            kmc.topics[topic.record.id] = topic
            async with secure(broker, "fan", kmc, topic) as fan:
                await fan.subscribe("Sports = 'NBA'", durable="games")
            for epoch in range(1, 5):
                await pub.publish({**GAME, "n": epoch}, payload=b"%d" % epoch)
                topic.rotate()
                await kmc.tell(topic)
                await holds(pub, topic, epoch + 1)
            topic.since["fan"] = 3
            async with secure(broker, "fan", kmc, topic) as fan:
                held = await fan.subscribe("Sports = 'NBA'", durable="games")
                notes = await taken(held, 4)
                assert [one.payload for one in notes] == [b"1", b"2", b"3", b"4"]
                assert kmc.asked.count(("fan", "rewrap")) == 2
                assert await held.acknowledge_all() == 4
                replayed = [one.payload async for one in held.replay()]
                assert replayed == [b"1", b"2", b"3", b"4"]

    run(scenario())


def test_a_broker_that_was_started_anew_takes_sealed_events_and_tokens_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        topic = Topic(NBA)
        topic.grant("pub", "publish")
        topic.grant("fan", "subscribe")
        tables = Files(tmp_path, topic).security("b1")
        journal = {"folder": str(tmp_path / "journal")}
        async with running(journal=journal, **tables) as broker:
            where = at(broker)
            kmc_client = await connect(broker, "kmc-1").__aenter__()
            kmc = Centre(kmc_client)
            await kmc.answering.begin(kmc.service.topic)
            kmc.topics[topic.record.id] = topic
            pub, fan = [await secure(broker, name, kmc, topic).__aenter__() for name in ("pub", "fan")]
            held = await fan.subscribe("Sports = 'NBA'")
            await pub.publish(GAME, payload=b"1")
            assert [one.payload for one in await taken(held, 1)] == [b"1"]
        await until(lambda: not pub.is_connected)
        waiting = [asyncio.create_task(pub.publish(GAME, payload=b"%d" % n)) for n in (2, 3)]
        async with running(journal=journal, broker=where, **tables) as broker:
            await until(lambda: fan.is_connected and broker.node.registry.count("fan") >= 2)
            await asyncio.gather(*waiting)
            await pub.publish(GAME, payload=b"4")
            got = [one.payload for one in await taken(held, 1)]
            while got[-1] != b"4":
                got += [one.payload for one in await taken(held, 1)]
            assert got == [b"2", b"3", b"4"][-len(got) :]  # what comes before the subscription is back is not for it
            for one in (pub, fan, kmc_client):
                await one.close()

    run(scenario())


def test_a_key_that_is_asked_for_holds_up_what_comes_after_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[0], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            held, others = await fan.subscribe("Sports = 'NBA'", topic=NBA), await fan.subscribe("Sports = 'NFL'")
            mixed = await fan.subscribe("n >= 0", topic=NBA)
            await pub.publish({**GAME, "n": 0}, payload=b"0", safe="settled")
            await taken(mixed, 1)
            there.topic.rotate()
            await cut(there.brokers[0], pub)  # so that it asks for the new key, which the other one does not know of
            await holds(pub, there.topic, 2)
            there.kmc.answers.clear()
            await pub.publish({**GAME, "n": 1}, payload=b"1", safe="settled")
            await pub.publish({"Sports": "NFL", "n": 2}, payload=b"2", safe="settled")
            assert [one.payload for one in await taken(others, 1)] == [b"2"]
            assert (held.waiting, mixed.waiting) == (1, 0)
            there.kmc.answers.set()
            assert [one.payload for one in await taken(mixed, 2)] == [b"1", b"2"]
            assert [one.payload for one in await taken(held, 2)] == [b"0", b"1"]

    run(scenario())


def test_what_it_may_not_have_is_refused_in_its_order_and_asked_for_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            overlay(tmp_path) as there,
            secure(there.brokers[0], "pub", there.kmc, there.topic) as pub,
            secure(there.brokers[0], "fan", there.kmc, there.topic) as fan,
        ):
            await advertised(there, pub)
            refused: list[Any] = []
            held = await fan.subscribe(
                "n >= 0",
                topic=NBA,
                on_refused=lambda note, error: refused.append(note.attributes["n"]),
            )
            there.topic.since["fan"] = 2
            there.kmc.rewraps = False
            assert fan.membership is not None
            fan.membership.member.keyring.forget(there.topic.record.id)
            for n in range(30):
                await pub.publish({**GAME, "n": n}, payload=b"%d" % n)
            await pub.publish({"Sports": "NFL", "n": 30})
            assert [one.attributes["n"] for one in await taken(held, 1)] == [30]
            assert (refused, held.refused) == (list(range(30)), 30)
            assert there.kmc.asked.count(("fan", "rewrap")) == 1

    run(scenario())

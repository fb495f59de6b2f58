"""What is revoked is obeyed by every broker at once, and after a restart; a list that is out of date ends it all."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cases import Raw, configuration, run, running, until
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
from tidings.model.errors import InvalidValueError
from tidings.protocol import answers
from tidings.security.tokens.credentials import Credentials

NAMES = ("b1", "b2", "b3")


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def known(broker: Broker) -> Credentials:
    assert broker.gate is not None
    return broker.gate.credentials


def test_a_list_that_anybody_publishes_reaches_every_broker_and_is_obeyed(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[2], "bob") as bob,
            Raw.client(brokers[1], "mail") as mail,
        ):
            await advertised(ann)
            await advertised(mail, "mail")
            await bob.asked(proven(world, wanted(world), bob))
            await settled(brokers)
            ann.send(publish(world.sealed(1), 1))
            assert event_of(await bob.next_note()).sequence == 1
            assert isinstance(await ann.answered(), answers.PublicationReceipts)
            mail.send(carried("revocations", world.revoked("ann").data, 1))
            assert isinstance(await mail.answered(), answers.PublicationReceipts)
            await until(lambda: all(known(one).revocations.version == 1 for one in brokers))
            ann.send(publish(world.sealed(2), 2))
            told = await ann.answered()
            assert isinstance(told, answers.RequestRefused)
            assert "revoked" in told.reason

    run(scenario())


def test_tokens_die_with_the_centre_that_signed_them_and_running_subscriptions_get_no_more(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES[:1]) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[0], "bob") as bob,
        ):
            await advertised(ann)
            await bob.asked(proven(world, wanted(world), bob))
            ann.send(carried("revocations", world.revoked("bob").data, 1))
            await ann.answered()
            ann.send(publish(world.sealed(2), 2))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)
            ann.send(carried("revocations", world.revoked("kmc").data, 3))
            await ann.answered()
            ann.send(publish(world.sealed(4), 4))
            assert isinstance(await ann.answered(), answers.RequestRefused)
            with pytest.raises(TimeoutError):
                await bob.told(0.1)

    run(scenario())


def test_notices_and_records_reach_every_broker_too(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES, b1={"security": {**world.security("b1", topics=[])["security"]}}) as brokers,
            Raw.client(brokers[0], "ann") as ann,
        ):
            await advertised(ann)
            ann.send(carried("record", world.record.data, 1))
            await ann.answered()
            await until(lambda: all(world.record.id in known(one).topics for one in brokers))
            ann.send(carried("notice", world.notice(2).data, 2))
            await ann.answered()
            await until(lambda: all(known(one).notice(world.record.id) is not None for one in brokers))
            ann.send(publish(world.sealed(3), 3))
            told = await ann.answered()
            assert isinstance(told, answers.RequestRefused)
            assert "epoch 1 is over" in told.reason

    run(scenario())


def test_a_list_passes_a_broker_that_has_no_gate(world: LiveWorld) -> None:
    async def scenario() -> None:
        no_gate: dict[str, Any] = {"b2": {"security": {}}}
        async with line(world, NAMES, **no_gate) as brokers, Raw.client(brokers[0], "mail") as mail:
            await advertised(mail, "mail")
            await settled(brokers)
            mail.send(carried("revocations", world.revoked("ann").data, 1))
            await until(lambda: known(brokers[2]).revocations.version == 1)
            assert brokers[1].gate is None

    run(scenario())


def test_what_nobody_signed_changes_nothing(world: LiveWorld, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = LiveWorld(tmp_path / "other")

    async def scenario() -> None:
        async with line(world, NAMES[:1]) as [broker], Raw.client(broker, "eve") as eve:
            await advertised(eve, "eve")
            for number, (what, data) in enumerate(
                [
                    ("revocations", stranger.revoked("ann").data),
                    ("revocations", b"none"),
                    ("record", stranger.record.data),
                    ("notice", stranger.notice(9).data),
                    ("else", b"of no concern"),
                ],
                1,
            ):
                eve.send(carried(what, data, number))
                assert isinstance(await eve.answered(), answers.PublicationReceipts)  # it is an event as any other
            assert known(broker).revocations.version == 0
            assert [one.data for one in known(broker).topics.values()] == [world.record.data]
            assert not known(broker).notices

    run(scenario())


def test_a_broker_keeps_its_list_over_a_restart_and_fetches_only_what_is_new(world: LiveWorld, tmp_path: Path) -> None:
    told: list[Any] = []

    async def before() -> None:
        async with line(world, NAMES[:1], journal=tmp_path) as [broker], Raw.client(broker, "mail") as mail:
            await advertised(mail, "mail")
            mail.send(carried("revocations", world.revoked("eve").data, 1))
            await mail.answered()
            assert known(broker).revocations.version == 1

    async def after() -> None:
        async with line(world, NAMES[:1], journal=tmp_path) as [broker]:
            assert known(broker).revocations.version == 1

    async def later() -> None:
        """Meanwhile another broker knows more."""
        world.list_file.write_bytes(world.revoked("ann").data)
        own = world.security("b1", revocations="")
        async with running("b2", links=[{"broker": "b1"}], **world.security("b2")) as other:
            links = [{"broker": "b2", "address": str(other.address)}]
            broker = Broker(_configuration("b1", links, tmp_path, own))
            known(broker).revoke = _noting(known(broker).revoke, told)  # type: ignore[method-assign]
            await broker.start()
            try:
                assert known(broker).revocations.version == 1
                await until(lambda: known(broker).revocations.version == 2)
            finally:
                await broker.stop()

    run(before())
    run(after())
    run(later())
    assert [one.after for one in told if one.after] == [1]


def _configuration(name: str, links: list[Any], journal: Path, tables: dict[str, Any]) -> Any:
    from tests.broker.cases import configuration

    return configuration(name, links=links, journal={"folder": str(journal / name)}, **tables)


def _noting(act: Any, told: list[Any]) -> Any:
    def noted(update: Any) -> Any:
        told.append(update)
        return act(update)

    return noted


def test_a_list_past_its_next_update_fails_closed_until_a_newer_one_comes(world: LiveWorld) -> None:
    async def scenario() -> None:
        world.list_file.write_bytes(world.update(next_update=SECOND // 4).data)
        async with (
            line(world, NAMES[:1]) as [broker],
            Raw.client(broker, "ann") as ann,
            Raw.client(broker, "bob") as bob,
        ):
            await advertised(ann)
            ends = known(broker).revocations.head
            assert ends is not None
            await asyncio.sleep(max(0, ends.next_update - now()) / SECOND + 0.01)
            ann.send(publish(world.sealed(1), 1))
            refused = await ann.answered()
            assert isinstance(refused, answers.RequestRefused)
            assert "out of date" in refused.reason
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.RequestRefused)
            ann.send(publish(world.event(2, attributes={"plain": 1}), 2))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)  # what is not secure is not concerned
            ann.send(carried("revocations", world.update().data, 3))
            await ann.answered()
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.RequestDone)
            ann.send(publish(world.sealed(4), 4))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)

    run(scenario())


def test_without_any_list_nothing_is_trusted(world: LiveWorld) -> None:
    async def scenario() -> Any:
        async with (
            running("b1", **world.security("b1", revocations="")) as broker,
            Raw.client(broker, "ann") as ann,
        ):
            await advertised(ann)
            ann.send(publish(world.sealed(1), 1))
            return await ann.answered()

    assert "no list of revocations" in run(scenario()).reason


def test_a_broker_that_could_not_start_leaves_its_journal_to_the_next_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = LiveWorld(tmp_path)
        tables = {**world.security("b1"), "journal": {"folder": str(tmp_path / "journal")}}
        good = world.list_file.read_bytes()
        world.list_file.write_bytes(b"none")
        with pytest.raises(InvalidValueError, match=r"security\.revocations"):
            await Broker(configuration("b1", **tables)).start()
        world.list_file.write_bytes(good)
        async with running("b1", **tables) as broker:
            assert known(broker).revocations.version == 0

    run(scenario())

"""Sealed events through live brokers: who holds a token gets what it can open, nobody else gets anything."""

from pathlib import Path

import msgspec
import pytest

from tests.broker.cases import Raw, run, until
from tests.broker.secured import LiveWorld, advertised, event_of, line, now, proven, publish, settled, wanted
from tests.security.world import HOUR
from tidings.model.event import Event
from tidings.protocol import answers, requests
from tidings.security.sealing.envelope import Seal

NAMES = ("b1", "b2")


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def test_a_sealed_event_reaches_who_has_a_token_over_two_brokers(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[1], "bob") as bob,
        ):
            await advertised(ann)
            assert isinstance(await bob.asked(proven(world, wanted(world), bob)), answers.RequestDone)
            await settled(brokers)
            sealed = [world.sealed(number) for number in (1, 2, 3)]
            opener = world.opener()
            for number, event in enumerate(sealed, 1):
                ann.send(publish(event, number))
                got = event_of(await bob.next_note())
                assert got.payload == event.payload != b"a secret of the team"
                assert got.token == event.token
                assert got.timestamp != Seal.of(got).timestamp == Seal.of(event).timestamp
                opened = opener.open(got, got.timestamp)
                assert opened.payload == b"a secret of the team"
                assert opened.attributes == event.attributes

    run(scenario())


def test_who_has_no_token_gets_nothing_that_is_sealed_and_all_the_rest(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[1], "eve") as eve,
        ):
            await advertised(ann)
            assert isinstance(await eve.asked(requests.SubscribeRequest(1, "eve.1", "score >= 0")), answers.RequestDone)
            await settled(brokers)
            ann.send(publish(world.sealed(1), 1))
            ann.send(publish(world.event(2, attributes={"score": 2}), 2))
            assert event_of(await eve.next_note()).sequence == 2

    run(scenario())


def test_a_subscription_to_a_secure_topic_needs_a_token(world: LiveWorld) -> None:
    async def scenario() -> answers.RequestRefused:
        async with line(world, NAMES[:1]) as [broker], Raw.client(broker, "eve") as eve:
            found = await eve.asked(requests.SubscribeRequest(1, "eve.1", "Sports = 'NBA' and Team = 'NYK'"))
            assert isinstance(found, answers.RequestRefused)
            return found

    assert "token" in run(scenario()).reason


def forged(world: LiveWorld) -> dict[str, Event]:
    """Events that are not as they should be, by what is wrong with them."""
    good = world.sealed(1)
    replace = msgspec.structs.replace
    return {
        "no token": replace(good, token=None),
        "no seal": replace(good, signature=None),
        "neither": replace(good, token=None, signature=None),
        "another attribute": replace(good, attributes={**good.attributes, "score": 7}),
        "another payload": replace(good, payload=b"x" * 40),
        "a token that is none": replace(good, token=b"token"),
        "a seal that is none": replace(good, signature=b"seal"),
        "another's token": replace(good, token=world.token("bob").data),
        "expired": world.sealer(world.token(until=now() - 1)).seal(world.event(1), now(), 1),
        "too old": world.sealer().seal(world.event(1), now() - HOUR, 1),
        "from the future": world.sealer().seal(world.event(1), now() + HOUR, 1),
        "of another centre": world.sealer(world.token(kmc=world.other_kmc)).seal(world.event(1), now(), 1),
    }


def test_forged_frames_are_refused_with_the_reason_and_reach_nobody(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with (
            line(world, NAMES) as brokers,
            Raw.client(brokers[0], "ann") as ann,
            Raw.client(brokers[1], "bob") as bob,
        ):
            await advertised(ann)
            await bob.asked(proven(world, wanted(world), bob))
            await settled(brokers)
            bad = forged(world)
            for number, (wrong, event) in enumerate(bad.items(), 1):
                ann.send(publish(event, number))
                told = await ann.answered()
                assert isinstance(told, answers.RequestRefused), wrong
                assert told.reason
            assert brokers[0].gate is not None
            assert sum(brokers[0].gate.refused.values()) == len(bad)
            ann.send(publish(world.sealed(9), 99))
            assert event_of(await bob.next_note()).sequence == 9  # nothing came before it

    run(scenario())


def test_what_came_before_is_refused_also_after_a_restart(world: LiveWorld, tmp_path: Path) -> None:
    first, second = world.sealed(1), world.sealed(2)
    receipts: list[answers.PublicationReceipt] = []
    again = msgspec.structs.replace(first, id=world.event(77).id, sequence=9)  # a new frame for what was sealed once

    async def before() -> None:
        async with line(world, NAMES[:1], journal=tmp_path) as [broker], Raw.client(broker, "ann") as ann:
            await advertised(ann)
            for number, event in ((1, first), (2, second)):
                ann.send(publish(event, number, safe=1))
                receipts.extend((await ann.answered()).receipts)
            ann.send(publish(again, 3))
            assert isinstance(await ann.answered(), answers.RequestRefused)

    async def after() -> None:
        async with line(world, NAMES[:1], journal=tmp_path) as [broker], Raw.client(broker, "ann", 2) as ann:
            await advertised(ann)
            ann.send(publish(again, 4))
            assert isinstance(await ann.answered(), answers.RequestRefused)
            ann.send(publish(first, 5))
            assert (await ann.answered()).receipts[0].timestamp == receipts[0].timestamp
            assert broker.metrics.operations.accepted == 0
            ann.send(publish(world.sealed(3), 6))
            assert isinstance(await ann.answered(), answers.PublicationReceipts)

    run(before())
    run(after())


def test_the_same_frame_sent_again_gets_its_first_receipt_and_another_under_its_id_is_refused(world: LiveWorld) -> None:
    async def scenario() -> None:
        async with line(world, NAMES[:1]) as [broker], Raw.client(broker, "ann") as ann:
            await advertised(ann)
            first = world.sealed(1)
            receipts: list[answers.PublicationReceipt] = []
            for safe in (0, 1, 2):
                ann.send(publish(first, safe + 1, safe=safe))
                receipts += (await ann.answered()).receipts
            assert [one.request for one in receipts] == [1, 2, 3]
            assert len({(one.offset, one.timestamp) for one in receipts}) == 1
            assert broker.metrics.operations.accepted == 1
            ann.send(publish(world.ann_seals.seal(world.event(1, payload=b"another"), now(), 2), 4))
            refused = await ann.answered()
            assert refused.error == "RefusedError"
            assert "another event" in refused.reason

    run(scenario())


def test_of_what_was_accepted_only_a_digest_is_kept(world: LiveWorld) -> None:
    """It is made after the event went out; until then the whole event is there."""

    async def scenario() -> None:
        async with line(world, NAMES[:1]) as [broker], Raw.client(broker, "ann") as ann:
            await advertised(ann)
            receipts = broker.node.registry.receipts
            for number in (1, 2):
                ann.send(publish(world.sealed(number), number))
                await ann.answered()
                await until(lambda: not receipts.unhashed)
                assert len(receipts.state()) == number

    run(scenario())

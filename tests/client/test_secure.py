"""Secure topics from a client's side: what is published on them is sealed, and what comes is opened, by itself."""

import asyncio

import pytest

from tests.client.centre import centre, secure
from tests.live.cases import connect, run, running
from tidings.model.errors import SecurityError
from tidings.security.envelope import Seal


def test_what_is_published_is_sealed_on_its_way_and_readable_where_it_arrives() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "spy") as spy:
            topic = kmc.topic("Sports=NBA,Team=*")
            topic.grant("pub", "publish")
            topic.grant("fan", "subscribe")
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "fan", kmc, topic) as fan:
                seen = await spy.subscribe("Sports = 'NBA'", raw=True)
                hidden = await spy.subscribe("Sports = 'NBA'")
                held = await fan.subscribe("Sports = 'NBA' AND Team = 'Lakers'")
                receipt = await pub.publish({"Sports": "NBA", "Team": "Lakers"}, payload=b"99:98")
                assert receipt.event.payload == b"99:98"
                (note,) = await held.take(timeout=10)
                assert (note.payload, dict(note.attributes)) == (b"99:98", {"Sports": "NBA", "Team": "Lakers"})
                assert note.event.signature is None
                assert note.event.token is None
                (sealed,) = await seen.take(timeout=10)
                assert b"99:98" not in (sealed.payload or b"")
                assert Seal.of(sealed.event).epoch == 1
                assert (hidden.refused, hidden.waiting) == (1, 0)
                await pub.publish({"Sports": "NFL"}, payload=b"plain")
            assert [kind for who, kind in kmc.asked if who == "pub"] == ["keys"]

    run(scenario())


def test_what_is_published_together_has_one_signature_and_keeps_its_order() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc, connect(broker, "spy") as spy:
            topic = kmc.topic("/Sports/Football")
            topic.grant("pub", "publish")
            topic.grant("fan", "subscribe")
            async with secure(broker, "pub", kmc, topic) as pub, secure(broker, "fan", kmc, topic) as fan:
                held, seen = await fan.subscribe(subject="/Sports/Football"), await spy.subscribe(raw=True)
                subjects = [None if n % 50 == 7 else "/Sports/Football" for n in range(200)]
                receipts = await asyncio.gather(
                    *(pub.publish({"n": n}, subject=one, payload=b"%d" % n) for n, one in enumerate(subjects))
                )
                assert [one.event.attributes["n"] for one in receipts] == list(range(200))
                notes = []
                while len(notes) < 196:
                    notes += await held.take(timeout=10)
                assert [note.payload for note in notes] == [b"%d" % n for n in range(200) if n % 50 != 7]
                came = []
                while len(came) < 200:
                    came += [one for one in await seen.take(timeout=10) if "n" in one.attributes]
                assert [one.attributes["n"] for one in came] == list(range(200))
                sealed = [Seal.of(one.event) for one in came if one.event.signature is not None]
                assert len({one.signature for one in sealed}) <= 10
                assert {one.size for one in sealed} > {1} or max(one.size for one in sealed) > 10

    run(scenario())


def test_who_may_not_is_told_what_is_missing_and_from_whom() -> None:
    async def scenario() -> None:
        async with running() as broker, centre(broker) as kmc:
            topic = kmc.topic("Sports=NBA")
            topic.grant("reader", "subscribe")
            async with secure(broker, "nobody", kmc, topic) as nobody, secure(broker, "reader", kmc, topic) as reader:
                with pytest.raises(SecurityError, match=r"granted nothing on Sports=NBA.*owner, league, can grant the"):
                    await nobody.publish({"Sports": "NBA"}, payload=b"x")
                with pytest.raises(SecurityError, match="right to subscribe"):
                    await nobody.subscribe("Sports = 'NBA'")
                with pytest.raises(SecurityError, match=r"gives no right to publish.*league"):
                    await reader.publish({"Sports": "NBA"}, payload=b"x")
                assert (await nobody.publish({"Sports": "NFL"})).offset >= 0

    run(scenario())

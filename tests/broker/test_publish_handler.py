"""Publications that come together go the short way where they can: what comes of them is the same on the long one."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tidings as td
from tests.broker.cases import connect, run, running
from tidings.engine.steps import pipeline
from tidings.model.errors import RefusedError, TidingsError

BLOCK = td.Policy.parse("PolicyStatement { On(Publication) { If {} Then {BlockMessage()} } }")
GIVEN: list[dict[str, Any]] = [
    {"attributes": {"n": 1}},
    {"attributes": {"n": 2}, "policy": BLOCK},
    {"attributes": {"n": 3}, "payload": b"p"},
    {"attributes": {"n": 4, "class": "PolicyConflict"}},
    {"attributes": {"n": 5, "service_topic": "here"}},
    {"attributes": {"n": 6}, "subscribers": "zone = 'b'"},
    {"attributes": {"n": 7, "class": "own"}, "subscribers": "zone = 'a'"},
    {"attributes": {"m": 8}},
    {"attributes": {"n": 9}},
]


async def _played(journal: str) -> list[Any]:
    """What became of the publications, and what each subscription got of them."""
    found: list[Any] = []
    tables: dict[str, Any] = {"journal": {"folder": journal}} if journal else {}
    async with running(**tables) as broker, connect(broker, "p") as publisher, connect(broker, "c") as client:
        await client.set_context(zone="a")
        wanted = [await client.subscribe("n > 0"), await client.subscribe("n > 0", durable="kept")]
        wanted.append(await client.subscribe("n > 100 or m = 8"))
        answers = [await publisher.publish_soon(**one) for one in GIVEN]
        for answer in answers:
            try:
                found.append((await answer).event.attributes)
            except TidingsError as error:
                found.append(str(error))
        await publisher.publish({"n": 1_000})
        for one in wanted:
            notes: list[td.Notification] = []
            while not notes or notes[-1].attributes != {"n": 1_000}:
                notes += await one.take(timeout=60)
            found.append([(note.attributes, note.payload, note.event.sequence) for note in notes])
    return found


@pytest.mark.parametrize("has_journal", [True, False])
def test_both_ways_come_to_the_same(tmp_path: Path, has_journal: bool) -> None:
    def played(folder: str) -> list[Any]:
        return run(_played(str(tmp_path / folder) if has_journal else ""))

    with mock.patch.object(pipeline, "publish_fast", side_effect=pipeline.publish_fast) as short:
        found = played("short")
        assert short.call_count > len(GIVEN) / 2
    with mock.patch.object(pipeline, "can_take_fast_path", return_value=False):
        assert found == played("long")
    assert [attributes["n"] for attributes, *_ in found[-3]] == [1, 3, 7, 9, 1_000]
    assert found[-3] == found[-2]


def test_after_one_that_closes_the_short_way_the_next_goes_the_long_one() -> None:
    """Also within what comes together: nothing that governs is passed by."""

    async def scenario() -> None:
        async with running() as broker, connect(broker, "p") as publisher, connect(broker, "c") as client:
            held = await client.subscribe("n > 0")
            await publisher.publish({"n": 1})
            await client.set_policy(held, BLOCK)
            answers = [await publisher.publish_soon({"n": n}) for n in range(2, 6)]
            for answer in answers:
                await answer
            await client.set_policy(held, None)
            await publisher.publish({"n": 6})
            with pytest.raises(RefusedError):
                await publisher.publish({"n": 7, "class": "PolicyConflict"})
            await publisher.publish({"n": 8})
            notes: list[td.Notification] = []
            while len(notes) < 3:
                notes += await held.take(timeout=60)
            assert [note.attributes["n"] for note in notes] == [1, 6, 8]

    run(scenario())

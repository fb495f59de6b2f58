"""Receipts say how safe an event is, and durable subscriptions whether the broker has a journal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import address, connect, run, running
from tests.broker.running_broker import running_broker
from tidings.client.in_flight import InFlight, PendingPublication
from tidings.model.errors import PublishedBeforeError
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.receipt import NO_JOURNAL_AT_BROKER
from tidings.protocol import answers
from tidings.protocol.publications import Safety

DURABILITIES = ["accepted", "journaled", "settled"]
REMOVES_WHAT_IT_NEEDS = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([n]) } } }"


@pytest.mark.parametrize("safe", DURABILITIES)
def test_a_receipt_of_a_broker_with_a_journal_says_what_was_asked(tmp_path: Path, safe: str) -> None:
    async def scenario() -> None:
        async with running(journal={"folder": str(tmp_path)}) as broker, connect(broker, "cam-1") as camera:
            assert (await camera.publish({"n": 1}, safe=safe)).safe == safe
            assert [one.safe for one in await camera.publish_many([{"n": 2}, {"n": 3}], safe=safe)] == [safe] * 2

    run(scenario())


@pytest.mark.parametrize("safe", DURABILITIES)
def test_a_receipt_of_a_broker_without_a_journal_says_accepted_whatever_was_asked(safe: str) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "cam-1") as camera:
            assert (await camera.publish({"n": 1}, safe=safe)).safe == "accepted"
            assert (await (await camera.publish_soon({"n": 2}, safe=safe))).safe == "accepted"

    run(scenario())


def test_a_durable_subscription_has_a_finding_where_the_broker_has_no_journal(tmp_path: Path) -> None:
    async def findings(**tables: Any) -> list[list[str]]:
        async with running(**tables) as broker, connect(broker, "car-1") as car:
            durable = await car.subscribe("n > 0", durable="all")
            with_policy = await car.subscribe("n > 0", policy=REMOVES_WHAT_IT_NEEDS, durable="more")
            return [durable.findings, (await car.subscribe("n > 0")).findings, with_policy.findings]

    in_memory, on_disk = run(findings()), run(findings(journal={"folder": str(tmp_path)}))
    assert in_memory[:2] == [[NO_JOURNAL_AT_BROKER], []]
    assert on_disk[:2] == [[], []]
    assert on_disk[2]
    assert in_memory[2] == [*on_disk[2], NO_JOURNAL_AT_BROKER]


def test_the_synchronous_client_says_the_same(tmp_path: Path) -> None:
    with running_broker() as where, td.connect_sync(f"tidings://{where}", "car-1") as car:
        assert car.publish({"n": 1}, safe="journaled").safe == "accepted"
        assert car.subscribe("", durable="all").findings == [NO_JOURNAL_AT_BROKER]
    with running_broker(tmp_path) as where, td.connect_sync(f"tidings://{where}", "car-1") as car:
        assert car.publish({"n": 1}, safe="journaled").safe == "journaled"
        assert car.subscribe("", durable="all").findings == []


def test_a_client_that_moves_says_what_its_new_broker_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = {"folder": str(tmp_path)}
        async with running("b1", journal=journal) as kept, running("b2") as other, connect(kept, "car-1") as car:
            held = await car.subscribe("n > 0", durable="all")
            assert (await car.publish({"n": 1})).safe == "journaled"
            assert held.findings == []
            await car.move(address(other))
            assert (await car.publish({"n": 2})).safe == "accepted"
            assert held.findings == [NO_JOURNAL_AT_BROKER]
            await car.move(address(kept))
            assert (await car.publish({"n": 3})).safe == "journaled"
            assert held.findings == []

    run(scenario())


def test_a_publication_that_is_under_way_is_as_safe_as_the_broker_that_accepts_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(journal={"folder": str(tmp_path)}) as broker:
            car = connect(broker, "car-1")
            await car.__aenter__()
            assert (await car.publish({"n": 1})).safe == "journaled"
            listen = str(broker.address)
        answer = await car.publish_soon({"n": 2})
        async with running(broker={"listen": listen}):
            assert (await answer).safe == "accepted"
            await car.close()

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "journals", "expected"),
    [
        (Safety.ACCEPTED, (True, True), "accepted"),
        (Safety.JOURNALED, (True, True), "journaled"),
        (Safety.SETTLED, (True, True), "journaled"),
        (Safety.JOURNALED, (False, False), "accepted"),
        (Safety.JOURNALED, (True, False), "accepted"),
        (Safety.SETTLED, (False, True), "accepted"),
    ],
)
def test_a_receipt_without_an_offset_says_only_what_is_certain(
    asked: Safety, journals: tuple[bool, ...], expected: str
) -> None:
    async def scenario() -> td.Receipt:
        underway = InFlight()
        event = Event(id=uuid7(1, bytes(10)), publisher="cam-1", timestamp=1, sequence=1)
        publication = PendingPublication(event, asked, asyncio.get_running_loop().create_future())
        underway.publications[1] = publication
        for has_journal in journals:
            publication.note_sent(has_journal=has_journal)
        underway.take_refusal(answers.refusal(1, PublishedBeforeError("admit", "it was published before")))
        return await publication.answer

    receipt = run(scenario())
    assert (receipt.offset, receipt.safe) == (-1, expected)

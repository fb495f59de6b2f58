"""What was accepted while its receiver was being challenged: it is decided about once, whatever happens meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import Raw, address, configuration, connect, publication, run, running, until
from tests.broker.test_trust import FOR_STAFF, Secrets, at_rest, numbers, proofs, ruled
from tidings.broker.broker import Broker
from tidings.journal import PASSED, Operation, Span
from tidings.model.errors import JournalFullError
from tidings.protocol import answers, requests
from tidings.protocol.handshake import Challenge, Proof
from tidings.runtime.outcome import OperationOutcome, keep_only
from tidings.runtime.subscription_registry import RegisteredSubscription

DURABLE = requests.SubscribeRequest(1, "one.durable.all", "a > 0", durable="all")
BOTH = (
    "PolicyStatement { On(Forward,Publication) { @broker: Egress "
    "If {AuthenticateReceiver(Staff) && AuthenticateSender(Staff)} Then {} Elseif {} Then {BlockMessage()} } }"
)
SENDER = (
    "PolicyStatement { On(Forward,Publication) { @broker: Egress "
    "If {AuthenticateSender(Staff)} Then {} Elseif {} Then {BlockMessage()} } }"
)


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def tables(secrets: Secrets, folder: Path, policy: str = FOR_STAFF, **given: Any) -> dict[str, Any]:
    journal = {"folder": str(folder / "journal")}
    return {"trust": secrets.tables("Staff"), "journal": journal, **ruled(policy), **given}


async def challenged(receiver: Raw) -> Challenge:
    while not isinstance(told := await receiver.told(), Challenge):
        assert told is not None
    return told


async def up_to(held: Any, last: int | None) -> list[int]:
    """What comes, up to that number; without one, what comes within a while."""
    found: list[int] = []
    while last not in found and (more := await numbers(held, 0.2 if last is None else 5)):
        found += more
    return found


@pytest.mark.parametrize("end", ["killed", "stopped", "saved and killed", "left"])
@pytest.mark.parametrize("member", [True, False])
def test_who_proves_itself_later_gets_what_was_accepted_before_and_nobody_else_does(
    secrets: Secrets, tmp_path: Path, end: str, member: bool
) -> None:
    given = tables(secrets, tmp_path)
    staff = {"Staff": secrets.file("Staff")} if member else {}

    async def later(broker: Broker) -> None:
        """The receiver comes again, and once more: what it was owed it has got then, or never gets."""
        async with connect(broker, "car") as car:
            async with connect(broker, "one", groups=staff) as one:
                mine = await one.subscribe("a > 0", durable="all")
                await car.publish({"a": 4}, safe="journaled")
                expected = [1, 2, 3, 4] if member else []
                assert await up_to(mine, expected[-1] if member else None) == expected
                await until(lambda: broker.is_settled)
            async with connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one:
                mine = await one.subscribe("a > 0", durable="all")
                await car.publish({"a": 5}, safe="journaled")
                assert await up_to(mine, 5) == [*expected, 5]  # what was not acknowledged comes again

    async def before() -> None:
        broker = Broker(configuration("b1", **given))
        await broker.start()
        async with connect(broker, "car") as car, Raw.client(broker, "one") as one:
            assert isinstance(await one.asked(DURABLE), answers.RequestDone)
            for number in (1, 2, 3):
                await car.publish({"a": number}, safe="journaled")
            await challenged(one)
            if end == "saved and killed":
                assert broker.node.journal_store is not None
                broker.node.journal_store.upkeep.snapshot()
            if end in ("killed", "saved and killed"):
                await broker.abort()
            elif end == "stopped":
                await broker.stop()
        if end == "left":
            await until(lambda: not broker.sessions)
            await later(broker)
            await broker.stop()

    async def after() -> None:
        async with running("b1", **given) as broker:
            await later(broker)

    run(before())
    if end != "left":
        run(after())


def test_what_was_refused_before_a_crash_stays_refused(secrets: Secrets, tmp_path: Path) -> None:
    given = tables(secrets, tmp_path, security={"answer_ms": 50})

    async def before() -> None:
        broker = Broker(configuration("b1", **given))
        await broker.start()
        async with connect(broker, "car") as car, Raw.client(broker, "one") as one:
            assert isinstance(await one.asked(DURABLE), answers.RequestDone)
            await car.publish({"a": 1}, safe="journaled")
            await until(lambda: proofs(broker) == (1, 1))
            await car.publish({"a": 2}, safe="journaled")
            await broker.abort()

    async def after() -> None:
        async with (
            running("b1", **given) as broker,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
            connect(broker, "car") as car,
        ):
            mine = await one.subscribe("a > 0", durable="all")
            await car.publish({"a": 3}, safe="journaled")
            assert await numbers(mine, 5) == [3]

    run(before())
    run(after())


def test_it_is_for_those_that_it_was_for_when_it_came(secrets: Secrets, tmp_path: Path) -> None:
    """A context that was set while the answer was awaited, and is in the journal, changes nothing."""
    given = tables(secrets, tmp_path)

    async def before() -> None:
        broker = Broker(configuration("b1", **given))
        await broker.start()
        async with connect(broker, "car") as car, Raw.client(broker, "one") as one:
            assert isinstance(await one.asked(requests.SetContextRequest(1, {"x": 1})), answers.RequestDone)
            near = requests.SubscribeRequest(2, "one.durable.near", "a > 0", publishers="x = this.x", durable="near")
            assert isinstance(await one.asked(near), answers.RequestDone)
            await car.set_context({"x": 1})
            await car.publish({"a": 1}, safe="journaled")
            await challenged(one)
            assert isinstance(await one.asked(requests.SetContextRequest(3, {"x": 2})), answers.RequestDone)
            await car.publish({"a": 2}, safe="journaled")
            await car.set_context({"x": 2})
            await car.publish({"a": 3}, safe="journaled")
            await broker.abort()

    async def after() -> None:
        async with (
            running("b1", **given) as broker,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
        ):
            near = await one.subscribe("a > 0", publishers="x = this.x", durable="near")
            assert await up_to(near, 3) == [1, 3]

    run(before())
    run(after())


def test_an_event_of_another_broker_waits_in_the_journal_of_its_receivers(secrets: Secrets, tmp_path: Path) -> None:
    """Its publisher is told that it has arrived everywhere; so it is the receiver's broker that owes it now."""
    near = tables(secrets, tmp_path, links=[{"broker": "b2"}])
    near["broker"] = {**near["broker"], "settling_ms": 20}

    async def scenario() -> None:
        broker = Broker(configuration("b1", **near))
        await broker.start()
        link = {"broker": "b1", "address": str(broker.address)}
        far: Any = {"links": [link], "broker": {"settling_ms": 20}, "journal": {"folder": str(tmp_path / "far")}}
        async with running("b2", **far) as other, connect(other, "car") as car:
            await car.advertise("a > 0")
            await at_rest({"b1": broker, "b2": other})
            async with Raw.client(broker, "one") as one:
                assert isinstance(await one.asked(DURABLE), answers.RequestDone)
                await until(lambda: any(one.id == DURABLE.id for one in other.node.engine.state.filters.subscriptions))
                await until(lambda: broker.node.engine.is_settled and other.is_settled)
                await car.publish({"a": 1}, safe="settled")
                await challenged(one)
                await broker.abort()
        async with (
            running("b1", **{**near, "links": []}) as broker,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
        ):
            mine = await one.subscribe("a > 0", durable="all")
            assert await numbers(mine, 5) == [1]
            assert await numbers(mine, 0.1) == []

    run(scenario())


@pytest.mark.parametrize("policy", [SENDER, BOTH])
def test_a_publication_is_accepted_when_its_sender_has_proved_what_rules_may_ask(
    secrets: Secrets, tmp_path: Path, policy: str
) -> None:
    """So nothing that is told to be safe depends on whether its publisher stays."""
    given = tables(secrets, tmp_path, policy)

    async def before() -> None:
        broker = Broker(configuration("b1", **given))
        await broker.start()
        async with (
            Raw.client(broker, "one") as one,
            connect(broker, "car", groups={"Staff": secrets.file("Staff")}) as car,
        ):
            assert isinstance(await one.asked(DURABLE), answers.RequestDone)
            async with Raw.client(broker, "mute") as mute:
                mute.send(publication(1, {"a": 1}, safe=1))
                await challenged(mute)
                await asyncio.sleep(0.05)
                assert broker.metrics.operations.accepted == 0
            await car.publish({"a": 2}, safe="journaled")
            if policy == BOTH:
                await challenged(one)
            await broker.abort()

    async def after() -> None:
        async with (
            running("b1", **given) as broker,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
        ):
            mine = await one.subscribe("a > 0", durable="all")
            assert await numbers(mine, 5) == [2]

    run(before())
    run(after())


def test_who_is_gone_does_not_keep_others_waiting(secrets: Secrets, tmp_path: Path) -> None:
    """A receiver that leaves in the midst of a challenge holds nobody up, and is asked anew when it is back."""
    given = tables(secrets, tmp_path)

    async def scenario() -> None:
        async with running("b1", **given) as broker, connect(broker, "car") as car:
            async with Raw.client(broker, "one") as one:
                assert isinstance(await one.asked(DURABLE), answers.RequestDone)
                await car.publish({"a": 1}, safe="journaled")
                await challenged(one)
            await until(lambda: "one" not in broker.sessions)
            assert broker.is_settled
            offset = broker.node.pending_decisions.lowest_offset({DURABLE.id})
            assert offset is not None
            assert broker.node.needed() == offset  # it is not removed from the journal
            async with Raw.client(broker, "one", session=2) as one:
                await challenged(one)
                assert isinstance(await one.asked(requests.UnsubscribeRequest(2, DURABLE.id)), answers.RequestDone)
            assert broker.node.needed() != offset
            async with connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as member:
                mine = await member.subscribe("a > 0", durable="all")
                await car.publish({"a": 2}, safe="journaled")
                assert await numbers(mine, 5) == [2]

    run(scenario())


class Mute:
    """Answers no challenge that anybody has made."""

    def answer(self, *_: object) -> Proof:
        return Proof(1_000_000)


@pytest.mark.parametrize("member", [True, False])
def test_what_is_undecided_follows_a_receiver_that_goes_to_another_broker(
    secrets: Secrets, tmp_path: Path, member: bool
) -> None:
    """Its broker is killed, and it does not wait for that: it is decided where it is now, and once."""
    staff = {"Staff": secrets.file("Staff")} if member else {}

    def given(name: str, link: dict[str, Any]) -> dict[str, Any]:
        made = tables(secrets, tmp_path, links=[link], journal={"folder": str(tmp_path / name)})
        return {**made, "broker": {**made["broker"], "settling_ms": 20}}

    async def scenario() -> None:
        near = given("b1", {"broker": "b2"})
        broker = Broker(configuration("b1", **near))
        await broker.start()
        near["broker"]["listen"] = str(broker.address)  # it comes again where it was
        async with running("b2", **given("b2", {"broker": "b1", "address": str(broker.address)})) as other:
            await until(lambda: other.links)
            await at_rest({"b1": broker, "b2": other})
            async with td.connect([address(broker), address(other)], "one", groups=staff) as one:
                prover, one.session.challenge_responder = one.session.challenge_responder, Mute()  # type: ignore[assignment]
                mine = await one.subscribe("a > 0", durable="all")
                async with connect(broker, "car") as car:
                    await car.advertise("a > 0")
                    for number in (1, 2):
                        await car.publish({"a": number}, safe="journaled")
                await until(lambda: proofs(broker)[0] == 1)
                one.session.challenge_responder = prover
                await broker.abort()
                await until(lambda: "one" in other.sessions)
                async with running("b1", **near) as broker, connect(broker, "car") as car:
                    await until(lambda: len(broker.links) == 1)
                    await until(lambda: broker.node.pending_decisions.lowest_offset({DURABLE.id}) is None)
                    await at_rest({"b1": broker, "b2": other})
                    assert not broker.node.registry.subscriptions_of("one")
                    await car.advertise("a > 0")
                    await at_rest({"b1": broker, "b2": other})
                    await car.publish({"a": 3}, safe="settled")
                    if member:
                        assert await up_to(mine, 3) == [1, 2, 3]
                    else:
                        await until(lambda: other.metrics.security.challenges_failed > 0)
                        assert await up_to(mine, None) == []
                    await at_rest({"b1": broker, "b2": other})

    run(scenario())


def test_what_cannot_be_written_down_when_the_proof_comes_is_decided_later(
    secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tables(secrets, tmp_path)

    async def scenario() -> None:
        async with running("b1", **given) as broker, connect(broker, "car") as car:
            journal_store = broker.node.journal_store
            assert journal_store is not None
            append, refused = journal_store.append, 0

            def full(rows: list[Operation], now: int) -> Span:
                nonlocal refused
                if rows[0].kind == PASSED and refused < 2:
                    refused += 1
                    raise JournalFullError("no space left", tmp_path)
                return append(rows, now)

            monkeypatch.setattr(journal_store, "append", full)
            async with connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one:
                mine = await one.subscribe("a > 0", durable="all")
                await car.publish({"a": 1}, safe="journaled")
                assert await up_to(mine, 1) == [1]
                assert refused == 2
                await car.publish({"a": 2}, safe="journaled")
                assert await up_to(mine, 2) == [2]
                assert broker.node.pending_decisions.lowest_offset({DURABLE.id}) is None

    run(scenario())


def test_what_comes_twice_at_once_is_given_once() -> None:
    held: Any = object()
    note: Any = object()
    news: Any = object()
    outcome: OperationOutcome[RegisteredSubscription] = OperationOutcome()
    outcome.deliveries = [(held, note), (held, news), (held, note)]
    outcome.durable = (outcome.deliveries[0], outcome.deliveries[2])
    wanted = iter([True, False])
    keep_only(outcome, lambda *_: next(wanted))
    assert outcome.deliveries == [(held, note), (held, news)]
    assert len(outcome.durable) == 1

"""Trust groups on live overlays: who proves that it holds a group's secret gets what policies keep from others."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings as td
from tests.broker.cases import Raw, configuration, connect, framed, publication, run, running, until
from tests.broker.secured import LiveWorld, publish
from tests.sizes import examples
from tidings.broker.broker import Broker
from tidings.client import Client
from tidings.client.identity import ChallengeResponder
from tidings.hub import Hub
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.protocol import answers, requests
from tidings.protocol.handshake import Challenge
from tidings.security.trust_group import TrustGroup

ZONES = td.policies.security_zones(
    restricted="Restricted", controlled="Controlled", hidden=["account"], subscribers="Staff"
)


class Secrets:
    """The files of groups' secrets, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, TrustGroup] = {}

    def file(self, group: str, *, wrong: bool = False) -> str:
        """Of the group's secret, or of another one under its name."""
        path = self._folder / f"{group}{'-wrong' if wrong else ''}.secret"
        if not path.exists():
            TrustGroup.new(group).save(path)
        return str(path)

    def tables(self, *groups: str, expiry_ms: int = 600_000, wrong: Iterable[str] = ()) -> list[dict[str, Any]]:
        return [
            {"group": one, "secret_file": self.file(one, wrong=one in wrong), "expiry_ms": expiry_ms} for one in groups
        ]


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


@contextlib.asynccontextmanager
async def star(trust: dict[str, list[dict[str, Any]]], **tables: Any) -> AsyncIterator[dict[str, Broker]]:
    """The first broker in the middle, the others around it; all linked, and at rest."""
    middle, *others = trust
    brokers: dict[str, Broker] = {}
    async with contextlib.AsyncExitStack() as stack:
        links = [{"broker": one} for one in others]
        common = {"settling_ms": 20}
        brokers[middle] = await stack.enter_async_context(
            running(middle, trust=trust[middle], links=links, broker=common, **tables)
        )
        for name in others:
            link = {"broker": middle, "address": str(brokers[middle].address)}
            brokers[name] = await stack.enter_async_context(
                running(name, trust=trust[name], links=[link], broker=common, **tables)
            )
        await until(lambda: len(brokers[middle].links) == len(others))
        await at_rest(brokers)
        yield brokers


async def at_rest(brokers: dict[str, Broker]) -> None:
    quiet = 0
    async with asyncio.timeout(20):
        while quiet < 5:
            await asyncio.sleep(0.002)
            settled = all(one.is_settled for one in brokers.values()) and all(
                link.sent == brokers[neighbour].links[name].received
                for name, broker in brokers.items()
                for neighbour, link in broker.links.items()
            )
            quiet = quiet + 1 if settled else 0


def advertised(broker: Broker) -> set[str]:
    return {one.id for one in broker.node.engine.state.filters.advertisements if not one.id.startswith("$")}


def proofs(broker: Broker) -> tuple[int, int]:
    return broker.metrics.security.challenges, broker.metrics.security.challenges_failed


# Between brokers


def test_an_advertisement_goes_only_to_brokers_of_either_group(secrets: Secrets) -> None:
    """Fig. 13."""

    async def scenario() -> None:
        everything = ("TrustGroup1", "TrustGroup2")
        trust = {
            "b1": secrets.tables(*everything),
            "b2": secrets.tables("TrustGroup1"),
            "b3": secrets.tables("TrustGroup2"),
            "b4": [],
            "b5": secrets.tables(*everything, wrong=everything),
        }
        async with star(trust) as brokers, connect(brokers["b1"], "bank") as bank:
            policy = td.policies.authenticated("TrustGroup1", "TrustGroup2")
            await bank.advertise("class = 'payment'", policy=policy, id="payments")
            await at_rest(brokers)
            seen = {name for name, one in brokers.items() if "payments" in advertised(one)}
            assert seen == {"b1", "b2", "b3"}
            # b2 in one step; b3, b4 and b5 in two, of which one, two and two fail
            assert proofs(brokers["b1"]) == (7, 5)
            assert (
                brokers["b1"].metrics.security.bogus == 2
            )  # that of b5: the others have said that they have no secret

    run(scenario())


def test_with_every_group_a_broker_of_one_gets_nothing(secrets: Secrets) -> None:
    async def scenario() -> None:
        trust = {"b1": secrets.tables("A", "B"), "b2": secrets.tables("A", "B"), "b3": secrets.tables("A")}
        async with star(trust) as brokers, connect(brokers["b1"], "bank") as bank:
            await bank.advertise("class = 'payment'", policy=td.policies.authenticated("A", "B", every=True), id="p")
            await at_rest(brokers)
            assert {name for name, one in brokers.items() if "p" in advertised(one)} == {"b1", "b2"}

    run(scenario())


def test_security_zones_on_live_brokers(secrets: Secrets) -> None:
    """Figs. 15 and 16: all is seen in the restricted zone, not the account in the controlled one, nothing elsewhere;
    and only who belongs to the staff subscribes."""

    async def scenario() -> None:
        trust = {
            "b1": secrets.tables("Restricted", "Controlled", "Staff"),
            "b2": secrets.tables("Restricted", "Staff"),
            "b3": secrets.tables("Controlled", "Staff"),
            "b4": secrets.tables("Staff"),
        }
        async with contextlib.AsyncExitStack() as stack:
            brokers = await stack.enter_async_context(star(trust))
            staff = {"Staff": secrets.file("Staff")}
            inside, outside = (
                staff | {"Restricted": secrets.file("Restricted")},
                staff | {"Controlled": secrets.file("Controlled")},
            )
            clients: dict[str, Client] = {}
            for name, broker, groups in (
                *(("bank", "b1", inside), ("alarm", "b1", {}), ("audit", "b2", inside), ("shop", "b3", outside)),
                *(("stranger", "b2", {}), ("far", "b4", inside)),
            ):
                clients[name] = await stack.enter_async_context(connect(brokers[broker], name, groups=groups))
            alarms = await clients["alarm"].subscribe("class = 'UnauthorizedSubscribe'")
            await clients["bank"].advertise("class = 'payment'", policy=ZONES)
            await at_rest(brokers)
            wanted = {name: await clients[name].subscribe("class = 'payment'") for name in ("audit", "shop", "far")}
            with contextlib.suppress(RefusedError):
                wanted["stranger"] = await clients["stranger"].subscribe("class = 'payment'")
            await at_rest(brokers)
            await clients["bank"].publish({"class": "payment", "amount": 5, "account": "DE1"}, safe="settled")
            await at_rest(brokers)
            seen = {name: [dict(one.attributes) for one in await held.take()] for name, held in wanted.items()}
            assert seen.pop("stranger", []) == []
            payment = {"class": "payment", "amount": 5}
            assert seen == {"audit": [payment | {"account": "DE1"}], "shop": [payment], "far": []}
            assert [one.attributes["class"] for one in await alarms.take()] == ["UnauthorizedSubscribe"]

    run(scenario())


SENDER = (
    "PolicyStatement { On(Forward,Publication) { @broker: Egress "
    "If {AuthenticateSender(G1) && AuthenticateSender(G2)} Then {} Elseif {} Then {BlockMessage()} } }"
)


def test_a_sender_proves_itself_once_until_that_expires(secrets: Secrets) -> None:
    async def scenario() -> None:
        groups = ("G1", "G2")
        trust = {"b1": secrets.tables(*groups, expiry_ms=600_000), "b2": secrets.tables(*groups)}
        async with star(trust) as brokers, connect(brokers["b2"], "car") as car, connect(brokers["b1"], "me") as me:
            await car.advertise("a > 0")
            await at_rest(brokers)
            mine = await me.subscribe("a > 0", policy=SENDER)
            await at_rest(brokers)
            for number in (1, 2, 3):
                await car.publish({"a": number}, safe="settled")
            await at_rest(brokers)
            assert [one.attributes["a"] for one in await mine.take()] == [1, 2, 3]
            assert proofs(brokers["b1"]) == (2, 0)
            later: Any = Later(brokers["b1"].parts.scheduler.clock, 601_000_000)
            brokers["b1"].parts.scheduler.clock = brokers["b1"].node.processor.clock = later
            await car.publish({"a": 4}, safe="settled")
            await at_rest(brokers)
            assert [one.attributes["a"] for one in await mine.take()] == [4]
            assert proofs(brokers["b1"]) == (4, 0)

    run(scenario())


class Later:
    """A clock that is ahead of another one, by microseconds."""

    def __init__(self, clock: Any, ahead: int) -> None:
        self._clock, self._ahead = clock, ahead

    def now(self) -> int:
        return int(self._clock.now()) + self._ahead

    def entropy(self) -> bytes:
        return bytes(self._clock.entropy())


def test_events_keep_their_order_while_a_neighbour_is_challenged(secrets: Secrets) -> None:
    async def scenario() -> None:
        trust = {"b1": secrets.tables("G1", "G2"), "b2": secrets.tables("G1", "G2")}
        async with star(trust) as brokers, connect(brokers["b2"], "car") as car, connect(brokers["b1"], "me") as me:
            await car.advertise("a > 0")
            await at_rest(brokers)
            mine = await me.subscribe("a > 0", policy=SENDER)
            await at_rest(brokers)
            await asyncio.gather(*(car.publish({"a": number}) for number in range(1, 101)))
            await at_rest(brokers)
            assert [one.attributes["a"] for one in await mine.take(200)] == list(range(1, 101))

    run(scenario())


def test_a_neighbour_that_does_not_answer_in_time_does_not_belong(secrets: Secrets) -> None:
    async def scenario() -> None:
        trust = {"b1": secrets.tables("A"), "b2": secrets.tables("A")}
        async with star(trust, security={"answer_ms": 50}) as brokers, connect(brokers["b1"], "bank") as bank:
            brokers["b2"].parts.trust_challenges.answer_challenge = lambda *_: None  # type: ignore[method-assign]
            await bank.advertise("a > 0", policy=td.policies.authenticated("A"), id="p")
            await until(lambda: proofs(brokers["b1"]) == (1, 1))
            await at_rest(brokers)
            assert "p" not in advertised(brokers["b2"])

    run(scenario())


# Clients

STAFF_SUBSCRIBES = (
    "PolicyStatement { On(Insert,Subscription) { @broker: Ingress "
    "If {AuthenticateSender(Staff)} Then {} Elseif {} Then {UninsertMessage()} } }"
)
STAFF_PUBLISHES = (
    "PolicyStatement { On(Forward,Publication) { @matching: Before @broker: Ingress "
    "If {AuthenticateSender(Staff)} Then {} Elseif {} Then {BlockMessage()} } }"
)
FOR_STAFF = (
    "PolicyStatement { On(Forward,Publication) { @broker: Egress "
    "If {AuthenticateReceiver(Staff)} Then {} Elseif {} Then {BlockMessage()} } }"
)


def governed(policy: str) -> dict[str, Any]:
    """Tables of a broker with that policy on all that comes by; clients may ask for anything."""
    return {"advertisements": [{"policy": policy}], "broker": {"advertisements_required": False}}


def ruled(policy: str) -> dict[str, Any]:
    return {"subscriptions": [{"policy": policy}], "broker": {"advertisements_required": False}}


async def numbers(held: Any, timeout: float | None = 0) -> list[int]:
    return [one.attributes["a"] for one in await held.take(1000, timeout=timeout)]


def test_only_who_holds_the_secret_publishes(secrets: Secrets) -> None:
    """What was sent behind a publication that has to wait stays behind it, whatever it is."""

    async def scenario() -> None:
        staff = {"Staff": secrets.file("Staff")}
        async with (
            running("b1", trust=secrets.tables("Staff"), **ruled(STAFF_PUBLISHES)) as broker,
            connect(broker, "one", groups=staff) as one,
            connect(broker, "stranger") as stranger,
            connect(broker, "liar", groups={"Staff": secrets.file("Staff", wrong=True)}) as liar,
        ):
            mine = await one.subscribe("a > 0", id="mine")
            sent = [one.publish({"a": number}) for number in range(1, 51)]
            context = asyncio.ensure_future(one.set_context({"x": 1}))
            more = [one.publish({"a": number}) for number in range(51, 101)]
            receipts = await asyncio.gather(*sent, *more)
            await context
            assert [one.offset for one in receipts] == sorted(one.offset for one in receipts)
            for other in (stranger, liar):
                with pytest.raises(RefusedError, match="blocked before matching"):
                    await other.publish({"a": 1000})
            assert await numbers(mine) == list(range(1, 101))
            assert proofs(broker) == (3, 2)
            assert broker.metrics.security.bogus == 1

    run(scenario())


def test_a_publication_behind_one_that_waits_is_neither_lost_nor_doubled(secrets: Secrets) -> None:
    """By a client that answers nothing: everything waits, is refused by the rule, and is answered in its order."""

    async def scenario() -> None:
        async with (
            running(
                "b1", trust=secrets.tables("Staff"), security={"answer_ms": 50}, **ruled(STAFF_PUBLISHES)
            ) as broker,
            connect(broker, "me") as me,
            Raw.client(broker, "old") as old,
        ):
            mine = await me.subscribe("a > 0")
            ask = requests.QueryRequest(4, "status")
            for data in (publication(1, {"a": 1}), publication(2, {"a": 2}), framed(ask), publication(3, {"a": 3})):
                old.send(data)
            told = [await old.told() for _ in range(5)]
            assert isinstance(told[0], Challenge)
            assert [one.request for one in told if isinstance(one, answers.QueryAnswer)] == [4]
            assert [one.request for one in told if isinstance(one, answers.RequestRefused)] == [1, 2, 3]
            assert await numbers(mine) == []
            assert proofs(broker) == (1, 1)

    run(scenario())


def test_only_who_holds_the_secret_subscribes_and_the_journal_knows(secrets: Secrets, tmp_path: Path) -> None:
    """The answer came later than the question; a broker that is started again does as if it had it at once."""
    folder = {"journal": {"folder": str(tmp_path / "journal")}, **governed(STAFF_SUBSCRIBES)}
    staff = {"Staff": secrets.file("Staff")}

    async def before() -> None:
        broker = Broker(configuration("b1", trust=secrets.tables("Staff"), **folder))
        await broker.start()
        async with (
            connect(broker, "car") as car,
            connect(broker, "one", groups=staff) as one,
            connect(broker, "stranger") as stranger,
        ):
            await one.subscribe("a > 0", durable="all", id="mine")
            with contextlib.suppress(RefusedError):
                await stranger.subscribe("a > 0", durable="all", id="theirs")
            await car.publish({"a": 1})
            assert {one.id for one in broker.node.engine.state.filters.subscriptions.of("one")} == {"mine"}
            assert not broker.node.engine.state.filters.subscriptions.of("stranger")
            assert proofs(broker) == (2, 1)
            await broker.abort()  # so that the journal is all that there is

    async def after() -> None:
        async with running("b1", trust=secrets.tables("Staff"), **folder) as broker, connect(broker, "car") as car:
            assert not broker.node.journal_store.notes  # type: ignore[union-attr]
            assert {one.id for one in broker.node.engine.state.filters.subscriptions.of("one")} == {"mine"}
            await car.publish({"a": 2})
            async with connect(broker, "one", groups=staff) as one:
                mine = await one.subscribe("a > 0", durable="all")
                assert await numbers(mine, 5) == [1, 2]

    run(before())
    run(after())


def test_events_are_kept_for_a_durable_subscriber_who_proves_itself_later(secrets: Secrets, tmp_path: Path) -> None:
    """The answer comes after the publication was accepted: what is then due is in the journal all the same."""
    folder = {"journal": {"folder": str(tmp_path / "journal")}, **ruled(FOR_STAFF)}

    async def before() -> None:
        async with (
            running("b1", trust=secrets.tables("Staff"), **folder) as broker,
            connect(broker, "car") as car,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
            connect(broker, "stranger") as stranger,
        ):
            mine = await one.subscribe("a > 0", durable="all")
            theirs = await stranger.subscribe("a > 0", durable="all")
            for number in (1, 2):
                await car.publish({"a": number})
            assert await numbers(mine, 5) == [1, 2]
            assert await numbers(theirs) == []

    async def after() -> None:
        async with (
            running("b1", trust=secrets.tables("Staff"), **folder) as broker,
            connect(broker, "one") as one,
            connect(broker, "stranger") as stranger,
        ):
            mine = await one.subscribe("a > 0", durable="all")
            assert await numbers(mine, 5) == [1, 2]
            assert await numbers(await stranger.subscribe("a > 0", durable="all")) == []

    run(before())
    run(after())


def test_what_was_proved_on_one_connection_does_not_count_on_the_next(secrets: Secrets) -> None:
    async def scenario() -> None:
        async with (
            running("b1", trust=secrets.tables("Staff"), **ruled(STAFF_PUBLISHES)) as broker,
            connect(broker, "me") as me,
        ):
            mine = await me.subscribe("a > 0")
            async with connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one:
                await one.publish({"a": 1})
            async with connect(broker, "one") as another:
                with pytest.raises(RefusedError):
                    await another.publish({"a": 2})
            assert await numbers(mine, 5) == [1]
            assert proofs(broker) == (2, 1)

    run(scenario())


def test_a_proof_is_good_for_one_challenge_of_one_broker_only(secrets: Secrets) -> None:
    """A client that passes the challenges of one broker on to another member, and its proofs back, is refused."""

    async def scenario() -> None:
        staff = {"Staff": secrets.file("Staff")}
        async with (
            running("b1", trust=secrets.tables("Staff"), **ruled(STAFF_PUBLISHES)) as broker,
            connect(broker, "me") as me,
            Raw.client(broker, "thief") as thief,
            connect(broker, "one", groups=staff) as one,
        ):
            mine = await me.subscribe("a > 0")
            thief.send(publication(1, {"a": 1}))
            challenge = await thief.told()
            proof = one.session.challenge_responder.answer(challenge, "b1", None)
            thief.say(proof)
            await until(lambda: proofs(broker) == (1, 1))
            assert broker.metrics.security.bogus == 1
            assert await numbers(mine) == []

    run(scenario())


def test_a_sealed_publication_that_waits_for_a_proof_is_no_replay_of_itself(secrets: Secrets, tmp_path: Path) -> None:
    async def scenario() -> None:
        world = LiveWorld(tmp_path)
        tables = {**world.security("b1"), **ruled(STAFF_PUBLISHES), "trust": secrets.tables("Staff")}
        prover = ChallengeResponder("ann", None, [TrustGroup.load("Staff", secrets.file("Staff"))])
        async with running("b1", **tables) as broker, Raw.client(broker, "ann") as ann:
            for number in (1, 2, 3):
                ann.send(publish(world.sealed(number), number))
            challenge = await ann.told()
            assert isinstance(challenge, Challenge)
            ann.say(prover.answer(challenge, "b1", None))
            receipts = [await ann.told()]
            while sum(len(one.receipts) for one in receipts) < 3:
                receipts.append(await ann.told())
            assert broker.gate is not None
            assert not broker.gate.refused.total()
            ann.send(publish(msgspec.structs.replace(world.sealed(9), id=world.event(2).id), 4))
            assert (await ann.answered()).error == "RefusedError"  # another one under a known id

    run(scenario())


# The same as where answers come at once

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["one", "two", "stranger"]), st.integers(1, 9)),
        st.tuples(st.just("context"), st.sampled_from(["one", "two"]), st.integers(1, 3)),
        st.tuples(st.just("subscribe"), st.sampled_from(["one", "stranger"]), st.integers(1, 9)),
    ),
    max_size=12,
)
Told = list[tuple[str, str, int]]


@examples(15, 500)
@given(STEPS, st.sampled_from([10, 600_000]))
def test_a_live_broker_decides_as_a_hub_does_that_knows_all_answers(steps: Told, expiry: int) -> None:
    """All steps of a client are sent at once, so that they wait behind each other."""
    with tempfile.TemporaryDirectory() as folder:
        live = run(_played(steps, Secrets(Path(folder)), expiry))
    hub = Hub(trust=lambda party, _: party in ("hub", "one", "two"), advertisements_required=False)
    hub.subscribe("", policy=STAFF_PUBLISHES)
    hub.advertise("", policy=STAFF_SUBSCRIBES)
    expected: list[Any] = []
    for kind, name, number in steps:
        client = hub.client(name)
        try:
            if kind == "publish":
                client.publish({"a": number})
            elif kind == "context":
                client.set_context({"x": number})
            else:
                client.subscribe(f"a > {number}", id=f"{name}.{len(expected)}")
            expected.append("done")
        except RefusedError as refused:
            expected.append(refused.step)
    assert live == expected


async def _played(steps: Told, secrets: Secrets, expiry: int) -> list[str]:
    staff = {"Staff": secrets.file("Staff")}
    tables = {**governed(STAFF_SUBSCRIBES), **ruled(STAFF_PUBLISHES)}
    async with (
        running("b1", trust=secrets.tables("Staff", expiry_ms=expiry), **tables) as broker,
        connect(broker, "one", groups=staff) as one,
        connect(broker, "two", groups=staff) as two,
        connect(broker, "stranger") as stranger,
    ):
        clients = {"one": one, "two": two, "stranger": stranger}

        async def taken(place: int, kind: str, name: str, number: int) -> str:
            client = clients[name]
            try:
                if kind == "publish":
                    await client.publish({"a": number})
                elif kind == "context":
                    await client.set_context({"x": number})
                else:
                    await client.subscribe(f"a > {number}", id=f"{name}.{place}")
            except RefusedError as refused:
                return refused.step
            return "done"

        return list(await asyncio.gather(*(taken(place, *step) for place, step in enumerate(steps))))


# Files


def test_secrets_that_others_can_read_or_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "group"
    TrustGroup.new("A").save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(InvalidValueError, match="chmod 600"):
        Broker(configuration("b1", trust=[{"group": "A", "secret_file": str(path)}]))
    path.chmod(0o600)
    path.write_text("none")
    with pytest.raises(InvalidValueError, match="holds no secret"):
        Broker(configuration("b1", trust=[{"group": "A", "secret_file": str(path)}]))
    with pytest.raises(InvalidValueError, match="No such file"):
        Broker(configuration("b1", trust=[{"group": "A", "secret_file": str(tmp_path / "nothing")}]))
    with pytest.raises(InvalidValueError, match="has members, or a secret"):
        configuration("b1", trust=[{"group": "A"}])


def test_a_reload_brings_a_group(secrets: Secrets) -> None:
    async def scenario() -> None:
        async with (
            running("b1", **ruled(STAFF_PUBLISHES)) as broker,
            connect(broker, "one", groups={"Staff": secrets.file("Staff")}) as one,
        ):
            mine = await one.subscribe("a > 0")
            with pytest.raises(RefusedError):
                await one.publish({"a": 1})
            assert proofs(broker) == (0, 0)  # without a secret nobody can prove anything
            change = await broker.reload(configuration("b1", trust=secrets.tables("Staff"), **ruled(STAFF_PUBLISHES)))
            assert change.taken_over == ("trust",)
            await one.publish({"a": 2})
            assert await numbers(mine, 5) == [2]

    run(scenario())

"""What a client may ask of a broker, and how it is refused: by the same errors as in one process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tidings as td
from tests.broker.cases import Raw, address, connect, hello, publication, run, running, until
from tidings.client import Client
from tidings.model.errors import (
    ClosedError,
    FilterError,
    InvalidValueError,
    PolicyError,
    PublishedBeforeError,
    RefusedError,
    SchemaError,
    TidingsError,
    UnreachableError,
)
from tidings.model.limits import MAX_PAYLOAD_BYTES
from tidings.protocol import answers, requests
from tidings.protocol.frames import FrameKind, frame
from tidings.protocol.handshake import Bye, SubjectBound, Welcome
from tidings.protocol.notifications import WireNotification
from tidings.protocol.publications import Safety, encode_prefix

LOOP = td.Schema("Loop", {"li": int, "ts": int, "lo": str})
TOO_LARGE = bytes(MAX_PAYLOAD_BYTES + 1)
TRIM = str(td.policies.trim())


def test_a_client_does_all_that_a_client_of_a_hub_does() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "cam-1") as camera:
            await car.set_context(x=10.0, y=20.0)
            near = await car.subscribe("msg = 'accident'", publishers="x between this.x - 20 and this.x + 20")
            await camera.set_context(x=12.0, y=18.0)
            offer = await camera.advertise("msg = 'accident'", publisher_context=["x", "y"])
            receipt = await camera.publish({"msg": "accident", "lane": 2}, subscribers="x < 100", payload=b"p")
            [note] = await near.take(timeout=60)
            assert (note.attributes, note.payload, note.event.id) == (
                {"msg": "accident", "lane": 2},
                b"p",
                receipt.event.id,
            )
            assert note.event.context == {"x": 12.0, "y": 18.0}
            await camera.set_context(x=100.0)
            await camera.publish({"msg": "accident"})
            await camera.set_context(x=11.0)
            await camera.publish({"msg": "accident"}, subscribers="x > 100")
            await car.set_policy(near, TRIM)
            await camera.publish({"msg": "accident", "lane": 3})
            assert [one.attributes for one in await near.take(timeout=60)] == [{"msg": "accident"}]
            [why] = await car.explain({"msg": "fire"}, near)
            assert (why.delivered, why.step) == (False, "content")
            topics = await car.topics()
            assert [one["id"] for one in topics["advertisements"]] == [offer.id]
            await camera.unadvertise(offer)
            assert (await car.topics())["advertisements"] == []
            await near.unsubscribe()
            await camera.publish({"msg": "accident"})
            with pytest.raises(ClosedError):
                await near.take(timeout=60)

    run(scenario())


REFUSED: list[tuple[str, Callable[[Client], Awaitable[Any]], type[TidingsError], str]] = [
    ("a filter", lambda client: client.subscribe("a = = 1"), FilterError, "    ^"),
    ("a context filter", lambda client: client.subscribe("", publishers="x >"), FilterError, "^"),
    ("a policy", lambda client: client.subscribe("a = 1", policy="PolicyStatement {"), PolicyError, "line 1"),
    ("somebody else's name", lambda client: client.set_context({"x": 1}, of="other"), RefusedError, "other"),
    ("a value", lambda client: client.publish({"a": [1]}), InvalidValueError, "a"),
    (
        "a payload",
        lambda client: client.publish({}, payload=bytes(MAX_PAYLOAD_BYTES + 1)),
        InvalidValueError,
        "payload",
    ),
    ("a subject's name", lambda client: client.schema("Nobody"), SchemaError, "no such subject"),
    ("an id", lambda client: client.unsubscribe("nobody"), RefusedError, "nobody"),
    ("an advertisement", lambda client: client.unadvertise("nobody"), RefusedError, "nobody"),
    ("a policy on nothing", lambda client: client.set_policy("nobody", TRIM), RefusedError, "nobody"),
    ("a question", lambda client: client.ask("weather"), InvalidValueError, "no question"),
    ("a question about nothing", lambda client: client.ask("schema", topic="x"), InvalidValueError, "about"),
    ("an operator's question", lambda client: client.ask("tables"), RefusedError, "no operator"),
]


@pytest.mark.parametrize(("what", "ask", "kind", "told"), REFUSED, ids=[one[0] for one in REFUSED])
def test_what_cannot_be_is_refused_and_the_client_goes_on(
    what: str, ask: Callable[[Client], Awaitable[Any]], kind: type[TidingsError], told: str
) -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as client:
            with pytest.raises(kind) as caught:
                await ask(client)
            assert type(caught.value) is kind
            assert told in str(caught.value)
            assert (await client.publish({"a": 1})).offset >= 0

    run(scenario())


# What other programs may send that this client never would: refused by the broker itself

SENT: list[tuple[str, Any, str, str]] = [
    ("a filter", requests.SubscribeRequest(7, "s", "a = = 1"), "FilterError", "a = = 1"),
    ("publishers", requests.SubscribeRequest(7, "s", "", "x >"), "FilterError", "x >"),
    ("a policy", requests.SubscribeRequest(7, "s", "", policy="PolicyStatement {"), "PolicyError", "PolicyStatement {"),
    ("an empty id", requests.SubscribeRequest(7, ""), "InvalidValueError", ""),
    ("a long id", requests.SubscribeRequest(7, "x" * 256), "InvalidValueError", ""),
    ("a limit", requests.SubscribeRequest(7, "s", limit=0), "InvalidValueError", ""),
    ("no JSON", requests.SubscribeRequest(7, "s", structure="{"), "SchemaError", ""),
    ("JSON of another kind", requests.SubscribeRequest(7, "s", structure="[1]"), "SchemaError", ""),
    ("a structure without versions", requests.SubscribeRequest(7, "s", structure='{"subject":"L"}'), "SchemaError", ""),
    (
        "a structure of no versions",
        requests.SubscribeRequest(7, "s", structure='{"subject":"L","versions":[],"names":[],"absent":[]}'),
        "SchemaError",
        "",
    ),
    ("a schema of no versions", requests.DefineSchemaRequest(7, "Loop", ()), "SchemaError", ""),
    ("a schema of unknown types", requests.DefineSchemaRequest(7, "Loop", ({"a": "complex"},)), "SchemaError", "a"),
    ("a schema without a subject", requests.DefineSchemaRequest(7, "", ({"a": "int"},)), "InvalidValueError", ""),
    ("a context", requests.SetContextRequest(7, {"$x": 1}), "InvalidValueError", ""),
    ("an empty name", requests.DelegateContextRequest(7, ""), "InvalidValueError", ""),
    ("an acknowledgement of an id", requests.AcknowledgeRequest("mine", (b"short",)), "InvalidValueError", ""),
]


@pytest.mark.parametrize(("what", "request_", "error", "text"), SENT, ids=[one[0] for one in SENT])
def test_what_this_client_would_never_send_is_refused_by_the_broker(
    what: str, request_: Any, error: str, text: str
) -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker) as raw:
            assert isinstance(
                await raw.asked(requests.SubscribeRequest(1, "mine", durable="mine")), answers.RequestDone
            )
            refused = await raw.asked(request_)
            assert isinstance(refused, answers.RequestRefused)
            assert (refused.request, refused.error) == (getattr(request_, "request", 0), error)
            assert refused.text == text
            assert isinstance(await raw.asked(requests.SetContextRequest(8, {"x": 1})), answers.RequestDone)

    run(scenario())


PUBLISHED: list[tuple[str, dict[str, Any], str]] = [
    ("an id that is too short", {"id": b"x"}, "16 bytes"),
    ("an id of another version", {"id": bytes(16)}, "UUIDv7"),
    ("a sequence that goes back", {"sequence": 0}, "does not come after"),
    ("a sequence of 64 bits", {"sequence": 2**64 - 1}, "does not come after"),
    ("a system's name", {"attributes": {"$class": 1}}, "'$'"),
    ("too many attributes", {"attributes": {f"a{one}": one for one in range(10_000)}}, "MAX_ATTRIBUTES"),
    ("a payload over the limit", {"payload": TOO_LARGE}, "MAX_PAYLOAD_BYTES"),
    ("a subject over the limit", {"subject": "s" * 1_025}, "MAX_SUBJECT_CHARACTERS"),
    ("a filter of subscribers", {"subscribers": "x >"}, "ends too early"),
    ("a policy", {"policy": "PolicyStatement {"}, ""),
    ("a token", {"token": bytes(16_385)}, "MAX_TOKEN_BYTES"),
    ("an unknown safety", {"safe": 9}, "safe"),
]


@pytest.mark.parametrize(("what", "given", "told"), PUBLISHED, ids=[one[0] for one in PUBLISHED])
def test_a_publication_that_cannot_be_is_refused_by_its_number(what: str, given: dict[str, Any], told: str) -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker) as raw:
            raw.send(publication(1, given.pop("attributes", {"a": 1}), **given) + publication(2, {"a": 2}))
            refused = await raw.answered()
            assert isinstance(refused, answers.RequestRefused)
            assert refused.request == 1
            assert told in refused.reason
            receipts = await raw.answered()
            assert [one.request for one in receipts.receipts] == [2]

    run(scenario())


def test_an_event_is_published_once_whatever_its_number() -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker) as raw:
            raw.send(publication(1, {"a": 1}))
            assert isinstance(await raw.answered(), answers.PublicationReceipts)
            raw.send(publication(1, {"a": 1}, sequence=2))
            refused = await raw.answered()
            assert (refused.error, refused.request) == ("PublishedBeforeError", 1)

        async with running() as broker, connect(broker, "cam-1") as client:
            receipt = await client.publish({"a": 1})
            with pytest.raises(PublishedBeforeError):
                await client.publish({"a": 1}, id=receipt.event.id)

    run(scenario())


# Who is who


def test_a_newer_session_takes_over_and_an_older_one_is_refused() -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker, "car-1", 5) as first:
            assert isinstance(await first.asked(requests.SubscribeRequest(1, "s")), answers.RequestDone)
            async with Raw.to(broker) as older:
                older.say(hello("car-1", 5))
                [bye] = await older.end()
                assert (bye.again, "later session" in bye.reason) == (False, True)
            async with Raw.client(broker, "car-1", 6) as second:
                [bye] = await first.end()
                assert (bye.again, "another program has connected" in bye.reason) == (False, True)
                assert [one.id for one in broker.node.registry.subscriptions_of("car-1")] == []
                assert isinstance(await second.asked(requests.SubscribeRequest(1, "s")), answers.RequestDone)
                assert [one.id for one in broker.node.registry.subscriptions_of("car-1")] == ["s"]

    run(scenario())


def test_of_two_clients_of_one_name_the_later_one_stays() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as first:
            held = await first.subscribe("a = 1")
            async with connect(broker, "car-1") as second:
                await until(lambda: not first.is_connected or held.closed)
                with pytest.raises(ClosedError, match="another program has connected"):
                    await first.publish({"a": 1})
                with pytest.raises(ClosedError, match="another program has connected"):
                    async for _ in held:
                        pass
                assert (await second.publish({"a": 1})).offset >= 0

    run(scenario())


def test_the_names_of_brokers_are_not_for_clients() -> None:
    async def scenario() -> None:
        async with running("b1", links=[{"broker": "b2"}]) as b1:
            with pytest.raises(ClosedError, match="b1 is the name of this broker"):
                await td.connect(address(b1), "b1").__aenter__()
            async with Raw.to(b1) as neighbour:
                neighbour.say(hello("b3", role="broker"))
                [bye] = await neighbour.end()
                assert "no link to b3" in bye.reason
            with pytest.raises(ClosedError, match="b2"):
                await td.connect(address(b1), "b2").__aenter__()

    run(scenario())


def test_a_handshake_says_what_is_wrong_with_it() -> None:
    async def scenario() -> None:
        async with running() as broker:
            for said, reason in [
                (requests.QueryRequest(1, "status"), "the first frame must be a HELLO"),
                (hello(""), "HELLO: "),
                (hello("x" * 256), "HELLO: "),
                (hello("car-1", -1), "session: must not be negative"),
                (hello("car-1", role="king"), "HELLO: "),
            ]:
                async with Raw.to(broker) as raw:
                    raw.say(said)
                    [bye] = await raw.end()
                    assert isinstance(bye, Bye)
                    assert reason in bye.reason
                    assert not bye.again
            async with Raw.to(broker) as raw:
                raw.say(hello("car-1"), requests.SetContextRequest(1, {"x": 1}))
                assert isinstance(await raw.told(), Welcome)
                assert isinstance(await raw.answered(), answers.RequestDone)
        assert not broker.parts.admission.handshakes

    run(scenario())


# Subjects by their numbers


def test_a_subject_is_known_by_its_number_and_the_vector_stands_in_front() -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker) as raw:
            raw.say(
                requests.SubscribeRequest(1, "s", subject="Loop"),
                requests.DefineSchemaRequest(2, "Loop", ({"li": "int", "lo": "str"},)),
            )
            told = [await raw.told() for _ in range(3)]
            [bound] = [one for one in told if isinstance(one, SubjectBound)]
            assert (bound.subject, bound.versions) == ("Loop", ({"li": "int", "lo": "str"},))
            raw.send(publication(1, {"li": 1}, encode_prefix(bound.number, 0b01)))
            note, receipts = sorted(
                [await raw.told(), await raw.told()], key=lambda one: isinstance(one, answers.PublicationReceipts)
            )
            assert (note.event.subject, note.event.attributes) == ("Loop", {"li": 1})
            assert [one.request for one in receipts.receipts] == [1]
            for number, data, reason in [
                (2, publication(2, {"li": 1}, encode_prefix(bound.number, 0b11)), "the vector does not say"),
                (3, publication(3, {"li": 1, "zz": 2}, encode_prefix(bound.number, 0b01)), "has no attribute zz"),
                (4, publication(4, {"li": "x"}, encode_prefix(bound.number, 0b01)), "li is int, not str"),
            ]:
                raw.send(data)
                refused = await raw.told()
                assert (refused.request, refused.error) == (number, "SchemaError")
                assert reason in refused.reason
            raw.send(publication(5, {"li": 5}, encode_prefix(bound.number, 0b01)))
            told = [await raw.told(), await raw.told()]
            assert {type(one) for one in told} == {WireNotification, answers.PublicationReceipts}

    run(scenario())


@pytest.mark.parametrize("ahead", [encode_prefix(1, 0b100), encode_prefix(99, 0b1), encode_prefix(2**32 - 1, 0)])
def test_a_vector_that_cannot_be_is_refused_before_anything_is_decoded(ahead: bytes) -> None:
    async def scenario() -> None:
        schema = {"subject": "Loop", "attributes": {"li": "int", "lo": "str"}}
        async with running(schemas=[schema]) as broker, Raw.client(broker) as raw:
            raw.send(frame(FrameKind.PUBLISH, ahead + b"\xc1" * 100))  # which no decoder would take
            refused = await raw.answered()
            assert (refused.request, refused.error) == (0, "SchemaError")
            assert "attributes" in refused.reason or "number" in refused.reason
            raw.send(publication(300, {"li": 1}, ahead))
            assert (await raw.answered()).request == 300
            raw.send(publication(301, {"li": 1}, encode_prefix(1, 1)))
            assert isinstance(await raw.answered(), answers.PublicationReceipts)

    run(scenario())


def test_everybody_hears_of_a_subject_that_is_defined_later() -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker, "early") as early, connect(broker, "definer") as definer:
            await definer.schema(LOOP)
            bound = await early.told()
            assert isinstance(bound, SubjectBound)
            assert bound.subject == "Loop"
            async with connect(broker, "car-1") as car:
                loops = await car.subscribe("", subject="Loop", structure=td.AttributeFilter(LOOP, names={"li"}))
                await definer.publish({"li": 1, "ts": 2}, subject="Loop")
                await definer.publish({"ts": 2}, subject="Loop")
                assert [one.attributes for one in await loops.take(timeout=60)] == [{"li": 1, "ts": 2}]
                with pytest.raises(RefusedError, match="no attribute zz"):
                    await definer.publish({"li": 1, "zz": 2}, subject="Loop")
                longer = LOOP.extend({"zz": int})
                await car.schema(longer)
                await until(lambda: definer.session.framing.schemas["Loop"][1] == longer)
                await definer.publish({"li": 3, "zz": 2}, subject="Loop")
                assert [one.attributes for one in await loops.take(timeout=60)] == [{"li": 3, "zz": 2}]
                with pytest.raises(RefusedError, match="li is missing"):
                    await definer.schema(td.Schema("Loop", {"other": int}))

    run(scenario())


# Operators


def test_some_questions_are_for_operators_only() -> None:
    async def scenario() -> None:
        given = {"operators": ["boss"]}
        async with running(broker=given) as broker, connect(broker, "boss") as boss, connect(broker, "car-1") as car:
            await car.set_context(x=1)
            held = await car.subscribe("a = 1")
            tables = await boss.ask("tables")
            assert tables["contexts"] == {"car-1": {"x": 1}}
            assert [one["id"] for one in tables["subscriptions"]] == [held.id]
            assert (await car.ask("status"))["clients"] == 2
            assert (await car.ask("stats"))["broker"] == "b1"
            await boss.set_policy(held.id, TRIM)
            await car.publish({"a": 1, "b": 2})
            assert [one.attributes for one in await held.take(timeout=60)] == [{"a": 1}]
            with pytest.raises(RefusedError):
                await boss.unsubscribe(held.id)

    run(scenario())


def test_a_client_may_let_another_set_its_context() -> None:
    async def scenario() -> None:
        async with running() as broker, connect(broker, "car-1") as car, connect(broker, "gps") as gps:
            held = await car.subscribe("", publishers="x = this.x")
            with pytest.raises(RefusedError):
                await gps.set_context({"x": 1}, of="car-1")
            await car.let_set_context(gps)
            await gps.set_context({"x": 5}, of="car-1")
            await until(lambda: car.context == {"x": 5})
            await gps.set_context(x=5)
            await gps.publish({"a": 1})
            assert len(await held.take(timeout=60)) == 1
            await car.let_set_context(gps, allowed=False)
            with pytest.raises(RefusedError):
                await gps.set_context({"x": 6}, of="car-1")

    run(scenario())


# Limits


def test_more_connections_than_may_be_are_told_so() -> None:
    async def scenario() -> None:
        async with running(limits={"connections": 2}) as broker:
            async with Raw.client(broker, "a"), Raw.client(broker, "b"):
                async with Raw.to(broker) as third:
                    [bye] = await third.end()
                    assert (bye.again, "too many connections" in bye.reason) == (True, True)
                with pytest.raises(UnreachableError, match="too many connections"):
                    await connect(broker, "c", patience=0.2).__aenter__()
            await until(lambda: not broker.sessions)
            async with connect(broker, "c") as client:
                assert client.is_connected
        limits = {"connections_per_address": 1}
        async with running(limits=limits) as broker, Raw.client(broker, "a"), Raw.to(broker) as second:
            [bye] = await second.end()
            assert "from this address" in bye.reason

    run(scenario())


def test_subscriptions_are_counted_also_those_of_earlier_connections() -> None:
    async def scenario() -> None:
        async with running(limits={"subscriptions_per_client": 2}) as broker:
            async with connect(broker, "car-1") as car:
                await car.subscribe("a = 1", durable="one")
                two = await car.subscribe("a = 2", durable="two")
                with pytest.raises(RefusedError, match="the most that this broker allows"):
                    await car.subscribe("a = 3")
                await car.subscribe("a = 4", durable="two")
                await two.unsubscribe()
                await car.subscribe("a = 2", durable="two")
            async with connect(broker, "car-1") as car:
                with pytest.raises(RefusedError, match="the most that this broker allows"):
                    await car.subscribe("a = 3", durable="three")
                with pytest.raises(RefusedError):
                    await car.unsubscribe("nobody")
                with pytest.raises(RefusedError, match="the most that this broker allows"):
                    await car.subscribe("a = 3")

    run(scenario())


def test_what_clients_may_have_ends_somewhere() -> None:
    async def scenario() -> None:
        limits = {"subscriptions": 3, "advertisements": 3, "subjects": 1}
        limits |= {"advertisements_per_client": 2, "entrusted_per_client": 1}
        async with running(limits=limits) as broker, connect(broker, "one") as one, connect(broker, "two") as two:
            for client in (one, one, two):
                await client.subscribe("a = 1")
            with pytest.raises(RefusedError, match="there are 3 subscriptions"):
                await two.subscribe("a = 1")
            for id in ("x", "y", "x"):  # noqa: A001  # the last takes the place of the first
                await one.advertise("a = 1", id=id)
            with pytest.raises(RefusedError, match="one has 2 advertisements"):
                await one.advertise("a = 1")
            await two.advertise("a = 1")
            with pytest.raises(RefusedError, match="there are 3 advertisements"):
                await two.advertise("a = 1")
            await one.schema(td.Schema("Loop", {"a": int}))
            await two.schema(td.Schema("Loop", {"a": int}))
            with pytest.raises(RefusedError, match="there are 1 subjects"):
                await two.schema(td.Schema("Other", {"a": int}))
            await one.let_set_context("two")
            with pytest.raises(RefusedError, match="one has 1 others"):
                await one.let_set_context("three")
            await one.let_set_context("two", allowed=False)
            await one.let_set_context("three")

    run(scenario())


def test_who_publishes_too_fast_waits_and_is_not_refused() -> None:
    async def scenario() -> None:
        given = {"publications_per_second": 200, "publications_burst": 20}
        async with (
            running(limits=given) as broker,
            Raw.client(broker, "fast") as fast,
            connect(broker, "other") as other,
        ):
            fast.send(b"".join(publication(number, {"n": number}) for number in range(1, 41)))
            first = await fast.answered()
            await until(lambda: not broker.sessions["fast"].connection.flow.is_reading)
            fast.send(publication(41, {"n": 41}))
            assert (await other.publish({"a": 1})).offset >= 0  # others do not wait for it
            later = await fast.answered()
            told = [one.request for receipts in (first, later) for one in receipts.receipts]
            assert told == list(range(1, 42))

    run(scenario())


def test_no_more_publications_are_read_than_may_be_under_way() -> None:
    async def scenario() -> None:
        async with running(limits={"in_flight": 4}) as broker, connect(broker, "cam-1") as client:
            held = await client.subscribe("")
            receipts = await asyncio.gather(*[client.publish({"n": number}) for number in range(100)])
            assert [one.event.sequence for one in receipts] == list(range(1, 101))
            assert [one.attributes["n"] for one in await held.take(timeout=60)] == list(range(100))

    run(scenario())


def test_safety_is_what_was_asked_for() -> None:
    async def scenario() -> None:
        async with running() as broker, Raw.client(broker) as raw:
            for safety in Safety:
                raw.send(publication(safety + 1, {"a": 1}, safe=int(safety)))
                receipts = await raw.answered()
                assert [one.request for one in receipts.receipts] == [safety + 1]

    run(scenario())

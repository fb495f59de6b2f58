"""The page of the wire protocol is enough: a client that was written from it talks to a real broker."""

import contextlib
import math
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.running_broker import running_broker
from tests.protocol import second_client as wire
from tests.protocol.second_client import Closed, Refused, SecondClient, Unpacker, event_id, packed
from tests.sizes import examples
from tidings.protocol.requests import request_of

Connect = Callable[..., SecondClient]


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with running_broker(broker={"operators": ["operator"]}) as found:
        yield found.host, found.port


@pytest.fixture
def connect(address: tuple[str, int]) -> Iterator[Connect]:
    """Clients of one broker, each under a name that no other test uses."""
    made: list[SecondClient] = []

    def connected(name: str, **more: Any) -> SecondClient:
        made.append(SecondClient(address, name, **more))
        return made[-1]

    yield connected
    for client in made:
        client.break_off()


def attributes(notes: list[list[Any]]) -> list[dict[str, Any]]:
    return [note[1][4] for note in notes]


# Its own MessagePack

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=20,
)


@examples(43, 2_000)
@given(values)
def test_its_messagepack_is_that_of_others(value: Any) -> None:
    assert msgspec.msgpack.decode(packed(value)) == value
    assert Unpacker(msgspec.msgpack.encode(value)).value() == value


@examples(100, 1_000)
@given(st.integers(0, 2**63 - 1), st.lists(st.text(), max_size=40))
def test_the_number_of_a_request_is_found_however_it_is_written(number: int, more: list[str]) -> None:
    for written in (packed([number, *more]), msgspec.msgpack.encode([number, *more])):
        assert request_of(written) == number
        assert request_of(b"ahead" + written + b"behind", 5) == number
        assert request_of(written[:1]) == 0


# Hello and goodbye


def test_a_client_is_welcome(connect: Connect) -> None:
    version, broker, session, heartbeat, patience, frame_bytes, in_flight, sequence, *_ = connect("newcomer").welcome
    assert (version, broker, sequence) == (1, "b1", 0)
    assert session > 0
    assert heartbeat * patience > 0
    assert (frame_bytes, in_flight) == (16_777_216, 4_096)


def test_a_newer_connection_of_the_same_name_takes_over(connect: Connect) -> None:
    older, newer = connect("twice"), connect("twice")
    with pytest.raises(Closed) as closed:
        older.take(1)
    assert not closed.value.again
    assert newer.ping(1) == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (wire.PING, [1]),
        (wire.HELLO, ["tiding", [1], "client", "stranger", 1]),
        (wire.HELLO, ["tidings", [2, 3], "client", "stranger", 1]),
        (wire.HELLO, ["tidings", [1], "nobody", "stranger", 1]),
        (wire.HELLO, ["tidings", [1], "client", "", 1]),
        (wire.HELLO, ["tidings", [1], "client", "stranger", -1]),
        (wire.HELLO, ["tidings", [1], "client", "b1", 1]),
        (wire.HELLO, ["tidings", [1], "client"]),
        (wire.HELLO, "tidings"),
        (wire.HELLO, ["tidings", [1], "client", "s" * 5_000, 1]),
    ],
)
def test_who_says_no_proper_hello_is_told_goodbye(address: tuple[str, int], kind: int, body: Any) -> None:
    with socket.create_connection(address, timeout=60) as connection:
        written = packed(body)
        connection.sendall(pack(">IB", len(written) + 1, kind) + written)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer[4] == wire.BYE
    reason, again = Unpacker(answer[5:]).value()
    assert reason
    assert not again


def test_requests_may_follow_hello_without_waiting(address: tuple[str, int]) -> None:
    hello, ping = packed(["tidings", [1], "client", "in-a-hurry", 1]), packed([5])
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(
            pack(">IB", len(hello) + 1, wire.HELLO) + hello + pack(">IB", len(ping) + 1, wire.PING) + ping
        )
        data = b""
        while b"\x00\x00\x00\x03\x04\x91\x05" not in data:
            data += (more := connection.recv(65_536))
            assert more, "the broker has closed"
    assert data[4] == wire.WELCOME


def test_pings_are_answered_with_their_number(connect: Connect) -> None:
    client = connect("pinging")
    assert [client.ping(number) for number in (0, 7, 2**40)] == [0, 7, 2**40]


def test_a_broker_that_stops_says_that_one_may_try_again() -> None:
    with running_broker() as found:
        client = SecondClient((found.host, found.port), "left-behind")
        assert client.ping(1) == 1
    with client, pytest.raises(Closed) as closed:
        client.take(1)
    assert closed.value.again


def test_with_tls_a_client_has_the_name_in_its_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", common_name="b1")
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "authority")}
    files["certificate"].write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["authority"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    authority.issue_cert(common_name="car-1").configure_cert(context)
    with running_broker(tls={name: str(file) for name, file in files.items()}) as found:
        address = found.host, found.port
        with SecondClient(address, "car-1", tls=context) as client:
            assert client.ping(1) == 1
        with pytest.raises(Closed, match="car-1") as closed:
            SecondClient(address, "car-2", tls=context)
        assert not closed.value.again


# Publishing and subscribing


def test_what_is_published_comes_to_who_wants_it_in_order(connect: Connect) -> None:
    reader, writer = connect("reader"), connect("writer")
    assert reader.subscribe("reader.1", "topic = 'order' AND n >= 3") == "reader.1"
    receipts = [writer.publish({"topic": "order", "n": n, "x": n / 2}, payload=b"\x00\xff") for n in range(6)]
    notes = reader.take(3)
    assert attributes(notes) == [{"topic": "order", "n": n, "x": n / 2} for n in (3, 4, 5)]
    assert [note[1][2] for note in notes] == [receipt[2] for receipt in receipts[3:]]
    subscription, event, *_ = notes[0]
    assert subscription == "reader.1"
    assert (event[1], event[3], event[6]) == ("writer", 4, b"\x00\xff")
    assert [one[1] for one in receipts] == sorted({one[1] for one in receipts})


def test_many_may_be_under_way(connect: Connect) -> None:
    client = connect("busy")
    client.subscribe("busy.1", "who = 'busy'")
    requests = [client.publish_only({"who": "busy", "n": n}, safe=0) for n in range(1_000)]
    assert attributes(client.take(1_000)) == [{"who": "busy", "n": n} for n in range(1_000)]
    while not set(requests) <= set(client.receipts):
        client.step()


def test_what_was_not_answered_can_be_sent_again(connect: Connect) -> None:
    first, chosen = connect("again"), event_id()
    first.publish({"n": 1}, id=chosen)
    first.break_off()
    second = connect("again", last_broker="b1")
    assert second.welcome[7] == 1
    with pytest.raises(Refused) as refused:
        second.publish({"n": 1}, id=chosen, sequence=1)
    assert refused.value.error == "PublishedBeforeError"


def test_sequences_rise(connect: Connect) -> None:
    client = connect("counting")
    client.publish({"n": 1}, sequence=10)
    for used in (10, 9, 0, -1):
        with pytest.raises(Refused, match="sequence") as refused:
            client.publish({"n": 2}, sequence=used)
        assert (refused.value.error, refused.value.step) == ("RefusedError", "admit")
    client.publish({"n": 3}, sequence=12)


def test_subjects_go_by_their_numbers(connect: Connect) -> None:
    client = connect("loops")
    client.ask_for(wire.DEFINE, "Loop", [{"li": "int", "lo": "str"}, {"vc": "float"}])
    client.subscribe("loops.1", "li > 0", subject="Loop")
    client.publish({"li": 1, "vc": 0.5}, subject="Loop")
    assert client.bound["Loop"][1] == ["li", "lo", "vc"]
    assert client.take(1)[0][1][4:6] == [{"li": 1, "vc": 0.5}, "Loop"]
    later = connect("loops-too")
    later.ping(1)
    assert later.bound["Loop"] == client.bound["Loop"]


def test_what_stands_in_front_and_does_not_fit_is_refused_once(connect: Connect) -> None:
    client = connect("vectors")
    client.ask_for(wire.DEFINE, "Vector", [{"a": "int", "b": "int"}])
    number = client.bound["Vector"][0]
    client.told.clear()
    client.send(wire.PUBLISH, [90, event_id(), 1, 0, {"a": 1}], pack(">IBB", number, 1, 0b10))
    client.send(wire.PUBLISH, [91, event_id(), 1, 0, {"a": 1}], pack(">IBB", number, 1, 0b100))
    client.send(wire.PUBLISH, [92, event_id(), 1, 0, {"a": 1}], pack(">IBB", number + 50, 1, 0b1))
    client.send(wire.PUBLISH, [93, event_id(), 1, 0, {"a": 1}], pack(">IB", number, 200))
    client.ping(1)
    told = [body[:2] for kind, body in client.told if kind == wire.REFUSED]
    assert told == [[90, "SchemaError"], [91, "SchemaError"], [92, "SchemaError"], [0, "InvalidValueError"]]
    assert client.publish({"a": 1}, subject="Vector")


@pytest.mark.parametrize("safe", [-1, 3, 1.0, "settled", None])
def test_a_safety_that_is_none_is_not_taken(connect: Connect, safe: Any) -> None:
    client = connect(f"unsafe-{safe}")
    request = client.publish_only({"n": 1}, safe=safe)
    while not client.told:
        client.step()
    assert [body[:2] for _, body in client.told] == [[request, "InvalidValueError"]]
    assert not client.receipts


@pytest.mark.parametrize("harm", [math.nan, -math.inf, None, b"bytes", [1], {}])
def test_values_that_cannot_be_are_refused(connect: Connect, harm: Any) -> None:
    client = connect("harmful")
    client.publish_only({"n": harm})
    client.publish_only({"$n": 1})
    while len(client.told) < 2:
        client.step()
    assert [(kind, body[1]) for kind, body in client.told] == [(wire.REFUSED, "InvalidValueError")] * 2


# Durable subscriptions


def test_a_durable_subscription_brings_again_what_was_not_acknowledged(tmp_path: Path) -> None:
    with running_broker(tmp_path) as found:
        address = found.host, found.port
        with SecondClient(address, "writer") as writer:
            reader = SecondClient(address, "reader")
            held = reader.subscribe("reader.1", "n >= 0", durable="all")
            for n in range(4):
                writer.publish({"n": n})
            notes = reader.take(4)
            reader.acknowledge(held, notes[1], notes[0])
            reader.ping(1)
            reader.break_off()
            writer.publish({"n": 4})
            reader = SecondClient(address, "reader", last_broker="b1")
            assert reader.subscribe("another.id", "n >= 0", durable="all") == held
            assert attributes(reader.take(3)) == [{"n": 2}, {"n": 3}, {"n": 4}]
            reader.leave()
    with running_broker(tmp_path) as found, SecondClient((found.host, found.port), "reader") as reader:
        assert reader.welcome[9] is True
        held = reader.subscribe("reader.1", "n >= 0", durable="all")
        notes = reader.take(3)
        assert attributes(notes) == [{"n": 2}, {"n": 3}, {"n": 4}]
        reader.acknowledge(held, *notes)
        reader.ping(1)
        reader.publish({"n": 5})
        assert attributes(reader.take(1)) == [{"n": 5}]


def test_no_more_comes_than_may_be_unacknowledged(tmp_path: Path) -> None:
    with running_broker(tmp_path) as found, SecondClient((found.host, found.port), "slow") as client:
        held = client.subscribe("slow.1", "n >= 0", durable="all", limit=2)
        for n in range(5):
            client.publish({"n": n})
        client.ping(1)
        assert attributes(list(client.notes)) == [{"n": 0}, {"n": 1}]
        client.acknowledge(held, *client.take(2))
        client.acknowledge(held, *client.take(2))
        assert attributes(client.take(1)) == [{"n": 4}]


def test_what_is_not_durable_is_not_acknowledged(connect: Connect) -> None:
    client = connect("hasty")
    held = client.subscribe("hasty.1", "who = 'hasty'")
    client.publish({"who": "hasty"})
    client.acknowledge(held, *client.take(1))
    client.ping(1)
    assert [body[:2] for kind, body in client.told if kind == wire.REFUSED] == [[0, "InvalidValueError"]]


def test_an_unsubscription_ends_it(connect: Connect) -> None:
    client = connect("leaver")
    held = client.subscribe("leaver.1", "who = 'leaver'", durable="mine")
    client.ask_for(wire.UNSUBSCRIBE, held)
    client.publish({"who": "leaver"})
    client.subscribe("leaver.2", "who = 'leaver'", durable="mine")
    client.publish({"who": "leaver", "n": 2})
    assert attributes(client.take(1)) == [{"who": "leaver", "n": 2}]


# Contexts, advertisements, policies


def test_contexts_decide(connect: Connect) -> None:
    car, camera = connect("car"), connect("camera")
    car.ask_for(wire.SET_CONTEXT, {"x": 10.0})
    car.subscribe("car.1", "msg = 'accident'", publishers="x BETWEEN this.x - 5 AND this.x + 5")
    camera.publish({"msg": "accident", "n": 1}, context={"x": 12.0})
    camera.publish({"msg": "accident", "n": 2}, context={"x": 20.0})
    camera.publish({"msg": "accident", "n": 3}, context={"x": 12.0}, subscribers="x > 50")
    camera.ask_for(wire.SET_CONTEXT, {"x": 14.0})
    camera.publish({"msg": "accident", "n": 4})
    notes = car.take(2)
    assert [one["n"] for one in attributes(notes)] == [1, 4]
    assert [note[1][7] for note in notes] == [{"x": 12.0}, {"x": 14.0}]


def test_who_is_entrusted_sets_the_context_of_another(connect: Connect) -> None:
    car, satellite = connect("blind-car"), connect("satellite")
    with pytest.raises(Refused):
        satellite.ask_for(wire.SET_CONTEXT, {"x": 1}, "blind-car")
    car.ask_for(wire.ENTRUST, "satellite")
    satellite.ask_for(wire.SET_CONTEXT, {"x": 1}, "blind-car")
    car.ping(1)
    assert [body for kind, body in car.told if kind == wire.CONTEXT] == [[{"x": 1}]]


def test_advertisements_and_policies_are_set(connect: Connect) -> None:
    client = connect("governed")
    assert client.ask_for(wire.ADVERTISE, "governed.a", "n > 3", ["x"], "y > 1")[2] == "governed.a"
    assert "governed.a" in [one["id"] for one in client.ask("topics")["advertisements"]]
    client.subscribe("governed.1", "who = 'governed'")
    policy = "PolicyStatement { On(Forward, Publication) { Then BlockMessage() } }"
    client.ask_for(wire.SET_POLICY, "governed.1", policy)
    client.publish({"who": "governed", "n": 1})
    client.ask_for(wire.SET_POLICY, "governed.1", None)
    client.publish({"who": "governed", "n": 2})
    assert [one["n"] for one in attributes(client.take(1))] == [2]
    client.ask_for(wire.UNADVERTISE, "governed.a")
    assert "governed.a" not in [one["id"] for one in client.ask("topics")["advertisements"]]


@pytest.mark.parametrize(
    ("elements", "offered", "offers_all"),
    [([], [], False), ([["x"]], ["x"], False), ([[], [], None, False], [], False), ([[], [], None, True], [], True)],
)
def test_an_advertisement_offers_a_list_of_names_or_all(
    connect: Connect, elements: list[Any], offered: list[str], offers_all: bool
) -> None:
    client = connect(f"offering-{len(elements)}-{offers_all}")
    client.ask_for(wire.ADVERTISE, client.name, "n > 3", *elements)
    [found] = [one for one in client.ask("topics")["advertisements"] if one["id"] == client.name]
    assert (found["publisher_context"], found["publisher_context_all"]) == (offered, offers_all)


def test_what_holds_already_may_be_said_again(connect: Connect) -> None:
    client = connect("repeating")
    said: list[tuple[int, list[Any]]] = [
        (wire.DEFINE, ["Repeated", [{"a": "int"}]]),
        (wire.SET_CONTEXT, [{"x": 1}]),
        (wire.ENTRUST, ["somebody"]),
        (wire.ADVERTISE, ["repeating.a", "a > 3"]),
        (wire.SUBSCRIBE, ["repeating.1", "a > 3", None, None, "kept"]),
        (wire.SUBSCRIBE, ["repeating.2", "a > 3"]),
        (wire.SET_POLICY, ["repeating.1", None]),
    ]
    for kind, fields in said:
        assert client.ask_for(kind, *fields)[1:] == client.ask_for(kind, *fields)[1:]
    client.publish({"a": 4}, subject="Repeated")
    assert sorted(note[0] for note in client.take(2)) == ["repeating.1", "repeating.2"]
    for kind, id_ in [(wire.UNSUBSCRIBE, "repeating.2"), (wire.UNADVERTISE, "repeating.a")]:
        client.ask_for(kind, id_)
        with pytest.raises(Refused) as refused:
            client.ask_for(kind, id_)
        assert (refused.value.error, refused.value.step) == ("RefusedError", "admit")


# Questions


def test_every_question_is_answered(tmp_path: Path) -> None:
    with running_broker(tmp_path) as found, SecondClient((found.host, found.port), "operator") as client:
        client.ask_for(wire.DEFINE, "Loop", [{"li": "int"}])
        client.subscribe("operator.1", "n > 3")
        chosen = event_id()
        receipt = client.publish({"n": 4}, id=chosen)
        client.publish({"n": 5})
        [first] = client.take(2)[:1]
        assert client.ask("schema", subject="Loop") == {"subject": "Loop", "versions": [{"li": "int"}]}
        assert client.ask("status")["broker"] == "b1"
        assert client.ask("stats")["accepted"] == 2
        assert [one["id"] for one in client.ask("tables")["subscriptions"]] == ["operator.1"]
        [why] = client.ask("explain", event=str(UUID(bytes=chosen)))
        assert (why["subscription"], why["delivered"], why["step"]) == ("operator.1", True, "route")
        [why] = client.ask("explain", event={"n": 1}, subscription="operator.1")
        assert (why["delivered"], why["step"]) == (False, "content")
        found_again = client.ask("replay", subscriptions=["operator.1"], offset=receipt[1], limit=1)
        assert found_again["notes"] == [first]
        rest = client.ask("replay", subscriptions=["operator.1"], offset=found_again["next"])
        assert attributes(rest["notes"]) == [{"n": 5}]


# What is refused, and what is not understood


def test_a_refusal_says_where_and_why(connect: Connect) -> None:
    client = connect("mistaken")
    with pytest.raises(Refused) as refused:
        client.subscribe("mistaken.1", "n > 3 and n <")
    assert (refused.value.error, refused.value.text, refused.value.position) == ("FilterError", "n > 3 and n <", 13)
    with pytest.raises(Refused) as refused:
        client.ask_for(wire.SET_POLICY, "mistaken.1", "PolicyStatement {")
    assert refused.value.error == "PolicyError"
    with pytest.raises(Refused) as refused:
        client.ask("tables")
    assert (refused.value.error, refused.value.step) == ("RefusedError", "admit")
    with pytest.raises(Refused) as refused:
        client.ask("the way")
    assert refused.value.error == "InvalidValueError"


@pytest.mark.parametrize(
    "structure",
    [
        "{",
        "[]",
        "{}",
        '{"subject": 1}',
        '{"subject": "S", "versions": []}',
        '{"subject": "S", "versions": [{"a": "int"}], "names": ["b"]}',
    ],
)
def test_a_structure_that_is_none_is_refused(connect: Connect, structure: str) -> None:
    client = connect("structured")
    with pytest.raises(Refused) as refused:
        client.subscribe("structured.1", "n > 3", structure=structure)
    assert refused.value.error == "SchemaError"
    assert client.ping(1) == 1


def test_an_attribute_filter_is_told_as_json(connect: Connect) -> None:
    client = connect("filtering")
    client.ask_for(wire.DEFINE, "Filtered", [{"a": "int", "b": "int"}])
    structure = '{"subject": "Filtered", "versions": [{"a": "int", "b": "int"}], "names": ["a"], "absent": ["b"]}'
    client.subscribe("filtering.1", subject="Filtered", structure=structure)
    for one in ({"a": 1, "b": 1}, {"b": 2}, {"a": 3}):
        client.publish(one, subject="Filtered")
    assert attributes(client.take(1)) == [{"a": 3}]


@pytest.mark.parametrize(
    ("kind", "body", "number"),
    [
        (99, [1], 0),
        (0, [], 0),
        (wire.DONE, [1, [], ""], 0),
        (wire.HELLO, ["tidings", [1], "client", "confusing", 1], 0),
        (wire.SUBSCRIBE, [], 0),
        (wire.SUBSCRIBE, [5, 2], 5),
        (wire.SUBSCRIBE, [5_000_000_000], 5_000_000_000),
        (wire.SUBSCRIBE, {"request": 1}, 0),
        (wire.SUBSCRIBE, None, 0),
        (wire.PING, ["one"], 0),
        (wire.ASK, [7, "status", []], 7),
        (wire.ACKNOWLEDGE, ["x", "y"], 0),
    ],
)
def test_a_frame_that_cannot_be_read_is_refused_and_the_next_one_is_read(
    connect: Connect, kind: int, body: Any, number: int
) -> None:
    client = connect("confusing")
    client.send(kind, body)
    assert client.ping(1) == 1
    assert [body[:2] for _, body in client.told] == [[number, "InvalidValueError"]]


def test_arrays_may_end_early_or_go_on(connect: Connect) -> None:
    client = connect("terse")
    assert client.ask_for(wire.SUBSCRIBE, "terse.1")[2] == "terse.1"
    full = ["terse.2", "n > 3", None, None, None, "subscription", None, None, None, None, None]
    assert client.ask_for(wire.SUBSCRIBE, *full, "of a later version", 7)[2] == "terse.2"
    client.send(wire.PING, [])
    assert client.step() == (wire.PONG, [0])


@pytest.mark.parametrize("length", [0, 16_777_217, 2**32 - 1])
def test_a_length_that_cannot_be_ends_the_connection(connect: Connect, length: int) -> None:
    client = connect(f"too-long-{length}")
    client.socket.sendall(pack(">I", length))
    with pytest.raises(Closed, match="a frame of") as closed:
        client.take(1)
    assert not closed.value.again


# Those who are slow or silent


def test_what_a_slow_reader_loses_is_told_where_it_is_missing() -> None:
    limits = {"queue_bytes": 100_000, "slow_consumer": "lose_oldest"}
    with running_broker(limits=limits) as found:
        address = found.host, found.port
        with SecondClient(address, "slow") as slow, SecondClient(address, "writer") as writer:
            slow.subscribe("slow.1", "n >= 0")
            sent = 0
            while not writer.ask("stats")["lost"]:
                for _ in range(50):
                    writer.publish_only({"n": sent}, safe=0, payload=bytes(20_000))
                    sent += 1
            came: list[tuple[int, int]] = []  # the number that was due next, and how many were lost there
            due = lost = 0
            while due < sent:
                kind, body = slow.step()
                if kind == wire.LOST:
                    subscription, count, total = body
                    came.append((due, count))
                    lost += count
                    due += count
                    assert (subscription, total) == ("slow.1", lost)
                elif kind == wire.NOTIFICATION:
                    assert body[1][4] == {"n": due}
                    due += 1
            assert came


def test_who_says_nothing_for_too_long_is_gone() -> None:
    with running_broker(heartbeat={"interval_ms": 20, "patience": 5}) as found:
        with SecondClient((found.host, found.port), "asleep") as client:
            assert wire.PING in unanswered(client)
        with SecondClient((found.host, found.port), "awake") as client:
            pings = 0
            while pings < 10:
                pings += client.step()[0] == wire.PING
            assert client.ask("status")["clients"] == 1


def unanswered(client: SecondClient) -> list[int]:
    """The kinds of what comes until the broker closes, with nothing said to it."""
    kinds: list[int] = []
    with contextlib.suppress(Closed, ConnectionError):
        while True:
            kinds.append(client.next_frame()[0])
    return kinds


def test_what_was_sent_before_goodbye_is_carried_out(connect: Connect) -> None:
    reader, writer = connect("stays"), connect("goes")
    reader.subscribe("stays.1", "who = 'goes'")
    writer.publish_only({"who": "goes"})
    writer.leave()
    assert attributes(reader.take(1)) == [{"who": "goes"}]

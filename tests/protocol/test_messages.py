"""Every message goes over the wire and comes out equal; what is none is refused by its decoder, and by nothing else."""

import inspect
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol import strategies
from tests.sizes import examples
from tests.strategies import contents
from tidings.engine.operations import Publish, Travelling
from tidings.model import errors
from tidings.model.errors import FilterError, InvalidValueError, PolicyError, RefusedError, SchemaError, TidingsError
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.schema import Schema
from tidings.protocol import answers, handshake, requests
from tidings.protocol.events import WireEvent, from_wire, to_wire
from tidings.protocol.frames import HEAD_BYTES, UNREADABLE, FrameKind, FrameSplitter, FramingError
from tidings.protocol.notifications import NotificationWriter, decode_notification
from tidings.protocol.operations import decode_forwarded, operation_frame, read_operation
from tidings.protocol.publications import WirePublication, check_prefix, check_vector, decode_prefix, encode_prefix

MESSAGES: list[type[msgspec.Struct]] = [
    found
    for module in (answers, handshake, requests)
    for _, found in inspect.getmembers(module, inspect.isclass)
    if issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
] + [WirePublication]
LOOP = Schema("Loop", {"li": int, "ts": int, "lo": str})


def unframed(data: bytes) -> tuple[int, bytes]:
    splitter = FrameSplitter()
    splitter.welcome()
    [found] = splitter.feed(data)
    return found


def drawn(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Of a message of plain types; where anything may stand, plain values do."""
    hints = {name: _plain(hint) for name, hint in typing.get_type_hints(kind).items()}
    return st.fixed_dictionaries(hints).map(lambda given: kind(**given))


def _plain(hint: Any) -> st.SearchStrategy[Any]:
    if hint is Any:
        return st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=5), st.lists(st.booleans(), max_size=2))
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if typing.get_origin(hint) is tuple:
        return st.lists(_plain(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is dict:
        return st.one_of(contents, st.just({})) if bool in typing.get_args(typing.get_args(hint)[1]) else _texts(hint)
    if typing.get_args(hint) and typing.get_origin(hint) is not typing.Literal:
        return st.one_of([_plain(one) for one in typing.get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return drawn(hint)
    return st.from_type(hint)


def _texts(hint: Any) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text(max_size=5), _plain(typing.get_args(hint)[1]), max_size=3)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}")
def test_a_message_comes_out_as_it_went_in(kind: type[msgspec.Struct]) -> None:
    @given(drawn(kind))
    @examples(30, 300)
    def law(message: msgspec.Struct) -> None:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind) == message

    law()


@given(strategies.events)
@examples(100, 2_000)
def test_an_event_comes_out_as_it_went_in(event: Event) -> None:
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(event)), type=WireEvent)
    back = from_wire(wire)
    assert back == event
    assert [type(one) for one in back.attributes.values()] == [type(one) for one in event.attributes.values()]


@given(st.lists(strategies.notifications(), min_size=1, max_size=3))
@examples(60, 1_000)
def test_a_notification_comes_out_as_it_went_in_whatever_was_written_before_it(notes: list[Notification]) -> None:
    writer = NotificationWriter()
    for note in [*notes, *notes[:1], *notes]:
        kind, body = unframed(writer.frame(note))
        assert kind == FrameKind.NOTIFICATION
        assert decode_notification(body, note.subscriber) == note


@given(strategies.operations)
@examples(240, 5_000)
def test_an_operation_between_brokers_comes_out_as_it_went_in(operation: Travelling) -> None:
    kind, body = unframed(operation_frame(operation))
    assert kind == FrameKind.OPERATION
    assert read_operation(body) == operation


def test_every_operation_that_travels_is_drawn_here() -> None:
    travelling = set(typing.get_args(Travelling)) - {Publish}
    found: set[type] = set()
    for one in strategies.OPERATIONS:

        @given(one)
        @examples(1, 1)
        def look(operation: Travelling) -> None:
            found.add(type(operation))

        look()
    assert found == travelling


@given(
    strategies.seen_events, st.one_of(st.just((0, 0)), st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**1024)))
)
@examples(100, 2_000)
def test_a_publication_between_brokers_comes_out_as_it_went_in(passed: Publish, ahead: tuple[int, int]) -> None:
    kind, body = unframed(operation_frame(passed, *ahead))
    assert kind == FrameKind.PASS
    found, back = decode_forwarded(body)
    assert (found.number, found.vector) == ahead
    assert back == passed


@given(strategies.operations, st.data())
@examples(300, 10_000)
def test_a_mutated_operation_is_read_or_refused(operation: Travelling, data: st.DataObject) -> None:
    body = bytearray(operation_frame(operation)[HEAD_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_operation(bytes(body[: data.draw(st.integers(0, len(body)))]))
    except UNREADABLE:
        return
    assert read_operation(operation_frame(found)[HEAD_BYTES:]) == found


@given(strategies.seen_events, st.data())
@examples(87, 2_000)
def test_a_mutated_publication_is_read_or_refused(passed: Publish, data: st.DataObject) -> None:
    body = bytearray(operation_frame(passed)[HEAD_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        ahead, found = decode_forwarded(bytes(body[: data.draw(st.integers(0, len(body)))]))
    except UNREADABLE:
        return
    again = operation_frame(found, ahead.number, ahead.vector)
    assert decode_forwarded(again[HEAD_BYTES:])[1] == found


# What stands in front of a publication


@pytest.mark.parametrize(
    ("number", "vector"), [(0, 0), (1, 0), (1, 0b101), (2**32 - 1, 1), (7, 2**1023), (7, 2**2040 - 1)]
)
def test_number_and_vector_stand_in_front(number: int, vector: int) -> None:
    data = encode_prefix(number, vector) + b"rest"
    ahead = decode_prefix(data)
    assert (ahead.number, ahead.vector, data[ahead.end :]) == (number, vector, b"rest")


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0\1", b"\0\0\0\1\x02x", b"\0\0\0\0\xff"])
def test_a_front_that_ends_too_early_is_refused(body: bytes) -> None:
    with pytest.raises(FramingError, match="ends"):
        decode_prefix(body)


def test_a_vector_is_compared_with_the_schema_and_with_what_was_published() -> None:
    check_prefix(decode_prefix(encode_prefix(1, 0b111)), LOOP)
    with pytest.raises(SchemaError, match="bit 3 is beyond its 3 attributes"):
        check_prefix(decode_prefix(encode_prefix(1, 0b1000)), LOOP)
    check_vector(decode_prefix(encode_prefix(1, 0b101)), LOOP, {"li": 1, "lo": "x"})
    with pytest.raises(SchemaError, match="the vector does not say"):
        check_vector(decode_prefix(encode_prefix(1, 0b111)), LOOP, {"li": 1, "lo": "x"})
    with pytest.raises(SchemaError, match="has no attribute zz"):
        check_vector(decode_prefix(encode_prefix(1, 0b1)), LOOP, {"zz": 1})


# Errors


@pytest.mark.parametrize(
    "error",
    [
        InvalidValueError("x: no"),
        FilterError("here", "a = = 1", 4),
        PolicyError("there", "PolicyStatement {", 16),
        PolicyError("the rule as a whole", rule=2),
        SchemaError("Loop: has no attribute zz", "zz"),
        SchemaError("no schema"),
        RefusedError("admit", "not yours"),
        errors.PublishedBeforeError("admit", "known"),
        errors.JournalFullError("no room"),
        errors.JournalFailedError("fsync failed"),
        errors.ClosedError("closed"),
        errors.SecurityError("proof", "not signed by its holder"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_told_as_it_was_raised(error: TidingsError) -> None:
    refused = answers.refusal(5, error)
    back = answers.error_of(msgspec.msgpack.decode(msgspec.msgpack.encode(refused), type=answers.RequestRefused))
    assert refused.request == 5
    assert type(back) is type(error)
    assert str(back) == str(error)
    for name in ("text", "position", "step", "reason", "name", "rule", "check"):
        assert getattr(back, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("name", ["", "NoSuchError", "caret", "printable", "_WINDOW", "__name__"])
def test_an_error_of_an_unknown_kind_is_a_refusal(name: str) -> None:
    error = answers.error_of(answers.RequestRefused(1, name, "why", "admit"))
    assert type(error) is RefusedError
    assert (error.step, error.reason) == ("admit", "why")


@pytest.mark.parametrize(
    "kind", [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TidingsError)]
)
def test_whatever_error_is_named_it_is_told(kind: type[TidingsError]) -> None:
    error = answers.error_of(answers.RequestRefused(1, kind.__name__, "why", "admit", "text", 2))
    assert type(error) is kind
    assert "why" in str(error)


SUBSCRIBE = requests.SubscribeRequest(7, "s1", "n > 3", token=b"token", proof=b"proof")


@pytest.mark.parametrize(
    "change",
    [
        {"id": "s2"},
        {"content": "n > 2"},
        {"publishers": "hall = 4"},
        {"policy": "PolicyStatement {}"},
        {"durable": "d"},
        {"notify": "client"},
        {"subject": "Loop"},
        {"structure": "{}"},
        {"limit": 1},
        {"token": b"another"},
    ],
    ids=str,
)
def test_a_proof_is_of_all_that_is_asked_for(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(SUBSCRIBE, **change)
    assert requests.signed_request_bytes(other, "b1") != requests.signed_request_bytes(SUBSCRIBE, "b1")


def test_a_proof_is_for_one_broker_and_says_neither_the_number_nor_itself() -> None:
    said = requests.signed_request_bytes(SUBSCRIBE, "b1")
    assert requests.signed_request_bytes(msgspec.structs.replace(SUBSCRIBE, request=8, proof=None), "b1") == said
    assert requests.signed_request_bytes(SUBSCRIBE, "b2") != said


def test_an_advertisement_that_offers_all_names_is_read_by_older_brokers_as_one_that_offers_none() -> None:
    said = requests.AdvertiseAll(7, "a1", "n > 0", (), ("y",), None, True)
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=requests.AdvertiseRequest)
    assert older == requests.AdvertiseRequest(7, "a1", "n > 0", (), ("y",), None)


@pytest.mark.parametrize("written", [[7, "a1"], [7, "a1", "n > 0", []], [7, "a1", "n > 0", ["x"], [], None]])
def test_an_advertisement_of_an_older_client_offers_what_it_lists(written: list[Any]) -> None:
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=requests.AdvertiseAll)
    assert not read.publisher_context_all
    assert read.publisher_context == tuple(written[3] if len(written) > 3 else [])

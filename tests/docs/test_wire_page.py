"""The page of the wire protocol: its tables are what the code has, its conversation is what the code says and reads."""

import inspect
import re
import socket
import types
import typing
from typing import Any

import msgspec
import pytest

from tests.broker.running_broker import running_broker
from tests.docs.shell import ROOT
from tests.docs.tables import cells_of
from tidings.broker.sessions import queries
from tidings.client.connection import DEFAULT_PORT
from tidings.model import errors
from tidings.model.notification import Trace
from tidings.protocol import answers, handshake, notifications, publications, requests
from tidings.protocol.events import Values, WireEvent
from tidings.protocol.frames import FrameKind, FrameSplitter, frame
from tidings.protocol.publications import Safety, decode_prefix, encode_prefix

PAGE = (ROOT / "docs" / "reference" / "wire-protocol.md").read_text()
BODIES: dict[FrameKind, type[msgspec.Struct]] = {
    FrameKind.HELLO: handshake.Hello,
    FrameKind.WELCOME: handshake.Welcome,
    FrameKind.BYE: handshake.Bye,
    FrameKind.PING: handshake.Ping,
    FrameKind.CHALLENGE: handshake.Challenge,
    FrameKind.PROOF: handshake.Proof,
    FrameKind.PUBLISH: publications.WirePublication,
    FrameKind.BOUND: handshake.SubjectBound,
    FrameKind.SUBSCRIBE: requests.SubscribeRequest,
    FrameKind.UNSUBSCRIBE: requests.UnsubscribeRequest,
    FrameKind.ADVERTISE: requests.AdvertiseAll,
    FrameKind.UNADVERTISE: requests.UnadvertiseRequest,
    FrameKind.SET_CONTEXT: requests.SetContextRequest,
    FrameKind.ENTRUST: requests.DelegateContextRequest,
    FrameKind.SET_POLICY: requests.SetPolicyRequest,
    FrameKind.DEFINE: requests.DefineSchemaRequest,
    FrameKind.ACKNOWLEDGE: requests.AcknowledgeRequest,
    FrameKind.ASK: requests.QueryRequest,
    FrameKind.DONE: answers.RequestDone,
    FrameKind.REFUSED: answers.RequestRefused,
    FrameKind.RECEIPTS: answers.PublicationReceipts,
    FrameKind.NOTIFICATION: notifications.WireNotification,
    FrameKind.LOST: answers.NotificationsLost,
    FrameKind.CONTEXT: answers.ContextChanged,
    FrameKind.ANSWER: answers.QueryAnswer,
}
PARTS: dict[str, type[msgspec.Struct]] = {"receipt": answers.PublicationReceipt, "event": WireEvent, "trace": Trace}
TABLES: dict[str, type[msgspec.Struct]] = {
    **{f"field of {kind.name}": body for kind, body in BODIES.items()},
    **{f"field of {name}": part for name, part in PARTS.items()},
    "about of `explain`": queries.ExplainQuery,
    "about of `replay`": queries.ReplayQuery,
    "about of `security`": queries.SecureTopicQuery,
}
WORDS = {
    str: "text",
    int: "integer",
    float: "float",
    bool: "boolean",
    bytes: "bytes",
    type(None): "nil",
    Any: "anything",
}
Row = list[str]


def rows_of(first: str) -> list[Row]:
    """The rows of the table whose first column is called so."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None, f"the page has no table of {first}"
    return [cells_of(line) for line in found[1].splitlines()]


def type_told(annotation: Any) -> str:
    """A type, in the words of the page."""
    if annotation in WORDS:
        return WORDS[annotation]
    if annotation == Values:
        return "map of value"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_told(one) for one in arguments)
    if origin is typing.Literal:
        return " or ".join(f'"{one}"' for one in arguments)
    if origin is dict:
        return f"map of {type_told(arguments[1])}"
    if origin in (tuple, list):
        return f"array of {type_told(arguments[0])}"
    return next(name for name, part in PARTS.items() if part is annotation)


def default_told(field: Any) -> str:
    if field.required:
        return ""
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return notation(list(default) if isinstance(default, tuple) else default)


def notation(value: Any) -> str:
    """What MessagePack holds, as the page writes it."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case bytes():
            return f"h'{value.hex()}'"
        case list():
            return f"[{', '.join(map(notation, value))}]"
        case dict():
            return "{" + ", ".join(f"{notation(key)}: {notation(one)}" for key, one in value.items()) + "}"
    return str(value)


@pytest.mark.parametrize("table", TABLES)
def test_fields_stand_in_their_order_with_types_and_defaults(table: str) -> None:
    body = TABLES[table]
    hints = typing.get_type_hints(body)
    expected = [
        [field.name, type_told(hints[field.name]), default_told(field)] for field in msgspec.structs.fields(body)
    ]
    assert [row[:3] for row in rows_of(table)] == expected


def test_there_is_no_other_table_of_fields() -> None:
    found = re.findall(r"^\| ((?:field|about) of .*?) \|", PAGE, re.MULTILINE)
    assert sorted(found) == sorted(TABLES)


def test_every_message_is_an_array() -> None:
    assert all(body.__struct_config__.array_like for body in [*BODIES.values(), *PARTS.values()])


def test_every_kind_is_listed_with_its_number() -> None:
    assert {row[1]: int(row[0]) for row in rows_of("number")} == {kind.name: kind.value for kind in FrameKind}


def test_every_kind_that_clients_meet_has_a_table() -> None:
    assert set(FrameKind) - set(BODIES) == {FrameKind.PONG, FrameKind.OPERATION, FrameKind.PASS}


def test_levels_of_safety_are_listed() -> None:
    assert {row[1]: int(row[0]) for row in rows_of("`safe`")} == {one.name: one.value for one in Safety}


def test_magic_version_and_port_are_told() -> None:
    assert rows_of("field of HELLO")[0][3] == handshake.MAGIC
    assert f"about version {handshake.VERSION}" in PAGE
    assert f"port {DEFAULT_PORT}" in PAGE


def test_errors_that_are_listed_are_those_that_brokers_tell() -> None:
    known = {
        name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.TidingsError)
    }
    # These are raised where they happen, by files, simulations and clients, and are not told over a connection.
    elsewhere = {
        "MissingPackageError",
        "RequestTimeoutError",
        "TidingsError",
        "UnreachableError",
        "UnsettledError",
        "IndexDamagedError",
        "JournalError",
        "JournalLockedError",
        "JournalVersionError",
        "JournalDamagedError",
        "OffsetGoneError",
    }
    assert {row[0] for row in rows_of("error")} == known - elsewhere


def test_every_question_is_listed() -> None:
    assert [row[0] for row in rows_of("question")] == [*queries.QUERY_NAMES]


# The conversation

CONVERSATION = re.findall(
    r"^(client|broker) ([A-Z_]+)\n((?:  (?:[0-9a-f]{2} {0,2})+\n)+)((?:  [^\n]+\n)+)",
    PAGE[PAGE.index("## A conversation") :],
    re.MULTILINE,
)
by_frame = pytest.mark.parametrize(
    ("kind", "written", "said"), [one[1:] for one in CONVERSATION], ids=[one[1] for one in CONVERSATION]
)


def test_the_conversation_is_a_whole_one() -> None:
    assert [(who, kind) for who, kind, *_ in CONVERSATION] == [
        ("client", "HELLO"),
        ("broker", "WELCOME"),
        ("client", "SUBSCRIBE"),
        ("broker", "DONE"),
        ("client", "PUBLISH"),
        ("broker", "NOTIFICATION"),
        ("broker", "RECEIPTS"),
        ("client", "BYE"),
    ]


@by_frame
def test_a_frame_is_read_and_written_as_it_stands_there(kind: str, written: str, said: str) -> None:
    data = bytes.fromhex(written)
    [(number, body)] = FrameSplitter().feed(data)
    assert FrameKind(number).name == kind
    begin = decode_prefix(body).end if number == FrameKind.PUBLISH else 0
    message = msgspec.msgpack.decode(body[begin:], type=BODIES[FrameKind(number)])
    again = (encode_prefix() if begin else b"") + msgspec.msgpack.encode(message)
    assert frame(number, again) == data
    assert notation(msgspec.msgpack.decode(body[begin:])) == re.sub(r"\s*\n\s*", " ", said.strip())


def test_a_broker_says_its_part() -> None:
    """But for the times, which are its own."""
    with running_broker() as address, socket.create_connection((address.host, address.port), timeout=60) as connection:
        stream, splitter = iter(lambda: connection.recv(65_536), b""), FrameSplitter()
        frames = (one for data in stream for one in splitter.feed(data) if one[0] != FrameKind.PING)
        for who, kind, written, _ in CONVERSATION:
            [(number, body)] = FrameSplitter().feed(bytes.fromhex(written))
            if who == "client":
                connection.sendall(frame(number, body))
                continue
            answered, answer = next(frames)
            assert FrameKind(answered).name == kind
            assert without_times(answer) == without_times(body)
        assert list(frames) == [], "the broker closes after BYE"


def without_times(body: bytes) -> str:
    return re.sub(r"\b1\d{15}\b", "TIME", notation(msgspec.msgpack.decode(body)))

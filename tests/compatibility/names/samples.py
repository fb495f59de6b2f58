"""Sample values of everything that is sent or stored, with the functions that encode and decode them.

The golden bytes stand in `bytes.txt`: hexadecimal for MessagePack and for files, text for JSON.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from tests.compatibility.names import stored
from tests.compatibility.names.layouts import Sampler, alternatives
from tidings.broker.journal_extension import redelivery_floor_row, redelivery_row
from tidings.engine import journal_codec
from tidings.engine.effects import DecisionMade, Persist
from tidings.engine.headers import ForwardingHeader, Provenance
from tidings.engine.operations import (
    Advertise,
    ApplyNotice,
    Connect,
    Define,
    DelegateContext,
    Disconnect,
    LearnTopic,
    Publish,
    Redecide,
    Revoke,
    SetContext,
    SetPolicy,
    Subscribe,
    TransferBacklog,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.filters import ContextFilter, Filter
from tidings.hub import Hub
from tidings.journal import Journal, Record, Snapshot
from tidings.journal import Operation as Row
from tidings.journal.lock import FILE as LOCK_FILE
from tidings.journal.record import decode_operation as decoded_row
from tidings.journal.record import encode_operations as encoded_rows
from tidings.model.advertisement import Advertisement
from tidings.model.errors import (
    FilterError,
    InvalidValueError,
    PolicyError,
    RefusedError,
    SchemaError,
    SecurityError,
    TidingsError,
)
from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy.policy import Policy
from tidings.protocol import answers
from tidings.protocol.frames import HEAD_BYTES, FrameKind, frame
from tidings.protocol.notifications import NotificationWriter, decode_notification
from tidings.protocol.operations import decode_forwarded, operation_frame, read_operation
from tidings.protocol.publications import WirePublication, decode_prefix, encode_prefix
from tidings.routing.bloom import Bloom
from tidings.runtime import delivery_record
from tidings.runtime.outcome import OperationOutcome
from tidings.runtime.subscription_registry import RegisteredSubscription


class Sample(NamedTuple):
    """`value` is what `decode` gives for the bytes that `encode` makes of it. `is_text`: they are JSON."""

    label: str
    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    is_text: bool = False

    def written(self, data: bytes) -> str:
        return data.decode() if self.is_text else data.hex()

    def read(self, text: str) -> bytes:
        return text.encode() if self.is_text else bytes.fromhex(text)


_POLICY = str(Policy.parse("PolicyStatement { On(Forward, Publication) { If {} Then {ToXML()} } }"))
_EVENT = Event.of(
    {"class": "jam", "length": 3, "share": 0.5, "is_open": True},
    id=UUID("0190a0a0-0001-7000-8000-000000000001"),
    publisher="car-1",
    timestamp=1_700_000_000_000_001,
    sequence=7,
    subject="roads",
    payload=b"\x00\xff",
    context={"x": 1.5, "role": "driver"},
    subscribers=ContextFilter.parse("x < 10"),
    policy=_POLICY,
    token=b"token",
    signature=b"seal",
)
_SHOWN = msgspec.structs.replace(_EVENT, subscribers=None, policy=None)
_ROADS = Schema("roads", {"class": str, "length": int}).extend({"share": float, "is_open": bool})
_NOTE = Notification(
    event=_SHOWN,
    subscription="s-1",
    subscriber="car-2",
    attributes=_SHOWN.attributes,
    payload=_SHOWN.payload,
    subscriptions=("s-1", "s-2"),
    trace=(Trace("b1", "host-1", 0.25, 12),),
)
_WAY = Provenance("b1", (2, 3), "digest", True, b"\x01\x02")
_SUBSCRIPTION = Subscription.of(
    Filter.parse("length > 2"),
    id="s-1",
    subscriber="car-2",
    subject="roads",
    structure=AttributeFilter(_ROADS, {"length"}, {"share"}),
    publishers=ContextFilter.parse("x < 10"),
    policy=_POLICY,
    durable="box",
    notify="client",
    token=b"token",
)
_ADVERTISEMENT = Advertisement.of(
    Filter.parse("class = 'jam'"),
    id="a-1",
    publisher="car-1",
    publisher_context=("x", "y"),
    subscriber_context=ContextFilter.parse("role = 'driver'"),
    policy=_POLICY,
)
# By the kinds of their rows; those with a way travel between brokers.
_OPERATIONS: dict[str, Any] = {
    "advertise": Advertise(_ADVERTISEMENT),
    "connect": Connect("car-1", True, 4),
    "disconnect": Disconnect("car-1"),
    "entrust": DelegateContext("car-1", "car-2", False),
    "heed": ApplyNotice(b"notice"),
    "learn": LearnTopic(b"record"),
    "publish": Publish(_EVENT),
    "revoke": Revoke(b"update"),
    "schema": Define("car-1", _ROADS),
    "set_context": SetContext("car-1", Context({"x": 1.5, "role": "driver"}), "car-2"),
    "set_policy": SetPolicy("car-1", "s-1", _POLICY),
    "subscribe": Subscribe(_SUBSCRIPTION),
    "trust": Trust("car-1", "police", True, 99),
    "unadvertise": Unadvertise("car-1", "a-1", _POLICY),
    "unsubscribe": Unsubscribe("car-2", "s-1", _POLICY),
}
_TRAVELLING = ("advertise", "schema", "set_context", "set_policy", "subscribe", "unadvertise", "unsubscribe")
_ERRORS: dict[str, TidingsError] = {
    "filter": FilterError("message", "text", 3),
    "policy": PolicyError("message", "text", 3, 2),
    "refusal": RefusedError("admit", "reason"),
    "schema": SchemaError("message", "name"),
    "security": SecurityError("token", "reason"),
    "value": InvalidValueError("message"),
}


def samples() -> list[Sample]:
    return [*_frames(), *_operations(), *_rows(), *_journal_files(), *_structs()]


# Frames


def _frames() -> Iterator[Sample]:
    for number, (name, kind) in stored.FRAMES.items():
        if kind is WirePublication or number in (FrameKind.NOTIFICATION, FrameKind.OPERATION, FrameKind.PASS):
            continue
        decoder = msgspec.msgpack.Decoder(kind)
        encode, decode = partial(_framed, number), partial(_unframed, number, decoder.decode)
        yield Sample(f"frame {number} {name}", Sampler().of(kind), encode, decode)
    yield Sample("frame 10 publish", Sampler().of(WirePublication), _published, _read_published)
    read = partial(_unframed, FrameKind.NOTIFICATION, partial(decode_notification, subscriber="car-2"))
    yield Sample("frame 33 notification", _NOTE, lambda note: NotificationWriter().frame(note), read)
    for name, error in _ERRORS.items():
        refused = answers.refusal(1, error)
        yield Sample(f"frame 31 refused, {name}", refused, partial(_framed, FrameKind.REFUSED), _read_refused)


def _framed(number: int, value: Any) -> bytes:
    return frame(number, msgspec.msgpack.encode(value))


def _unframed(number: int, decode: Callable[[bytes], Any], data: bytes) -> Any:
    if data[HEAD_BYTES - 1] != number:
        raise ValueError(f"a frame of the kind {data[HEAD_BYTES - 1]}, not {number}")
    return decode(data[HEAD_BYTES:])


def _published(value: WirePublication) -> bytes:
    return frame(FrameKind.PUBLISH, encode_prefix(258, 5) + msgspec.msgpack.encode(value))


def _read_published(data: bytes) -> WirePublication:
    body = data[HEAD_BYTES:]
    return msgspec.msgpack.decode(body[decode_prefix(body).end :], type=WirePublication)


def _read_refused(data: bytes) -> answers.RequestRefused:
    """By way of the error that a client raises."""
    refused = _unframed(FrameKind.REFUSED, msgspec.msgpack.Decoder(answers.RequestRefused).decode, data)
    return answers.refusal(refused.request, answers.error_of(refused))


# Operations between brokers


def _operations() -> Iterator[Sample]:
    read = partial(_unframed, FrameKind.OPERATION, read_operation)
    for name in _TRAVELLING:
        operation = _OPERATIONS[name]
        if "way" in operation.__struct_fields__:
            operation = msgspec.structs.replace(operation, way=_WAY)
        yield Sample(f"frame 40 operation, row {name}", operation, operation_frame, read)
    yield Sample(
        "frame 40 operation, carry",
        TransferBacklog("b1", "b2", 5, ((_NOTE, "box"),), {"car-1": Context({"x": 1})}),
        operation_frame,
        read,
    )
    _, operation_kinds = stored.FRAMES[FrameKind.OPERATION]
    signal = next(one for one in alternatives(operation_kinds) if one.__struct_config__.tag == "signal")
    (field,) = msgspec.structs.fields(signal)
    for kind in alternatives(field.type):
        label = f"frame 40 operation, signal {kind.__struct_config__.tag}"
        yield Sample(label, Sampler().of(kind), operation_frame, read)
    encode = partial(operation_frame, number=258, vector=5)
    yield Sample(
        "frame 41 pass", Publish(_EVENT, _journey()), encode, lambda data: decode_forwarded(data[HEAD_BYTES:])[1]
    )


def _journey() -> ForwardingHeader:
    made: ForwardingHeader = Sampler().of(ForwardingHeader)
    route = msgspec.structs.replace(made.route, audience=Bloom(b"\x01\x02\x03\x04\x05\x06\x07\x08", 3))
    return msgspec.structs.replace(made, route=route)


# The journal


def _rows() -> Iterator[Sample]:
    for name, operation in _OPERATIONS.items():
        yield Sample(f"row {name}", operation, _row_of, lambda data: journal_codec.operation(decoded_row(data)))
    journey = Publish(_EVENT, ForwardingHeader(meta=True))
    yield Sample(
        "row publish, with a journey", journey, _row_of, lambda data: journal_codec.operation(decoded_row(data))
    )
    for label, row in _driver_rows().items():
        yield Sample(label, row, lambda row: encoded_rows([row])[0], decoded_row)


def _row_of(operation: Any) -> bytes:
    return encoded_rows([journal_codec.row(operation)])[0]


def _driver_rows() -> dict[str, Row]:
    """Rows that a hub or a broker writes for itself."""
    outcome: OperationOutcome[RegisteredSubscription] = OperationOutcome()
    outcome.persisted = (Persist("messages", "text"),)
    (persist,) = outcome.rows(None, {})
    judge = Redecide(_EVENT, "car-2", ("s-1",), ForwardingHeader(meta=True), "b2", (("police", True),), ())
    return {
        "row acknowledge": _acknowledgement(),
        "row debts": redelivery_row(Sampler().of(RedeliveryState)),
        "row debts, floor": redelivery_floor_row(9),
        "row decided": delivery_record.decision(DecisionMade(_EVENT.id, "car-2")),
        "row passed": journal_codec.passed_row(
            _EVENT, {delivery_record.PENDING: [delivery_record.pending_decision(judge)]}
        ),
        "row persist": persist,
    }


def _acknowledgement() -> Row:
    """The row that a hub writes when a subscriber acknowledges an event."""
    with tempfile.TemporaryDirectory() as name:
        with Hub(name) as hub:
            subscription = hub.client("car-2").subscribe("length > 2", durable="box")
            hub.client("car-1").publish({"length": 3})
            subscription.acknowledge(*subscription.take())
        with Journal.open(name) as journal:
            return next(one.operation for one in journal.read() if one.operation.kind == "acknowledge")


def rows() -> dict[str, Row]:
    """The sample of each row, by its label."""
    written = {f"row {name}": journal_codec.row(operation) for name, operation in _OPERATIONS.items()}
    return {**written, **_driver_rows()}


def _journal_files() -> Iterator[Sample]:
    row = journal_codec.row(_OPERATIONS["connect"])
    found = [Record(0, 1_000, row), Record(1, 1_001, row)]
    yield Sample("journal folder, log", found, _journal_data, _read_journal)
    snapshot = Snapshot(2, b"state")
    yield Sample("journal folder, snapshot", snapshot, _snapshot_data, _read_snapshot)


def _journal_data(written: list[Record]) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        with Journal.open(name, name="b1", salt=b"salt") as journal:
            journal.append([one.operation for one in written], written[0].timestamp)
        return _packed(Path(name))


def _read_journal(data: bytes) -> list[Record]:
    with tempfile.TemporaryDirectory() as name:
        _unpack(data, Path(name))
        with Journal.open(name) as journal:
            return list(journal.replay().records)


def _snapshot_data(written: Snapshot) -> bytes:
    row = journal_codec.row(_OPERATIONS["connect"])
    with tempfile.TemporaryDirectory() as name:
        with Journal.open(name, name="b1", salt=b"salt") as journal:
            journal.append([row] * written.offset, 1_000)
            journal.sync()
            journal.write_snapshot(written.offset, written.data)
        return _packed(Path(name))


def _read_snapshot(data: bytes) -> Snapshot | None:
    with tempfile.TemporaryDirectory() as name:
        _unpack(data, Path(name))
        with Journal.open(name) as journal:
            return journal.replay().snapshot


def _packed(folder: Path) -> bytes:
    """The files of a journal with their names, in one array."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK_FILE]
    return msgspec.msgpack.encode([(str(path.relative_to(folder)), path.read_bytes()) for path in paths])


def _unpack(data: bytes, folder: Path) -> None:
    for name, content in msgspec.msgpack.decode(data, type=list[tuple[str, bytes]]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


# Everything else


def _structs() -> Iterator[Sample]:
    for label, kind in {**stored.SNAPSHOT, **stored.SECURITY, **stored.SPARK_STATE}.items():
        for one in alternatives(kind):
            tag = one.__struct_config__.tag
            decoder = msgspec.msgpack.Decoder(kind)
            yield Sample(
                label if tag is None else f"{label} ({tag})",
                Sampler().of(one),
                partial(msgspec.msgpack.encode, order="deterministic"),
                decoder.decode,
            )
    for label, kind in {**stored.JOURNAL_JSON, **stored.SPARK_STATE_JSON}.items():
        yield Sample(
            label,
            Sampler().of(kind),
            partial(msgspec.json.encode, order="deterministic"),
            msgspec.json.Decoder(kind).decode,
            is_text=True,
        )

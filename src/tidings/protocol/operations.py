"""Operations between brokers on the wire.

Filters, contexts, policies and schemas travel as the rows that they are in a journal, with their way beside them;
publications with subject and vector in front; what brokers tell of the overlay as it is.
"""

from typing import Any

import msgspec

from tidings import journal
from tidings.engine import records
from tidings.engine.journey import Journey, Way
from tidings.engine.operations import (
    Acknowledge,
    Advertise,
    Announce,
    AskRevocations,
    Carried,
    Carry,
    Complete,
    Define,
    Done,
    Publish,
    Reside,
    SetContext,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TellNotices,
    TellRevocations,
    TellTopics,
    Travelling,
    Unadvertise,
    Unsubscribe,
)
from tidings.model.values import Context
from tidings.protocol.events import WireEvent, from_wire, to_wire
from tidings.protocol.frames import FramingError, Kind, frame
from tidings.protocol.notes import Note, from_wire_note, to_wire_note
from tidings.protocol.publications import Front, front, read_front

_FILTERS = (Advertise, Unadvertise, Subscribe, Unsubscribe, SetContext, SetPolicy, Define)


class _Row(msgspec.Struct, frozen=True, tag="row", array_like=True):
    row: journal.Operation
    way: Way | None


class _Carry(msgspec.Struct, frozen=True, tag="carry", array_like=True):
    origin: str
    to: str
    number: int
    notes: tuple[tuple[str, Note, str], ...]  # the subscriber, and the name of the durable subscription
    contexts: dict[str, Context] = {}  # by client; not from brokers before 0.2


class _Signal(msgspec.Struct, frozen=True, tag="signal", array_like=True):
    signal: (
        TellLinks
        | Done
        | Complete
        | Announce
        | Acknowledge
        | Reside
        | Carried
        | Settle
        | TellTopics
        | TellNotices
        | AskRevocations
        | TellRevocations
    )


class _Passed(msgspec.Struct, frozen=True, array_like=True):
    event: WireEvent
    journey: Journey


def operation_frame(operation: Travelling, number: int = 0, vector: int = 0) -> bytes:
    """The frame of an operation; of a publication, with what the receiver has bound its subject to."""
    if isinstance(operation, Publish):
        passed = _Passed(to_wire(operation.event), operation.journey)
        return frame(Kind.PASS, front(number, vector) + _ENCODER.encode(passed))
    if isinstance(operation, _FILTERS):
        return frame(Kind.OPERATION, _ENCODER.encode(_Row(records.row(operation), getattr(operation, "way", None))))
    if isinstance(operation, Carry):
        notes = tuple((note.subscriber, to_wire_note(note), durable) for note, durable in operation.notifications)
        wire = _Carry(operation.origin, operation.to, operation.number, notes, operation.contexts)
        return frame(Kind.OPERATION, _ENCODER.encode(wire))
    return frame(Kind.OPERATION, _ENCODER.encode(_Signal(operation)))


def size_of(operation: Travelling) -> int:
    """How many bytes it takes on the wire."""
    return len(operation_frame(operation))


def read_operation(body: bytes) -> Travelling:
    """The operation of a frame of the kind OPERATION; one of the `UNREADABLE` errors if there is none."""
    found = _OPERATIONS.decode(body)
    if isinstance(found, _Signal):
        return found.signal
    if isinstance(found, _Carry):
        notes = tuple((from_wire_note(note, subscriber), durable) for subscriber, note, durable in found.notes)
        return Carry(found.origin, found.to, found.number, notes, found.contexts)
    try:
        operation: Any = records.operation(found.row)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # rows are checked when they are written
        raise FramingError(f"a row of the kind {found.row.kind!r:.40} that cannot be read: {error!r:.200}") from None
    if not isinstance(operation, _FILTERS):
        raise FramingError(f"brokers do not send each other what is of the kind {found.row.kind!r}")
    return operation if found.way is None else msgspec.structs.replace(operation, way=found.way)


def read_passed(body: bytes) -> tuple[Front, Publish]:
    """The publication of a frame of the kind PASS, and what stands in front of it; errors as above."""
    ahead = read_front(body)
    found = _PASSED.decode(memoryview(body)[ahead.end :])
    return ahead, Publish(from_wire(found.event), found.journey)


def _custom(kind: type, value: Any) -> Any:
    if kind is Context and isinstance(value, dict):
        return Context.trusted(value)
    raise TypeError(f"{kind.__name__} does not travel")


_ENCODER = msgspec.msgpack.Encoder()
_OPERATIONS = msgspec.msgpack.Decoder(_Row | _Carry | _Signal, dec_hook=_custom)
_PASSED = msgspec.msgpack.Decoder(_Passed, dec_hook=_custom)

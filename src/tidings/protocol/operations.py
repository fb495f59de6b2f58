"""Operations between brokers on the wire.

Filters, contexts, policies and schemas are encoded as journal rows, with their provenance. Publications have the
subject's number and the attribute vector in front. All other operations are encoded as they are (`_Signal`).
"""

from typing import Any

import msgspec

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.headers import ForwardingHeader, Provenance
from tidings.engine.operations import (
    Acknowledge,
    Advertise,
    Announce,
    AskRevocations,
    BacklogStored,
    ClaimClients,
    Define,
    PhaseComplete,
    PhaseDone,
    Publish,
    SetContext,
    SetPolicy,
    Settle,
    Subscribe,
    TellLinks,
    TellNotices,
    TellRevocations,
    TellTopics,
    TransferBacklog,
    Travelling,
    Unadvertise,
    Unsubscribe,
)
from tidings.model.values import Context
from tidings.protocol.events import WireEvent, from_wire, to_wire
from tidings.protocol.frames import FrameKind, FramingError, frame
from tidings.protocol.notifications import WireNotification, notification_from_wire, notification_to_wire
from tidings.protocol.publications import PublicationPrefix, decode_prefix, encode_prefix

_FILTERS = (Advertise, Unadvertise, Subscribe, Unsubscribe, SetContext, SetPolicy, Define)


class _Row(msgspec.Struct, frozen=True, tag="row", array_like=True):
    """A filter, context, policy or schema operation, as a journal row."""

    row: journal.Operation
    way: Provenance | None


class _TransferBacklog(msgspec.Struct, frozen=True, tag="carry", array_like=True):
    """The backlog of a client that moved to another broker."""

    origin: str
    to: str
    number: int
    notes: tuple[tuple[str, WireNotification, str], ...]  # subscriber, notification, name of the durable subscription
    contexts: dict[str, Context] = {}  # by client; empty from brokers before 0.2


class _Signal(msgspec.Struct, frozen=True, tag="signal", array_like=True):
    """An operation between brokers that is encoded unchanged."""

    signal: (
        TellLinks
        | PhaseDone
        | PhaseComplete
        | Announce
        | Acknowledge
        | ClaimClients
        | BacklogStored
        | Settle
        | TellTopics
        | TellNotices
        | AskRevocations
        | TellRevocations
    )


class _ForwardedEvent(msgspec.Struct, frozen=True, array_like=True):
    """A publication with its forwarding header."""

    event: WireEvent
    journey: ForwardingHeader


def operation_frame(operation: Travelling, number: int = 0, vector: int = 0) -> bytes:
    """Return the frame of an operation.

    For a publication, `number` and `vector` are the subject's number at the receiver and the attribute vector.
    """
    if isinstance(operation, Publish):
        forwarded = _ForwardedEvent(to_wire(operation.event), operation.journey)
        return frame(FrameKind.PASS, encode_prefix(number, vector) + _ENCODER.encode(forwarded))
    if isinstance(operation, _FILTERS):
        return frame(
            FrameKind.OPERATION, _ENCODER.encode(_Row(journal_codec.row(operation), getattr(operation, "way", None)))
        )
    if isinstance(operation, TransferBacklog):
        notes = tuple(
            (note.subscriber, notification_to_wire(note), durable) for note, durable in operation.notifications
        )
        wire = _TransferBacklog(operation.origin, operation.to, operation.number, notes, operation.contexts)
        return frame(FrameKind.OPERATION, _ENCODER.encode(wire))
    return frame(FrameKind.OPERATION, _ENCODER.encode(_Signal(operation)))


def size_of(operation: Travelling) -> int:
    """Return the size of an operation's frame in bytes."""
    return len(operation_frame(operation))


def read_operation(body: bytes) -> Travelling:
    """Decode the body of an OPERATION frame; raise one of the `UNREADABLE` errors if it is invalid."""
    message = _OPERATIONS.decode(body)
    if isinstance(message, _Signal):
        return message.signal
    if isinstance(message, _TransferBacklog):
        notes = tuple(
            (notification_from_wire(note, subscriber), durable) for subscriber, note, durable in message.notes
        )
        return TransferBacklog(message.origin, message.to, message.number, notes, message.contexts)
    try:
        operation: Any = journal_codec.operation(message.row)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # rows are checked only when they are written
        raise FramingError(f"a row of the kind {message.row.kind!r:.40} that cannot be read: {error!r:.200}") from None
    if not isinstance(operation, _FILTERS):
        raise FramingError(f"brokers do not send each other what is of the kind {message.row.kind!r}")
    return operation if message.way is None else msgspec.structs.replace(operation, way=message.way)


def decode_forwarded(body: bytes) -> tuple[PublicationPrefix, Publish]:
    """Decode the body of a PASS frame into prefix and publication; raise one of the `UNREADABLE` errors."""
    prefix = decode_prefix(body)
    forwarded = _FORWARDED.decode(memoryview(body)[prefix.end :])
    return prefix, Publish(from_wire(forwarded.event), forwarded.journey)


def _custom(kind: type, value: Any) -> Any:
    if kind is Context and isinstance(value, dict):
        return Context.trusted(value)
    raise TypeError(f"{kind.__name__} does not travel")


_ENCODER = msgspec.msgpack.Encoder()
_OPERATIONS = msgspec.msgpack.Decoder(_Row | _TransferBacklog | _Signal, dec_hook=_custom)
_FORWARDED = msgspec.msgpack.Decoder(_ForwardedEvent, dec_hook=_custom)

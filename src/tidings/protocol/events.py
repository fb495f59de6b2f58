"""Events on the wire: MessagePack arrays, filters as their canonical texts."""

from functools import lru_cache

import msgspec

from tidings.filters import ContextFilter
from tidings.model.event import Event
from tidings.model.filter import ContextFilter as ContextFilterValue
from tidings.model.identity import uuid_of
from tidings.model.values import Attributes, Context

Values = dict[str, bool | int | float | str]


class WireEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: bytes
    publisher: str
    timestamp: int
    sequence: int
    attributes: Values
    subject: str | None = None
    payload: bytes | None = None
    context: Values = {}
    subscribers: str | None = None
    policy: str | None = None
    token: bytes | None = None
    signature: bytes | None = None


def to_wire(event: Event) -> WireEvent:
    return WireEvent(
        event.id.bytes,
        event.publisher,
        event.timestamp,
        event.sequence,
        event.attributes,
        event.subject,
        event.payload,
        event.context,
        None if event.subscribers is None else str(event.subscribers),
        event.policy,
        event.token,
        event.signature,
    )


def from_wire(wire: WireEvent) -> Event:
    """Of a broker, which has checked it: attributes may have the system's own names."""
    return Event(
        id=uuid_of(wire.id),
        publisher=wire.publisher,
        timestamp=wire.timestamp,
        sequence=wire.sequence,
        attributes=Attributes.trusted(wire.attributes),
        subject=wire.subject,
        payload=wire.payload,
        context=Context.trusted(wire.context) if wire.context else _NOWHERE,
        subscribers=None if wire.subscribers is None else read_context_filter(wire.subscribers),
        policy=wire.policy,
        token=wire.token,
        signature=wire.signature,
    )


@lru_cache(1024)
def read_context_filter(text: str) -> ContextFilterValue:
    """Of many events, one after the other, mostly the same."""
    return ContextFilter.parse(text)


_NOWHERE = Context()

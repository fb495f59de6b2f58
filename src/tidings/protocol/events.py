"""Events on the wire: MessagePack arrays, with filters as their canonical text."""

from functools import lru_cache

import msgspec

from tidings.filters import ContextFilter
from tidings.model.event import Event
from tidings.model.filter import ContextFilterValue
from tidings.model.identity import uuid_of
from tidings.model.values import Attributes, Context

Values = dict[str, bool | int | float | str]


class WireEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event as it is encoded on the wire."""

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
    """Return the wire form of an event."""
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
    """Return the event of its wire form, without checks.

    Only for events from a broker, which has checked them; their attributes may have reserved names (`$...`).
    """
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
    """Parse a context filter; cached, because many events in a row have the same one."""
    return ContextFilter.parse(text)


_NOWHERE = Context()

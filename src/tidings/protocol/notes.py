"""Notifications on the wire: the subscription, then the event as the subscription gets to see it.

An event that goes to many is encoded once.
"""

import msgspec

from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.protocol.events import WireEvent, from_wire, to_wire
from tidings.protocol.frames import Kind, frame

_ENCODE = msgspec.msgpack.Encoder().encode
_FOUR = b"\x94"  # a MessagePack array of four
_NOTHING_MORE = b"\x90\x90"  # two empty ones


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    subscription: str
    event: WireEvent
    subscriptions: tuple[str, ...] = ()
    trace: tuple[Trace, ...] = ()


class NoteWriter:
    """Notifications as frames. Remembers the last event, since what goes to many goes to them one after the other."""

    __slots__ = ("_event", "_written")

    def __init__(self) -> None:
        self._event: Event | None = None
        self._written = b""

    def frame(self, note: Notification) -> bytes:
        event = note.event
        if event is not self._event:
            self._event, self._written = event, _ENCODE(to_wire(event))
        more = _NOTHING_MORE
        if note.subscriptions or note.trace:
            more = _ENCODE(note.subscriptions) + _ENCODE(note.trace)
        return frame(Kind.NOTE, _FOUR + _ENCODE(note.subscription) + self._written + more)


def read_note(body: bytes, subscriber: str) -> Notification:
    return from_wire_note(_DECODER.decode(body), subscriber)


def to_wire_note(note: Notification) -> Note:
    return Note(note.subscription, to_wire(note.event), note.subscriptions, note.trace)


def from_wire_note(note: Note, subscriber: str) -> Notification:
    event = from_wire(note.event)
    return Notification(
        event=event,
        subscription=note.subscription,
        subscriber=subscriber,
        attributes=event.attributes,
        payload=event.payload,
        subscriptions=note.subscriptions,
        trace=note.trace,
    )


_DECODER = msgspec.msgpack.Decoder(Note)

"""Notifications on the wire: the id of the subscription, then the event as the subscription receives it.

An event that goes to many subscriptions is encoded once.
"""

import msgspec

from tidings.model.event import Event
from tidings.model.notification import Notification, Trace
from tidings.protocol.events import WireEvent, from_wire, to_wire
from tidings.protocol.frames import FrameKind, frame

_ENCODE = msgspec.msgpack.Encoder().encode
_ARRAY_OF_FOUR = b"\x94"  # the header of a MessagePack array with four elements
_TWO_EMPTY_ARRAYS = b"\x90\x90"  # two empty arrays


class WireNotification(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A notification as it is encoded on the wire."""

    subscription: str
    event: WireEvent
    subscriptions: tuple[str, ...] = ()
    trace: tuple[Trace, ...] = ()


class NotificationWriter:
    """An encoder of notifications as frames; it caches the bytes of the last event, for many notifications in a row."""

    __slots__ = ("_event", "_event_bytes")

    def __init__(self) -> None:
        self._event: Event | None = None
        self._event_bytes = b""

    def frame(self, notification: Notification) -> bytes:
        """Return the frame of a notification."""
        event = notification.event
        if event is not self._event:
            self._event, self._event_bytes = event, _ENCODE(to_wire(event))
        more = _TWO_EMPTY_ARRAYS
        if notification.subscriptions or notification.trace:
            more = _ENCODE(notification.subscriptions) + _ENCODE(notification.trace)
        return frame(
            FrameKind.NOTIFICATION, _ARRAY_OF_FOUR + _ENCODE(notification.subscription) + self._event_bytes + more
        )


def decode_notification(body: bytes, subscriber: str) -> Notification:
    """Decode the body of a notification frame for this subscriber."""
    return notification_from_wire(_DECODER.decode(body), subscriber)


def notification_to_wire(notification: Notification) -> WireNotification:
    """Return the wire form of a notification."""
    return WireNotification(
        notification.subscription, to_wire(notification.event), notification.subscriptions, notification.trace
    )


def notification_from_wire(notification: WireNotification, subscriber: str) -> Notification:
    """Return the notification of its wire form, for this subscriber."""
    event = from_wire(notification.event)
    return Notification(
        event=event,
        subscription=notification.subscription,
        subscriber=subscriber,
        attributes=event.attributes,
        payload=event.payload,
        subscriptions=notification.subscriptions,
        trace=notification.trace,
    )


_DECODER = msgspec.msgpack.Decoder(WireNotification)

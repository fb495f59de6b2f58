"""The notification: an event as one subscription receives it, after policies have changed it."""

import msgspec

from tidings.model.event import Event
from tidings.model.values import Attributes


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one broker on the path of an event adds to it at the request of a policy's Augment actions.

    A field is None if no action asks for it.
    """

    broker: str
    host: str | None = None
    load: float | None = None
    microseconds: int | None = None  # processing time of the event; filled in by the driver


def subscriber_view(event: Event) -> Event:
    """Return the event as subscribers may see it: without its `subscribers` filter and its policy."""
    if event.subscribers is None and event.policy is None:
        return event
    return msgspec.structs.replace(event, subscribers=None, policy=None)


class Notification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event on its way to one subscriber, with the attributes and the payload that policies have left.

    With `notify="client"` there is one notification for a client and event, and `subscriptions` lists all that matched.
    """

    event: Event
    subscription: str
    subscriber: str
    attributes: Attributes
    payload: bytes | None = None
    subscriptions: tuple[str, ...] = ()  # with notify="client": ids of all matching subscriptions
    trace: tuple[Trace, ...] = ()
    added: tuple[tuple[str, str], ...] = ()  # sealed events: (attribute, broker) for attributes that brokers added

"""A notification: an event as one subscription gets to see it, after policies."""

import msgspec

from tidings.model.event import Event
from tidings.model.values import Attributes


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One broker on the way of an event: what the Augment actions of a policy tell of it. None: not asked for."""

    broker: str
    host: str | None = None
    load: float | None = None
    microseconds: int | None = None  # spent on the event; filled in by the driver


def shown(event: Event) -> Event:
    """An event as subscribers get to see it: for whom it was, and under which policy, stays with the publisher."""
    if event.subscribers is None and event.policy is None:
        return event
    return msgspec.structs.replace(event, subscribers=None, policy=None)


class Notification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    event: Event
    subscription: str
    subscriber: str
    attributes: Attributes
    payload: bytes | None = None
    subscriptions: tuple[str, ...] = ()  # with notify="client": all that the event concerns
    trace: tuple[Trace, ...] = ()
    added: tuple[tuple[str, str], ...] = ()  # of one that came sealed: attributes by brokers, with the broker's name

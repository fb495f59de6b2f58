"""A notification: an event as one subscription gets to see it, after policies."""

import msgspec

from tidings.model.event import Event
from tidings.model.values import Attributes


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    event: Event
    subscription: str
    subscriber: str
    attributes: Attributes
    payload: bytes | None = None

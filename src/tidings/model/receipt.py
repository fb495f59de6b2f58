"""The receipt of a publication."""

import msgspec

from tidings.model.durability import Durability
from tidings.model.event import Event


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The event as it was accepted, and its place in the order; an offset of -1 is not known: it was accepted before
    the connection broke on which the receipt was under way. `sealed` is the epoch of the key under which the event was
    sealed, None if it went in the clear.

    `safe` is the durability that the event has for certain: what was asked for, but `accepted` where the broker has no
    journal. With an offset of -1 it is `journaled` at most, and only if every broker that the event was sent to has a
    journal: which of them has accepted it, and whether it has settled since, is not known.
    """

    event: Event
    offset: int
    sealed: int | None = None
    safe: Durability = "accepted"

"""The receipt of a publication."""

import msgspec

from tidings.model.event import Event


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The event as it was accepted, and its place in the order; an offset of -1 is not known: it was accepted before
    the connection broke on which the receipt was under way. `sealed` is the epoch of the key under which the event was
    sealed, None if it went in the clear."""

    event: Event
    offset: int
    sealed: int | None = None

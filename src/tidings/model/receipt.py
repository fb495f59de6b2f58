"""The receipt: what a broker or hub answers to a publication."""

from typing import Literal

import msgspec

from tidings.model.event import Event

# From weak to strong: in the broker's memory; on the broker's disk; on the disk of every broker with a matching
# durable subscription.
Durability = Literal["accepted", "journaled", "settled"]

NO_JOURNAL_AT_BROKER = (
    "warning: the broker has no journal: the subscription and what waits for it survive a lost connection, "
    "not the end of the broker"
)
NO_JOURNAL_IN_HUB = (
    "warning: the hub has no journal: the subscription and what waits for it survive the end of the client, "
    "not the end of the hub"
)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The accepted event, its offset in the broker's journal, and the durability that it certainly has.

    `offset` is -1 if it is unknown, because the connection broke before the receipt arrived. `sealed` is the epoch of
    the key that sealed the event, or None if the event was not sealed.

    `safe` is the requested durability, but `accepted` if the broker has no journal. With an offset of -1 it is at most
    `journaled`, and only if every broker to which the client sent the event has a journal: the client does not know
    which broker accepted the event, nor whether it has settled since.
    """

    event: Event
    offset: int
    sealed: int | None = None
    safe: Durability = "accepted"

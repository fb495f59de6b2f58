"""How a broker is set up: what its engine is told once, by its configuration."""

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.routing import strategy


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "hub"  # of the broker; no client may have it
    host: str = ""
    govern: frozenset[str] = frozenset()  # the clients whose policies may decide for others
    observers: frozenset[str] | None = None  # the clients that get meta-events; None: all
    strategy: str = "advertisement"  # of routing: see `tidings.routing`
    merging: bool = False  # whether what is sent over a link is merged where that changes nothing else
    settling_microseconds: int = 200_000  # so long the network is to be quiet before tables are made anew
    grace_microseconds: int = 10_000_000  # so long a context counts after it has changed, for events under way
    # Whether one may publish only what one has advertised; None: where advertisements lead the way to others.
    advertisements_required: bool | None = None
    abroad: frozenset[str] = frozenset()  # the neighbours that belong to another sub-overlay
    resends: bool = False  # whether the driver has a journal, and sends again from it what may have been lost
    large_message_bytes: int = 16_384  # from this size on, MessageSizeIndex() is 1

    def __post_init__(self) -> None:
        checked_client(self.name)
        strategy(self.strategy)
        if self.large_message_bytes < 1:
            raise InvalidValueError("large_message_bytes: must be at least 1")

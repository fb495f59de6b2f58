"""How a broker is set up: what its engine is told once, by its configuration."""

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "hub"  # of the broker; no client may have it
    host: str = ""
    govern: frozenset[str] = frozenset()  # the clients whose policies may decide for others
    observers: frozenset[str] | None = None  # the clients that get meta-events; None: all
    advertisements_required: bool = False  # whether one may publish only what one has advertised
    abroad: frozenset[str] = frozenset()  # the neighbours that belong to another sub-overlay
    large_message_bytes: int = 16_384  # from this size on, MessageSizeIndex() is 1

    def __post_init__(self) -> None:
        checked_client(self.name)
        if self.large_message_bytes < 1:
            raise InvalidValueError("large_message_bytes: must be at least 1")

"""The engine's settings: the part of a broker's configuration that the engine needs."""

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.routing import strategy


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one engine; it does not change while the engine runs."""

    name: str = "hub"  # the broker's name; no client may use it
    host: str = ""
    govern: frozenset[str] = frozenset()  # the clients whose policies may act on other clients' events
    observers: frozenset[str] | None = None  # the clients that get meta-events; None: all
    strategy: str = "advertisement"  # the routing strategy: see `tidings.routing`
    merging: bool = False  # whether subscriptions on a link are merged where the result matches the same events
    settling_microseconds: int = 200_000  # quiet time after a topology change before tables are rebuilt
    grace_microseconds: int = 10_000_000  # how long a former context counts for events in flight
    # Whether a client may publish only what it has advertised; None: yes, if advertisements route to neighbours.
    advertisements_required: bool | None = None
    abroad: frozenset[str] = frozenset()  # the neighbours that belong to other sub-overlays
    resends: bool = False  # whether the driver redelivers from its journal what may have been lost
    large_message_bytes: int = 16_384  # from this size on, `MessageSizeIndex()` is 1

    def __post_init__(self) -> None:
        checked_client(self.name)
        strategy(self.strategy)
        if self.large_message_bytes < 1:
            raise InvalidValueError("large_message_bytes: must be at least 1")

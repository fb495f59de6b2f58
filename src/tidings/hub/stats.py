"""What a hub has counted."""

import msgspec


class Stats(msgspec.Struct, kw_only=True):
    """Counted since the hub was opened, but for what is there now: clients, subscriptions, waiting, offset."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    told: int = 0  # meta-events
    callback_errors: int = 0
    clients: int = 0
    subscriptions: int = 0
    waiting: int = 0
    offset: int = 0

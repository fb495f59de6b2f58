"""The counters of a hub."""

import msgspec


class Stats(msgspec.Struct, kw_only=True):
    """Counters since the hub was opened; `clients`, `subscriptions`, `waiting` and `offset` are current values."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    told: int = 0  # meta-events published
    callback_errors: int = 0
    clients: int = 0
    subscriptions: int = 0
    waiting: int = 0
    offset: int = 0

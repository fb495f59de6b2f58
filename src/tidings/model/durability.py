"""Durability: what an event, and a durable subscription, survive."""

from typing import Literal

# In the memory of its broker; on its disk; at every broker, too, where somebody is to get it. From weak to strong.
Durability = Literal["accepted", "journaled", "settled"]

NO_JOURNAL_AT_BROKER = (
    "warning: the broker has no journal: the subscription and what waits for it survive a lost connection, "
    "not the end of the broker"
)
NO_JOURNAL_IN_HUB = (
    "warning: the hub has no journal: the subscription and what waits for it survive the end of the client, "
    "not the end of the hub"
)

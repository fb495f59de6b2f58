"""Departed clients: what they wanted durably when they went to another broker, for events that were under way then.

What comes for them is delivered as before; the driver carries it after them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidings.engine.tables import Filed
from tidings.matching.reference import due
from tidings.model.event import Event
from tidings.model.limits import MAX_RESIDENTS
from tidings.model.subscription import Subscription
from tidings.model.values import Context


class _Left(NamedTuple):
    wanted: list[Filed[Subscription]]
    context: Context
    when: int


class Departed:
    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}  # by client, the oldest first

    def leaves(self, client: str, filed: Iterable[Filed[Subscription]], context: Context, now: int) -> None:
        wanted = [one for one in filed if one.value.durable is not None]
        self._left.pop(client, None)
        if wanted:
            self._left[client] = _Left(wanted, context, now)
            if len(self._left) > MAX_RESIDENTS:
                del self._left[next(iter(self._left))]

    def returns(self, client: str) -> None:
        self._left.pop(client, None)

    def wanting(self, event: Event, now: int, grace: int) -> list[Filed[Subscription]]:
        """The subscriptions that the event is due to. What was published later is for where their owners are now."""
        if not self._left:
            return []
        self._left = {client: one for client, one in self._left.items() if now - one.when < grace}
        at_the_time = (one for one in self._left.values() if event.timestamp <= one.when)
        return [filed for one in at_the_time for filed in one.wanted if due(filed.value, event, one.context)]

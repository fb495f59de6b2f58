"""Subscriptions that come one after the other, without an event between them: let in together.

Only those that are new, and in which no rule, no schema and no gate has a say; others are handled one by one, in their
place.
"""

from typing import TYPE_CHECKING

from tidings.engine.matcher import FastMatcher
from tidings.model.subscription import Subscription
from tidings.policy.statement import MessageType

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_SUBSCRIPTION = MessageType.SUBSCRIPTION


def are_free(engine: "Engine") -> bool:
    """Whether no rule, no schema and no gate has a say in subscriptions."""
    ruled = engine.ruling_advertisements(_SUBSCRIPTION) or engine.early_rulings(_SUBSCRIPTION)
    return not ruled and engine.gate is None and not any(True for _ in engine.subjects)


class Arrivals:
    def __init__(self, engine: "Engine", matcher: FastMatcher) -> None:
        self._engine, self._matcher = engine, matcher
        self._waiting: dict[str, Subscription] = {}

    def take(self, subscription: Subscription) -> bool:
        """Whether it can wait for others: nobody has the id, and it is none of the system's."""
        name = subscription.id
        if name.startswith("$") or name in self._waiting or name in self._matcher:
            return False
        if self._engine.advertisements.get(name) is not None:
            return False
        self._waiting[name] = subscription
        return True

    def let_in(self) -> None:
        """Those that have come so far."""
        waiting, self._waiting = list(self._waiting.values()), {}
        if waiting:
            self._matcher.put_many(waiting)
        for one in waiting:
            filed = self._engine.new_filed(one, one.subscriber, None)
            self._engine.subscriptions.put(filed)
            self._engine.note_rules(filed)

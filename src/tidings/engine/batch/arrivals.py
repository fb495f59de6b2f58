"""Subscriptions that come one after the other, without an event between them: let in together.

Only those that are new, and in which no rule and no schema has a say; others are handled one by one, in their place.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidings.engine.matcher import FastMatcher
from tidings.engine.shelf import Shelf
from tidings.model.advertisement import checked_id
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.event import checked_client
from tidings.model.subscription import Subscription
from tidings.policy.statement import MessageType

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_SUBSCRIPTION = MessageType.SUBSCRIPTION
_TEXTS = frozenset({"content", "publishers"})  # what an index reads by itself
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def are_free(engine: "Engine") -> bool:
    """Whether no rule and no schema has a say in subscriptions."""
    ruled = engine.ruling_advertisements(_SUBSCRIPTION) or engine.early_rulings(_SUBSCRIPTION)
    return not ruled and not any(True for _ in engine.subjects)


class Arrivals:
    def __init__(self, engine: "Engine", matcher: FastMatcher) -> None:
        self._engine, self._matcher = engine, matcher
        self._waiting: dict[str, Subscription] = {}
        self._texts: dict[str, dict[str, Any]] = {}  # what an index on a shelf reads itself

    def is_new(self, id: str | None) -> bool:  # noqa: A002 - the subscription's own word
        """Whether it can wait for others: nobody has the id, nor tries to have one of the system's."""
        return (
            bool(id)
            and not str(id).startswith("$")
            and id not in self._waiting
            and id not in self._texts
            and id not in self._matcher
            and self._engine.advertisements.get(str(id)) is None
        )

    def is_text(self, said: dict[str, Any]) -> bool:
        """Takes a row that need not be read here, if it is one."""
        if not isinstance(self._engine.subscriptions, Shelf):
            return False
        try:
            checked_id(said["id"])
            checked_client(said["client"])
            body = _decode(said["body"] or "{}")
        except (InvalidValueError, msgspec.MsgspecError, RecursionError):
            return False
        given = {name: value for name, value in body.items() if value is not None and not name.startswith("$")}
        if not given.keys() <= _TEXTS or not all(isinstance(value, str) for value in given.values()):
            return False
        self._texts[said["id"]] = {"id": said["id"], "subscriber": said["client"], **given}
        return True

    def add(self, subscription: Subscription) -> None:
        self._waiting[subscription.id] = subscription

    def let_in(self) -> list[str]:
        """Those that have come so far; the ids of those that have to be handled one by one."""
        texts, self._texts = self._texts, {}
        left: list[str] = []
        if texts:
            columns = ("id", "subscriber", "content", "publishers")
            rows = {name: pa.array([one.get(name) for one in texts.values()], pa.string()) for name in columns}
            try:
                self._matcher.add_many(pa.table(rows))
            except (TidingsError, pa.ArrowException):  # somebody among them cannot be read
                left = list(texts)
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._matcher.put_many(list(waiting.values()))
            for one in waiting.values():
                filed = self._engine.new_filed(one, one.subscriber, None)
                self._engine.subscriptions.put(filed)
                self._engine.note_rules(filed)
        return left

"""Announcing: which contexts a broker's clients have, told along its tree, and acknowledged (004, section 3.1.2).

A change of context is an addition and a removal, each for itself. What an addition attracts comes up the tree, and the
acknowledgement behind it; until then events with that context go unpruned along the tree.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tidings.engine import placing
from tidings.engine.effects import Effect, Send
from tidings.engine.operations import Acknowledge, Announce
from tidings.routing.announced import Reach, Situation, situation_id

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


class Announcer:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._number = 0
        self._held: dict[str, set[bytes]] = {}  # client -> the contexts that it has, as a subscriber and as a publisher
        self._holders: Counter[bytes] = Counter()
        self._values: dict[bytes, Situation] = {}
        self._unknown: dict[bytes, int] = {}  # contexts that not all know -> the number of their announcement
        self._waiting: dict[tuple[str, int], set[str]] = {}  # origin, number -> children that have not acknowledged it
        self._first = 0  # the announcement of all contexts, with which the tables of a changed network begin

    @property
    def is_settled(self) -> bool:
        return not self._unknown and not self._waiting

    def is_known(self, name: bytes) -> bool:
        """Whether all subscriptions that the context attracts are here."""
        return name in self._values and name not in self._unknown

    def held(self, client: str, *contexts: Situation) -> tuple[list[Effect], list[Effect]]:
        """The contexts that a client has now; none: it is gone. What is to be told of new ones; and, after the client's
        subscriptions have followed, of those that nobody has any more."""
        before = self._held.pop(client, set())
        now = {situation_id(one): one for one in contexts}
        if now:
            self._held[client] = set(now)
        new = [one for name, one in now.items() if name not in self._values]
        for name in now:
            self._holders[name] += 1
        self._values |= now
        return (self._announce(new) if new else []), self._released(before)

    def begin(self) -> list[Effect]:
        """Everything anew, for a changed network."""
        self._waiting.clear()
        self._unknown.clear()
        if not self._engine.strategy.announces:
            return []
        self._first = self._number + 1
        return self._announce(list(self._values.values()))

    def _announce(self, contexts: list[Situation]) -> list[Effect]:
        engine = self._engine
        self._number += 1
        told = Announce(engine.name, engine.digest, self._number, tuple(contexts))
        self._unknown |= {situation_id(one): self._number for one in contexts}
        effects = self._attracted(engine.announced.add(engine.name, contexts))
        return effects + self._onward(told, engine.name)

    def _released(self, ids: set[bytes]) -> list[Effect]:
        gone = []
        for name in sorted(ids):
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name], self._values[name]
                self._unknown.pop(name, None)
                gone.append(name)
        if not gone:
            return []
        engine = self._engine
        told = Announce(engine.name, engine.digest, 0, gone=tuple(gone))
        effects = self._attracted(engine.announced.remove(engine.name, gone))
        return effects + [Send(name, told) for name in self._children(engine.name)]

    def take(self, told: Announce, sender: str) -> list[Effect]:
        engine = self._engine
        if sender != engine.topology.tree(told.origin).parent(engine.name):
            return []
        effects = self._attracted(engine.announced.add(told.origin, told.added))
        effects += self._attracted(engine.announced.remove(told.origin, told.gone))
        if told.number:
            return effects + self._onward(told, told.origin)
        return effects + [Send(name, told) for name in self._children(told.origin)]

    def take_acknowledgement(self, told: Acknowledge, sender: str) -> list[Effect]:
        waiting = self._waiting.get((told.origin, told.number))
        if waiting is None:
            return []
        waiting.discard(sender)
        return [] if waiting else self._acknowledged(told.origin, told.number)

    def _onward(self, told: Announce, origin: str) -> list[Effect]:
        children = self._children(origin)
        effects: list[Effect] = [Send(name, told) for name in children]
        self._waiting[origin, told.number] = set(children)
        return effects if children else effects + self._acknowledged(origin, told.number)

    def _acknowledged(self, origin: str, number: int) -> list[Effect]:
        """By all below, behind what they had to send."""
        engine = self._engine
        del self._waiting[origin, number]
        if origin != engine.name:
            parent = engine.topology.tree(origin).parent(engine.name)
            return [] if parent is None else [Send(parent, Acknowledge(origin, engine.digest, number))]
        self._unknown = {name: waits for name, waits in self._unknown.items() if waits > number}
        return engine.overlay.announced() if number == self._first else []

    def _attracted(self, reaches: list[Reach]) -> list[Effect]:
        """Subscriptions that should be elsewhere now, or need not be any more."""
        engine = self._engine
        effects: list[Effect] = []
        for name in sorted({user for reach in reaches for user in reach.users}):
            filed = engine.subscriptions.get(name)
            if filed is not None and engine.is_current(filed):
                effects += placing.place(engine, filed)
        return effects

    def _children(self, origin: str) -> tuple[str, ...]:
        return self._engine.topology.tree(origin).children(self._engine.name)

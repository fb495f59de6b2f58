"""Settling: how the broker where an event was published learns that it has reached all that it can reach.

A broker that passes a publication on remembers who sent it and who has not settled it. When the last one has, it
settles it toward where it came from; a publication that goes no further is settled at once. What a link that is gone
has taken along is never settled in that round: the network has changed, and the event is sent again in another one.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from tidings.engine.effects import Effect, Send, Settled, Wake
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import Publish, Settle
from tidings.model.limits import MAX_UNSETTLED_PUBLICATIONS

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

GATHERING = 2_000  # microseconds: what is settled within this time is told together
TOGETHER = 64  # so many are told without waiting for more
_HERE = ""  # the sender of what entered at this broker

Round = tuple[UUID, int]  # an event, and in which round it is sent


class _Passed:
    __slots__ = ("senders", "waiting")

    def __init__(self, sender: str, waiting: set[str]) -> None:
        self.senders, self.waiting = {sender}, waiting


class Settling:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._passed: dict[Round, _Passed] = {}  # the oldest first
        self._untold: dict[str, list[Round]] = {}  # by neighbour

    @property
    def is_told(self) -> bool:
        """Whether all that is settled has been told."""
        return not self._untold

    def counts(self, message: PublicationMessage) -> bool:
        """Whether somebody has it in a journal, and waits for it to be settled."""
        return self._engine.settings.resends and not message.journey.meta

    def passed_on(self, message: PublicationMessage, effects: list[Effect]) -> list[Effect]:
        """With what follows from a publication here: it goes on to those neighbours, or not at all."""
        if not self.counts(message):
            return effects
        event = message.event.id
        if message.stays_in:
            return [one for one in effects if not _passes(one, event)]
        waiting = {one.neighbour for one in effects if isinstance(one, Send) and _passes(one, event)}
        waiting |= {name for name in self._engine.held.last_held(message) if name in self._engine.neighbours}
        made = event, message.route.round
        if not waiting:
            return effects + self._settled(made, [_sender(message)])
        self._passed[made] = _Passed(_sender(message), waiting)
        if len(self._passed) > MAX_UNSETTLED_PUBLICATIONS:
            del self._passed[next(iter(self._passed))]
        return effects

    def came_again(self, message: PublicationMessage) -> list[Effect]:
        """It is settled with the copy that came before. What a client publishes again is the care of whoever had it
        first."""
        if not self.counts(message):
            return []
        made, sender = (message.event.id, message.route.round), _sender(message)
        passed = self._passed.get(made)
        if passed is not None:
            passed.senders.add(sender)
            return []
        return self._settled(made, [sender]) if sender == _HERE else []

    def refused(self, made: Round, neighbour: str) -> list[Effect]:
        """What a neighbour has sent is not to be trusted, and goes no further: nobody need wait for it."""
        return self._settled(made, [neighbour]) if self._engine.settings.resends else []

    def take(self, told: Settle, neighbour: str) -> list[Effect]:
        effects: list[Effect] = []
        for event, round in told.passed:  # noqa: A001 - the route's word
            effects += self.settle((event, round), neighbour)
        return effects

    def settle(self, made: Round, neighbour: str) -> list[Effect]:
        """Behind that neighbour nobody is left who has not got it."""
        passed = self._passed.get(made)
        if passed is None or neighbour not in passed.waiting:
            return []
        passed.waiting.discard(neighbour)
        if passed.waiting:
            return []
        del self._passed[made]
        return self._settled(made, sorted(passed.senders))

    def left(self, neighbour: str) -> None:
        """The link is gone, and with it what was under way on it."""
        self._untold.pop(neighbour, None)
        self._passed = {made: one for made, one in self._passed.items() if neighbour not in one.waiting}

    def tick(self) -> list[Effect]:
        untold, self._untold = self._untold, {}
        return [Send(name, Settle(tuple(passed))) for name, passed in untold.items()]

    def _settled(self, made: Round, senders: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for name in senders:
            if name == _HERE:
                effects.append(Settled(*made))
            elif name in self._engine.neighbours:
                if not self._untold:
                    effects.append(Wake(GATHERING))
                gathered = self._untold.setdefault(name, [])
                gathered.append(made)
                if len(gathered) >= TOGETHER:
                    effects.append(Send(name, Settle(tuple(self._untold.pop(name)))))
        return effects


def _sender(message: PublicationMessage) -> str:
    return message.sender if message.from_broker else _HERE


def _passes(effect: Effect, event: UUID) -> bool:
    return isinstance(effect, Send) and isinstance(effect.operation, Publish) and effect.operation.event.id == event

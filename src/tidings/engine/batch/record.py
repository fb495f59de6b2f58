"""What a batch has brought about, while it is gathered: deliveries as columns, everything else as rows.

Events are numbered: those of the table by their rows, the meta-events that followed from there on.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from tidings.engine.batch.shapes import Shapes, Shaping, shaping_between, shaping_by, shaping_in
from tidings.engine.directory import Addressed, Directory, joined
from tidings.engine.effects import Ask, Deliver, Effect, Log, Persist, Reject, Remark, Told
from tidings.engine.governing import Delivery
from tidings.engine.tables import Filed
from tidings.model.event import Event
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from tidings.engine.engine import Engine


class Record:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.shapes = Shapes()
        self.rejected: list[tuple[int, str, str]] = []
        self.metas: list[tuple[Event, int]] = []  # with the number of the event that caused it
        self.logs: list[tuple[int, str]] = []
        self.persists: list[tuple[int, Persist]] = []
        self.asks: list[tuple[int, str, str]] = []
        self.remarks: list[tuple[int, Remark]] = []
        self._parts: list[Addressed] = []
        self._single: list[tuple[int, int, int]] = []
        self._places: dict[int, int] = {}
        self._subscriptions: list[Subscription] = []  # as they were when a single copy was delivered to them

    def deliver(self, event: Any, place: Any, wanted: list[Filed[Subscription]], shape: Any) -> None:
        """Many copies; `place` says for which of the wanted each is."""
        if len(event):
            self.deliver_to(event, place, Directory.of([one.value for one in wanted]), shape)

    def deliver_to(self, event: Any, place: Any, directory: Directory, shape: Any) -> None:
        self._parts.append(Addressed(event, place, shape, directory))

    def deliver_one(self, event: int, delivery: Delivery) -> None:
        shape = self.shapes.number(shaping_in(delivery.shape))
        self._single += [(event, self._number(one.value), shape) for one in delivery.wanted]

    def deliver_plainly(self, event: int, wanted: list[Filed[Subscription]]) -> None:
        """One event to those who get it as it is, or cut as their rule always does."""
        for one in wanted:
            shape = 0 if one.cut is None else self.shapes.number(shaping_by(one.cut))
            self._single.append((event, self._number(one.value), shape))

    def reject(self, event: int, step: str, reason: str) -> None:
        self.rejected.append((event, step, reason))

    def told(self, event: Event, cause: int) -> int:
        """The number of a meta-event."""
        self.metas.append((event, cause))
        return self.rows + len(self.metas) - 1

    def take(self, number: int, event: Event | None, effects: list[Effect], engine: "Engine") -> None:
        """Effects as the engine gives them for one operation."""
        cause = number
        for effect in effects:
            match effect:
                case Deliver(note) if event is not None:
                    shape = self.shapes.number(shaping_between(event, note))
                    for name in note.subscriptions or (note.subscription,):
                        self._single.append((number, self._number(engine.subscriptions[name].value), shape))
                case Told(event):
                    number = self.told(event, cause)
                case Reject(step, reason):
                    self.reject(number, step, reason)
                case Log(line):
                    self.logs.append((number, line))
                case Persist():
                    self.persists.append((number, effect))
                case Ask(party, group):
                    self.asks.append((number, party, group))
                case Remark():
                    self.remarks.append((number, effect))

    def deliveries(self) -> Addressed:
        """All copies, by event; those of one event in their order."""
        single = np.array(self._single, np.int64).reshape(-1, 3)
        parts = list(self._parts)
        if len(single) or not parts:
            shapes = single[:, 2].astype(np.int32)
            parts.append(Addressed(single[:, 0], single[:, 1], shapes, Directory.of(self._subscriptions)))
        if len(parts) == 1 and not len(single):
            return parts[0]
        event, place, shape, directory = joined(parts)
        order = np.argsort(event, kind="stable")
        return Addressed(event[order], place[order], shape[order], directory)

    def shaping(self, number: int) -> Shaping:
        return self.shapes.known[number]

    def _number(self, subscription: Subscription) -> int:
        found = self._places.get(id(subscription))
        if found is None:
            found = self._places[id(subscription)] = len(self._subscriptions)
            self._subscriptions.append(subscription)  # kept, so that nothing else gets its id
        return found

"""Regimes: the rules for every copy of an event, found for many events at once.

Which rules these are depends on the policy that is attached to the event, the advertisements with rules that it meets,
and the broker's own subscriptions that it meets. Events for which all of that is the same are under one regime.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tidings.engine import sealed
from tidings.engine.batch.copies import Ints, Scene, depends_on_sender
from tidings.engine.batch.named import Bools
from tidings.engine.concern import rulings_met
from tidings.engine.journey import NEW
from tidings.engine.matcher import FastMatcher
from tidings.engine.message import PublicationMessage
from tidings.engine.operations import Publish
from tidings.engine.refusal import Refused
from tidings.engine.ruled import Ruling
from tidings.engine.tables import Filed
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.policy.application import CompiledPolicy
from tidings.policy.statement import MessageType, Operation

if TYPE_CHECKING:
    from tidings.engine.engine import Engine

_PUBLICATION = MessageType.PUBLICATION
_BITS = 60  # filters that fit into one number


class Regime:
    """`refusal` is set where the events are refused instead: they would inherit too much."""

    def __init__(self, rulings: tuple[Ruling, ...] = (), refusal: Refused | None = None) -> None:
        self.rulings, self.refusal = rulings, refusal
        self.by_sender = any(depends_on_sender(rule) for rule, _ in rulings)


class Rulebook:
    """The filters with rules that act on every copy, in an index of their own."""

    def __init__(self, engine: "Engine") -> None:
        self._key = _made_of(engine)
        self.advertisements = engine.ruling_advertisements(_PUBLICATION)
        self.own = _own(engine)
        self._index = _indexed([*map(_as_subscription, self.advertisements), *(one.value for one in self.own)])
        self._index.set_context(engine.name, engine.context(engine.name))

    def is_of(self, engine: "Engine") -> bool:
        """Whether the engine still has these very filters."""
        now = _made_of(engine)
        return len(now) == len(self._key) and all(one is other for one, other in zip(now, self._key, strict=True))

    def met(self, scene: Scene, rows: Any) -> tuple[Ints, Ints]:
        """Pairs of an event's row and a filter: twice its place here, and 1 more if it is the publisher's own.

        An advertisement of somebody else counts only if it may decide for others.
        """
        events = scene.publications
        table = events.matchable(rows, payload=self._index.asks_payload, subscribers=False)
        event, position = self._index.pairs(table)
        event = event if rows is None else rows[event]
        place = np.array([int(name) for name in self._index.names], np.int64)[position]
        codes = {name: code for code, name in enumerate(events.publishers.texts)}
        owners = [codes.get(one.owner, -2) for one in self.advertisements] + [-2] * len(self.own)
        far = [one.governs or one.operator_policy is not None for one in self.advertisements]
        reaching = np.array(far + [True] * len(self.own), bool)
        mine = np.array(owners, np.int64)[place] == events.publishers.codes[event]
        kept = mine | reaching[place]
        return event[kept], 2 * place[kept] + mine[kept]

    def filters(self, items: list[int]) -> tuple[list[Filed[Advertisement]], list[Filed[Subscription]]]:
        places = sorted(one // 2 for one in items)
        count = len(self.advertisements)
        return (
            [self.advertisements[place] for place in places if place < count],
            [self.own[place - count] for place in places if place >= count],
        )

    def __len__(self) -> int:
        return len(self.advertisements) + len(self.own)


def advertised(scene: Scene, rows: Any) -> Bools:
    """The events that their publishers have advertised; `rows` (None: all) are asked for."""
    events = scene.publications
    known = [one for name in events.publishers.texts for one in scene.engine.advertisements.of(name)]
    codes = {name: code for code, name in enumerate(events.publishers.texts)}
    index = _indexed([*map(_as_subscription, known)])
    event, position = index.pairs(events.matchable(rows, payload=index.asks_payload, subscribers=False))
    event = event if rows is None else rows[event]
    owners = np.array([codes[known[int(name)].owner] for name in index.names], np.int64)
    found = np.zeros(events.count, bool)
    found[event[owners[position] == events.publishers.codes[event]]] = True
    return found


def _indexed(filters: list[Subscription]) -> FastMatcher:
    """An index of these; their ids are their places."""
    index = FastMatcher()
    index.put_many([msgspec.structs.replace(one, id=str(place)) for place, one in enumerate(filters)])
    return index


def _as_subscription(filed: Filed[Advertisement]) -> Subscription:
    return Subscription(id="", subscriber=filed.owner, content=filed.value.content)


def _made_of(engine: "Engine") -> list[object]:
    filters: list[Filed[Any]] = [*engine.ruling_advertisements(_PUBLICATION), *_own(engine)]
    return [*filters, *(one.value for one in filters), engine.context(engine.name)]


def _own(engine: "Engine") -> list[Filed[Subscription]]:
    found = [one for one in engine.subscriptions.of(engine.name) if one.rulings(Operation.FORWARD, _PUBLICATION)]
    return sorted(found, key=lambda one: one.id)


def regimes_of(
    scene: Scene, rows: Any, policies: list[CompiledPolicy | None], rulebook: Rulebook
) -> tuple[Ints, list[Regime]]:
    """The number of each event's regime, and the regimes; number 0 has no rules. `rows` (None: all) are asked for."""
    events = scene.publications
    sets = np.zeros(events.count, np.int64)  # of filters; 0 is none
    found: list[list[int]] = [[]]
    if len(rulebook):
        event, item = rulebook.met(scene, rows)
        order = np.lexsort((item, event))
        event, item = event[order], item[order]
        starts = np.flatnonzero(np.diff(event, prepend=-1))
        if len(starts):
            numbers, some = _sets(item, starts, 2 * len(rulebook))
            sets[event[starts]] = 1 + numbers
            found += some
    keys = sets * (len(policies) + 1) + events.policies.codes + 1
    asked = keys if rows is None else keys[rows]
    numbers = np.zeros(events.count, np.int64)
    regimes = [Regime()]
    distinct, first, inverse = np.unique(asked, return_index=True, return_inverse=True)
    given = []
    for key, place in zip(distinct.tolist(), first.tolist(), strict=True):
        given.append(len(regimes) if key else 0)
        if key:
            met, policy = divmod(key, len(policies) + 1)
            row = place if rows is None else int(rows[place])
            attached = policies[policy - 1] if policy else None
            regimes.append(_regime(scene, row, attached, rulebook.filters(found[met])))
    numbers[slice(None) if rows is None else rows] = np.array(given, np.int64)[inverse]
    return numbers, regimes


def message_of(engine: "Engine", event: Event, attached: CompiledPolicy | None) -> PublicationMessage:
    """A publication of a client, as it is after it was admitted."""
    message = PublicationMessage(
        event,
        NEW,
        Publish(event),
        event.publisher,
        from_broker=False,
        enters=True,
        attached=attached,
        situation=engine.situation,
    )
    sealed.let_govern(engine, message)
    return message


def _regime(scene: Scene, row: int, attached: CompiledPolicy | None, filters: Any) -> Regime:
    message = message_of(scene.engine, scene.publications.event(row), attached)
    try:
        return Regime(rulings_met(message, *filters))
    except Refused as refusal:
        return Regime(refusal=refusal)


def _sets(item: Ints, starts: Ints, items: int) -> tuple[Ints, list[list[int]]]:
    """A number for each slice's set of items, and the sets by number."""
    ends = [*starts[1:].tolist(), len(item)]
    if items <= _BITS:
        masks = np.bitwise_or.reduceat(np.int64(1) << item, starts)
        _, first, inverse = np.unique(masks, return_index=True, return_inverse=True)
        return inverse, [item[starts[at] : ends[at]].tolist() for at in first.tolist()]
    numbers: dict[bytes, int] = {}
    given = np.empty(len(starts), np.int64)
    sets: list[list[int]] = []
    for place, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        one = item[start:end]
        number = numbers.setdefault(one.tobytes(), len(sets))
        if number == len(sets):
            sets.append(one.tolist())
        given[place] = number
    return given, sets

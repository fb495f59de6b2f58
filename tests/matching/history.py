"""A random history of an index over all of its paths, checked against the reference at every event.

As a program (`python -m tests.matching.history SEED ...`) it runs where kernels are compiled otherwise, such as with
checks of every bound.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

import tidings as td
from tidings import Context, ContextFilter, Event, uuid7
from tidings.matching.index.batch import EventList
from tidings.matching.index.spatial import group
from tidings.matching.reference import due

CONTENTS = (
    "a = {n}",
    "a = {n} AND b > {m}",
    "b BETWEEN {m} AND {m} + 3",
    "a IN (1, {n}, {m}) AND c = '{s}'",
    "c LIKE '{s}%'",
    "c LIKE '%{s}' OR a < {n}",
    "c LIKE '%{s}%' AND b IS NOT NULL",
    "c != '{s}' AND a >= {n}",
    "d = TRUE AND b <= {n}.5",
    "d IS NULL AND a IS NOT NULL",
    "e{n} = {m} OR e{m} > 9007199254740993",
    "a + b > {n}",
    "NOT (a = {n} OR c = '{s}')",
    "",
)
SCOPES = (
    None,
    None,
    "x > this.x",
    "zone = this.zone",
    "x BETWEEN this.x - {n} AND this.x + {n} AND y BETWEEN this.y - 2 AND this.y + 2",
    "x BETWEEN this.x - {n} AND this.x + {m}",
    "distance(x, y, this.x, this.y) <= {n}",
    "geo_distance(x, y, this.x, this.y) < {n}00000 AND zone = this.zone",
    "x + this.y > {n} OR zone IS NULL",
)
STRINGS = ("", "a", "ab", "abc", "bc", "cab", "é€")
KINDS = {"a": float, "b": float, "c": str, "d": bool} | {f"e{n}": int for n in range(6)}
ARROW = {float: pa.float64(), str: pa.string(), bool: pa.bool_(), int: pa.int64()}
CLIENTS = [f"client{i}" for i in range(12)]


class History:
    def __init__(self, seed: int, *, by_place: bool) -> None:
        self._random = random.Random(seed)
        self._by_place = by_place
        self._index = td.Index()
        self._numbers = count()
        self._subscriptions: dict[str, td.Subscription] = {}
        self._contexts: dict[str, Context] = {}

    def run(self, steps: int) -> int:
        """How many matches there were."""
        steps_of: list[Callable[[], int]] = [
            *(self._add, self._add, self._add_many, self._remove, self._set_context, self._set_contexts),
            *(self._match, self._match, self._match, self._match_batch, self._flush, self._save, self._match_moving),
            *(self._tidy, self._match_several),
        ]
        few = group.FEW_CANDIDATES
        group.FEW_CANDIDATES = -(1 << 40) if self._by_place else few
        try:
            return self._match_batch() + sum(self._random.choice(steps_of)() for _ in range(steps))
        finally:
            group.FEW_CANDIDATES = few

    # Changes

    def _text(self, choices: Any) -> Any:
        chosen = self._random.choice(choices)
        return chosen and chosen.format(
            n=self._random.randrange(6), m=self._random.randrange(-3, 6), s=self._random.choice(STRINGS)
        )

    def _row(self) -> dict[str, Any]:
        known = list(self._subscriptions)
        replaced = known and self._random.random() < 0.2
        return {
            "id": self._random.choice(known) if replaced else f"s{next(self._numbers)}",
            "content": self._text(CONTENTS),
            "subscriber": self._random.choice(CLIENTS),
            "publishers": self._text(SCOPES),
        }

    def _note(self, row: dict[str, Any]) -> None:
        wanted = None if row["publishers"] is None else ContextFilter.parse(row["publishers"])
        self._subscriptions[row["id"]] = td.Subscription(
            id=row["id"],
            subscriber=row["subscriber"],
            content=td.Filter.parse(row["content"]),
            publishers=wanted,
        )

    def _add(self) -> int:
        row = self._row()
        self._index.add(row["id"], row["content"], subscriber=row["subscriber"], publishers=row["publishers"])
        self._note(row)
        return 0

    def _add_many(self) -> int:
        many = self._random.choice([0, 1, 20, 20, 20, 20, 600])
        rows = list({row["id"]: row for row in (self._row() for _ in range(many))}.values())
        names = ("id", "content", "subscriber", "publishers")
        self._index.add_many(pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names}))
        for row in rows:
            self._note(row)
        return 0

    def _remove(self) -> int:
        known = list(self._subscriptions)
        for name in self._random.sample(known, len(known) // 2 if self._random.random() < 0.3 else min(3, len(known))):
            self._index.remove(name)
            del self._subscriptions[name]
        return 0

    def _context(self) -> dict[str, Any]:
        choose = self._random
        values = {
            "x": choose.choice([choose.uniform(-4, 4), choose.randrange(-3, 4), None]),
            "y": choose.choice([choose.uniform(-4, 4), choose.randrange(-3, 4)]),
            "zone": choose.choice([*STRINGS, None]),
        }
        return {name: value for name, value in values.items() if value is not None and choose.random() < 0.9}

    def _set_context(self) -> int:
        client, context = self._random.choice(CLIENTS), self._context()
        self._index.set_context(client, context)
        self._contexts[client] = Context.of(context)
        return 0

    def _set_contexts(self) -> int:
        given = {client: self._context() for client in self._random.sample(CLIENTS, self._random.randrange(6))}
        types = {"x": pa.float64(), "y": pa.float64(), "zone": pa.string()}
        if self._random.random() < 0.3:
            types["x"] = pa.null()
            for context in given.values():
                context.pop("x", None)
        columns = {name: pa.array([one.get(name) for one in given.values()], kind) for name, kind in types.items()}
        self._index.set_contexts(pa.table({"client": pa.array(list(given), pa.string()), **columns}))
        for client, context in given.items():
            floats = {name: float(value) if name != "zone" else value for name, value in context.items()}
            self._contexts[client] = Context.of(floats)
        return 0

    def _flush(self) -> int:
        self._index.parts.store.flushed_segments()
        return 0

    def _tidy(self) -> int:
        self._index.tidy()
        return 0

    def _save(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            self._index.save(folder)
            self._index = td.Index.load(folder)
        return 0

    # Events

    def _event(self, kinds: Mapping[str, type] | None = None) -> Event:
        """With `kinds`, only values of these."""
        choose = self._random
        attributes = {
            "a": choose.choice([choose.randrange(-3, 6), choose.uniform(-3, 6), "a", None]),
            "b": choose.choice([choose.randrange(-3, 6), choose.uniform(-3, 6)]),
            "c": choose.choice([*STRINGS, "abcabc" * 50, None]),
            "d": choose.choice([True, False, None]),
            f"e{choose.randrange(6)}": choose.choice([choose.randrange(4), 2**53 + choose.randrange(4)]),
            "unheard_of": 1,
        }
        given = {name: one for name, one in attributes.items() if one is not None and choose.random() < 0.9}
        if kinds is not None:
            given = {name: one for name, one in given.items() if type(one) is kinds.get(name)}
        wanted = choose.choice([None, None, "x < {n}", "zone = this.zone", "y > this.x AND zone != '{s}'"])
        return Event.of(
            given,
            id=uuid7(0, bytes(10)),
            publisher="pub",
            timestamp=0,
            context=self._context(),
            subscribers=None if wanted is None else ContextFilter.parse(self._text([wanted])),
        )

    def _expected(self, event: Event) -> set[str]:
        nowhere = Context()
        return {
            one.id
            for one in self._subscriptions.values()
            if due(one, event, self._contexts.get(one.subscriber, nowhere))
        }

    def _match(self) -> int:
        event, index = self._event(), self._index
        found = index.match(event.attributes, context=event.context, subscribers=event.subscribers)
        assert found == self._expected(event), event
        return len(found)

    def _match_several(self) -> int:
        """Events as they are, of which each value may be of any kind."""
        events = [self._event() for _ in range(self._random.choice([0, 1, 8, 80]))]
        found = self._index._attempt_pairs(EventList(events))
        assert found is not None
        pairs = {(e, self._index.id(at)) for e, at in zip(found[0].tolist(), found[1].tolist(), strict=True)}
        assert pairs == {(e, name) for e, event in enumerate(events) for name in self._expected(event)}
        return len(pairs)

    def _match_batch(self) -> int:
        """Columns of one kind each, as many events as there may be, or none."""
        events = [self._event(KINDS) for _ in range(self._random.choice([0, 1, 8, 8, 80]))]
        columns = {
            name: pa.array([event.attributes.get(name) for event in events], ARROW[kind])
            for name, kind in KINDS.items()
        }
        return self._agree(events, columns)

    def _match_moving(self) -> int:
        """Contexts that change between events, and are made afterwards, in one part or in two."""
        choose = self._random
        events = [self._event(KINDS) for _ in range(choose.choice([1, 8, 8, 80]))]
        changes = [
            (choose.choice([*CLIENTS, "stranger"]), self._context()) for _ in range(choose.choice([0, 1, 8, 80]))
        ]
        before = sorted(choose.randrange(len(changes) + 1) for _ in events)
        clients = pa.array([client for client, _ in changes], pa.string())
        values: dict[str, Any] = {
            name: [context.get(name) for _, context in changes] for name in ("x", "y", "zone", "unasked")
        }
        values["zone"] = pa.array(values["zone"], pa.string())
        columns = {
            name: pa.array([event.attributes.get(name) for event in events], ARROW[kind])
            for name, kind in KINDS.items()
        }
        many, group.MANY_CLIENTS = group.MANY_CLIENTS, choose.choice([group.MANY_CLIENTS, 3])
        try:
            given = clients.dictionary_encode() if choose.random() < 0.5 else clients
            moves = self._index.moves(given, values, np.array(before))
            event, position = self._index.match_moving(self._table(events, columns), moves)
        finally:
            group.MANY_CLIENTS = many
        pairs = {(e, self._index.id(at)) for e, at in zip(event.tolist(), position.tolist(), strict=True)}
        assert len(pairs) == len(event)
        expected, made = set(), 0
        for e, end in enumerate(before):
            for client, context in changes[made:end]:
                self._contexts[client] = Context.of(context)
            made = end
            expected |= {(e, name) for name in self._expected(events[e])}
        assert pairs == expected
        for client, context in changes[made:]:
            self._contexts[client] = Context.of(context)
        cut = choose.randrange(len(changes) + 1)
        self._index.move(moves, 0, cut)
        self._index.move(moves, cut, len(changes))
        for client in CLIENTS:
            assert self._index.parts.contexts.get(client) == self._contexts.get(client, Context())
        return len(pairs)

    def _agree(self, events: list[Event], columns: dict[str, Any]) -> int:
        found = self._index.match_batch(self._table(events, columns))
        pairs = set(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True))
        assert pairs == {(e, name) for e, event in enumerate(events) for name in self._expected(event)}
        return len(pairs)

    def _table(self, events: list[Event], columns: dict[str, Any]) -> pa.Table:
        if self._random.random() < 0.5:
            columns["c"] = columns["c"].dictionary_encode()
        place = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("zone", pa.string())])
        columns["context"] = pa.array([dict(event.context) for event in events], place)
        texts = [None if event.subscribers is None else str(event.subscribers) for event in events]
        columns["subscribers"] = pa.array(texts, pa.string())
        return pa.table(columns)


def play(seed: int, steps: int) -> int:
    """How many matches there were; by place at every other seed."""
    return History(seed, by_place=bool(seed % 2)).run(steps)


def crowd(many: int = 6_000) -> int:
    """More matches than any buffer holds at first, one event at a time and in a batch; how many there were."""
    index = td.Index()
    index.add_many(pa.table({"id": [f"s{i}" for i in range(many)], "content": ["a > 0 OR b = 1"] * many}))
    assert len(index.match_positions({"a": 1, "b": 1})) == many
    events = (1 << 21) // many
    found = index.match_batch(pa.table({"a": [1.0] * events}))
    assert found.num_rows == events * many
    return int(found.num_rows)


if __name__ == "__main__":
    total = crowd() + sum(play(int(seed), 120) for seed in sys.argv[1:])
    sys.stdout.write(f"{total} matches\n")

"""Subscriptions that concern only events nearby: found by place or by content, whichever looks at fewer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index import layout
from tidings.matching.index.columns import Events
from tidings.matching.index.grid import Grid, Place
from tidings.matching.index.kernels import TOO_MANY
from tidings.matching.index.layout import NEEDED, Raw
from tidings.matching.index.moves import Moves
from tidings.matching.index.nearby import near_event, near_events
from tidings.matching.index.pool import Pool
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.store import Store

Positions = npt.NDArray[np.int32]
_UNLIMITED = 1 << 62
_NOBODY: Positions = np.empty(0, np.int32)
Match = Callable[[Raw, int], Positions | None]  # a segment, and how many candidates there may be at most
FEW_CANDIDATES = 128  # so few that they are not worth a look at the grid
MANY_CLIENTS = 20_000  # so many that they are not worth a look either
_A_HANDFUL = 1_000  # clients that are always worth one, once the content has had many candidates
_AN_EVENT = 16  # positions for which there is room from the start
_TIMES = 15  # that the content is not asked first after that


class Neighbourhood:
    """All subscriptions whose reach is over the same names. Whoever calls holds a lock."""

    def __init__(self, names: tuple[str, ...], geo: bool) -> None:
        self.names = names
        self.geo = geo
        self.store = Store()
        self._grid = Grid(len(names), geo)
        self._pool = Pool()
        self._out = np.empty(1024, np.int32)
        self._popular = 0  # how many times more the grid is asked first

    def __len__(self) -> int:
        return len(self._grid)

    @property
    def nbytes(self) -> int:
        return sum(raw.nbytes for raw in self.store.segments) + self._grid.nbytes + self._pool.nbytes

    def put(
        self, position: int, conjuncts: Sequence[tuple[int, list[Any]]], attributes: int,
        client: int, radius: float, place: Place | None,
    ) -> None:  # fmt: skip
        for flags, predicates in conjuncts:
            self.store.add(position, flags, predicates, attributes)
        self._pool.put(position, conjuncts)
        self._grid.put(position, client, radius, place)

    def put_many(self, conjuncts: Conjuncts, attributes: int) -> None:
        """The content of many; `settle` tells where each of them is."""
        self.store.add_many(conjuncts, attributes)
        if len(conjuncts.owner):
            self._pool.put_many(conjuncts)

    def settle(self, position: int, client: int, radius: float, place: Place | None) -> None:
        self._grid.put(position, client, radius, place)

    def remove(self, position: int) -> None:
        self.store.remove(position)
        self._pool.remove(position)
        self._grid.remove(position)

    def move(self, client: int, place: Place | None) -> None:
        self._grid.move(client, place)

    def move_many(self, clients: npt.NDArray[np.int32], places: npt.NDArray[np.float64]) -> None:
        self._grid.moved_many(clients, places)

    def match(self, place: Place, match: Match, scratch: Raw, values: Any, tests: Any) -> Positions:
        """Whom an event at the place may concern; complements are for the reference to confirm.

        The content is asked first, and if it has more than a few candidates the grid; only if both have many, the
        content has the last word. So neither a popular content nor a crowded place makes the other one wait for long.
        Where the content had many the last time it probably has again, and the grid is asked first.
        """
        if self._popular:
            self._popular -= 1
            found = self._by_place(place, _A_HANDFUL, scratch, values, tests)
            if found is not None:
                return found
        found = self._by_content(match, FEW_CANDIDATES)
        if found is not None:
            return found
        self._popular = _TIMES
        found = self._by_place(place, MANY_CLIENTS, scratch, values, tests)
        return self.by_content(match) if found is None else found

    def match_many(
        self, places: Any, events: Events, scratch: Raw, moves: Moves | None = None
    ) -> tuple[Any, Positions]:
        """The same of many events that have a row each, as far as few are near: how many positions each one has, -1
        where it has to be asked by itself; and all positions.

        With moves, each event finds those where they are who have moved before it. All are afterwards where they were,
        so that an event that has to be asked by itself has to be asked by its content.
        """
        if moves is None:
            nobody = np.empty(0, np.int32), np.empty((0, 2)), np.zeros(len(places), np.int64)
            return self._match_many(places, events, scratch, nobody, _A_HANDFUL)
        clients = moves.rows.astype(np.int32)
        if len(self._out) < _AN_EVENT * len(places):
            self._out = np.empty(_AN_EVENT * len(places), np.int32)
        try:
            moving = clients, moves.coordinates(self.names), moves.before
            return self._match_many(places, events, scratch, moving, MANY_CLIENTS)
        finally:
            self._grid.moved_many(*moves.back(self.names))

    def _match_many(
        self, places: Any, events: Events, scratch: Raw, moving: tuple[Any, Any, Any], limit: int
    ) -> tuple[Any, Positions]:
        sizes = np.empty(len(places), np.int64)
        parts, done, moved = [], 0, 0
        while True:
            grid, pool, start = self._grid.arrays, self._pool, done
            done, moved = near_events(
                *grid, pool.ends, pool.preds, scratch, *events, places, limit, *moving, start, moved, self._out, sizes
            )  # fmt: skip
            given = sizes[start:done]
            parts.append(self._out[: given[given > 0].sum()].copy())
            if done == len(places):
                return np.where(sizes == TOO_MANY, -1, sizes), np.concatenate(parts)
            if moved < moving[2][done]:
                self._grid.make_room()
            else:
                self._make_room(scratch)

    def by_content(self, match: Match) -> Positions:
        """Whom an event may concern, wherever it comes from."""
        return self._by_content(match, _UNLIMITED)  # type: ignore[return-value]

    def _by_place(self, place: Place, limit: int, scratch: Raw, values: Any, tests: Any) -> Positions | None:
        x, y = place if len(place) == 2 else (place[0], 0.0)
        while True:
            grid, pool = self._grid.arrays, self._pool
            count = near_event(*grid, pool.ends, pool.preds, scratch, values, tests, x, y, limit, self._out)
            if count >= 0:
                return self._out[:count].copy()
            if count == TOO_MANY:
                return None
            self._make_room(scratch)

    def _make_room(self, scratch: Raw) -> None:
        needed = int(layout.scratch(scratch).counters[NEEDED])
        if needed > len(self._out):
            self._out = np.empty(2 * needed, np.int32)

    def _by_content(self, match: Match, limit: int) -> Positions | None:
        parts = []
        for raw in self.store.segments:
            found = match(raw, limit)
            if found is None:
                return None
            parts.append(found)
        return parts[0] if len(parts) == 1 else np.concatenate([_NOBODY, *parts])

    def renew(self, conjuncts: Conjuncts, attributes: int) -> None:
        """The same subscriptions, with other numbers for what they ask."""
        self.store, self._pool = Store(), Pool()
        self.put_many(conjuncts, attributes)

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, by name."""
        segments = {f"segment{number:03}": raw for number, raw in enumerate(self.store.settled())}
        pool = {f"pool_{name}": array for name, array in self._pool.saved().items()}
        grid = {f"grid_{name}": array for name, array in self._grid.saved().items()}
        return {**segments, **pool, **grid}

    @classmethod
    def of(
        cls, names: tuple[str, ...], geo: bool, arrays: dict[str, npt.NDArray[Any]], attributes: int
    ) -> "Neighbourhood":
        """What `saved` gave."""
        made = cls(names, geo)
        segments = [arrays[name] for name in sorted(arrays) if name.startswith("segment")]
        made.store = Store.of(segments, attributes)
        made._pool = Pool.of(arrays["pool_ends"], arrays["pool_preds"])
        made._grid.restore({name.removeprefix("grid_"): arrays[name] for name in arrays if name.startswith("grid_")})
        return made

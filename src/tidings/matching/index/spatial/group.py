"""A group of subscriptions that match only events nearby, found by place or by content.

The cheaper of the two searches is used: the one that has to examine fewer candidates. The search by place finds
positions; `PredicatePool` has the predicates of the subscription at each position.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.columns import EncodedEvents
from tidings.matching.index.kernels import layout
from tidings.matching.index.kernels.grid_match import near_event, near_events
from tidings.matching.index.kernels.layout import NEEDED, PREDICATE, Raw
from tidings.matching.index.kernels.match import SEPARATOR, TOO_MANY
from tidings.matching.index.pending_context_changes import PendingContextChanges
from tidings.matching.index.segment import Conjuncts
from tidings.matching.index.segment_store import SegmentStore
from tidings.matching.index.spatial.grid import Grid, Place

_COMPACTION_SLACK = 1024  # unused predicates up to which nothing is compacted


class PredicatePool:
    """The conjuncts of subscriptions by position, in one array: a separator with its flags, then its predicates."""

    def __init__(self) -> None:
        self.ends = np.zeros(2 * 64, np.int32)  # for each position where its predicates begin and end
        self.preds = np.zeros(256, PREDICATE)
        self._used = self._garbage = 0

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return self.ends.nbytes + self.preds.nbytes

    def put(self, position: int, conjuncts: Sequence[tuple[int, list[Any]]]) -> None:
        """Add the conjuncts of a subscription: flags, and rows of PREDICATE."""
        rows: list[Any] = []
        for flags, predicates in conjuncts:
            rows.append((0.0, 0.0, flags * 8 + SEPARATOR, 0, 0))
            rows += predicates
        self._reserve(position + 1, len(rows))
        self.preds[self._used : self._used + len(rows)] = rows
        self.ends[2 * position], self.ends[2 * position + 1] = self._used, self._used + len(rows)
        self._used += len(rows)

    def put_many(self, conjuncts: Conjuncts) -> None:
        """Add the conjuncts of many subscriptions."""
        order = np.argsort(conjuncts.owner, kind="stable")
        owner, lengths = conjuncts.owner[order], np.diff(conjuncts.pred_first)[order]
        starts = np.cumsum(lengths + 1) - lengths - 1  # of each conjunct's separator, among the new ones
        total = int(lengths.sum()) + len(order)
        self._reserve(int(owner[-1] >> 2) + 1, total)
        rows = self.preds[self._used : self._used + total]
        places = np.repeat(starts + 1 - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        source = np.repeat(conjuncts.pred_first[:-1][order] - (np.cumsum(lengths) - lengths), lengths)
        rows[places] = conjuncts.pred[source + np.arange(lengths.sum())]
        rows["what"][starts] = (owner & 3) * 8 + SEPARATOR
        position, first = np.unique(owner >> 2, return_index=True)
        self.ends[2 * position] = self._used + starts[first]
        self.ends[2 * position + 1] = self._used + np.append(starts[first][1:], total)
        self._used += total

    def remove(self, position: int) -> None:
        """Remove the conjuncts of a subscription."""
        self._garbage += int(self.ends[2 * position + 1] - self.ends[2 * position])
        self.ends[2 * position : 2 * position + 2] = 0
        if self._garbage > _COMPACTION_SLACK + self._used // 2:
            self._compact()

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays, compacted."""
        self._compact()
        return {"ends": self.ends, "preds": self.preds[: self._used]}

    @classmethod
    def of(cls, ends: npt.NDArray[Any], preds: npt.NDArray[Any]) -> "PredicatePool":
        """Return the pool whose arrays `saved` returned."""
        pool = cls()
        # A file loses the alignment of the records' type, and the kernels take no other type.
        pool.ends, pool.preds, pool._used = ends.copy(), preds.view(PREDICATE), len(preds)
        return pool

    def _reserve(self, positions: int, more: int) -> None:
        if 2 * positions > len(self.ends):
            self.ends = _grown(self.ends, 4 * positions)
        if self._used + more > len(self.preds):
            self.preds = _grown(self.preds, 2 * (self._used + more))

    def _compact(self) -> None:
        """Compact the array: keep only the predicates in use."""
        first, last = self.ends[::2], self.ends[1::2]
        in_use = np.flatnonzero(last > first)
        lengths = (last - first)[in_use]
        ends = np.cumsum(lengths)
        source = np.repeat(first[in_use] - (ends - lengths), lengths) + np.arange(lengths.sum())
        self.preds = _grown(self.preds[source], max(256, 2 * len(source)))
        first[in_use], last[in_use] = ends - lengths, ends
        self._used, self._garbage = len(source), 0


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown


Positions = npt.NDArray[np.int32]
_UNLIMITED = 1 << 62
_NOBODY: Positions = np.empty(0, np.int32)
Match = Callable[[Raw, int], Positions | None]  # (segment, limit of candidates) -> positions
FEW_CANDIDATES = 128  # candidates by content up to which the grid is not used
MANY_CLIENTS = 20_000  # clients in the cells around an event above which content alone decides
_FEW_CLIENTS = 1_000  # clients around an event up to which the grid suffices without asking content
_ROOM_PER_EVENT = 16  # initial room for positions, for each event
_GRID_FIRST_EVENTS = 15  # events for which the grid comes first, after one with many candidates by content


class SpatialGroup:
    """All subscriptions with a distance bound on the same names. The caller must hold the index's lock."""

    def __init__(self, names: tuple[str, ...], geo: bool) -> None:
        self.names = names
        self.geo = geo
        self.store = SegmentStore()
        self._grid = Grid(len(names), geo)
        self._pool = PredicatePool()
        self._out = np.empty(1024, np.int32)
        self._grid_first_events = 0  # for how many more events the grid comes first

    def __len__(self) -> int:
        return len(self._grid)

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes."""
        return sum(raw.nbytes for raw in self.store.segments) + self._grid.nbytes + self._pool.nbytes

    def put(
        self, position: int, conjuncts: Sequence[tuple[int, list[Any]]], attributes: int,
        client: int, radius: float, place: Place | None,
    ) -> None:  # fmt: skip
        """Add a subscription.

        Args:
            position: The subscription's position.
            conjuncts: For each of its conjuncts the flags and the predicates.
            attributes: How many attributes the index knows.
            client: The row of its client.
            radius: The radius; on the sphere in metres.
            place: The client's current place, if it has one.
        """
        for flags, predicates in conjuncts:
            self.store.add(position, flags, predicates, attributes)
        self._pool.put(position, conjuncts)
        self._grid.put(position, client, radius, place)

    def put_many(self, conjuncts: Conjuncts, attributes: int) -> None:
        """Add the content of many subscriptions; `place` must follow for each of them."""
        self.store.add_many(conjuncts, attributes)
        if len(conjuncts.owner):
            self._pool.put_many(conjuncts)

    def place(self, position: int, client: int, radius: float, place: Place | None) -> None:
        """Add the place and the radius of a subscription whose content `put_many` has added.

        Args:
            position: The subscription's position.
            client: The row of its client.
            radius: The radius; on the sphere in metres.
            place: The client's current place, if it has one.
        """
        self._grid.put(position, client, radius, place)

    def remove(self, position: int) -> None:
        """Remove a subscription."""
        self.store.remove(position)
        self._pool.remove(position)
        self._grid.remove(position)

    def move(self, client: int, place: Place | None) -> None:
        """Set the place of a client."""
        self._grid.move(client, place)

    def move_many(self, clients: npt.NDArray[np.int32], places: npt.NDArray[np.float64]) -> None:
        """Set the places of many clients."""
        self._grid.move_many(clients, places)

    def match(self, place: Place, match: Match, scratch: Raw, values: Any, tests: Any) -> Positions:
        """Return the positions of the subscriptions that an event may match, by content and approximately by place.

        Positions that the reference has to confirm come as their complement. Content is tried first, up to a few
        candidates; then the grid, up to many clients; if both have many, content again without a limit. So neither
        popular content nor a crowded place makes matching slow by itself. For some events after one with many
        candidates by content, the grid comes first.

        Args:
            place: The publisher's place.
            match: Matches the event's content against a segment, up to a limit of candidates.
            scratch: This thread's scratch memory.
            values: The event's values, as `Columns.encode` returns them.
            tests: The string tests that the event passes.
        """
        if self._grid_first_events:
            self._grid_first_events -= 1
            positions = self._match_place(place, _FEW_CLIENTS, scratch, values, tests)
            if positions is not None:
                return positions
        positions = self._match_content(match, FEW_CANDIDATES)
        if positions is not None:
            return positions
        self._grid_first_events = _GRID_FIRST_EVENTS
        positions = self._match_place(place, MANY_CLIENTS, scratch, values, tests)
        return self.match_content(match) if positions is None else positions

    def match_many(
        self, places: Any, events: EncodedEvents, scratch: Raw, moves: PendingContextChanges | None = None
    ) -> tuple[Any, Positions]:
        """Match many events, by place and then by content, as far as few clients are near them.

        Returns how many positions each event has, -1 if too many clients are near it, so that the caller must match it
        by itself; and the positions of all events.

        With `moves`, each event finds the clients where the changes before it put them. Afterwards all clients are
        where they were; so an event with -1 must then be matched by content alone.

        Args:
            places: The publishers' places, a row for each event.
            events: The events, a row for each.
            scratch: This thread's scratch memory.
            moves: Changes of contexts between the events, if there are any.
        """
        if moves is None:
            no_moves = np.empty(0, np.int32), np.empty((0, 2)), np.zeros(len(places), np.int64)
            return self._match_many(places, events, scratch, no_moves, _FEW_CLIENTS)
        clients = moves.rows.astype(np.int32)
        if len(self._out) < _ROOM_PER_EVENT * len(places):
            self._out = np.empty(_ROOM_PER_EVENT * len(places), np.int32)
        try:
            moving = clients, moves.coordinates(self.names), moves.before
            return self._match_many(places, events, scratch, moving, MANY_CLIENTS)
        finally:
            self._grid.move_many(*moves.positions_before(self.names))

    def _match_many(
        self, places: Any, events: EncodedEvents, scratch: Raw, moving: tuple[Any, Any, Any], limit: int
    ) -> tuple[Any, Positions]:
        sizes = np.empty(len(places), np.int64)
        parts, done, moved = [], 0, 0
        while True:
            grid, pool, start = self._grid.arrays, self._pool, done
            done, moved = near_events(
                *grid, pool.ends, pool.preds, scratch, *events, places, limit, *moving, start, moved, self._out, sizes
            )  # fmt: skip
            new_sizes = sizes[start:done]
            parts.append(self._out[: new_sizes[new_sizes > 0].sum()].copy())
            if done == len(places):
                return np.where(sizes == TOO_MANY, -1, sizes), np.concatenate(parts)
            if moved < moving[2][done]:
                self._grid.make_room()
            else:
                self._make_room(scratch)

    def match_content(self, match: Match) -> Positions:
        """Return the positions of the subscriptions whose content an event may satisfy, whatever its place."""
        return self._match_content(match, _UNLIMITED)  # type: ignore[return-value]

    def _match_place(self, place: Place, limit: int, scratch: Raw, values: Any, tests: Any) -> Positions | None:
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
        """Enlarge the output to the size that the last kernel call has reported."""
        needed = int(layout.scratch(scratch).counters[NEEDED])
        if needed > len(self._out):
            self._out = np.empty(2 * needed, np.int32)

    def _match_content(self, match: Match, limit: int) -> Positions | None:
        parts = []
        for raw in self.store.segments:
            positions = match(raw, limit)
            if positions is None:
                return None
            parts.append(positions)
        return parts[0] if len(parts) == 1 else np.concatenate([_NOBODY, *parts])

    def replace_conjuncts(self, conjuncts: Conjuncts, attributes: int) -> None:
        """Replace the content of all subscriptions by the same conjuncts with other attribute numbers."""
        self.store, self._pool = SegmentStore(), PredicatePool()
        self.put_many(conjuncts, attributes)

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by name."""
        segments = {f"segment{number:03}": raw for number, raw in enumerate(self.store.flushed_segments())}
        pool = {f"pool_{name}": array for name, array in self._pool.saved().items()}
        grid = {f"grid_{name}": array for name, array in self._grid.saved().items()}
        return {**segments, **pool, **grid}

    @classmethod
    def of(
        cls, names: tuple[str, ...], geo: bool, arrays: dict[str, npt.NDArray[Any]], attributes: int
    ) -> "SpatialGroup":
        """Return the group whose arrays `saved` returned.

        Args:
            names: The names of the coordinates.
            geo: Whether they are a latitude and a longitude.
            arrays: The arrays.
            attributes: How many attributes the index knows.
        """
        group = cls(names, geo)
        segments = [arrays[name] for name in sorted(arrays) if name.startswith("segment")]
        group.store = SegmentStore.of(segments, attributes)
        group._pool = PredicatePool.of(arrays["pool_ends"], arrays["pool_preds"])
        group._grid.restore({name.removeprefix("grid_"): arrays[name] for name in arrays if name.startswith("grid_")})
        return group

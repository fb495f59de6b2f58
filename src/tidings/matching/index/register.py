"""Which subscription stands at which position, and what the kernels need to know of it beside its content.

A subscription that came as text stays text, and is read again when someone asks for it: most are never asked for.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.index.scopes import GONE, NO_FILTER
from tidings.model.subscription import Subscription

SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in (
            *("id", "subscriber", "content", "publishers", "format"),
            *("subject", "structure", "policy", "durable", "notify", "token"),
        )
    ]
)
Reader = Callable[[dict[str, Any]], Subscription]
_MADE = -1  # the chunk of a subscription that came as one
_RECENT = 4096  # subscriptions that came as text and are remembered as such
REST = 1024  # so many others are removed before a position is used again


class _Chunk:
    """A table of subscriptions that came together."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.living = table.num_rows


def _complete(table: pa.Table) -> pa.Table:
    """With all columns of the schema."""
    nothing = pa.nulls(table.num_rows, pa.string())
    return pa.table([table[name] if name in table.column_names else nothing for name in SCHEMA.names], SCHEMA)


def _framed(table: pa.Table) -> npt.NDArray[np.int32]:
    """Which rows have a subject or a structure."""
    found = np.zeros(table.num_rows, np.int32)
    for name in ("subject", "structure"):
        if name in table.column_names and table[name].null_count < table.num_rows:
            found |= np.asarray(pc.is_valid(table[name])).astype(np.int32)
    return found


class Register:
    def __init__(self, read: Reader) -> None:
        self._read = read
        self._making = threading.RLock()  # names and positions, where they are still to be made
        self._names: list[str] | None = []
        self._positions: dict[str, int] | None = {}
        self._made: list[Subscription | dict[str, Any] | None] = []  # by position, that came alone, as such or as rows
        self._chunks: dict[int, _Chunk] = {}
        self._recent: dict[int, Subscription] = {}
        self._free: deque[int] = deque()
        self._size = 0  # positions in use or free
        self._ids: tuple[int, pa.Array] | None = None  # and what was the case when they were made
        self._placed = 0  # how often a subscription was given a position
        self.clients = np.zeros(64, np.int32)  # the row of the subscriber's context
        self.programs = np.full(64, NO_FILTER, np.int32)  # the program of its `publishers` filter
        self.homes = np.zeros(64, np.int32)  # the neighbourhood that it lives in, 0 for none
        self.framed = np.zeros(64, np.int32)  # whether it asks for a subject or a structure beside its content
        self._chunk = np.zeros(64, np.int32)
        self._row = np.zeros(64, np.int32)
        self.reused = 0  # how often a position came to stand for another subscription
        self.removed = 0  # how many were forgotten

    def __len__(self) -> int:
        return self._size - len(self._free)

    @property
    def size(self) -> int:
        """Positions are below it."""
        return self._size

    @property
    def state(self) -> tuple[int, int]:
        """The same as long as the same subscriptions stand at the same positions."""
        return self._placed, self.removed

    @property
    def names(self) -> list[str]:
        """The id at each position."""
        if self._names is None:
            with self._making:
                if self._names is None:
                    self._names = self.ids().to_pylist()
        return self._names

    @property
    def positions(self) -> dict[str, int]:
        """Where each subscription stands."""
        if self._positions is None:
            with self._making:
                if self._positions is None:
                    free = set(self._free)
                    self._positions = {name: at for at, name in enumerate(self.names) if at not in free}
        return self._positions

    def saved(self, write: Callable[[Subscription], dict[str, Any]]) -> tuple[dict[str, Any], pa.Table]:
        """Everything: arrays, and the subscriptions as a table by position; free positions have empty rows."""
        nobody = pa.Table.from_pylist([{"id": ""}], SCHEMA)
        alone = {position: one for position, one in enumerate(self._made) if one is not None}
        rows = [one if isinstance(one, dict) else write(one) for one in alone.values()]
        made = pa.Table.from_pylist(rows, SCHEMA)
        tables, places, start = [nobody, made], np.zeros(self._size, np.int64), 1 + made.num_rows
        places[list(alone)] = np.arange(1, start)
        for number, chunk in self._chunks.items():
            mine = np.flatnonzero(self._chunk[: self._size] == number)
            places[mine] = start + self._row[mine]
            tables.append(_complete(chunk.table))
            start += chunk.table.num_rows
        free = np.array(self._free, np.int32)
        places[free] = 0
        arrays = {name: getattr(self, name)[: self._size].copy() for name in ("clients", "programs", "homes")}
        arrays |= {"free": free}
        arrays["programs"][free] = NO_FILTER
        return arrays, pa.concat_tables(tables).take(places)

    def restore(self, array: Callable[[str], Any], table: pa.Table) -> None:
        """What `saved` gave. Names and positions are made when someone asks for them."""
        self._size = table.num_rows
        self._free = deque(array("free").tolist())
        self.clients, self.programs, self.homes = (array(one).copy() for one in ("clients", "programs", "homes"))
        self._chunk, self._row = np.zeros(self._size, np.int32), np.arange(self._size, dtype=np.int32)
        if self._size:
            self._chunks = {0: _Chunk(table)}
            self._chunks[0].living = len(self)
        self.framed = _framed(table)
        self._ids = self._placed, table["id"].combine_chunks()
        self._names = self._positions = None

    def ids(self) -> pa.Array:
        """The ids by position, as Arrow."""
        placed, known = self._placed, self._ids
        if known is None or known[0] != placed:  # what is made while another one comes is never taken for the latest
            known = self._ids = placed, pa.array(self.names, pa.string())
        return known[1]

    def __getitem__(self, position: int) -> Subscription:
        """A `KeyError` if it was forgotten a moment ago."""
        chunk = int(self._chunk[position])
        if chunk == _MADE:
            made = self._made[position]
            if isinstance(made, Subscription):
                return made
            if made is None:
                raise KeyError(position)
            return self._reread(position, lambda: made)
        table, row = self._chunks[chunk].table, int(self._row[position])
        return self._reread(position, lambda: table.slice(row, 1).to_pylist()[0])

    def _reread(self, position: int, row: Callable[[], dict[str, Any]]) -> Subscription:
        """A subscription from its text. Those asked for lately are remembered: the reference may need one for each
        event.
        """
        known = self._recent.get(position)
        if known is None:
            known = self._read(row())
            if len(self._recent) >= _RECENT:
                self._recent.pop(next(iter(self._recent)), None)
            self._recent[position] = known
        return known

    def place(self, name: str, subscription: Subscription | dict[str, Any], client: int, program: int) -> int:
        """A position for a subscription, or a row that `read` understands; that of its id's former owner is left to be
        forgotten.
        """
        position = self._vacant(1)[0]
        if position >= len(self._made):
            self._made.extend([None] * (position + 1 - len(self._made)))
        self._made[position] = subscription
        self._chunk[position] = _MADE
        self.clients[position], self.programs[position] = client, program
        self.names[position] = name
        self.positions[name] = position
        self._placed += 1
        self.framed[position] = isinstance(subscription, Subscription) and (
            subscription.subject is not None or subscription.structure is not None
        )
        return position

    def place_many(self, table: pa.Table, names: Sequence[str], clients: Any, programs: Any) -> Any:
        """Positions for the rows of a table that `read` understands."""
        number = max(self._chunks, default=-1) + 1
        self._chunks[number] = _Chunk(table)
        positions = self._vacant(len(names))
        at = np.array(positions, np.int32)
        self._chunk[at], self._row[at] = number, np.arange(len(names))
        self.clients[at], self.programs[at], self.framed[at] = clients, programs, _framed(table)
        known = self.names
        for position, name in zip(positions, names, strict=True):
            known[position] = name
        self.positions.update(zip(names, positions, strict=True))
        self._placed += 1
        return at

    def forget(self, position: int) -> None:
        """Nobody stands there any more. The id stays readable until the position is used again."""
        self._recent.pop(position, None)
        chunk = int(self._chunk[position])
        if chunk == _MADE:
            self._made[position] = None
        else:
            self._chunks[chunk].living -= 1
            if not self._chunks[chunk].living:
                del self._chunks[chunk]
        # Whoever found it a moment ago must not take it for one without a filter.
        self.programs[position], self.homes[position] = GONE, 0
        self._free.append(position)
        self.removed += 1

    def renumber_programs(self, moved: npt.NDArray[np.int32]) -> None:
        """Gives each program the number that stands at its old one."""
        used = self.programs >= 0
        self.programs[used] = moved[self.programs[used]]

    def _vacant(self, count: int) -> list[int]:
        if count == 1 and len(self._free) <= REST and self._size < len(self.clients):  # the usual case, quickly
            self.names.append("")
            self._size += 1
            return [self._size - 1]
        found = [self._free.popleft() for _ in range(min(count, max(0, len(self._free) - REST)))]
        self.reused += len(found)
        first, self._size = self._size, self._size + count - len(found)
        self.names.extend([""] * (self._size - first))
        self._grow()
        return [*found, *range(first, self._size)]

    def _grow(self) -> None:
        if self._size > len(self.clients):
            for name in ("clients", "programs", "homes", "framed", "_chunk", "_row"):
                old = getattr(self, name)
                grown = np.zeros(max(64, 2 * self._size), np.int32)
                grown[: len(old)] = old
                setattr(self, name, grown)

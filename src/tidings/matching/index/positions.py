"""The subscription at each position, and what the kernels need to know of it beside its content.

A subscription that was added as text is stored as text and parsed when it is needed: most never are.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.matching.index.context_filters import GONE, NO_FILTER
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
_SINGLE = -1  # the chunk number of a subscription that was added singly
_PARSED_CACHE_SIZE = 4096  # subscriptions parsed from text that are cached
REST = 1024  # how many other subscriptions are removed before a position is reused


class _Chunk:
    """A table of subscriptions that were added together, and how many of them were not removed."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.live_rows = table.num_rows


def _complete(table: pa.Table) -> pa.Table:
    """Return the table with all columns of the schema."""
    nothing = pa.nulls(table.num_rows, pa.string())
    return pa.table([table[name] if name in table.column_names else nothing for name in SCHEMA.names], SCHEMA)


def _has_subject_or_structure(table: pa.Table) -> npt.NDArray[np.int32]:
    """Return which rows have a subject or a structure."""
    flags = np.zeros(table.num_rows, np.int32)
    for name in ("subject", "structure"):
        if name in table.column_names and table[name].null_count < table.num_rows:
            flags |= np.asarray(pc.is_valid(table[name])).astype(np.int32)
    return flags


class PositionTable:
    """Assigns a position to each subscription and stores it, with the arrays by position that the kernels read.

    One thread may change it while others read. A freed position is reused only after REST more removals, so that a
    concurrent match can still translate it to the right id.
    """

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._lock = threading.RLock()  # protects the lazy creation of names and positions
        self._names: list[str] | None = []
        self._positions: dict[str, int] | None = {}
        # By position, those added singly: parsed, or as rows.
        self._singles: list[Subscription | dict[str, Any] | None] = []
        self._chunks: dict[int, _Chunk] = {}
        self._parsed_cache: dict[int, Subscription] = {}
        self._free: deque[int] = deque()
        self._size = 0  # positions in use or free
        self._ids: tuple[int, pa.Array] | None = None  # with `_addition_count` when they were made
        self._addition_count = 0  # how often a subscription was given a position
        self.clients = np.zeros(64, np.int32)  # the row of the subscriber's context
        self.programs = np.full(64, NO_FILTER, np.int32)  # the program of its `publishers` filter
        self.spatial_groups = np.zeros(64, np.int32)  # the number of its spatial group, 0 for none
        self.has_subject_or_structure = np.zeros(
            64, np.int32
        )  # whether it has a subject or a structure beside its content
        self._chunk = np.zeros(64, np.int32)
        self._row = np.zeros(64, np.int32)
        self.reuse_count = 0  # how often a position was reused for another subscription
        self.removal_count = 0  # how many subscriptions were removed

    def __len__(self) -> int:
        return self._size - len(self._free)

    @property
    def size(self) -> int:
        """All positions are below this number."""
        return self._size

    @property
    def state(self) -> tuple[int, int]:
        """A value that is the same as long as the same subscriptions have the same positions."""
        return self._addition_count, self.removal_count

    @property
    def names(self) -> list[str]:
        """The id at each position; a free position still has its former id."""
        if self._names is None:
            with self._lock:
                if self._names is None:
                    self._names = self.ids().to_pylist()
        return self._names

    @property
    def positions(self) -> dict[str, int]:
        """The position of each id."""
        if self._positions is None:
            with self._lock:
                if self._positions is None:
                    free = set(self._free)
                    self._positions = {name: at for at, name in enumerate(self.names) if at not in free}
        return self._positions

    def saved(self, write: Callable[[Subscription], dict[str, Any]]) -> tuple[dict[str, Any], pa.Table]:
        """Return everything: arrays, and the subscriptions as a table by position; free positions have empty rows."""
        empty = pa.Table.from_pylist([{"id": ""}], SCHEMA)
        singles = {
            position: subscription for position, subscription in enumerate(self._singles) if subscription is not None
        }
        rows = [
            subscription if isinstance(subscription, dict) else write(subscription) for subscription in singles.values()
        ]
        single_table = pa.Table.from_pylist(rows, SCHEMA)
        tables, table_rows, start = [empty, single_table], np.zeros(self._size, np.int64), 1 + single_table.num_rows
        table_rows[list(singles)] = np.arange(1, start)
        for number, chunk in self._chunks.items():
            in_chunk = np.flatnonzero(self._chunk[: self._size] == number)
            table_rows[in_chunk] = start + self._row[in_chunk]
            tables.append(_complete(chunk.table))
            start += chunk.table.num_rows
        free = np.array(self._free, np.int32)
        table_rows[free] = 0
        arrays = {name: getattr(self, name)[: self._size].copy() for name in ("clients", "programs")}
        arrays |= {"homes": self.spatial_groups[: self._size].copy(), "free": free}
        arrays["programs"][free] = NO_FILTER
        return arrays, pa.concat_tables(tables).take(table_rows)

    def restore(self, array: Callable[[str], Any], table: pa.Table) -> None:
        """Load what `saved` returned. Names and positions are created when they are needed."""
        self._size = table.num_rows
        self._free = deque(array("free").tolist())
        self.clients, self.programs, self.spatial_groups = (
            array(name).copy() for name in ("clients", "programs", "homes")
        )
        self._chunk, self._row = np.zeros(self._size, np.int32), np.arange(self._size, dtype=np.int32)
        if self._size:
            self._chunks = {0: _Chunk(table)}
            self._chunks[0].live_rows = len(self)
        self.has_subject_or_structure = _has_subject_or_structure(table)
        self._ids = self._addition_count, table["id"].combine_chunks()
        self._names = self._positions = None

    def ids(self) -> pa.Array:
        """Return the ids by position as an Arrow array."""
        addition_count, cached = self._addition_count, self._ids
        # `addition_count` was read first: an array made during an insertion counts as outdated.
        if cached is None or cached[0] != addition_count:
            cached = self._ids = addition_count, pa.array(self.names, pa.string())
        return cached[1]

    def __getitem__(self, position: int) -> Subscription:
        """Return the subscription at a position; raise `KeyError` if it was removed a moment ago."""
        chunk = int(self._chunk[position])
        if chunk == _SINGLE:
            single = self._singles[position]
            if isinstance(single, Subscription):
                return single
            if single is None:
                raise KeyError(position)
            return self._parsed(position, lambda: single)
        table, row = self._chunks[chunk].table, int(self._row[position])
        return self._parsed(position, lambda: table.slice(row, 1).to_pylist()[0])

    def _parsed(self, position: int, row: Callable[[], dict[str, Any]]) -> Subscription:
        """Parse a subscription from its row, or return it from a cache: the reference may need it for each event."""
        subscription = self._parsed_cache.get(position)
        if subscription is None:
            subscription = self._read(row())
            if len(self._parsed_cache) >= _PARSED_CACHE_SIZE:
                self._parsed_cache.pop(next(iter(self._parsed_cache)), None)
            self._parsed_cache[position] = subscription
        return subscription

    def add(self, name: str, subscription: Subscription | dict[str, Any], client: int, program: int) -> int:
        """Store a subscription and return its position; the position of a former one with this id must still be freed.

        Args:
            name: The subscription's id.
            subscription: The subscription, or a row that `read` can parse.
            client: The row of the subscriber's context.
            program: The number of the program of its `publishers` filter.
        """
        position = self._allocate(1)[0]
        if position >= len(self._singles):
            self._singles.extend([None] * (position + 1 - len(self._singles)))
        self._singles[position] = subscription
        self._chunk[position] = _SINGLE
        self.clients[position], self.programs[position] = client, program
        self.names[position] = name
        self.positions[name] = position
        self._addition_count += 1
        self.has_subject_or_structure[position] = isinstance(subscription, Subscription) and (
            subscription.subject is not None or subscription.structure is not None
        )
        return position

    def add_many(self, table: pa.Table, names: Sequence[str], clients: Any, programs: Any) -> Any:
        """Store the subscriptions of a table whose rows `read` can parse; return their positions.

        Args:
            table: The subscriptions.
            names: The id of each row.
            clients: For each row the row of the subscriber's context.
            programs: For each row the number of the program of its `publishers` filter.
        """
        number = max(self._chunks, default=-1) + 1
        self._chunks[number] = _Chunk(table)
        positions = self._allocate(len(names))
        at = np.array(positions, np.int32)
        self._chunk[at], self._row[at] = number, np.arange(len(names))
        self.clients[at], self.programs[at], self.has_subject_or_structure[at] = (
            clients,
            programs,
            _has_subject_or_structure(table),
        )
        all_names = self.names
        for position, name in zip(positions, names, strict=True):
            all_names[position] = name
        self.positions.update(zip(names, positions, strict=True))
        self._addition_count += 1
        return at

    def free(self, position: int) -> None:
        """Free a position. Its former id stays readable until the position is reused."""
        self._parsed_cache.pop(position, None)
        chunk = int(self._chunk[position])
        if chunk == _SINGLE:
            self._singles[position] = None
        else:
            self._chunks[chunk].live_rows -= 1
            if not self._chunks[chunk].live_rows:
                del self._chunks[chunk]
        # A concurrent match that found it must not take it for a subscription without a filter.
        self.programs[position], self.spatial_groups[position] = GONE, 0
        self._free.append(position)
        self.removal_count += 1

    def renumber_programs(self, new_numbers: npt.NDArray[np.int32]) -> None:
        """Replace each program's number by its new one; `new_numbers` has the new numbers by the old ones."""
        has_program = self.programs >= 0
        self.programs[has_program] = new_numbers[self.programs[has_program]]

    def _allocate(self, count: int) -> list[int]:
        if count == 1 and len(self._free) <= REST and self._size < len(self.clients):  # the usual case
            self.names.append("")
            self._size += 1
            return [self._size - 1]
        reused = [self._free.popleft() for _ in range(min(count, max(0, len(self._free) - REST)))]
        self.reuse_count += len(reused)
        first, self._size = self._size, self._size + count - len(reused)
        self.names.extend([""] * (self._size - first))
        self._grow()
        return [*reused, *range(first, self._size)]

    def _grow(self) -> None:
        if self._size > len(self.clients):
            for name in ("clients", "programs", "spatial_groups", "has_subject_or_structure", "_chunk", "_row"):
                old = getattr(self, name)
                grown = np.zeros(max(64, 2 * self._size), np.int32)
                grown[: len(old)] = old
                setattr(self, name, grown)

"""Changes of contexts that are known before they are made, and every client's context as each event sees it.

The changes are encoded like the table of contexts, one row for each change, so that programs read a change in the same
way as a client's row.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidings.matching.index.kernels.programs import FLOAT, INT, last_changes
from tidings.model.values import Context

Ints = npt.NDArray[np.int64]
Part = tuple[Any, Any, tuple[Any, Any, Any]]  # the pairs, the row of each, and the table of these rows


class ContextRows(Protocol):
    """What is read of the table of contexts. `Contexts` says what each of these is."""

    columns: dict[str, int]

    @property
    def table(self) -> tuple[Any, Any, Any]: ...
    @property
    def unchanged(self) -> Ints: ...
    def at(self, row: int) -> Context: ...
    def decode(self, table: tuple[Any, Any, Any], row: int) -> Context: ...
    def places(self, rows: Ints, names: tuple[str, ...]) -> npt.NDArray[np.float64]: ...


class PendingContextChanges:
    """A sequence of changes of contexts that come between the events of a table.

    `rows` has the context row of each change's client; `encoded` has kinds, integers and floats by name and change, for
    the columns `places`; `before` has for each event how many of the changes come before it. It is valid until the
    contexts are changed in another way.
    """

    def __init__(self, contexts: ContextRows, rows: Ints, places: Ints, encoded: list[Any], before: Ints) -> None:
        self._contexts = contexts
        self.rows, self.places, self.encoded, self.before = rows, places, encoded, before
        self._table: tuple[Any, Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, events: Any) -> "PendingContextChanges":
        """Return the same changes, between only some of the events."""
        return PendingContextChanges(self._contexts, self.rows, self.places, self.encoded, self.before[events])

    @property
    def table(self) -> tuple[Any, Any, Any]:
        """The changes as kinds, integers and floats: a row for each change, a column for each name."""
        if self._table is None:
            tables = [
                np.zeros((len(self), len(self._contexts.columns)), column_values.dtype)
                for column_values in self.encoded
            ]
            for table, column_values in zip(tables, self.encoded, strict=True):
                table[:, self.places] = column_values.T
            self._table = tables[0], tables[1], tables[2]
        return self._table

    def coordinates(self, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
        """Return the place to which each change moves its client, NaN where a coordinate is not a number."""
        columns = [self._contexts.columns[name] for name in names]
        kind, _, number = (table[:, columns] for table in self.table)
        return np.ascontiguousarray(np.where((kind == INT) | (kind == FLOAT), number, np.nan))

    def positions_before(self, names: tuple[str, ...]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Return the rows of all clients that the changes move, and their places before any change."""
        rows = np.unique(self.rows)
        return rows.astype(np.int32), self._contexts.places(rows, names)

    def at_events(self, event: Any, client: Any) -> "ContextsAtEvents":
        """Return the contexts of clients as events see them: one for each pair, and pairs by ascending event."""
        change = np.empty(len(event), np.int64)
        last_changes(self.rows, self.before, np.ascontiguousarray(event), client, self._contexts.unchanged, change)
        return ContextsAtEvents(self._contexts, client, self, change)


class ContextsAtEvents:
    """Subscribers' contexts as events see them: for each pair, a row of the table of contexts or of a later change."""

    def __init__(
        self, contexts: ContextRows, client: Any, moves: PendingContextChanges | None = None, change: Any = None
    ) -> None:
        self._contexts, self._client, self._moves, self._change = contexts, client, moves, change

    def __len__(self) -> int:
        return len(self._client)

    def parts(self) -> Iterator[Part]:
        """Yield the pairs in groups: which pairs, the row of each, and the table that these rows belong to."""
        if self._moves is None:
            yield slice(None), self._client, self._contexts.table
            return
        for is_in_part, rows, table in (
            (self._change < 0, self._client, self._contexts.table),
            (self._change >= 0, self._change, self._moves.table),
        ):
            at = np.flatnonzero(is_in_part)
            if len(at):
                yield at, rows[at].astype(np.int32), table

    def context(self, pair: int) -> Context:
        """Return the subscriber's context of a pair."""
        if self._moves is not None and self._change[pair] >= 0:
            return self._contexts.decode(self._moves.table, int(self._change[pair]))
        return self._contexts.at(int(self._client[pair]))

    def select(self, pairs: Any) -> "ContextsAtEvents":
        """Return the contexts of only some of the pairs."""
        change = None if self._moves is None else self._change[pairs]
        return ContextsAtEvents(self._contexts, self._client[pairs], self._moves, change)

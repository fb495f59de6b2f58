"""Changes of contexts that lie between events, known before they are made: what everyone's context is at each event.

They are encoded as the table of contexts is, one row a change, so that programs read a change as they read a client.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidings.matching.index.programs import FLOAT, INT, last_changes
from tidings.model.values import Context

if TYPE_CHECKING:
    from tidings.matching.index.contexts import Contexts

Ints = npt.NDArray[np.int64]
Part = tuple[Any, Any, tuple[Any, Any, Any]]  # which pairs, the row of each, and the table that it is a row of


class Moves:
    """`rows` are those of the clients, `encoded` kinds, integers and floats by name and change; the names have the
    columns `places`. So many of the changes come `before` each event.

    It counts as long as nothing else is changed.
    """

    def __init__(self, contexts: "Contexts", rows: Ints, places: Ints, encoded: list[Any], before: Ints) -> None:
        self._contexts = contexts
        self.rows, self.places, self.encoded, self.before = rows, places, encoded, before
        self._table: tuple[Any, Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def those(self, events: Any) -> "Moves":
        """The same changes between some of the events."""
        return Moves(self._contexts, self.rows, self.places, self.encoded, self.before[events])

    @property
    def table(self) -> tuple[Any, Any, Any]:
        """A row a change, a column a name."""
        if self._table is None:
            tables = [np.zeros((len(self), self._contexts.width), one.dtype) for one in self.encoded]
            for table, given in zip(tables, self.encoded, strict=True):
                table[:, self.places] = given.T
            self._table = tables[0], tables[1], tables[2]
        return self._table

    def coordinates(self, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
        """Where each change takes its client, NaN where there is no number."""
        columns = [self._contexts.columns[name] for name in names]
        kind, _, number = (table[:, columns] for table in self.table)
        return np.ascontiguousarray(np.where((kind == INT) | (kind == FLOAT), number, np.nan))

    def back(self, names: tuple[str, ...]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Everyone who moves, and where they are as long as no change is made."""
        rows = np.unique(self.rows)
        return rows.astype(np.int32), self._contexts.places(rows, names)

    def seen(self, event: Any, client: Any) -> "Seen":
        """The contexts of clients at events, pair by pair, by rising event."""
        change = np.empty(len(event), np.int64)
        last_changes(self.rows, self.before, np.ascontiguousarray(event), client, self._contexts.unchanged, change)
        return Seen(self._contexts, client, self, change)


class Seen:
    """Subscribers' contexts, each as one event sees it: that of a row of the table, or of a change since."""

    def __init__(self, contexts: "Contexts", client: Any, moves: Moves | None = None, change: Any = None) -> None:
        self._contexts, self._client, self._moves, self._change = contexts, client, moves, change

    def __len__(self) -> int:
        return len(self._client)

    def parts(self) -> Iterator[Part]:
        if self._moves is None:
            yield slice(None), self._client, self._contexts.table
            return
        for chosen, rows, table in (
            (self._change < 0, self._client, self._contexts.table),
            (self._change >= 0, self._change, self._moves.table),
        ):
            at = np.flatnonzero(chosen)
            if len(at):
                yield at, rows[at].astype(np.int32), table

    def context(self, pair: int) -> Context:
        if self._moves is not None and self._change[pair] >= 0:
            return self._contexts.decoded(self._moves.table, int(self._change[pair]))
        return self._contexts.at(int(self._client[pair]))

    def those(self, pairs: Any) -> "Seen":
        change = None if self._moves is None else self._change[pairs]
        return Seen(self._contexts, self._client[pairs], self._moves, change)

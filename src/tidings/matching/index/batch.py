"""A batch: the events of a table and their contexts, read as far as someone asks; pairs of events and positions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidings.matching.index import programs, tables
from tidings.matching.index.columns import Columns, Events
from tidings.matching.index.contexts import Contexts
from tidings.matching.index.matcher import NOBODY, Positions
from tidings.matching.index.scopes import Others, Scopes
from tidings.model.expression import PAYLOAD
from tidings.model.values import Context

Pairs = tuple[Any, Positions]  # by rising event


class Batch:
    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.size: int = table.num_rows
        self.has_subscribers = tables.SUBSCRIBERS in table.column_names
        self.has_contexts = tables.CONTEXT in table.column_names
        self._column = table[tables.CONTEXT] if self.has_contexts else None
        self._mappings: list[dict[str, Any]] | None = None
        self._contexts: tuple[Any, Others] | None = None  # and what was the case when they were encoded
        self._row: Callable[[int], Mapping[str, Any]] | None = None

    def parts(self, size: int) -> "list[Batch]":
        """The same in batches of this size."""
        return [Batch(self.table.slice(first, size)) for first in range(0, max(1, self.size), size)]

    # Attributes

    def encoded(self, columns: Columns) -> Events:
        """The events for the kernels."""
        if tables.has_rows_of_names(self.table):
            given = tables.attribute_rows(self.table)
            self._row = given.__getitem__
            return columns.encode_rows([tables.with_text(one) for one in given])
        arrays = tables.attribute_columns(self.table)
        self._row = lambda e: tables.row_of(arrays, e)
        texts = {PAYLOAD: tables.as_text(arrays[PAYLOAD])} if PAYLOAD in arrays else {}
        return columns.encode_table({**arrays, **texts}, self.size)

    def row(self, event: int) -> Mapping[str, Any]:
        """One event that was encoded, for the reference."""
        assert self._row is not None  # noqa: S101
        return self._row(event)

    # For whom, and from where

    def subscribers(self) -> list[str | None]:
        """Each event's own filter."""
        return self.table[tables.SUBSCRIBERS].to_pylist()  # type: ignore[no-any-return]

    def context(self, event: int) -> Context:
        """The context of an event's publisher."""
        if self._column is None:
            return Context()
        if self._mappings is None:
            self._mappings = tables.mappings(self._column)
        return Context.of(self._mappings[event])

    def contexts(self, scopes: Scopes) -> Others:
        """All publishers' contexts, for the programs."""
        if self._contexts is None or self._contexts[0] != scopes.state:
            others = self._encoded_contexts(scopes)
            self._contexts = scopes.state, others
        return self._contexts[1]

    def _encoded_contexts(self, scopes: Scopes) -> Others:
        if self._column is None:
            return scopes.publishers_of({}, self.size)
        if pa.types.is_struct(self._column.type):
            return scopes.publishers_of(tables.columns_of(pa.table({"": self._column}), ""), self.size)
        return scopes.publishers([self.context(event) for event in range(self.size)])

    def places(self, scopes: Scopes, everyone: Contexts, names: tuple[str, ...], events: Any) -> Any:
        """Where the publishers of some events are: two coordinates each, NaN where it does not say."""
        kinds, _, floats = (one[events] for one in self.contexts(scopes))
        found = np.zeros((len(events), 2))
        for at, name in enumerate(names):
            column = everyone.columns[name]
            is_number = (kinds[:, column] == programs.INT) | (kinds[:, column] == programs.FLOAT)
            found[:, at] = np.where(is_number, floats[:, column], np.nan)
        return found


def joined(parts: Sequence[Pairs]) -> Pairs:
    """All pairs, by rising event."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.int64), NOBODY
    event, position = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(event, kind="stable")
    return event[order], position[order]


def each(event: Any, position: Positions, change: Callable[[int, Positions], Positions]) -> Pairs:
    """The pairs, with the positions of each event changed."""
    if not len(event):
        return event, position
    starts = np.flatnonzero(np.diff(event, prepend=-1))
    numbers = event[starts]
    found = [change(e, one) for e, one in zip(numbers.tolist(), np.split(position, starts[1:]), strict=True)]
    return np.repeat(numbers, [len(one) for one in found]), np.concatenate([NOBODY, *found])

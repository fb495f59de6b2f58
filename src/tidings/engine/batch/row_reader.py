"""Read the operations of a batch that are processed one by one; their columns are still read together."""

from typing import Any

import numpy as np
import pyarrow as pa

from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.batch.context_changes import UNREADABLE, unreadable_reason
from tidings.engine.batch.json_text import Ints
from tidings.engine.batch.partition import SET_CONTEXT, RowSpan
from tidings.engine.batch.publication_columns import PublicationColumns
from tidings.engine.effects import Reject
from tidings.engine.operations import Operation, SetContext
from tidings.matching.index.arrow_tables import CONTEXT, mappings, whole
from tidings.model.event import Event, checked_client
from tidings.model.values import Context

_FIELDS = journal.Operation.__struct_fields__


class PublicationReader:
    """Remembers for each row of a batch which `PublicationColumns` read its event."""

    def __init__(self, rows: int) -> None:
        self._parts: list[PublicationColumns] = []
        self._part, self._place = np.full(rows, -1), np.zeros(rows, np.int64)

    def note(self, rows: Ints, publications: PublicationColumns) -> None:
        """Record that `publications` has read the events of these rows."""
        self._part[rows], self._place[rows] = len(self._parts), np.arange(len(rows))
        self._parts.append(publications)

    def event(self, row: int) -> Event:
        """Return the event of a row."""
        return self._parts[int(self._part[row])].event(int(self._place[row]))

    def locate(self, rows: Ints) -> list[tuple[PublicationColumns, Ints, Ints]]:
        """Return for each `PublicationColumns`: the events' rows in it, and their positions in `rows`."""
        part, place = self._part[rows], self._place[rows]
        if len(self._parts) == 1:
            return [(self._parts[0], place, np.arange(len(rows)))]
        positions_by_part = ((number, np.flatnonzero(part == number)) for number in np.unique(part).tolist())
        return [(self._parts[number], place[positions], positions) for number, positions in positions_by_part]

    def read_all(self) -> None:
        """Read all events at once, which is faster before many of them are asked for."""
        for publications in self._parts:
            publications.read_all()


class RowReader:
    """Reads the rows of some spans, one operation at a time.

    Args:
        table: The table of the batch.
        given: The spans.
        now: The time of all operations, or None for their timestamps.
        reading: Records which columns have read the events.
    """

    def __init__(self, table: pa.Table, spans: list[RowSpan], now: int | None, reader: PublicationReader) -> None:
        self._now = now
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(span.first, span.end) for span in spans)])
        is_event = np.concatenate([np.empty(0, bool), *(span.is_event for span in spans)])
        self._events: PublicationColumns | None = None
        if is_event.any():
            self._events = PublicationColumns(table.take(pa.array(rows[is_event])), now)
            self._events.read_all()
            reader.note(rows[is_event], self._events)
        self._places = {row: place for place, row in enumerate(rows[is_event].tolist())}
        self._others = {row: place for place, row in enumerate(rows[~is_event].tolist())}
        if self._others:
            self._read(table.take(pa.array(rows[~is_event])))

    def publication(self, row: int) -> tuple[PublicationColumns, int]:
        """Return the columns with the publication of a row, and its row in them."""
        assert self._events is not None  # noqa: S101
        return self._events, self._places[row]

    def time(self, row: int) -> int:
        """Return the time at which the operation of a row is handled."""
        return int(self._times[self._others[row]]) if self._now is None else self._now

    def operation(self, row: int) -> Operation | Reject | None:
        """Return the operation of a row, a `Reject` if it cannot be read, or None for a driver's own record."""
        place = self._others[row]
        if journal_codec.is_aside(self._rows[place]["kind"], self._rows[place]["body"]):
            return None
        try:
            return self._operation(place)
        except UNREADABLE as error:
            return Reject("admit", unreadable_reason(error))

    def _operation(self, place: int) -> Operation:
        fields = self._rows[place]
        client = (
            "" if fields["kind"] in journal_codec.SIGNED else checked_client(fields["client"] or fields["publisher"])
        )
        if fields["kind"] == SET_CONTEXT and fields["body"] is None and self._contexts is not None:
            if pa.types.is_string(self._contexts.type):
                fields = {**fields, "body": self._contexts[place].as_py()}
            else:
                context = Context(mappings(self._contexts.slice(place, 1))[0])
                return SetContext(client, context, fields["id"])
        return journal_codec.operation(journal.Operation(**fields))

    def _read(self, table: pa.Table) -> None:
        self._times = PublicationColumns.times(table)
        operation_columns = table.select([name for name in _FIELDS if name in table.column_names and name != CONTEXT])
        columns: dict[str, list[Any]] = {name: [None] * table.num_rows for name in _FIELDS}
        columns |= {name: operation_columns[name].to_pylist() for name in operation_columns.column_names}
        if "published" in table.column_names:
            is_valid = table["published"].is_valid().to_pylist()
            times = PublicationColumns.times(table, "published").tolist()
            columns["published"] = [time if valid else None for time, valid in zip(times, is_valid, strict=True)]
        self._contexts = whole(table[CONTEXT]) if CONTEXT in table.column_names else None
        if self._contexts is not None and pa.types.is_large_string(self._contexts.type):
            self._contexts = self._contexts.cast(pa.string())
        if self._contexts is not None and pa.types.is_string(self._contexts.type):
            columns[CONTEXT] = self._contexts.to_pylist()
        self._rows = [dict(zip(_FIELDS, values, strict=True)) for values in zip(*columns.values(), strict=True)]

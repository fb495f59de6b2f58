"""Rows of a batch that are taken one by one: they are read together all the same."""

from typing import Any

import numpy as np
import pyarrow as pa

from tidings import journal
from tidings.engine import records
from tidings.engine.batch.contexts import UNREADABLE, unreadable
from tidings.engine.batch.publications import Publications
from tidings.engine.batch.reading import Reading
from tidings.engine.batch.spans import SET_CONTEXT, Span
from tidings.engine.effects import Reject
from tidings.engine.operations import Operation, SetContext
from tidings.matching.index.tables import CONTEXT, mappings, whole
from tidings.model.event import checked_client
from tidings.model.values import Context

_FIELDS = journal.Operation.__struct_fields__


class Singles:
    def __init__(self, table: pa.Table, given: list[Span], now: int | None, reading: Reading) -> None:
        self._now = now
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(one.first, one.end) for one in given)])
        is_event = np.concatenate([np.empty(0, bool), *(one.is_event for one in given)])
        self._events: Publications | None = None
        if is_event.any():
            self._events = Publications(table.take(pa.array(rows[is_event])), now)
            self._events.read_all()
            reading.note(rows[is_event], self._events)
        self._places = {row: place for place, row in enumerate(rows[is_event].tolist())}
        self._others = {row: place for place, row in enumerate(rows[~is_event].tolist())}
        if self._others:
            self._read(table.take(pa.array(rows[~is_event])))

    def publication(self, row: int) -> tuple[Publications, int]:
        assert self._events is not None  # noqa: S101
        return self._events, self._places[row]

    def time(self, row: int) -> int:
        return int(self._times[self._others[row]]) if self._now is None else self._now

    def operation(self, row: int) -> Operation | Reject | None:
        """The operation in a row, which somebody else has written; that there is none; or nothing, where a driver has
        noted something for itself."""
        place = self._others[row]
        if records.is_aside(self._said[place]["kind"], self._said[place]["body"]):
            return None
        try:
            return self._operation(place)
        except UNREADABLE as error:
            return Reject("admit", unreadable(error))

    def _operation(self, place: int) -> Operation:
        said = self._said[place]
        client = "" if said["kind"] in records.SIGNED else checked_client(said["client"] or said["publisher"])
        if said["kind"] == SET_CONTEXT and said["body"] is None and self._contexts is not None:
            if pa.types.is_string(self._contexts.type):
                said = {**said, "body": self._contexts[place].as_py()}
            else:
                context = Context(mappings(self._contexts.slice(place, 1))[0])
                return SetContext(client, context, said["id"])
        return records.operation(journal.Operation(**said))

    def _read(self, table: pa.Table) -> None:
        self._times = Publications.times(table)
        known = table.select([name for name in _FIELDS if name in table.column_names and name != CONTEXT])
        columns: dict[str, list[Any]] = {name: [None] * table.num_rows for name in _FIELDS}
        columns |= {name: known[name].to_pylist() for name in known.column_names}
        if "published" in table.column_names:
            given = table["published"].is_valid().to_pylist()
            times = Publications.times(table, "published").tolist()
            columns["published"] = [time if valid else None for time, valid in zip(times, given, strict=True)]
        self._contexts = whole(table[CONTEXT]) if CONTEXT in table.column_names else None
        if self._contexts is not None and pa.types.is_large_string(self._contexts.type):
            self._contexts = self._contexts.cast(pa.string())
        if self._contexts is not None and pa.types.is_string(self._contexts.type):
            columns[CONTEXT] = self._contexts.to_pylist()
        self._said = [dict(zip(_FIELDS, values, strict=True)) for values in zip(*columns.values(), strict=True)]

"""Batches of events: their attributes and contexts, encoded when they are needed, and pairs of events and positions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidings.matching.index import arrow_tables
from tidings.matching.index.columns import EncodedEvents
from tidings.matching.index.context_filters import Others
from tidings.matching.index.kernels import programs
from tidings.matching.index.segment_matcher import NOBODY, Positions
from tidings.matching.payloads import text_of
from tidings.model.event import Event
from tidings.model.expression import PAYLOAD, PUBLISHER, SUBJECT
from tidings.model.values import Context, Value

Pairs = tuple[Any, Positions]  # event numbers, ascending, and positions


class EventEncoder(Protocol):
    """Encodes attributes of events. `Columns` says what each of these does."""

    numbers: dict[str, int]
    asks_system: bool

    def encode_rows(self, rows: Sequence[Mapping[str, Any]]) -> EncodedEvents: ...
    def encode_table(self, columns: Mapping[str, pa.Array], size: int) -> EncodedEvents: ...


class PublisherContextEncoder(Protocol):
    """Encodes contexts of publishers. `ContextFilterPrograms` says what each of these does."""

    @property
    def state(self) -> tuple[int, int]: ...
    def publishers(self, contexts: Sequence[Mapping[str, Value]]) -> Others: ...
    def publishers_of(self, values: Mapping[str, pa.Array], count: int) -> Others: ...


class EventBatch:
    """The events of an Arrow table, encoded for the kernels on demand."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.size: int = table.num_rows
        self.has_subscribers = arrow_tables.SUBSCRIBERS in table.column_names
        self.has_contexts = arrow_tables.CONTEXT in table.column_names
        self._column = table[arrow_tables.CONTEXT] if self.has_contexts else None
        self._mappings: list[dict[str, Any]] | None = None
        self._contexts: tuple[Any, Others] | None = None  # with the state of the programs when they were encoded
        self._row: Callable[[int], Mapping[str, Any]] | None = None

    def parts(self, size: int) -> "list[EventBatch]":
        """Return the events in batches of at most this size."""
        return [EventBatch(self.table.slice(first, size)) for first in range(0, max(1, self.size), size)]

    # Attributes

    def encoded(self, columns: EventEncoder) -> EncodedEvents:
        """Return the events' attributes as the kernels take them."""
        if arrow_tables.has_rows_of_names(self.table):
            rows = arrow_tables.attribute_rows(self.table)
            self._row = rows.__getitem__
            return columns.encode_rows([arrow_tables.with_text(row) for row in rows])
        arrays = arrow_tables.attribute_columns(self.table)
        self._row = lambda e: arrow_tables.row_of(arrays, e)
        texts = {PAYLOAD: arrow_tables.as_text(arrays[PAYLOAD])} if PAYLOAD in arrays else {}
        return columns.encode_table({**arrays, **texts}, self.size)

    def row(self, event: int) -> Mapping[str, Any]:
        """Return the attributes of one event, for the reference; `encoded` must have been called before."""
        assert self._row is not None  # noqa: S101
        return self._row(event)

    # Context filters and contexts

    def subscribers(self) -> list[str | None]:
        """Return the text of each event's `subscribers` filter."""
        return self.table[arrow_tables.SUBSCRIBERS].to_pylist()  # type: ignore[no-any-return]

    def context(self, event: int) -> Context:
        """Return the publisher's context of an event."""
        if self._column is None:
            return Context()
        if self._mappings is None:
            self._mappings = arrow_tables.mappings(self._column)
        return Context.of(self._mappings[event])

    def contexts(self, filter_programs: PublisherContextEncoder) -> Others:
        """Return the context of each event's publisher, encoded for the compiled context filters."""
        if self._contexts is None or self._contexts[0] != filter_programs.state:
            others = self._encoded_contexts(filter_programs)
            self._contexts = filter_programs.state, others
        return self._contexts[1]

    def _encoded_contexts(self, filter_programs: PublisherContextEncoder) -> Others:
        if self._column is None:
            return filter_programs.publishers_of({}, self.size)
        if pa.types.is_struct(self._column.type):
            return filter_programs.publishers_of(arrow_tables.columns_of(pa.table({"": self._column}), ""), self.size)
        return filter_programs.publishers([self.context(event) for event in range(self.size)])

    def places(
        self, filter_programs: PublisherContextEncoder, columns: Mapping[str, int], names: tuple[str, ...], events: Any
    ) -> Any:
        """Return where the publishers of some events are: two coordinates each, NaN where one is not a number.

        Args:
            filter_programs: The programs, which encode the contexts.
            columns: The column of each name in the contexts.
            names: The names of the coordinates.
            events: The numbers of the events.
        """
        kinds, _, floats = (array[events] for array in self.contexts(filter_programs))
        places = np.zeros((len(events), 2))
        for at, name in enumerate(names):
            column = columns[name]
            is_number = (kinds[:, column] == programs.INT) | (kinds[:, column] == programs.FLOAT)
            places[:, at] = np.where(is_number, floats[:, column], np.nan)
        return places


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Concatenate pairs, sorted by event."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.int64), NOBODY
    event, position = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(event, kind="stable")
    return event[order], position[order]


def each(event: Any, position: Positions, change: Callable[[int, Positions], Positions]) -> Pairs:
    """Call `change` with each event and the positions of its subscriptions; return the new pairs."""
    if not len(event):
        return event, position
    starts = np.flatnonzero(np.diff(event, prepend=-1))
    numbers = event[starts]
    changed = [change(e, part) for e, part in zip(numbers.tolist(), np.split(position, starts[1:]), strict=True)]
    return np.repeat(numbers, [len(part) for part in changed]), np.concatenate([NOBODY, *changed])


class EventList(EventBatch):
    """A batch of events that are in memory as objects."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.size = len(events)
        self.has_contexts = any(event.context for event in events)
        self.has_subscribers = any(event.subscribers is not None for event in events)
        self._contexts = None

    def encoded(self, columns: EventEncoder) -> EncodedEvents:
        if not columns.asks_system:
            return columns.encode_rows([event.attributes for event in self._events])
        has_payload = PAYLOAD in columns.numbers
        return columns.encode_rows([_with_system_attributes(event, has_payload) for event in self._events])

    def row(self, event: int) -> Mapping[str, Any]:
        stored_event = self._events[event]
        return {
            **stored_event.attributes,
            SUBJECT: stored_event.subject,
            PUBLISHER: stored_event.publisher,
            PAYLOAD: stored_event.payload,
        }

    def subscribers(self) -> list[str | None]:
        return [None if event.subscribers is None else str(event.subscribers) for event in self._events]

    def context(self, event: int) -> Context:
        return self._events[event].context

    def _encoded_contexts(self, filter_programs: PublisherContextEncoder) -> Others:
        return filter_programs.publishers([event.context for event in self._events])


def _with_system_attributes(event: Event, has_payload: bool) -> Mapping[str, Any]:
    """Return an event's attributes with the system attributes, the payload as text only if some filter mentions it."""
    text = text_of(event.payload) if has_payload else None
    return {**event.attributes, SUBJECT: event.subject, PUBLISHER: event.publisher, PAYLOAD: text}

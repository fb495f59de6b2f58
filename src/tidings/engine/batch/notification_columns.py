"""The notifications of a batch as columns, a row each; what all copies of an event share is stored once per event."""

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.json_text import Ints
from tidings.engine.batch.transformations import trace_text
from tidings.engine.security import sealed_events
from tidings.engine.state.recipients import RecipientCopies
from tidings.engine.steps.decisions import final_attributes
from tidings.model.event import Event

if TYPE_CHECKING:
    from tidings.engine.batch.publication_columns import PublicationColumns
    from tidings.engine.batch.results import ResultCollector
    from tidings.engine.batch.row_reader import PublicationReader
    from tidings.security.gate import DeliveryGate


class NotificationColumns(NamedTuple):
    """Notifications, sorted by the number of their `event`.

    `subscriptions` is null if the notification is for one subscription. `attributes`, `payload` and `signature` are
    null where they are those of the event.
    """

    event: Ints
    subscription: pa.Array
    subscriber: pa.Array
    subscriptions: pa.Array
    attributes: pa.Array
    payload: pa.Array
    trace: pa.Array
    signature: pa.Array


class NotificationBuilder:
    """Builds the columns of notifications from the copies of a batch, its events and their transformations."""

    def __init__(self, results: "ResultCollector", reader: "PublicationReader", gate: "DeliveryGate | None") -> None:
        self._results, self._reader, self._gate = results, reader, gate

    def build(self, copies: RecipientCopies) -> NotificationColumns:
        """Return the notifications for these copies, a row each."""
        starts, subscriptions = _group_notifications(copies)
        event, shape = copies.event[starts], copies.shape[starts]
        place = pa.array(copies.place[starts])
        own = np.flatnonzero(shape)
        attributes, payload = self._transformed(event[own], shape[own])
        where = np.full(len(event), -1)
        where[own] = np.arange(len(own))
        at = pa.array(where, mask=where < 0)
        traces = pa.array(
            [trace_text(transformation.trace) for transformation in self._results.copies.shapes.distinct], pa.string()
        )
        return NotificationColumns(
            event,
            copies.directory.ids.take(place),
            copies.directory.subscribers.take(place),
            subscriptions,
            attributes.take(at),
            payload.take(at),
            traces.take(pa.array(shape)),
            self._signatures(event[own], shape[own]).take(at),
        )

    def published(self, numbers: Ints) -> tuple[pa.Array, pa.Array]:
        """Return the attributes (JSON) and payloads of the events with these numbers, as published."""
        attributes, payload = self._transformed(numbers, np.zeros(len(numbers), np.int32))
        parts, order = [payload], [np.flatnonzero(numbers >= self._results.rows)]
        parts[0] = payload.take(pa.array(order[0]))
        for publications, rows, positions in self._locate(numbers):
            parts.append(publications.payloads(rows))
            order.append(positions)
        return attributes, _concatenate_in_order(parts, order)

    def seals(self, numbers: Ints) -> tuple[pa.Array, pa.Array]:
        """Return the tokens and signatures of the events with these numbers, as subscribers see them."""
        tokens = [self.event(number).token if is_one else None for number, is_one in self._with_seal_flags(numbers)]
        return pa.array(tokens, pa.binary()), self._signatures(numbers, np.zeros(len(numbers), np.int32))

    def _with_seal_flags(self, numbers: Ints) -> list[tuple[int, bool]]:
        is_sealed = np.zeros(len(numbers), bool)
        for publications, rows, positions in self._locate(numbers):
            is_sealed[positions] = publications.is_sealed[rows]
        return list(zip(numbers.tolist(), is_sealed.tolist(), strict=True))

    def _signatures(self, numbers: Ints, shapes: npt.NDArray[np.int32]) -> pa.Array:
        """Return the signatures of copies, without the salts of attributes that the transformations removed."""
        by_copy: dict[tuple[int, int], bytes | None] = {}
        signatures: list[bytes | None] = []
        for (number, is_sealed), shape in zip(self._with_seal_flags(numbers), shapes.tolist(), strict=True):
            if is_sealed and (number, shape) not in by_copy:
                event = self.event(number)
                changes = self._results.copies.transformation(shape).changes_of(event)
                copy = msgspec.structs.replace(event, attributes=final_attributes(event, changes))
                by_copy[number, shape] = sealed_events.trim_for_subscriber(
                    self._gate, copy, dict(changes.added)
                ).signature
            signatures.append(by_copy.get((number, shape)))
        return pa.array(signatures, pa.binary())

    def event(self, number: int) -> Event:
        """Return the event with this number: that of a row, or a meta-event."""
        if number >= self._results.rows:
            return self._results.meta_events[number - self._results.rows][0]
        return self._reader.event(number)

    def _transformed(self, numbers: Ints, shapes: npt.NDArray[np.int32]) -> tuple[pa.Array, pa.Array]:
        """Return the attributes of transformed events, and their payloads where a transformation makes one."""
        transformations = self._results.copies.shapes.distinct
        makes_payload = np.array(
            [
                transformation.conversion is not None or transformation.payload is not None
                for transformation in transformations
            ],
            bool,
        )
        is_single = makes_payload[shapes] | (numbers >= self._results.rows)
        singles = np.flatnonzero(is_single)
        texts, payloads = self._one_by_one(numbers[singles].tolist(), shapes[singles].tolist())
        others = np.flatnonzero(~is_single)
        parts, order = [texts], [singles]
        for publications, rows, positions in self._locate(numbers[others]):
            parts.append(publications.json_joiner.join(rows, shapes[others[positions]], transformations))
            order.append(others[positions])
        return _concatenate_in_order(parts, order), _concatenate_in_order(
            [payloads, pa.nulls(len(others), pa.binary())], [singles, others]
        )

    def _one_by_one(self, numbers: list[int], shapes: list[int]) -> tuple[pa.Array, pa.Array]:
        """Transform events one by one: meta-events, and copies with a conversion. Equal pairs are transformed once."""
        by_copy: dict[tuple[int, int], tuple[str, bytes | None]] = {}
        for number, shape in zip(numbers, shapes, strict=True):
            if (number, shape) not in by_copy:
                event = self.event(number)
                changes = self._results.copies.transformation(shape).changes_of(event)
                text = msgspec.json.encode(final_attributes(event, changes)).decode()
                by_copy[number, shape] = text, changes.payload if shape else event.payload
        copies = [by_copy[pair] for pair in zip(numbers, shapes, strict=True)]
        return pa.array([text for text, _ in copies], pa.string()), pa.array(
            [payload for _, payload in copies], pa.binary()
        )

    def _locate(self, numbers: Ints) -> "list[tuple[PublicationColumns, Ints, Ints]]":
        """Return for each `PublicationColumns`: the events' rows in it, and their positions in `numbers`."""
        table_positions = np.flatnonzero(numbers < self._results.rows)
        if not len(table_positions):
            return []
        return [
            (publications, rows, table_positions[places])
            for publications, rows, places in self._reader.locate(numbers[table_positions])
        ]


def _group_notifications(copies: RecipientCopies) -> tuple[Ints, pa.Array]:
    """Return the positions at which notifications begin, and the subscriptions of those with notify="client"."""
    count = len(copies.event)
    is_client_subscription = copies.directory.together
    if not is_client_subscription.any():
        return np.arange(count), pa.nulls(count, pa.list_(pa.string()))
    clients = np.asarray(pc.dictionary_encode(copies.directory.subscribers).indices)[copies.place]
    is_grouped = is_client_subscription[copies.place]
    continues = (np.diff(copies.event, prepend=-1) == 0) & (np.diff(clients, prepend=-1) == 0)
    continues[1:] &= is_grouped[1:] & is_grouped[:-1]
    starts = np.flatnonzero(~continues)
    ends = pa.array(np.append(starts, count).astype(np.int32))
    names = copies.directory.ids.take(pa.array(copies.place))
    return starts, pa.ListArray.from_arrays(ends, names, mask=pa.array(~is_grouped[starts]))


def _concatenate_in_order(parts: list[pa.Array], order: list[Ints]) -> pa.Array:
    """Concatenate parts, and move their items to the positions in `order`."""
    where = np.concatenate(order)
    order_back = np.empty(len(where), np.int64)
    order_back[where] = np.arange(len(where))
    items = pa.concat_arrays(parts)
    return items if (order_back == np.arange(len(order_back))).all() else items.take(pa.array(order_back))

"""Notifications of a batch as columns: one row each, and what is the same for all who get an event said once."""

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import sealed
from tidings.engine.batch.shapes import trace_text
from tidings.engine.batch.texts import Ints
from tidings.engine.deciding import final_attributes
from tidings.engine.directory import Addressed
from tidings.model.event import Event

if TYPE_CHECKING:
    from tidings.engine.batch.publications import Publications
    from tidings.engine.batch.reading import Reading
    from tidings.engine.batch.record import Record
    from tidings.security.gate import Gate


class Notes(NamedTuple):
    """By rising `event`. `subscriptions` is null where there is but the one; `attributes`, `payload` and `signature`
    are null where they are those of the event, as it is shown."""

    event: Ints
    subscription: pa.Array
    subscriber: pa.Array
    subscriptions: pa.Array
    attributes: pa.Array
    payload: pa.Array
    trace: pa.Array
    signature: pa.Array


class Gazette:
    """What the events of a batch say, to whom and in which shape."""

    def __init__(self, record: "Record", reading: "Reading", gate: "Gate | None") -> None:
        self._record, self._reading, self._gate = record, reading, gate

    def notes(self, copies: Addressed) -> Notes:
        starts, subscriptions = _together(copies)
        event, shape = copies.event[starts], copies.shape[starts]
        place = pa.array(copies.place[starts])
        own = np.flatnonzero(shape)
        attributes, payload = self._shaped(event[own], shape[own])
        where = np.full(len(event), -1)
        where[own] = np.arange(len(own))
        at = pa.array(where, mask=where < 0)
        traces = pa.array([trace_text(one.trace) for one in self._record.shapes.known], pa.string())
        return Notes(
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
        """Attributes and payloads of events, as they were published."""
        attributes, payload = self._shaped(numbers, np.zeros(len(numbers), np.int32))
        parts, order = [payload], [np.flatnonzero(numbers >= self._record.rows)]
        parts[0] = payload.take(pa.array(order[0]))
        for publications, rows, mine in self._located(numbers):
            parts.append(publications.payloads(rows))
            order.append(mine)
        return attributes, _in_place(parts, order)

    def seals(self, numbers: Ints) -> tuple[pa.Array, pa.Array]:
        """Tokens of events, and their seals as they are shown."""
        tokens = [self.event(number).token if is_one else None for number, is_one in self._are_sealed(numbers)]
        return pa.array(tokens, pa.binary()), self._signatures(numbers, np.zeros(len(numbers), np.int32))

    def _are_sealed(self, numbers: Ints) -> list[tuple[int, bool]]:
        found = np.zeros(len(numbers), bool)
        for publications, rows, mine in self._located(numbers):
            found[mine] = publications.sealed[rows]
        return list(zip(numbers.tolist(), found.tolist(), strict=True))

    def _signatures(self, numbers: Ints, shapes: npt.NDArray[np.int32]) -> pa.Array:
        """The seals of copies, without the salts of what a shape has taken away."""
        made: dict[tuple[int, int], bytes | None] = {}
        found: list[bytes | None] = []
        for (number, is_sealed), shape in zip(self._are_sealed(numbers), shapes.tolist(), strict=True):
            if is_sealed and (number, shape) not in made:
                event = self.event(number)
                given = self._record.shaping(shape).of(event)
                cut = msgspec.structs.replace(event, attributes=final_attributes(event, given))
                made[number, shape] = sealed.handed_out(self._gate, cut, dict(given.added)).signature
            found.append(made.get((number, shape)))
        return pa.array(found, pa.binary())

    def event(self, number: int) -> Event:
        if number >= self._record.rows:
            return self._record.metas[number - self._record.rows][0]
        return self._reading.event(number)

    def _shaped(self, numbers: Ints, shapes: npt.NDArray[np.int32]) -> tuple[pa.Array, pa.Array]:
        """What each shape makes of an event: attributes, and the payload if it makes one."""
        known = self._record.shapes.known
        makes = np.array([one.conversion is not None or one.payload is not None for one in known], bool)
        alone = makes[shapes] | (numbers >= self._record.rows)
        chosen = np.flatnonzero(alone)
        texts, payloads = self._one_by_one(numbers[chosen].tolist(), shapes[chosen].tolist())
        others = np.flatnonzero(~alone)
        parts, order = [texts], [chosen]
        for publications, rows, mine in self._located(numbers[others]):
            parts.append(publications.weaver.woven(rows, shapes[others[mine]], known))
            order.append(others[mine])
        return _in_place(parts, order), _in_place([payloads, pa.nulls(len(others), pa.binary())], [chosen, others])

    def _one_by_one(self, numbers: list[int], shapes: list[int]) -> tuple[pa.Array, pa.Array]:
        """Where a document is made of an event, and meta-events: each pair once."""
        made: dict[tuple[int, int], tuple[str, bytes | None]] = {}
        for number, shape in zip(numbers, shapes, strict=True):
            if (number, shape) not in made:
                event = self.event(number)
                given = self._record.shaping(shape).of(event)
                text = msgspec.json.encode(final_attributes(event, given)).decode()
                made[number, shape] = text, given.payload if shape else event.payload
        found = [made[pair] for pair in zip(numbers, shapes, strict=True)]
        return pa.array([text for text, _ in found], pa.string()), pa.array([one for _, one in found], pa.binary())

    def _located(self, numbers: Ints) -> "list[tuple[Publications, Ints, Ints]]":
        """Where the events of the table among these were read: their rows there, and their places among `numbers`."""
        mine = np.flatnonzero(numbers < self._record.rows)
        if not len(mine):
            return []
        return [(one, rows, mine[places]) for one, rows, places in self._reading.located(numbers[mine])]


def _together(copies: Addressed) -> tuple[Ints, pa.Array]:
    """Where each notification begins: with notify="client" one answers several subscriptions, and lists them."""
    count = len(copies.event)
    together = copies.directory.together
    if not together.any():
        return np.arange(count), pa.nulls(count, pa.list_(pa.string()))
    clients = np.asarray(pc.dictionary_encode(copies.directory.subscribers).indices)[copies.place]
    grouped = together[copies.place]
    goes_on = (np.diff(copies.event, prepend=-1) == 0) & (np.diff(clients, prepend=-1) == 0)
    goes_on[1:] &= grouped[1:] & grouped[:-1]
    starts = np.flatnonzero(~goes_on)
    ends = pa.array(np.append(starts, count).astype(np.int32))
    names = copies.directory.ids.take(pa.array(copies.place))
    return starts, pa.ListArray.from_arrays(ends, names, mask=pa.array(~grouped[starts]))


def _in_place(parts: list[pa.Array], order: list[Ints]) -> pa.Array:
    """The parts together; `order` says where each of their items goes."""
    where = np.concatenate(order)
    back = np.empty(len(where), np.int64)
    back[where] = np.arange(len(where))
    whole = pa.concat_arrays(parts)
    return whole if (back == np.arange(len(back))).all() else whole.take(pa.array(back))

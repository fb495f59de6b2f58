"""The physical rows that workers give: a row an event that concerns somebody, one for each thing that was refused, one
for each meta-event. `views` says what users see of them.

`notes`, and beside them the event's `attributes`, `payload` and seal, are there only where notifications are wanted;
`state` is what a task has to say of itself.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch import Batch
from tidings.journal.record import PUBLISH
from tidings.spark.events import KEY

Ints = npt.NDArray[np.int64]
_MOST = 65_536  # copies that go to Java at a time, about
_TEXT, _IDS = pa.string(), pa.list_(pa.string())
NOTE = pa.struct(
    [
        ("subscription_id", _TEXT),
        ("subscriber", _TEXT),
        ("attributes", _TEXT),
        ("payload", pa.binary()),
        ("trace", _TEXT),
        ("subscriptions", _IDS),
        ("signature", pa.binary()),
    ]
)
SCHEMA = pa.schema(
    [
        ("event_id", _TEXT),
        ("timestamp", pa.int64()),
        ("subscriptions", _IDS),
        ("attributes", _TEXT),
        ("payload", pa.binary()),
        ("notes", pa.list_(NOTE)),
        ("kind", _TEXT),
        ("step", _TEXT),
        ("reason", _TEXT),
        ("meta", _TEXT),
        ("state", _TEXT),
        ("token", pa.binary()),
        ("signature", pa.binary()),
    ]
)
DDL = (
    "event_id string, timestamp bigint, subscriptions array<string>, attributes string, payload binary, "
    "notes array<struct<subscription_id: string, subscriber: string, attributes: string, payload: binary, "
    "trace: string, subscriptions: array<string>, signature: binary>>, "
    "kind string, step string, reason string, meta string, state string, token binary, signature binary"
)


def physical(batch: Batch, table: pa.Table, *, notifications: bool, first: bool) -> pa.Table:
    """Of what came of the rows of a table; what is the same in every shard is said by the `first`."""
    rejected, metas = batch.rejected, batch.meta_events
    if not first:
        rejected = rejected.slice(0, 0)
    ids = pa.concat_arrays([table[KEY].combine_chunks().cast(_TEXT), metas["id"].combine_chunks()])
    times = pa.concat_arrays([table["timestamp"].combine_chunks(), metas["timestamp"].combine_chunks()])
    parts = [
        (_notes if notifications else _matches)(batch, ids, times),
        _rows(
            ids,
            times,
            rejected["event"],
            kind=pc.take(_kinds(table), rejected["event"]),
            step=rejected["step"],
            reason=rejected["reason"],
        ),
        _rows(ids, times, metas["event"], meta=metas["attributes"]),
    ]
    return pa.concat_tables([one for one in parts if one.num_rows] or parts[:1])


def refusals(table: pa.Table, step: str, reason: str | pa.Array) -> pa.Table:
    """Rows that are refused before they come to an engine, all for one reason or each for its own."""
    count = table.num_rows
    ids, times = table[KEY].combine_chunks().cast(_TEXT), table["timestamp"].combine_chunks()
    said = pa.repeat(reason, count) if isinstance(reason, str) else reason
    return _rows(ids, times, pa.array(np.arange(count)), kind=_kinds(table), step=pa.repeat(step, count), reason=said)


def pieces(table: pa.Table) -> list[pa.RecordBatch]:
    """So small that Java takes each in, however many get an event."""
    copies = sum(pc.sum(pc.list_value_length(table[name])).as_py() or 0 for name in ("subscriptions", "notes"))
    rows: list[pa.RecordBatch] = table.to_batches(max_chunksize=max(1, table.num_rows * _MOST // max(copies, 1)))
    return rows


def state_row(text: str) -> pa.Table:
    """What a task says of itself."""
    return pa.table([pa.array([text]) if one.name == "state" else pa.nulls(1, one.type) for one in SCHEMA], SCHEMA)


def _kinds(table: pa.Table) -> pa.Array:
    return table["kind"].combine_chunks() if "kind" in table.column_names else pa.repeat(PUBLISH, table.num_rows)


def _matches(batch: Batch, ids: pa.Array, times: pa.Array) -> pa.Table:
    matches = batch.matches
    event, offsets = _runs(matches["event"].to_numpy(), len(ids))
    names = matches["subscription"].chunk(0).dictionary_decode() if matches.num_rows else pa.nulls(0, _TEXT)
    return _rows(ids, times, event, subscriptions=pa.ListArray.from_arrays(offsets, names))


def _notes(batch: Batch, ids: pa.Array, times: pa.Array) -> pa.Table:
    """What all who get an event are told alike stands beside the notes, once; `views` puts it in where a note has
    nothing of its own."""
    notes = batch.notes()
    event, offsets = _runs(notes.event, len(ids))
    columns = {**notes._asdict(), "subscription_id": notes.subscription}
    made = pa.StructArray.from_arrays([columns[field.name] for field in NOTE], fields=list(NOTE))
    attributes, payload = batch.published(event)
    token, signature = batch.seals(event)
    return _rows(
        ids,
        times,
        event,
        notes=pa.ListArray.from_arrays(offsets, made),
        attributes=attributes,
        payload=payload,
        token=token,
        signature=signature,
    )


def _runs(event: Ints, count: int) -> tuple[Ints, pa.Array]:
    """Of so many events those that have rows, each once, and where its rows begin and end; `event` rises."""
    bounds = np.searchsorted(event, np.arange(count + 1)).astype(np.int32)
    found = np.flatnonzero(bounds[1:] > bounds[:-1])
    return found, pa.array(np.append(bounds[found], bounds[-1]))


def _rows(ids: pa.Array, times: pa.Array, event: Any, **said: pa.Array) -> pa.Table:
    event = pa.array(event) if isinstance(event, np.ndarray) else event
    columns = {"event_id": ids.take(event), "timestamp": times.take(event), **said}
    rows = len(event)
    return pa.table([columns.get(one.name, pa.nulls(rows, one.type)) for one in SCHEMA], schema=SCHEMA)

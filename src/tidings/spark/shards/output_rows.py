"""The physical rows that workers emit: one table for matches, notifications, rejections, meta-events and counters.

A row is an event that matches, a rejection, a meta-event, or (with `state`) the counters of a task. `notes`, and the
event's `attributes`, `payload`, `token` and `signature` beside them, are filled only if notifications are wanted.
`tidings.spark.views` turns physical rows into the DataFrames that users see. `split_rejected` rejects rows before they
reach an engine: unreadable rows, late events, missing times, times in the future.
"""

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine.batch.notification_columns import NotificationColumns
from tidings.journal.record import PUBLISH
from tidings.spark.events import KEY, PROBLEM, SCHEDULED
from tidings.spark.shards.shard_state import ShardCheckpoint

Ints = npt.NDArray[np.int64]
_MAX_COPIES_PER_BATCH = 65_536  # matches or notifications per Arrow batch, about
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


class BatchColumns(Protocol):
    """What is read of a batch. `BatchResult` says what each of these is."""

    @property
    def matches(self) -> pa.Table: ...
    @property
    def rejected(self) -> pa.Table: ...
    @property
    def meta_events(self) -> pa.Table: ...
    def notes(self) -> NotificationColumns: ...
    def published(self, events: Ints) -> tuple[pa.Array, pa.Array]: ...
    def seals(self, events: Ints) -> tuple[pa.Array, pa.Array]: ...


def physical_rows(batch: BatchColumns, table: pa.Table, *, notifications: bool, first: bool) -> pa.Table:
    """Return the physical rows of an `Engine.batch` over `table`.

    Args:
        batch: The result of the batch.
        table: The rows that the engine processed, with their ids in the column `$event`.
        notifications: Whether to fill `notes`, or only `subscriptions`.
        first: Whether to emit rejections, which are the same in every shard.
    """
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
    return pa.concat_tables([table for table in parts if table.num_rows] or parts[:1])


def refusals(table: pa.Table, step: str, reason: str | pa.Array) -> pa.Table:
    """Return physical rows for rows that are rejected before they reach an engine, with one reason or one each."""
    count = table.num_rows
    ids, times = table[KEY].combine_chunks().cast(_TEXT), table["timestamp"].combine_chunks()
    reasons = pa.repeat(reason, count) if isinstance(reason, str) else reason
    return _rows(
        ids, times, pa.array(np.arange(count)), kind=_kinds(table), step=pa.repeat(step, count), reason=reasons
    )


def arrow_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Split physical rows into batches that Java can take, however many matches an event has."""
    copies = sum(pc.sum(pc.list_value_length(table[name])).as_py() or 0 for name in ("subscriptions", "notes"))
    rows: list[pa.RecordBatch] = table.to_batches(
        max_chunksize=max(1, table.num_rows * _MAX_COPIES_PER_BATCH // max(copies, 1))
    )
    return rows


def _kinds(table: pa.Table) -> pa.Array:
    return table["kind"].combine_chunks() if "kind" in table.column_names else pa.repeat(PUBLISH, table.num_rows)


def _matches(batch: BatchColumns, ids: pa.Array, times: pa.Array) -> pa.Table:
    matches = batch.matches
    event, offsets = _runs(matches["event"].to_numpy(), len(ids))
    names = matches["subscription"].chunk(0).dictionary_decode() if matches.num_rows else pa.nulls(0, _TEXT)
    return _rows(ids, times, event, subscriptions=pa.ListArray.from_arrays(offsets, names))


def _notes(batch: BatchColumns, ids: pa.Array, times: pa.Array) -> pa.Table:
    """Return a row per event with its notifications.

    The event's own attributes and payload are stored once, beside the notifications; a notification has its own only
    where rules changed them, and `views` fills in the others.
    """
    notes = batch.notes()
    event, offsets = _runs(notes.event, len(ids))
    columns = {**notes._asdict(), "subscription_id": notes.subscription}
    structs = pa.StructArray.from_arrays([columns[field.name] for field in NOTE], fields=list(NOTE))
    attributes, payload = batch.published(event)
    token, signature = batch.seals(event)
    return _rows(
        ids,
        times,
        event,
        notes=pa.ListArray.from_arrays(offsets, structs),
        attributes=attributes,
        payload=payload,
        token=token,
        signature=signature,
    )


def _runs(event: Ints, count: int) -> tuple[Ints, pa.Array]:
    """Return those of `count` events that occur in `event`, which is sorted, and the bounds of their runs."""
    bounds = np.searchsorted(event, np.arange(count + 1)).astype(np.int32)
    events = np.flatnonzero(bounds[1:] > bounds[:-1])
    return events, pa.array(np.append(bounds[events], bounds[-1]))


def _rows(ids: pa.Array, times: pa.Array, event: Any, **values: pa.Array) -> pa.Table:
    event = pa.array(event) if isinstance(event, np.ndarray) else event
    columns = {"event_id": ids.take(event), "timestamp": times.take(event), **values}
    rows = len(event)
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA)


class TaskCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The counters of a task, or of several; `place` is the checkpoint that a task of a shard has written."""

    shard: int | None = None
    place: ShardCheckpoint | None = None
    events: int = 0  # events processed
    changes: int = 0
    matched: int = 0  # events with a match
    matches: int = 0  # pairs of event and subscription
    rejected: int = 0
    late: int = 0  # rejected as late
    meta_events: int = 0
    latest: int | None = None  # the latest timestamp of a row

    def count_output(self, rows: pa.Table) -> pa.Table:
        """Count physical rows, and return them."""
        for name in ("subscriptions", "notes"):
            lists = rows[name].drop_null()
            self.matched += len(lists)
            self.matches += pc.sum(pc.list_value_length(lists)).as_py() or 0
        self.rejected += len(rows) - rows["step"].null_count
        self.late += pc.sum(pc.equal(rows["step"], "late")).as_py() or 0
        self.meta_events += len(rows) - rows["meta"].null_count
        return rows

    def count_input(self, kinds: pa.ChunkedArray, repeated: pa.Array) -> None:
        """Count input rows by kind, except the kinds `repeated`, which shard 0 counts."""
        counted = kinds.filter(pc.invert(pc.is_in(kinds, repeated))) if len(repeated) else kinds
        events = pc.sum(pc.equal(counted, PUBLISH)).as_py() or 0
        self.events += events
        self.changes += len(counted) - events


def state_row(counts: TaskCounts) -> pa.Table:
    """Return the physical row with the counters of a task, as JSON text."""
    text = msgspec.json.encode(counts).decode()
    return pa.table(
        [pa.array([text]) if field.name == "state" else pa.nulls(1, field.type) for field in SCHEMA], SCHEMA
    )


def total(task_counts: list[TaskCounts]) -> TaskCounts:
    """Return the sums of counters, without a shard and a checkpoint."""
    times = [task.latest for task in task_counts if task.latest is not None]
    counted = ("events", "changes", "matched", "matches", "rejected", "late", "meta_events")
    sums = {name: sum(getattr(task, name) for task in task_counts) for name in counted}
    return TaskCounts(latest=max(times, default=None), **sums)


_LATE = "the event is older than the watermark; a longer `watermark` would have waited for it"
_AHEAD = "the timestamp lies further in the future than `ahead` allows"
_TIMELESS = "there is no timestamp, or none that can be read"


def split_rejected(
    table: pa.Table, *, late_before: int | None = None, latest: int | None = None
) -> tuple[pa.Table, list[pa.Table]]:
    """Split rows into those that the engine processes, and rejections of the others.

    Args:
        table: Events, or changes and events.
        late_before: Earlier events are rejected as `late` (microseconds); earlier changes are not.
        latest: Later rows are rejected (microseconds), except scheduled changes.
    """
    table, refused = _split_problems(table)
    time = table["timestamp"]
    steps = [(pc.is_null(time), "admit", _TIMELESS)]
    if late_before is not None:
        late = pc.less(time, late_before)
        is_event = pc.equal(table["kind"], PUBLISH) if "kind" in table.column_names else True
        steps.append((pc.and_(late, is_event).fill_null(False), "late", _LATE))
    if latest is not None:
        ahead = pc.greater(time, latest)
        if SCHEDULED in table.column_names:
            ahead = pc.and_(ahead, pc.invert(table[SCHEDULED]))
        steps.append((ahead.fill_null(False), "admit", _AHEAD))
    rejecting = [(is_rejected, step, reason) for is_rejected, step, reason in steps if pc.any(is_rejected).as_py()]
    is_good = None
    for is_rejected, step, reason in rejecting:
        refused.append(refusals(table.filter(is_rejected), step, reason))
        is_good = pc.invert(is_rejected) if is_good is None else pc.and_(is_good, pc.invert(is_rejected))
    return (table if is_good is None else table.filter(is_good)), refused


def _split_problems(table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Split off the rows that the source could not read, with the source's reasons."""
    if PROBLEM not in table.column_names:
        return table, []
    problem, table = table[PROBLEM], table.drop_columns([PROBLEM])
    has_problem = pc.is_valid(problem)
    if not pc.any(has_problem).as_py():
        return table, []
    refused = refusals(table.filter(has_problem), "read", problem.drop_null().combine_chunks())
    return table.filter(pc.invert(has_problem)), [refused]

"""What runs on executors: events of a partition through the batch twin of the engine, mapped from a shard's folder.

A worker process keeps the engines that it has used; another version has another folder.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.batch import Batch
from tidings.engine.shelf import taken_down
from tidings.spark.events import KEY, ORDER, SHARD

ROWS = 65_536  # so many at a time
MATCHES = pa.schema(
    [
        ("event_id", pa.string()),
        ("timestamp", pa.int64()),
        ("subscriptions", pa.list_(pa.string())),
        ("step", pa.string()),
        ("reason", pa.string()),
        ("meta", pa.string()),
    ]
)
NOTIFICATIONS = pa.schema(
    [
        ("event_id", pa.string()),
        ("subscription_id", pa.string()),
        ("subscriber", pa.string()),
        ("timestamp", pa.int64()),
        ("attributes", pa.string()),
        ("payload", pa.binary()),
        ("trace", pa.string()),
        ("subscriptions", pa.list_(pa.string())),
    ]
)


@lru_cache(maxsize=4)
def _engine(folder: str, settings: bytes) -> Engine:
    return taken_down(msgspec.json.decode(settings, type=Settings), Path(folder))


class Worker:
    """Called with the batches of a partition, of events that any worker may match: the engine does not change."""

    def __init__(self, folder: str, settings: Settings, *, notifications: bool = False) -> None:
        self._folder, self._settings = folder, msgspec.json.encode(settings)
        self._notifications = notifications

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine = _engine(f"{self._folder}/0", self._settings)
        for table in _gathered(batches):
            yield from self._routed(engine, table, first=True).to_batches()

    def _routed(self, engine: Engine, table: pa.Table, *, first: bool) -> pa.Table:
        """What came of the events; what is the same in every shard is said by the first."""
        batch = engine.batch(table.drop_columns([name for name in (KEY, SHARD, ORDER) if name in table.column_names]))
        if self._notifications:
            return _notified(batch, table[KEY], table["timestamp"])
        return _matched(batch, table, first=first)


class ShardWorker(Worker):
    """Called with all rows of a shard in their order: changes and events. The engine lives as long as the task."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine, number = None, -1
        for table in _gathered(batches):
            for shard in pc.unique(table[SHARD]).to_pylist():
                if shard != number:
                    settings = msgspec.json.decode(self._settings, type=Settings)
                    engine, number = taken_down(settings, Path(self._folder) / str(shard)), shard
                if engine is not None:
                    rows = table.filter(pc.equal(table[SHARD], shard))
                    yield from self._routed(engine, rows, first=shard == 0).to_batches()


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's batches are small: some of them together are faster."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _matched(batch: Batch, table: pa.Table, *, first: bool) -> pa.Table:
    """A row an event that concerns somebody, one for each that was refused, and one for each meta-event."""
    matches, rejected, metas = batch.matches, batch.rejected, batch.meta_events
    if not first:
        rejected = rejected.slice(0, 0)
    ids = pa.concat_arrays([table[KEY].combine_chunks().cast(pa.string()), metas["id"].combine_chunks()])
    times = pa.concat_arrays([table["timestamp"].combine_chunks(), metas["timestamp"].combine_chunks()])
    event = matches["event"].to_numpy()
    starts = np.flatnonzero(np.diff(event, prepend=-1)) if len(event) else np.empty(0, np.int64)
    offsets = pa.array(np.append(starts, len(event)).astype(np.int32))
    subscriptions = pc.cast(matches["subscription"], pa.string()).combine_chunks()
    found = pa.array(event[starts])
    nothing = pa.nulls(len(found), pa.string())
    parts = [
        pa.table(
            [ids.take(found), times.take(found), pa.ListArray.from_arrays(offsets, subscriptions), *[nothing] * 3],
            schema=MATCHES,
        ),
        _others(ids, times, rejected["event"], step=rejected["step"], reason=rejected["reason"]),
        _others(ids, times, metas["event"], meta=metas["attributes"]),
    ]
    return pa.concat_tables([one for one in parts if one.num_rows] or parts[:1])


def _others(ids: pa.Array, times: pa.Array, event: pa.ChunkedArray, **said: pa.ChunkedArray) -> pa.Table:
    columns = {"event_id": ids.take(event), "timestamp": times.take(event), **said}
    rows = len(event)
    return pa.table([columns.get(one.name, pa.nulls(rows, one.type)) for one in MATCHES], schema=MATCHES)


def _notified(batch: Batch, keys: pa.ChunkedArray, timestamps: pa.ChunkedArray) -> pa.Table:
    notes, metas = batch.notifications(), batch.meta_events
    ids = pa.concat_arrays([keys.combine_chunks().cast(pa.string()), metas["id"].combine_chunks()])
    times = pa.concat_arrays([timestamps.combine_chunks(), metas["timestamp"].combine_chunks()])
    event = notes["event"]
    columns = {
        "event_id": ids.take(event),
        "subscription_id": notes["subscription"],
        "subscriber": notes["subscriber"],
        "timestamp": times.take(event),
        **{name: notes[name] for name in ("attributes", "payload", "trace", "subscriptions")},
    }
    return pa.table([columns[one.name] for one in NOTIFICATIONS], schema=NOTIFICATIONS)

"""Run a shard's changes and events through `Engine.batch` on an executor, in the order of time.

In a stream, a task loads the shard's state from the checkpoint of the micro-batch before and writes a new version. In
`route`, it starts from the base and stores nothing.

With a watermark, an event that is late by less than the watermark must be matched with the state of its time. So a task
works in two parts:

1. Rows up to the previous watermark (`ShardTask.final_until`) are final: earlier events are rejected as late, and
   earlier changes take effect at the watermark. Changes among these rows are stored in the new version.
2. Rows after it are provisional. At the end of the task they go through the engine, so that their results are emitted
   in this batch, but their changes stay pending in the new version, marked `$told`. The next batch applies them again,
   merged with rows that arrived late, and emits only what has not been reported. The engine is then ahead of the
   version, so its state is not cached.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.journal.record import PUBLISH
from tidings.spark.events import EVERYWHERE, KEY, ORDER, REPORTED, SCHEDULED, SHARD
from tidings.spark.shards.output_rows import TaskCounts, arrow_batches, physical_rows, split_rejected, state_row
from tidings.spark.shards.shard_state import ROW, ShardCheckpoint, ShardState, ShardStateCache, as_changes, merge_rows
from tidings.spark.shards.stateless_worker import combine_batches
from tidings.spark.shards.trusted_keys import TrustedKeys

ROWS = 65_536  # at least, per engine call: longer runs of changes and of events are faster
shard_states = ShardStateCache()  # of this worker process, for the next micro-batch


class ShardTask(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of one micro-batch of a stream have in common."""

    checkpoints: list[ShardCheckpoint]
    folder: str  # where the versions of all shards are written
    batch: int
    late_before: int = 0  # earlier events are late (microseconds)
    final_until: int | None = None  # rows up to this time are final (microseconds); None: all rows are
    latest: int | None = None  # later rows are rejected (microseconds)


class ShardWorker:
    """The function for `mapInArrow` that processes all rows of some shards: changes and events, in order."""

    def __init__(
        self,
        folder: str,
        settings: Settings,
        *,
        task: ShardTask | None = None,
        spread_contexts: bool = False,
        notifications: bool = False,
        trust: TrustedKeys | None = None,
    ) -> None:
        """Create the worker; it is pickled and sent to the executors.

        Args:
            folder: The folder of the registry; unused with `task`.
            settings: The engine's settings.
            task: The micro-batch of a stream; None in `route`.
            spread_contexts: Whether all shards get all contexts, and events get the contexts of their publishers.
            notifications: Whether to emit notifications with attributes, or only matches.
            trust: The keys with which sealed events are checked, or None.
        """
        self._folder, self._settings, self._task, self._trust = folder, msgspec.json.encode(settings), task, trust
        self._spread_contexts, self._notifications = spread_contexts, notifications

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run, number = None, -1
        for table in combine_batches(batches, ROWS):
            for shard in pc.unique(table[SHARD]).to_pylist():
                if run is None or shard != number:
                    yield from () if run is None else _batches(run.end())
                    run, number = self._run(shard), shard
                yield from _batches(run.process(table.filter(pc.equal(table[SHARD], shard)).drop_columns([SHARD])))
        if run is not None:
            yield from _batches(run.end())

    def _run(self, shard: int) -> "_Run":
        settings = msgspec.json.decode(self._settings, type=Settings)
        place = ShardCheckpoint(f"{self._folder}/{shard}") if self._task is None else self._task.checkpoints[shard]
        repeated = [] if shard == 0 else [*EVERYWHERE, *(["set_context"] if self._spread_contexts else [])]
        return _Run(
            settings, place, shard, self._task, repeated, self._spread_contexts, self._notifications, self._trust
        )


class _Run:
    """The processing of one shard in one task."""

    def __init__(
        self,
        settings: Settings,
        checkpoint: ShardCheckpoint,
        shard: int,
        task: ShardTask | None,
        repeated: list[str],
        fills_contexts: bool,
        notifications: bool,
        trust: TrustedKeys | None,
    ) -> None:
        self._checkpoint, self._shard, self._task = checkpoint, shard, task
        self._repeated = pa.array(repeated, pa.string())  # kinds of rows that every shard gets and shard 0 counts
        self._fills_contexts, self._notifications = fills_contexts, notifications
        cached = None if task is None else shard_states.take(task.folder, shard)
        self._state = ShardState.at_checkpoint(settings, checkpoint, cached, trust)
        self._counts = TaskCounts(shard=shard)
        self._final_changes: list[pa.Table] = []  # final changes
        self._provisional_rows: list[pa.Table] = []  # provisional rows

    def process(self, table: pa.Table) -> Iterator[pa.Table]:
        """Process the next rows of the shard, which are not earlier than those before, and yield physical rows."""
        self._counts.count_input(table["kind"], self._repeated)
        limits = {} if self._task is None else {"late_before": self._task.late_before, "latest": self._task.latest}
        table, refused = split_rejected(table, **limits)
        yield from (self._count_rows(rows) for rows in refused)
        scheduled = table[SCHEDULED]
        if pc.any(scheduled).as_py():
            self._state.pending = merge_rows(self._state.pending, as_changes(table.filter(scheduled)))
            table = table.filter(pc.invert(scheduled))
        if table.num_rows == 0:
            return
        self._counts.latest = table["timestamp"][-1].as_py()
        table = self._state.with_due(table)
        final_until = None if self._task is None else self._task.final_until
        if final_until is not None:
            count = int(np.searchsorted(np.asarray(table["timestamp"]), final_until, side="right"))
            self._provisional_rows.append(table.slice(count))
            table = table.slice(0, count)
        yield from self._process(table, is_final=True)

    def end(self) -> Iterator[pa.Table]:
        """Process the provisional rows, write the new version, and yield the last physical rows."""
        provisional = (
            pa.concat_tables(self._provisional_rows, promote_options="default") if self._provisional_rows else None
        )
        if self._task is None:
            return
        folder = Path(self._task.folder) / str(self._task.batch) / f"{self._shard}-{uuid4().hex}"
        changes = pa.concat_tables(self._final_changes) if self._final_changes else ROW.empty_table()
        base = self._state.write_base(folder, self._checkpoint, changes.num_rows)
        pending = ROW.empty_table()
        if provisional is not None:
            pending = as_changes(provisional.filter(pc.not_equal(provisional["kind"], PUBLISH)), reported=True)
            yield from self._process(provisional, is_final=False)
        if pending.num_rows:
            self._state.pending = merge_rows(self._state.pending, pending)
        if base or changes.num_rows or self._state.has_changed():
            self._checkpoint = self._state.write(folder, self._checkpoint, changes, base)
        if pending.num_rows == 0:  # else the engine is ahead of the version
            shard_states.put(self._task.folder, self._shard, self._state)
        self._counts.place = self._checkpoint
        yield state_row(self._counts)

    def _process(self, table: pa.Table, *, is_final: bool) -> Iterator[pa.Table]:
        if table.num_rows == 0:
            return
        engine = self._state.engine
        operations = table.drop_columns(
            [name for name in (KEY, ORDER, SCHEDULED, REPORTED) if name in table.column_names]
        )
        batch = engine.batch(with_contexts(operations, engine) if self._fills_contexts else operations)
        if is_final and self._task is not None:
            is_applied = np.asarray(pc.not_equal(table["kind"], PUBLISH)).copy()
            is_applied[batch.rejected["event"].to_numpy()] = False
            changes = as_changes(table.filter(pa.array(is_applied)))
            self._state.record_policies(changes)
            self._final_changes.append(changes)
        rows = physical_rows(batch, table, notifications=self._notifications, first=True)
        yield self._count_rows(
            rows if REPORTED not in table.column_names else _drop_reported(rows, batch.meta_events, table)
        )

    def _count_rows(self, rows: pa.Table) -> pa.Table:
        """Drop the rejections that shard 0 emits, and count the other rows."""
        if len(self._repeated):
            is_repeated = pc.and_(pc.is_valid(rows["step"]), pc.is_in(rows["kind"], self._repeated))
            rows = rows.filter(pc.invert(is_repeated))
        return self._counts.count_output(rows)


def _drop_reported(rows: pa.Table, metas: pa.Table, table: pa.Table) -> pa.Table:
    """Drop the rejections and meta-events of changes that an earlier batch has reported."""
    reported_rows = np.flatnonzero(np.asarray(table[REPORTED].fill_null(False)))
    if len(reported_rows) == 0:
        return rows
    reported_meta_events = metas["id"].filter(pc.is_in(metas["cause"], pa.array(reported_rows)))
    reported = table.take(pa.array(reported_rows))
    refused = pc.is_in(_change_keys(rows, "event_id"), _change_keys(reported, KEY).combine_chunks())
    is_reported = pc.or_(pc.is_in(rows["event_id"], reported_meta_events), pc.and_(pc.is_valid(rows["step"]), refused))
    return rows.filter(pc.invert(is_reported.fill_null(False)))


def _change_keys(rows: pa.Table, key: str) -> pa.ChunkedArray:
    """Return a text that identifies the change which a row is about."""
    return pc.binary_join_element_wise(
        rows[key], rows["kind"], rows["timestamp"].cast(pa.string()), " ", null_handling="replace"
    )


def _batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from arrow_batches(table)


_NONE = -1


def with_contexts(table: pa.Table, engine: Engine) -> pa.Table:
    """Return the rows with a column `context`: for each event, the last context that its publisher set before it.

    If the publisher set none in these rows, it is the context in the engine. The rows must be in order.
    """
    is_event = np.asarray(pc.equal(table["kind"], PUBLISH))
    is_context = np.asarray(pc.equal(table["kind"], "set_context"))
    owners = pc.if_else(pa.array(is_event), table["publisher"], table["client"]).combine_chunks().dictionary_encode()
    codes = np.asarray(owners.indices.fill_null(len(owners.dictionary)))
    # Sort by owner, stable in time: the last change at or before a row is then a running maximum of positions.
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=_NONE))
    begins = np.repeat(first, np.diff(np.append(first, len(order))))
    places = np.where(is_context[order], np.arange(len(order)), _NONE)
    last = np.maximum.accumulate(places)
    source = np.full(len(order), _NONE)
    source[order] = np.where(last >= begins, order[last], _NONE)
    before = _engine_contexts(owners.dictionary.to_pylist(), engine)
    set_here = table["body"].combine_chunks().take(pa.array(source, mask=source == _NONE))
    context = pc.coalesce(set_here, before.take(owners.indices))
    contexts = pc.if_else(pa.array(is_event), context, pa.scalar(None, pa.string()))
    return table.append_column("context", contexts)


def _engine_contexts(owners: list[str | None], engine: Engine) -> pa.Array:
    """Return the owners' contexts in the engine, before these rows, as JSON text."""
    contexts = [engine.state.contexts.local.get(owner) if owner is not None else None for owner in owners]
    return pa.array(
        [None if context is None else msgspec.json.encode(context).decode() for context in contexts], pa.string()
    )

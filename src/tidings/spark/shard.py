"""A task of a shard: changes and events in the order of time through the batch twin of the engine.

In a stream the shard goes on from where the batch before left it, and leaves where it has come to; `route` starts at
the base and leaves nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Settings
from tidings.engine.batch import Batch
from tidings.journal.record import PUBLISH
from tidings.spark.events import EVERYWHERE, KEY, ORDER, SCHEDULED, SHARD, TOLD
from tidings.spark.judging import judged
from tidings.spark.physical import physical, pieces, state_row
from tidings.spark.publishers import with_contexts
from tidings.spark.standing import ROW, Place, Standing, Standings, as_changes, merged
from tidings.spark.tally import Tally
from tidings.spark.trust import Trust
from tidings.spark.worker import gathered

ROWS = 65_536  # at a time, at least: stretches of changes and events are the faster the longer they are
standings = Standings()  # of this process: what the next batch of a stream begins with


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of a stream asks of its shards."""

    places: list[Place]
    folder: str  # of the pipeline's state
    batch: int
    late_before: int = 0  # events of before then are late (microseconds)
    settled: int | None = None  # changes up to then are for good; None: whatever has come
    latest: int | None = None  # nobody publishes later than that


class ShardWorker:
    """Called with all rows of a shard in their order: changes and events."""

    def __init__(
        self,
        folder: str,
        settings: Settings,
        *,
        task: Task | None = None,
        spread_contexts: bool = False,
        notifications: bool = False,
        trust: Trust | None = None,
    ) -> None:
        self._folder, self._settings, self._task, self._trust = folder, msgspec.json.encode(settings), task, trust
        self._spread_contexts, self._notifications = spread_contexts, notifications

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run, number = None, -1
        for table in gathered(batches, ROWS):
            for shard in pc.unique(table[SHARD]).to_pylist():
                if run is None or shard != number:
                    yield from () if run is None else _batches(run.end())
                    run, number = self._run(shard), shard
                yield from _batches(run.go_on(table.filter(pc.equal(table[SHARD], shard)).drop_columns([SHARD])))
        if run is not None:
            yield from _batches(run.end())

    def _run(self, shard: int) -> "_Run":
        settings = msgspec.json.decode(self._settings, type=Settings)
        place = Place(f"{self._folder}/{shard}") if self._task is None else self._task.places[shard]
        repeated = [] if shard == 0 else [*EVERYWHERE, *(["set_context"] if self._spread_contexts else [])]
        return _Run(
            settings, place, shard, self._task, repeated, self._spread_contexts, self._notifications, self._trust
        )


class _Run:
    """One shard, once through."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        shard: int,
        task: Task | None,
        repeated: list[str],
        fills_contexts: bool,
        notifications: bool,
        trust: Trust | None,
    ) -> None:
        self._place, self._shard, self._task = place, shard, task
        self._repeated = pa.array(repeated, pa.string())  # kinds of rows that another shard counts
        self._fills_contexts, self._notifications = fills_contexts, notifications
        held = None if task is None else standings.take(task.folder, shard)
        self._standing = Standing.reached(settings, place, held, trust)
        self._tally = Tally(shard=shard)
        self._made: list[pa.Table] = []  # changes that are for good
        self._open: list[pa.Table] = []  # rows behind what is settled

    def go_on(self, table: pa.Table) -> Iterator[pa.Table]:
        """Some more rows, later than all before."""
        self._tally.see(table["kind"], self._repeated)
        limits = {} if self._task is None else {"late_before": self._task.late_before, "latest": self._task.latest}
        table, refused = judged(table, **limits)
        yield from (self._told(one) for one in refused)
        scheduled = table[SCHEDULED]
        if pc.any(scheduled).as_py():
            self._standing.pending = merged(self._standing.pending, as_changes(table.filter(scheduled)))
            table = table.filter(pc.invert(scheduled))
        if table.num_rows == 0:
            return
        self._tally.latest = table["timestamp"][-1].as_py()
        table = self._standing.with_due(table)
        settled = None if self._task is None else self._task.settled
        if settled is not None:
            count = int(np.searchsorted(np.asarray(table["timestamp"]), settled, side="right"))
            self._open.append(table.slice(count))
            table = table.slice(0, count)
        yield from self._routed(table, for_good=True)

    def end(self) -> Iterator[pa.Table]:
        """Goes on to what is not settled yet, and leaves how far the shard has come for good."""
        behind = pa.concat_tables(self._open, promote_options="default") if self._open else None
        if self._task is None:
            return
        folder = Path(self._task.folder) / str(self._task.batch) / f"{self._shard}-{uuid4().hex}"
        changes = pa.concat_tables(self._made) if self._made else ROW.empty_table()
        base = self._standing.rebased(folder, self._place, changes.num_rows)
        later = ROW.empty_table()
        if behind is not None:
            later = as_changes(behind.filter(pc.not_equal(behind["kind"], PUBLISH)), told=True)
            yield from self._routed(behind, for_good=False)
        if later.num_rows:
            self._standing.pending = merged(self._standing.pending, later)
        if base or changes.num_rows or self._standing.has_moved():
            self._place = self._standing.write(folder, self._place, changes, base)
        if later.num_rows == 0:  # else the engine is ahead of what was left
            standings.put(self._task.folder, self._shard, self._standing)
        self._tally.place = self._place
        yield state_row(self._tally.text())

    def _routed(self, table: pa.Table, *, for_good: bool) -> Iterator[pa.Table]:
        if table.num_rows == 0:
            return
        engine = self._standing.engine
        given = table.drop_columns([name for name in (KEY, ORDER, SCHEDULED, TOLD) if name in table.column_names])
        batch = engine.batch(with_contexts(given, engine) if self._fills_contexts else given)
        if for_good and self._task is not None:
            made = np.asarray(pc.not_equal(table["kind"], PUBLISH)).copy()
            made[batch.rejected["event"].to_numpy()] = False
            changes = as_changes(table.filter(pa.array(made)))
            self._standing.note(changes)
            self._made.append(changes)
        made_of = physical(batch, table, notifications=self._notifications, first=True)
        yield self._told(made_of if TOLD not in table.column_names else _news(made_of, batch, table))

    def _told(self, rows: pa.Table) -> pa.Table:
        """Without the refusals that another shard tells."""
        if len(self._repeated):
            again = pc.and_(pc.is_valid(rows["step"]), pc.is_in(rows["kind"], self._repeated))
            rows = rows.filter(pc.invert(again))
        return self._tally.add(rows)


def _news(rows: pa.Table, batch: Batch, table: pa.Table) -> pa.Table:
    """Without what followed from changes that an earlier batch has met."""
    told = np.flatnonzero(np.asarray(table[TOLD].fill_null(False)))
    if len(told) == 0:
        return rows
    metas = batch.meta_events
    again = metas["id"].filter(pc.is_in(metas["cause"], pa.array(told)))
    before = table.take(pa.array(told))
    refused = pc.is_in(_name(rows, "event_id"), _name(before, KEY).combine_chunks())
    known = pc.or_(pc.is_in(rows["event_id"], again), pc.and_(pc.is_valid(rows["step"]), refused))
    return rows.filter(pc.invert(known.fill_null(False)))


def _name(rows: pa.Table, key: str) -> pa.ChunkedArray:
    """Which change a row is about."""
    return pc.binary_join_element_wise(
        rows[key], rows["kind"], rows["timestamp"].cast(pa.string()), " ", null_handling="replace"
    )


def _batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from pieces(table)

"""Run `Engine.batch` on executors over events that any worker may match, because nothing changes.

A worker process caches the engines of the shards that it has mapped; a new version of a shard has a new folder.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.mapped_table import load
from tidings.spark.events import KEY, ORDER, SHARD
from tidings.spark.shards.output_rows import TaskCounts, arrow_batches, physical_rows, split_rejected, state_row
from tidings.spark.shards.trusted_keys import TrustedKeys, shared_gate

ROWS = 8_192  # at least, per engine call; the results of many more rows would not fit the processor's caches


@lru_cache(maxsize=2)
def _engine(folder: str, settings: bytes, trust: TrustedKeys | None) -> Engine:
    gate = None if trust is None else shared_gate(trust)
    return load(msgspec.json.decode(settings, type=Settings), Path(folder), gate=gate)


class StatelessWorker:
    """The function for `mapInArrow` that matches the events of a partition. The engine's state does not change."""

    def __init__(
        self,
        folder: str,
        settings: Settings,
        *,
        notifications: bool = False,
        emits_counts: bool = False,
        latest: int | None = None,
        trust: TrustedKeys | None = None,
    ) -> None:
        """Create the worker of the shards in `folder`; it is pickled and sent to the executors.

        Args:
            folder: The folder of the registry.
            settings: The engine's settings.
            notifications: Whether to emit notifications with attributes, or only matches.
            emits_counts: Whether a task ends with a row of its counters.
            latest: Later events are rejected (microseconds).
            trust: The keys with which tokens and sealed events are checked, or None.
        """
        self._folder, self._settings = folder, msgspec.json.encode(settings)
        self._notifications, self._emits_counts, self._latest, self._trust = notifications, emits_counts, latest, trust

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = TaskCounts()
        engine, number = None, -1
        for table in combine_batches(batches):
            for shard in pc.unique(table[SHARD]).to_pylist() if SHARD in table.column_names else (0,):
                if engine is None or shard != number:
                    engine, number = self._engine(shard), shard
                rows = table.filter(pc.equal(table[SHARD], shard)) if SHARD in table.column_names else table
                counts.events += rows.num_rows if shard == 0 else 0  # a pipeline without changes has one shard
                good, refused = split_rejected(rows, latest=self._latest)
                for output in (*(refused if shard == 0 else ()), self._process(engine, good, first=shard == 0)):
                    yield from arrow_batches(counts.count_output(output))
        if self._emits_counts:
            yield from state_row(counts).to_batches()

    def _engine(self, shard: int) -> Engine:
        folder = f"{self._folder}/{shard}"
        engine = _engine(folder, self._settings, self._trust)
        if engine.state.rules.on_publications:  # else the next task would not report a conflict again
            engine = load(engine.state.settings, Path(folder), gate=engine.gate)
        return engine

    def _process(self, engine: Engine, table: pa.Table, *, first: bool) -> pa.Table:
        """Return the physical rows of some events; the `first` shard emits rejections, which are the same in all."""
        batch = engine.batch(table.drop_columns([name for name in (KEY, SHARD, ORDER) if name in table.column_names]))
        return physical_rows(batch, table, notifications=self._notifications, first=first)


def combine_batches(batches: Iterator[pa.RecordBatch], at_least: int = ROWS) -> Iterator[pa.Table]:
    """Combine Spark's small batches into tables of at least `at_least` rows, the last one excepted."""
    collected: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        collected.append(batch)
        rows += batch.num_rows
        if rows >= at_least:
            yield pa.Table.from_batches(collected)
            collected, rows = [], 0
    if rows:
        yield pa.Table.from_batches(collected)

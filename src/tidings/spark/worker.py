"""What runs on executors: events of a partition through the batch twin of the engine, mapped from a shard's folder.

A worker process keeps the engines that it has used; another version has another folder.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.engine import Engine, Settings
from tidings.engine.shelf import taken_down
from tidings.spark.events import KEY, ORDER, SHARD
from tidings.spark.judging import judged
from tidings.spark.physical import physical, pieces, state_row
from tidings.spark.tally import Tally
from tidings.spark.trust import Trust, shared_gate

ROWS = 8_192  # at a time, at least: with many matches an event, what follows from more does not fit the caches


@lru_cache(maxsize=2)
def _engine(folder: str, settings: bytes, trust: Trust | None) -> Engine:
    gate = None if trust is None else shared_gate(trust)
    return taken_down(msgspec.json.decode(settings, type=Settings), Path(folder), gate=gate)


class Worker:
    """Called with the batches of a partition, of events that any worker may match: the engine does not change."""

    def __init__(
        self,
        folder: str,
        settings: Settings,
        *,
        notifications: bool = False,
        tallies: bool = False,
        latest: int | None = None,
        trust: Trust | None = None,
    ) -> None:
        """With `tallies`, a task ends with a row that says what it has done. Nobody publishes later than `latest`. With
        `trust`, sealed events and tokens are checked."""
        self._folder, self._settings = folder, msgspec.json.encode(settings)
        self._notifications, self._tallies, self._latest, self._trust = notifications, tallies, latest, trust

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally()
        engine, number = None, -1
        for table in gathered(batches):
            for shard in pc.unique(table[SHARD]).to_pylist() if SHARD in table.column_names else (0,):
                if engine is None or shard != number:
                    engine, number = self._engine(shard), shard
                rows = table.filter(pc.equal(table[SHARD], shard)) if SHARD in table.column_names else table
                tally.events += rows.num_rows if shard == 0 else 0  # every event comes to it, too
                good, refused = judged(rows, latest=self._latest)
                for told in (*(refused if shard == 0 else ()), self._routed(engine, good, first=shard == 0)):
                    yield from pieces(tally.add(told))
        if self._tallies:
            yield from state_row(tally.text()).to_batches()

    def _engine(self, shard: int) -> Engine:
        folder = f"{self._folder}/{shard}"
        engine = _engine(folder, self._settings, self._trust)
        if engine.rules:  # what has been told would be remembered by the next task
            engine = taken_down(engine.settings, Path(folder), gate=engine.gate)
        return engine

    def _routed(self, engine: Engine, table: pa.Table, *, first: bool) -> pa.Table:
        """What came of the events; what is the same in every shard is said by the first."""
        batch = engine.batch(table.drop_columns([name for name in (KEY, SHARD, ORDER) if name in table.column_names]))
        return physical(batch, table, notifications=self._notifications, first=first)


def gathered(batches: Iterator[pa.RecordBatch], at_least: int = ROWS) -> Iterator[pa.Table]:
    """Spark's batches are small: some of them together are faster."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= at_least:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)

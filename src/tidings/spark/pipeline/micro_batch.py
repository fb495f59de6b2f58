"""Process one micro-batch of a stream: route its rows, store the results, write the ledger, call the sinks.

A micro-batch that is repeated after a crash gives the same results: it starts from the ledger's entry before it, every
task attempt writes to folders of its own, and the batch's entry names those that count. If the entry exists already,
only the sinks are called again.
"""

import datetime as dt
import shutil
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.spark.pipeline.ledger import Ledger, LedgerEntry
from tidings.spark.pipeline.sinks import MicroBatchResult, Sink
from tidings.spark.shards import operation_rows
from tidings.spark.shards.output_rows import DDL, TaskCounts, total
from tidings.spark.shards.trusted_keys import TrustedKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StoppingError(Exception):
    """The batch was not started because the pipeline is stopping; it is processed after the next start."""


class GracefulStop:
    """A lock that is held while a batch is processed, so that a pipeline stops between two batches.

    A copy in another process, where Spark Connect runs batches, is independent: there a batch may be interrupted by a
    stop, and is repeated later.
    """

    def __init__(self) -> None:
        self._lock, self._stopping = Lock(), False

    def request_stop(self) -> None:
        """Let no further batch start, and return when the current one has ended."""
        self._stopping = True
        with self._lock:
            pass

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._stopping:
            self._lock.release()
            raise StoppingError

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["GracefulStop"], tuple[()]]:
        return GracefulStop, ()


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a pipeline that each micro-batch needs; they can be sent to another process."""

    folder: str
    settings: Settings
    in_order: bool  # whether something changes over time, so that shards process rows in time order
    fills_contexts: bool = False  # whether events get the contexts that their publishers have set
    notifications: bool = False
    watermark: int = 0  # microseconds by which events may be late
    ahead: int = 86_400_000_000  # microseconds by which events may lie in the future
    trust: TrustedKeys | None = None  # checks sealed events


class MicroBatch:
    """The function for `foreachBatch`. It can be pickled, since Spark Connect runs it in another process."""

    def __init__(self, settings: BatchSettings, sinks: list[Sink], stop: GracefulStop | None = None) -> None:
        self._batch_settings, self._sinks, self._graceful_stop = settings, sinks, stop or GracefulStop()

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        with self._graceful_stop:
            self._process(rows, batch)

    def _process(self, rows: "DataFrame", batch: int) -> None:
        ledger = Ledger(Path(self._batch_settings.folder))
        entry = ledger.read(batch)
        if entry is None:  # else the batch was routed, and Spark stopped before it committed the batch
            entry = self.run(rows, ledger.before(batch), batch)
        result = result_of(rows.sparkSession, ledger, entry)
        for sink in self._sinks:
            sink(result)
        ledger.clean()

    def run(self, rows: "DataFrame", before: LedgerEntry, batch: int) -> LedgerEntry:
        """Route the rows of a batch, store the physical rows, and write and return the batch's ledger entry.

        Args:
            rows: The events and changes of the batch.
            before: The entry that the batch starts from.
            batch: The number of the batch.
        """
        settings, ledger = self._batch_settings, Ledger(Path(self._batch_settings.folder))
        started = dt.datetime.now(dt.UTC).timestamp()
        if settings.in_order:
            rows = operation_rows.in_order(
                rows, len(before.places), start=before.watermark, spread_contexts=settings.fills_contexts
            )
        results = ledger.results(batch)
        if results.exists():
            shutil.rmtree(results)  # of an attempt that failed
        worker = self._worker(before, batch, int((started * 1_000_000) + settings.ahead))
        rows.mapInArrow(worker, DDL).write.parquet(str(results))
        task_counts = _task_counts(rows.sparkSession, results)
        counts = total(task_counts)
        places = list(before.places)
        for task in task_counts:
            if task.shard is not None and task.place is not None:
                places[task.shard] = task.place
        latest = before.watermark if counts.latest is None else counts.latest - settings.watermark
        entry = LedgerEntry(
            batch=batch,
            places=places,
            watermark=max(before.watermark, latest),
            counts=counts,
            so_far=total([before.so_far, counts]),
            started=started,
            ended=dt.datetime.now(dt.UTC).timestamp(),
        )
        ledger.write(entry)
        return entry

    def _worker(self, before: LedgerEntry, batch: int, latest: int) -> Any:
        """Return the worker that routes the batch: stateless, or one that continues the shards' state."""
        from tidings.spark.shards.shard_worker import ShardTask, ShardWorker
        from tidings.spark.shards.stateless_worker import StatelessWorker

        settings = self._batch_settings
        if not settings.in_order:
            folder = str(Path(before.places[0].base).parent)
            return StatelessWorker(
                folder,
                settings.settings,
                notifications=settings.notifications,
                emits_counts=True,
                latest=latest,
                trust=settings.trust,
            )
        task = ShardTask(
            checkpoints=before.places,
            folder=str(Path(settings.folder) / "state"),
            batch=batch,
            late_before=before.watermark,
            final_until=before.watermark if settings.watermark else None,
            latest=latest,
        )
        return ShardWorker(
            "",
            settings.settings,
            task=task,
            spread_contexts=settings.fills_contexts,
            notifications=settings.notifications,
            trust=settings.trust,
        )


def result_of(spark: "SparkSession", ledger: Ledger, entry: LedgerEntry) -> MicroBatchResult:
    """Return the result of a batch, which reads the physical rows that its ledger entry describes."""
    physical = spark.read.schema(DDL).parquet(str(ledger.results(entry.batch)))
    return MicroBatchResult(entry.batch, physical, len(entry.places), entry.counts, ledger.folder)


def _task_counts(spark: "SparkSession", results: Path) -> list[TaskCounts]:
    """Return the counters of the tasks of a batch, from the `state` rows that they emitted."""
    rows = spark.read.schema(DDL).parquet(str(results)).filter("state IS NOT NULL").select("state").collect()
    return [msgspec.json.decode(row["state"], type=TaskCounts) for row in rows]

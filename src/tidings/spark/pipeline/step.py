"""One batch of a stream: route it, keep what came of it, write it into the ledger, hand it to the sinks.

Whatever is repeated after a crash gives the same: a batch starts from the entry before it, tasks write under names of
their own, and an entry says which of them count.
"""

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.spark import changes
from tidings.spark.physical import DDL
from tidings.spark.pipeline.brake import Brake
from tidings.spark.pipeline.ledger import Entry, Ledger
from tidings.spark.pipeline.outcome import Outcome
from tidings.spark.pipeline.sinks import Sink
from tidings.spark.tally import Tally, total
from tidings.spark.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How a pipeline takes its batches."""

    folder: str
    settings: Settings
    in_order: bool  # whether anything changes over time, so that shards see all in the order of time
    fills_contexts: bool = False  # whether events get their publishers' contexts here
    notifications: bool = False
    watermark: int = 0  # microseconds that events may come late
    ahead: int = 86_400_000_000  # and so far in the future they may be
    trust: Trust | None = None  # with which sealed events are checked


class Step:
    """The function for `foreachBatch`. It can be sent to another process, as Spark Connect does."""

    def __init__(self, rules: Rules, sinks: list[Sink], brake: Brake | None = None) -> None:
        self._rules, self._sinks, self._brake = rules, sinks, brake or Brake()

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        with self._brake:
            self._take(rows, batch)

    def _take(self, rows: "DataFrame", batch: int) -> None:
        ledger = Ledger(Path(self._rules.folder))
        entry = ledger.read(batch)
        if entry is None:  # else it was done, and Spark had no time to write that down
            entry = self.run(rows, ledger.before(batch), batch)
        outcome = outcome_of(rows.sparkSession, ledger, entry)
        for sink in self._sinks:
            sink(outcome)
        ledger.clean()

    def run(self, rows: "DataFrame", before: Entry, batch: int) -> Entry:
        """Up to the entry in the ledger."""
        rules, ledger = self._rules, Ledger(Path(self._rules.folder))
        started = dt.datetime.now(dt.UTC).timestamp()
        if rules.in_order:
            rows = changes.in_order(
                rows, len(before.places), start=before.watermark, spread_contexts=rules.fills_contexts
            )
        results = ledger.results(batch)
        if results.exists():
            shutil.rmtree(results)  # of an attempt that did not come to its end
        worker = self._worker(before, batch, int((started * 1_000_000) + rules.ahead))
        rows.mapInArrow(worker, DDL).write.parquet(str(results))
        tallies = _tallies(rows.sparkSession, results)
        counts = total(tallies)
        places = list(before.places)
        for one in tallies:
            if one.shard is not None and one.place is not None:
                places[one.shard] = one.place
        latest = before.watermark if counts.latest is None else counts.latest - rules.watermark
        entry = Entry(
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

    def _worker(self, before: Entry, batch: int, latest: int) -> Any:
        from tidings.spark.shard import ShardWorker, Task
        from tidings.spark.worker import Worker

        rules = self._rules
        if not rules.in_order:
            folder = str(Path(before.places[0].base).parent)
            return Worker(
                folder,
                rules.settings,
                notifications=rules.notifications,
                tallies=True,
                latest=latest,
                trust=rules.trust,
            )
        task = Task(
            places=before.places,
            folder=str(Path(rules.folder) / "state"),
            batch=batch,
            late_before=before.watermark,
            settled=before.watermark if rules.watermark else None,
            latest=latest,
        )
        return ShardWorker(
            "",
            rules.settings,
            task=task,
            spread_contexts=rules.fills_contexts,
            notifications=rules.notifications,
            trust=rules.trust,
        )


def outcome_of(spark: "SparkSession", ledger: Ledger, entry: Entry) -> Outcome:
    physical = spark.read.schema(DDL).parquet(str(ledger.results(entry.batch)))
    return Outcome(entry.batch, physical, len(entry.places), entry.counts, ledger.folder)


def _tallies(spark: "SparkSession", results: Path) -> list[Tally]:
    """A row a task."""
    found = spark.read.schema(DDL).parquet(str(results)).filter("state IS NOT NULL").select("state").collect()
    return [msgspec.json.decode(row["state"], type=Tally) for row in found]

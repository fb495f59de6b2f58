"""The progress of a running pipeline, from its ledger and Spark's query report."""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.shards.output_rows import TaskCounts

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

WAITING, READING, ROUTING, WRITING = "waiting", "reading", "routing", "writing"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running pipeline has come."""

    batch: int | None  # the last completed batch; None before the first
    stage: str  # of the current batch: reading, routing, writing; or waiting
    counts: TaskCounts  # of the last batch
    so_far: TaskCounts  # of all batches, also in earlier runs
    seconds: float | None = None  # duration of the last batch, from the trigger to the end of all sinks
    per_second: float | None = None  # input rows of the last batch per second of processing
    stages: dict[str, float] = {}  # stage -> seconds, of the last batch
    offsets: dict[str, str] = {}  # source -> how far it has been read


def progress_of(query: "StreamingQuery", ledger: Ledger) -> Progress:
    """Return the progress of a query with the given ledger."""
    report: Any = query.lastProgress
    entry = ledger.last()
    counts, so_far = (TaskCounts(), TaskCounts()) if entry is None else (entry.counts, entry.so_far)
    batch = None if entry is None or entry.batch < 0 else entry.batch
    if report is None or entry is None:
        return Progress(batch=batch, stage=_stage(query, ledger, batch, None), counts=counts, so_far=so_far)
    durations = report["durationMs"]
    has_rows = "addBatch" in durations  # else a trigger found no rows, and has the number of the next batch
    routing = entry.ended - entry.started
    return Progress(
        batch=batch,
        stage=_stage(query, ledger, batch, report["batchId"] if has_rows else report["batchId"] - 1),
        counts=counts,
        so_far=so_far,
        seconds=durations["triggerExecution"] / 1000 if has_rows else routing,
        per_second=report["processedRowsPerSecond"] if has_rows else _rate(counts, routing),
        stages=_stages(durations, routing) if has_rows else {},
        offsets={source["description"]: source["endOffset"] for source in report["sources"]},
    )


def _rate(counts: TaskCounts, seconds: float) -> float | None:
    return (counts.events + counts.changes) / seconds if seconds else None


def _stage(query: "StreamingQuery", ledger: Ledger, batch: int | None, done: int | None) -> str:
    """Infer the current stage from Spark's status, the last ledger entry, and the next batch's results folder."""
    if not query.status["isTriggerActive"]:
        return WAITING
    if batch is not None and (done is None or batch > done):
        return WRITING
    following = 0 if batch is None else batch + 1
    return ROUTING if ledger.results(following).exists() else READING


def _stages(durations: dict[str, int], routing: float) -> dict[str, float]:
    batch = durations.get("addBatch", 0) / 1000
    routing = min(routing, batch)
    reading = (durations.get("triggerExecution", 0) / 1000) - batch
    return {READING: round(reading, 3), ROUTING: round(routing, 3), WRITING: round(batch - routing, 3)}

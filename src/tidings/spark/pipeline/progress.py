"""How far a running pipeline has come, as far as its ledger and Spark's own report tell."""

from typing import TYPE_CHECKING, Any

import msgspec

from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

WAITING, READING, ROUTING, WRITING = "waiting", "reading", "routing", "writing"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    batch: int | None  # the last that is done
    stage: str  # of the one under way: reading, routing, writing; or waiting
    counts: Tally  # of the last batch
    so_far: Tally  # of all batches, of earlier runs too
    seconds: float | None = None  # what the last batch took, from the trigger to the end of all sinks
    per_second: float | None = None  # rows that the last batch took in, each second that it worked
    stages: dict[str, float] = {}  # of the last batch, in seconds
    offsets: dict[str, str] = {}  # by source, how far it has been read


def progress_of(query: "StreamingQuery", ledger: Ledger) -> Progress:
    told: Any = query.lastProgress
    entry = ledger.last()
    counts, so_far = (Tally(), Tally()) if entry is None else (entry.counts, entry.so_far)
    batch = None if entry is None or entry.batch < 0 else entry.batch
    if told is None or entry is None:
        return Progress(batch=batch, stage=_stage(query, ledger, batch, None), counts=counts, so_far=so_far)
    spent = told["durationMs"]
    worked = "addBatch" in spent  # else it tells of a trigger that found nothing, under the number of the next batch
    routing = entry.ended - entry.started
    return Progress(
        batch=batch,
        stage=_stage(query, ledger, batch, told["batchId"] if worked else told["batchId"] - 1),
        counts=counts,
        so_far=so_far,
        seconds=spent["triggerExecution"] / 1000 if worked else routing,
        per_second=told["processedRowsPerSecond"] if worked else _rate(counts, routing),
        stages=_stages(spent, routing) if worked else {},
        offsets={one["description"]: one["endOffset"] for one in told["sources"]},
    )


def _rate(counts: Tally, seconds: float) -> float | None:
    return (counts.events + counts.changes) / seconds if seconds else None


def _stage(query: "StreamingQuery", ledger: Ledger, batch: int | None, done: int | None) -> str:
    """What has been left in the ledger says what comes next."""
    if not query.status["isTriggerActive"]:
        return WAITING
    if batch is not None and (done is None or batch > done):
        return WRITING
    following = 0 if batch is None else batch + 1
    return ROUTING if ledger.results(following).exists() else READING


def _stages(spent: dict[str, int], routing: float) -> dict[str, float]:
    batch = spent.get("addBatch", 0) / 1000
    routing = min(routing, batch)
    reading = (spent.get("triggerExecution", 0) / 1000) - batch
    return {READING: round(reading, 3), ROUTING: round(routing, 3), WRITING: round(batch - routing, 3)}

"""What is told of a pipeline without asking Spark: how far it has come, what waits, why it failed, how it is."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidings.journal.lock import FolderLock
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import EventsTable, PipelineConfiguration, SinkTable, SubscriptionsTable
from tidings.spark.pipeline.ledger import BOOTSTRAP, Ledger, LedgerEntry
from tidings.spark.pipeline.progress import SourceBacklog, progress_of, status_of
from tidings.spark.session import reason_of
from tidings.spark.shards.output_rows import TaskCounts

WRAPPED = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred "
    "in the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return "
    'Message: Traceback (most recent call last):\n  File "x.py", line 1, in call\n    raise e\n'
)


class Query:
    """What Spark would tell."""

    def __init__(self, told: dict[str, Any] | None, *, active: bool = True) -> None:
        self.lastProgress, self.status = told, {"isTriggerActive": active}


def told(batch: int, **spent: int) -> dict[str, Any]:
    return {"batchId": batch, "durationMs": spent, "processedRowsPerSecond": 5.0, "sources": []}


def entry(batch: int, **more: Any) -> LedgerEntry:
    counts, so_far = TaskCounts(events=10, matches=2), TaskCounts(events=10 * (batch + 1), matches=2 * (batch + 1))
    return LedgerEntry(
        batch=batch, places=[], watermark=7, counts=counts, so_far=so_far, started=batch, ended=batch + 0.5, **more
    )


@pytest.mark.parametrize(
    ("done", "spark", "results", "active", "stage", "seconds"),
    [
        (-1, None, None, True, "reading", None),
        (-1, None, 0, True, "routing", None),
        (0, None, 0, True, "writing", None),
        (0, told(0, addBatch=800, triggerExecution=1000), 0, False, "waiting", 1.0),
        (0, told(0, addBatch=800, triggerExecution=1000), 0, True, "reading", 1.0),
        (0, told(0, addBatch=800, triggerExecution=1000), 1, True, "routing", 1.0),
        (1, told(0, addBatch=800, triggerExecution=1000), 1, True, "writing", 1.0),
        (0, told(1, triggerExecution=3), 0, False, "waiting", 0.5),
        (1, told(1, triggerExecution=3), 1, True, "writing", 0.5),
    ],
)
def test_the_stage_follows_from_what_was_left(
    tmp_path: Path, done: int, spark: Any, results: int | None, active: bool, stage: str, seconds: float | None
) -> None:
    ledger = Ledger(tmp_path)
    for batch in range(BOOTSTRAP, done + 1):
        ledger.write(entry(batch))
    if results is not None:
        ledger.results(results).mkdir(parents=True)
    found = progress_of(Query(spark, active=active), ledger)
    assert (found.stage, found.seconds) == (stage, seconds)
    assert found.batch == (done if done >= 0 else None)
    if found.stages:
        assert found.stages == {"reading": 0.2, "routing": 0.5, "writing": 0.3}


def test_status_needs_the_ledger_alone(tmp_path: Path) -> None:
    with pytest.raises(TidingsError, match="there is no ledger of a pipeline here"):
        status_of(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.write(entry(BOOTSTRAP, refused=[("s", "why")]))
    found = status_of(tmp_path)
    assert (found.batch, found.process, found.per_second, found.refused) == (None, None, None, [("s", "why")])
    for batch in range(30):
        ledger.write(entry(batch))
    (tmp_path / "state" / "29").mkdir(parents=True)
    (tmp_path / "state" / "29" / "memory").write_bytes(b"12345")
    lock = FolderLock(tmp_path)
    found = status_of(tmp_path)
    lock.release()
    assert (found.batch, found.process, found.per_second) == (29, os.getpid(), 20.0)
    assert (found.so_far.events, found.state_bytes, found.refused) == (300, 5, [("s", "why")])
    assert status_of(tmp_path).process is None


def test_what_waits_is_what_spark_has_not_noted(tmp_path: Path) -> None:
    configuration = PipelineConfiguration(
        checkpoint="checkpoint",
        sinks=[SinkTable(format="console")],
        events=EventsTable(path="events"),
        subscriptions=SubscriptionsTable(path="subscriptions"),
    )
    for name in ("events/a b.json", "events/2.json", "events/.3.json", "events/_tmp/4.json", "subscriptions/1.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    backlog = SourceBacklog(configuration, tmp_path)
    assert backlog.measure({}).files == 3
    note(tmp_path, "0/0", "events/a%20b.json")
    assert backlog.measure({}).files == 2
    note(tmp_path, "1/0", "subscriptions/1.json")
    note(tmp_path, "0/9.compact", "events/2.json")  # which has all that was before
    assert backlog.measure({}).files == 1
    note(tmp_path, "0/10", "events/a%20b.json")
    assert backlog.measure({}).files == 0


def note(base: Path, name: str, path: str) -> None:
    log = base / "checkpoint" / "spark" / "sources" / name
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("v1\n" + json.dumps({"path": f"file://{base}/{path}", "timestamp": 1, "batchId": 0}) + "\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WRAPPED + "tidings.model.errors.TidingsError: take another folder\n SQLSTATE: 39000", "take another folder"),
        (WRAPPED + "ValueError: no such thing\n SQLSTATE: 39000 SQLSTATE: XXKST", "ValueError: no such thing"),
        (
            WRAPPED
            + "pyspark.errors.exceptions.captured.AnalysisException: [PATH_ALREADY_EXISTS] Path x already exists. "
            "Set mode. SQLSTATE: 42K04\n SQLSTATE: 39000\n=== Streaming Query ===\nValueError: of a plan",
            "Path x already exists. Set mode.",
        ),
        (
            WRAPPED + "py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.\n"
            ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
            "file:///in/1.csv.  SQLSTATE: KD001\n\tat org.apache.X\nCaused by: org.apache.spark.SparkIllegal: CSV "
            "header does not conform to the schema.\n Header: n, id\n",
            "file:///in/1.csv: CSV header does not conform to the schema.",
        ),
        (
            WRAPPED + "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"
            ": org.apache.hadoop.fs.ParentNotDirectoryException: not a directory: /out/matches\n\tat org.apache.X\n",
            "not a directory: /out/matches",
        ),
        (WRAPPED + "pyspark.errors.exceptions.captured.IllegalArgumentException: no such mode", "no such mode"),
        ("Option 'basePath' must be a directory", "Option 'basePath' must be a directory"),
        ("", "RuntimeError"),
    ],
)
def test_why_it_failed_is_one_line(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason

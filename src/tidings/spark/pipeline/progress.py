"""How far a pipeline has come: its progress, its status and its backlog.

`progress_of` reads the ledger and Spark's query report of a running pipeline. `status_of` reads the ledger alone:
neither Spark nor the pipeline's process is needed. The backlog is what the pipeline has not read yet: files in its
source folders, and rows of its journal. Spark does not report a backlog of files; its checkpoint lists the files that
it has read, and the other files in the folders are the backlog.
"""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from tidings.journal.lock import holder
from tidings.journal.reader import JournalReader
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import (
    ChangingSourceTable,
    EventsTable,
    JournalSourceTable,
    PipelineConfiguration,
    is_elsewhere,
    read,
    resolved,
)
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


_RECENT = 20  # the number of batches that the rate is averaged over


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a pipeline, as its ledger shows it."""

    checkpoint: str
    process: int | None  # the process that runs it; 0: unknown process, None: not running
    batch: int | None  # the last completed batch
    ended: float | None = None  # when it was completed, in seconds since the epoch
    counts: TaskCounts  # of the last batch
    so_far: TaskCounts
    per_second: float | None = None  # events per second of processing, over the last batches
    watermark: int | None = None  # microseconds since the epoch
    shards: int = 0
    state_bytes: int = 0
    refused: list[tuple[str, str]] = []  # subscriptions refused at the start: id, reason


def checkpoint_of(place: Path) -> Path:
    """Return the checkpoint folder of a pipeline's TOML file; a folder is returned as it is."""
    if place.is_dir():
        return place
    file, configuration = read(place)
    return Path(resolved(file.path.absolute().parent, configuration.checkpoint))


def status_of(checkpoint: Path) -> Status:
    """Return the status of the pipeline with this checkpoint. Raises a `TidingsError` if there is no ledger."""
    ledger = Ledger(checkpoint)
    numbers = ledger.batches()
    entries = [entry for entry in map(ledger.read, numbers[-_RECENT:]) if entry is not None]
    if not entries:
        raise TidingsError(f"{checkpoint}: there is no ledger of a pipeline here; has it been started?")
    last = entries[-1]
    batch_entries = [entry for entry in entries if entry.batch >= 0]
    seconds = sum(entry.ended - entry.started for entry in batch_entries)
    first_entry = ledger.read(numbers[0])
    return Status(
        checkpoint=str(checkpoint),
        process=holder(checkpoint),
        batch=last.batch if batch_entries else None,
        ended=last.ended if batch_entries else None,
        counts=last.counts,
        so_far=last.so_far,
        per_second=sum(entry.counts.events for entry in batch_entries) / seconds if seconds else None,
        watermark=last.watermark or None,
        shards=len(last.places),
        state_bytes=ledger.size(),
        refused=last.refused or (first_entry.refused if first_entry is not None else []),
    )


def seconds_since(moment: float) -> float:
    """Return the seconds between a time (in seconds since the epoch) and now, at least 0."""
    return max(0.0, dt.datetime.now(dt.UTC).timestamp() - moment)


_COMPACT = ".compact"  # a log of Spark's file source that contains all logs before it


class BacklogSize(msgspec.Struct, frozen=True):
    """How many files and journal rows a pipeline has not read yet."""

    files: int | None = None  # None: unknown
    rows: int | None = None  # None: there is no journal, or it cannot be read


class SourceBacklog:
    """Counts the backlog of a pipeline's sources; `base` is the folder of the configuration file."""

    def __init__(self, configuration: PipelineConfiguration, base: Path) -> None:
        self._spark_sources = Path(resolved(base, configuration.checkpoint)) / "spark" / "sources"
        self._folders: list[Path] | None = []
        self._journal: Path | None = None
        for table in configuration.sources().values():
            if isinstance(table, JournalSourceTable):
                self._journal = Path(resolved(base, table.path))
            elif table.path is not None and (
                isinstance(table, EventsTable) or (isinstance(table, ChangingSourceTable) and table.follow)
            ):
                self._follow(table.path, base)

    def _follow(self, path: str, base: Path) -> None:
        if is_elsewhere(path) or not Path(resolved(base, path)).is_dir() or self._folders is None:
            self._folders = None  # an address or a pattern: its files cannot be listed here
        else:
            self._folders.append(Path(resolved(base, path)).resolve())

    def measure(self, offsets: dict[str, str]) -> BacklogSize:
        """Return the backlog; `offsets` are those of `Progress`, which say how far each source has been read."""
        files = None
        if self._folders:
            read_files = set(self._read_files())
            files = sum(1 for folder in self._folders for path in _data_files(folder) if str(path) not in read_files)
        return BacklogSize(files, self._unread_rows(offsets))

    def _read_files(self) -> Iterator[str]:
        """Yield the paths of the files that Spark has read, from the logs in its checkpoint."""
        for source in self._spark_sources.glob("*"):
            logs = [(number, log) for log in source.iterdir() if (number := _log_number(log)) is not None]
            compacted = max((number for number, log in logs if log.suffix == _COMPACT), default=-1)
            for number, log in logs:
                if number >= compacted:
                    yield from _paths_in_log(log)

    def _unread_rows(self, offsets: dict[str, str]) -> int | None:
        if self._journal is None:
            return None
        read = [json.loads(offset) for offset in offsets.values() if offset and offset.startswith("{")]
        try:
            end = JournalReader(self._journal).end
        except (OSError, TidingsError):
            return None
        return max(0, end - max((offset["offset"] for offset in read if "offset" in offset), default=0))


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that Spark reads: none with a name, or in a folder, that begins with `.` or `_`."""
    for path in folder.rglob("*"):
        if not any(part[0] in "._" for part in path.relative_to(folder).parts) and path.is_file():
            yield path


def _log_number(path: Path) -> int | None:
    name = path.name.removesuffix(_COMPACT)
    return int(name) if name.isdecimal() else None


def _paths_in_log(log: Path) -> Iterator[str]:
    try:
        lines = log.read_text().splitlines()
    except FileNotFoundError:  # Spark has compacted it meanwhile
        return
    for line in lines[1:]:
        yield unquote(urlsplit(json.loads(line)["path"]).path)

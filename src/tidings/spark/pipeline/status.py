"""The status of a pipeline, read from its ledger: neither Spark nor the pipeline's process is needed."""

import datetime as dt
from pathlib import Path

import msgspec

from tidings.journal.lock import holder
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import read, resolved
from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.shards.output_rows import TaskCounts

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

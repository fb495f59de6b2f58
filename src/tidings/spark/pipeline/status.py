"""How a pipeline is, from its ledger alone: whoever asks needs neither Spark nor the process that runs it."""

import datetime as dt
from pathlib import Path

import msgspec

from tidings.journal.lock import holder
from tidings.model.errors import TidingsError
from tidings.spark.pipeline.configuration import read, resolved
from tidings.spark.pipeline.ledger import Ledger
from tidings.spark.tally import Tally

_RECENT = 20  # batches that the rate is of


class Status(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint: str
    process: int | None  # that runs it; 0 where it is not known which, None if nobody does
    batch: int | None  # the last that is done
    ended: float | None = None  # when that was, in seconds since the epoch
    counts: Tally  # of the last batch
    so_far: Tally
    per_second: float | None = None  # events, while it worked on the last batches
    watermark: int | None = None  # microseconds since the epoch
    shards: int = 0
    state_bytes: int = 0
    refused: list[tuple[str, str]] = []  # subscriptions that could not be taken at the start, and why


def checkpoint_of(place: Path) -> Path:
    """Of a pipeline's file, or the folder itself."""
    if place.is_dir():
        return place
    file, configuration = read(place)
    return Path(resolved(file.path.absolute().parent, configuration.checkpoint))


def status_of(checkpoint: Path) -> Status:
    ledger = Ledger(checkpoint)
    numbers = ledger.batches()
    entries = [one for one in map(ledger.read, numbers[-_RECENT:]) if one is not None]
    if not entries:
        raise TidingsError(f"{checkpoint}: there is no ledger of a pipeline here; has it been started?")
    last = entries[-1]
    worked = [one for one in entries if one.batch >= 0]
    seconds = sum(one.ended - one.started for one in worked)
    begun = ledger.read(numbers[0])
    return Status(
        checkpoint=str(checkpoint),
        process=holder(checkpoint),
        batch=last.batch if worked else None,
        ended=last.ended if worked else None,
        counts=last.counts,
        so_far=last.so_far,
        per_second=sum(one.counts.events for one in worked) / seconds if seconds else None,
        watermark=last.watermark or None,
        shards=len(last.places),
        state_bytes=ledger.size(),
        refused=last.refused or (begun.refused if begun is not None else []),
    )


def seconds_since(moment: float) -> float:
    return max(0.0, dt.datetime.now(dt.UTC).timestamp() - moment)

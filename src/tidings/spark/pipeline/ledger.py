"""The ledger of a pipeline: an entry per micro-batch with its shard checkpoints, watermark and counters.

An entry is written atomically, once, after the physical rows of the batch and the new versions of its shards are on
disk. Files that none of the last entries names are garbage, and `Ledger.clean` removes them.
"""

import shutil
from pathlib import Path

import msgspec

from tidings.journal.disk import Disk
from tidings.model.errors import TidingsError
from tidings.spark.shards.output_rows import TaskCounts
from tidings.spark.shards.shard_state import ShardCheckpoint

BOOTSTRAP = -1  # the number of the entry before the first batch
MAX_ENTRIES = 1_000
_ENTRIES_TO_RESTART = 2  # Spark repeats only the last batch, which starts from the entry before it


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pipeline after one micro-batch."""

    batch: int
    places: list[ShardCheckpoint]
    watermark: int  # microseconds; earlier events are late in the next batch
    counts: TaskCounts
    so_far: TaskCounts  # of this batch and all before it
    refused: list[tuple[str, str]] = []  # subscriptions refused before the first batch: id, reason
    started: float  # seconds since the epoch, by the driver's clock
    ended: float


class Ledger:
    """The ledger in a pipeline's checkpoint folder; it reads the files anew for each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries = folder / "ledger"

    def path(self, *parts: str) -> Path:
        """Return a path below the checkpoint folder."""
        return self.folder.joinpath(*parts)

    def results(self, batch: int) -> Path:
        """Return the folder of the physical rows of a batch."""
        return self.path("results", str(batch))

    def read(self, batch: int) -> LedgerEntry | None:
        """Return the entry of a batch, or None if there is none. Raises a `TidingsError` if it cannot be read."""
        try:
            data = self._path(batch).read_bytes()
        except FileNotFoundError:
            return None
        try:
            entry = msgspec.json.decode(data, type=LedgerEntry)
        except msgspec.MsgspecError as error:
            raise TidingsError(f"{self._path(batch)}: this is no entry of a pipeline's ledger: {error}") from None
        return msgspec.structs.replace(entry, places=[checkpoint.under(self.folder) for checkpoint in entry.places])

    def before(self, batch: int) -> LedgerEntry:
        """Return the entry that a batch starts from.

        Raises a `TidingsError` if it is missing: the ledger and Spark's checkpoint do not belong together.
        """
        entry = self.read(batch - 1)
        if entry is None:
            raise TidingsError(
                f"{self.folder}: there is no entry of batch {batch - 1} to go on from; the ledger and Spark's "
                "checkpoint belong together, and are moved and removed together"
            )
        return entry

    def last(self) -> LedgerEntry | None:
        """Return the last entry, or None if the ledger is empty."""
        numbers = self.batches()
        return self.read(numbers[-1]) if numbers else None

    def batches(self) -> list[int]:
        """Return the numbers of the batches with an entry, in order."""
        return sorted(int(path.stem) for path in self._entries.glob("*.json"))

    def write(self, entry: LedgerEntry) -> None:
        """Write an entry atomically; an entry of the same batch is replaced."""
        stored = msgspec.structs.replace(entry, places=[checkpoint.within(self.folder) for checkpoint in entry.places])
        self._entries.mkdir(parents=True, exist_ok=True)
        Disk().create(self._path(entry.batch), msgspec.json.encode(stored))

    def size(self) -> int:
        """Return the bytes that shards store from batch to batch: their bases and the versions since."""
        parts = (self.path("registry"), self.path("state"))
        return sum(path.stat().st_size for part in parts for path in part.rglob("*") if path.is_file())

    def clean(self) -> None:
        """Remove shard versions and results that no batch can need any more, and entries beyond the last 1,000."""
        numbers = self.batches()
        needed = [
            entry for entry in (self.read(batch) for batch in numbers[-_ENTRIES_TO_RESTART:]) if entry is not None
        ]
        if not needed:
            return
        used = {Path(path) for entry in needed for place in entry.places for path in (place.base, *place.versions)}
        used |= {parent for path in used for parent in path.parents}
        old = [folder for folder in self.path("state").glob("*") if int(folder.name) <= needed[-1].batch]
        for parent in (*old, *self.path("registry").glob("*")):
            for folder in (parent, *parent.glob("*")):
                if folder not in used:
                    shutil.rmtree(folder, ignore_errors=True)
        for folder in self.path("results").glob("*"):
            if int(folder.name) < needed[0].batch:
                shutil.rmtree(folder, ignore_errors=True)
        for batch in numbers[:-MAX_ENTRIES]:
            self._path(batch).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return self._entries / f"{batch}.json"

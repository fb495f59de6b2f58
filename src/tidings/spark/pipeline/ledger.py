"""The ledger of a pipeline: for each batch what stood when it was done, in files beside the checkpoint.

An entry is written once, whole or not at all, when the physical rows of the batch and the versions of its shards are
there. What is not named by one of the last entries is nobody's, and goes.
"""

import shutil
from pathlib import Path

import msgspec

from tidings.journal.disk import Disk
from tidings.model.errors import TidingsError
from tidings.spark.standing import Place
from tidings.spark.tally import Tally

BOOTSTRAP = -1  # the entry that stands before the first batch
KEPT_ENTRIES = 1_000
_NEEDED = 2  # Spark repeats the last batch only, which starts from the one before


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    batch: int
    places: list[Place]
    watermark: int  # microseconds; events of before then are late in the next batch
    counts: Tally
    started: float  # seconds since the epoch, by the driver's clock
    ended: float


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries = folder / "ledger"

    def path(self, *parts: str) -> Path:
        return self.folder.joinpath(*parts)

    def results(self, batch: int) -> Path:
        """Where the physical rows of a batch are."""
        return self.path("results", str(batch))

    def read(self, batch: int) -> Entry | None:
        try:
            data = self._path(batch).read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(data, type=Entry)
        except msgspec.MsgspecError as error:
            raise TidingsError(f"{self._path(batch)}: this is no entry of a pipeline's ledger: {error}") from None
        return msgspec.structs.replace(found, places=[one.under(self.folder) for one in found.places])

    def before(self, batch: int) -> Entry:
        """Where a batch starts from."""
        found = self.read(batch - 1)
        if found is None:
            raise TidingsError(
                f"{self.folder}: there is no entry of batch {batch - 1} to go on from; the ledger and Spark's "
                "checkpoint belong together, and are moved and removed together"
            )
        return found

    def last(self) -> Entry | None:
        numbers = self.batches()
        return self.read(numbers[-1]) if numbers else None

    def batches(self) -> list[int]:
        return sorted(int(one.stem) for one in self._entries.glob("*.json"))

    def write(self, entry: Entry) -> None:
        kept = msgspec.structs.replace(entry, places=[one.within(self.folder) for one in entry.places])
        self._entries.mkdir(parents=True, exist_ok=True)
        Disk().create(self._path(entry.batch), msgspec.json.encode(kept))

    def clean(self) -> None:
        """Removes what no batch can need any more."""
        numbers = self.batches()
        needed = [one for one in (self.read(batch) for batch in numbers[-_NEEDED:]) if one is not None]
        if not needed:
            return
        used = {Path(path) for entry in needed for place in entry.places for path in (place.base, *place.versions)}
        used |= {parent for path in used for parent in path.parents}
        old = [one for one in self.path("state").glob("*") if int(one.name) <= needed[-1].batch]
        for parent in (*old, *self.path("registry").glob("*")):
            for folder in (parent, *parent.glob("*")):
                if folder not in used:
                    shutil.rmtree(folder, ignore_errors=True)
        for folder in self.path("results").glob("*"):
            if int(folder.name) < needed[0].batch:
                shutil.rmtree(folder, ignore_errors=True)
        for batch in numbers[:-KEPT_ENTRIES]:
            self._path(batch).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return self._entries / f"{batch}.json"

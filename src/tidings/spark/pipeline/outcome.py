"""What became of a batch, with the face of `Routed`: DataFrames on the physical rows, which are files by now."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tidings.spark.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.spark.tally import Tally

What: TypeAlias = Literal["matches", "notifications", "rejected", "meta_events"]


class Outcome(Views):
    """`folder` is the checkpoint's, where a sink may keep its place."""

    def __init__(self, batch: int, physical: "DataFrame", shards: int, counts: "Tally", folder: Path) -> None:
        super().__init__(shards)
        self.batch, self.counts, self.folder = batch, counts, folder
        self._rows = physical

    def _physical(self, *, notifications: bool = False) -> "DataFrame":
        return self._rows

    def frame(self, what: What) -> "DataFrame":
        found: DataFrame = getattr(self, what)
        return found

    def count(self, what: What) -> int:
        """How many rows it has, without asking Spark; of matches, how many pairs."""
        counted = {"rejected": self.counts.rejected, "meta_events": self.counts.meta_events}
        return counted.get(what, self.counts.matches)

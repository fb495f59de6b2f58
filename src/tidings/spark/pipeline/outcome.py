"""What became of a batch, with the face of `Routed`: DataFrames on the physical rows, which are files by now."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from tidings.spark import views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.spark.tally import Tally

What: TypeAlias = Literal["matches", "notifications", "rejected", "meta_events"]


class Outcome:
    def __init__(self, batch: int, physical: "DataFrame", shards: int, counts: "Tally") -> None:
        self.batch, self.counts = batch, counts
        self._physical, self._shards = physical, shards

    @property
    def matches(self) -> "DataFrame":
        return views.matches(self._physical, self._shards)

    @property
    def notifications(self) -> "DataFrame":
        return views.notifications(self._physical)

    @property
    def rejected(self) -> "DataFrame":
        return views.rejected(self._physical)

    @property
    def meta_events(self) -> "DataFrame":
        return views.meta_events(self._physical)

    def frame(self, what: What) -> "DataFrame":
        found: DataFrame = getattr(self, what)
        return found

    def count(self, what: What) -> int:
        """How many rows it has, without asking Spark; of matches, how many pairs."""
        counted = {"rejected": self.counts.rejected, "meta_events": self.counts.meta_events}
        return counted.get(what, self.counts.matches)

"""The result of one micro-batch: the same DataFrames as those of `RouteResult`, read from files."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tidings.spark.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.spark.shards.output_rows import TaskCounts

ResultKind: TypeAlias = Literal["matches", "notifications", "rejected", "meta_events"]


class MicroBatchResult(Views):
    """The result of one micro-batch, which sinks receive.

    `batch` is its number, `counts` are its counters, and `folder` is the pipeline's checkpoint, where a sink may store
    its position.
    """

    def __init__(self, batch: int, physical: "DataFrame", shards: int, counts: "TaskCounts", folder: Path) -> None:
        super().__init__(shards)
        self.batch, self.counts, self.folder = batch, counts, folder
        self._rows = physical

    def _physical_rows(self, *, notifications: bool = False) -> "DataFrame":
        return self._rows

    def frame(self, what: ResultKind) -> "DataFrame":
        """Return one of the DataFrames `matches`, `notifications`, `rejected` and `meta_events` by its name."""
        frame: DataFrame = getattr(self, what)
        return frame

    def count(self, what: ResultKind) -> int:
        """Return the number of rows of a DataFrame from the batch's counters, without a Spark job.

        For `matches` it is the number of pairs of event and subscription.
        """
        counts = {"rejected": self.counts.rejected, "meta_events": self.counts.meta_events}
        return counts.get(what, self.counts.matches)

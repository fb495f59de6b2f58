"""Sinks of a pipeline: files, the console, a function, a hub, a broker.

A sink is called with the `MicroBatchResult` of each batch, which has the same DataFrames as a `RouteResult`, read from
files. A batch that is repeated after a crash calls it again; the
sinks for files, hubs and brokers then leave the results as if they had been called once.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

import msgspec

from tidings.hub import Hub as OpenHub
from tidings.spark.sinks.broker_sink import BrokerClients, BrokerSink
from tidings.spark.sinks.hub_sink import HubPort, HubSink, to_hub
from tidings.spark.views import Views

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


class Sink(Protocol):
    """What a pipeline calls with each batch; `what` is the part of the result that the sink reads."""

    @property
    def what(self) -> ResultKind: ...

    def __call__(self, outcome: MicroBatchResult) -> None: ...


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """Writes the results of each batch as files into the folder `path/batch=N`.

    Spark reads `path` as one DataFrame with a column `batch`. A repeated batch replaces its folder.
    """

    path: str
    what: ResultKind = "notifications"
    format: Literal["parquet", "json"] = "parquet"

    def __call__(self, outcome: MicroBatchResult) -> None:
        if outcome.count(self.what):
            written = outcome.frame(self.what).write.mode("overwrite").format(self.format)
            written.save(f"{self.path}/batch={outcome.batch}")


class Console(msgspec.Struct, frozen=True, kw_only=True):
    """Prints the first `rows` rows of each batch. After a crash a batch may be printed again."""

    what: ResultKind = "notifications"
    rows: int = 20

    def __call__(self, outcome: MicroBatchResult) -> None:
        if outcome.count(self.what):
            outcome.frame(self.what).show(self.rows, truncate=False)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """Calls a function with a DataFrame and the batch's number, as `foreachBatch` does.

    The function is called again for a repeated batch; it can recognise the batch by its number.
    """

    function: Callable[["DataFrame", int], Any]
    what: ResultKind = "notifications"

    def __call__(self, outcome: MicroBatchResult) -> None:
        self.function(outcome.frame(self.what), outcome.batch)


class IntoHub:
    """Publishes every notification once as an event into a hub of this process.

    The event has the attributes that the subscriber got, and the attributes `subscription` and `subscriber`. Sealed
    events are refused: see `publish_rows.refuse_sealed`.
    """

    what: ResultKind = "notifications"

    def __init__(self, hub: HubPort, publisher: str = "pipeline", *, name: str = "spark-sink") -> None:
        self.hub_sink: HubSink = to_hub(hub, publisher, name=name)

    def __call__(self, outcome: MicroBatchResult) -> None:
        self.hub_sink(_as_events(outcome.notifications), outcome.batch)


class HubFolder:
    """Publishes every notification into the hub in a folder, which it opens at the first batch and closes at the end.

    The hub is opened in the process that runs the batches. For a hub that is open already, use `IntoHub`.
    """

    what: ResultKind = "notifications"

    def __init__(self, path: str, publisher: str = "pipeline", *, name: str = "spark-sink") -> None:
        self.path, self._publisher, self._name = path, publisher, name
        self._open: tuple[OpenHub, IntoHub] | None = None

    def __call__(self, outcome: MicroBatchResult) -> None:
        if self._open is None:
            hub = OpenHub(self.path)
            self._open = hub, IntoHub(hub, self._publisher, name=self._name)
        self._open[1](outcome)

    def close(self) -> None:
        """Close the hub, if it is open."""
        if self._open is not None:
            self._open[0].close()
            self._open = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(HubFolder, name=self._name), (self.path, self._publisher)


class IntoBroker(msgspec.Struct, frozen=True):
    """Publishes every notification once as an event through a live broker, from the executors.

    Events are as those of `IntoHub`. Each partition publishes as a client of its own; the notifications of one
    subscription are published by one client, in order.
    """

    clients: BrokerClients

    @property
    def what(self) -> ResultKind:
        return "notifications"

    def __call__(self, outcome: MicroBatchResult) -> None:
        name = self.clients.name
        if outcome.count(self.what):
            sink = BrokerSink(self.clients, str(outcome.folder / "published" / quote(name, safe="")), "subscription_id")
            sink(_as_events(outcome.notifications, f"{name} {outcome.batch} "), outcome.batch)

    def has_published(self, publisher: "Column") -> "Column":
        """Return a column that says whether this sink's clients published an event.

        A pipeline that reads the broker's journal must not route these events again.
        """
        from pyspark.sql import functions as f

        name = self.clients.name
        return f.coalesce((publisher == name) | publisher.startswith(f"{name}/"), f.lit(False))


def _as_events(notifications: "DataFrame", where: str = "") -> "DataFrame":
    """Return notifications as events with ids that are the same in each attempt.

    JSON texts are concatenated rather than parsed, so that 1 and 1.0 stay distinct.
    """
    from pyspark.sql import functions as f

    names = f.to_json(f.struct(f.col("subscription_id").alias("subscription"), "subscriber"))
    more = f.when(f.col("attributes") == "{}", "}").otherwise(f.concat(f.lit(","), f.expr("substr(attributes, 2)")))
    return notifications.select(
        f.concat(f.lit(where), "event_id", f.lit(" "), "subscription_id").alias("id"),
        f.concat(f.left(names, f.length(names) - 1), more).alias("attributes"),
        *("timestamp", "payload", "subscription_id", "signature"),
    )

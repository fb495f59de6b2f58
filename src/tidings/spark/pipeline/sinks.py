"""Where results go. A batch that is given again after a crash replaces what it wrote before.

A sink is anything that can be called with an `Outcome`, and has `what`: the part of it that it reads.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from tidings.hub import Hub as OpenHub
from tidings.spark.broker_sink import BrokerClients, BrokerSink
from tidings.spark.pipeline.outcome import Outcome, What
from tidings.spark.sink import Hub, HubSink, to_hub

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Sink(Protocol):
    @property
    def what(self) -> What: ...

    def __call__(self, outcome: Outcome) -> None: ...


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """Files below `path`, in a folder a batch: Spark reads them all as one, with a column `batch`."""

    path: str
    what: What = "notifications"
    format: Literal["parquet", "json"] = "parquet"

    def __call__(self, outcome: Outcome) -> None:
        if outcome.count(self.what):
            written = outcome.frame(self.what).write.mode("overwrite").format(self.format)
            written.save(f"{self.path}/batch={outcome.batch}")


class Console(msgspec.Struct, frozen=True, kw_only=True):
    """Shows some rows of each batch. After a crash a batch may be shown again."""

    what: What = "notifications"
    rows: int = 20

    def __call__(self, outcome: Outcome) -> None:
        if outcome.count(self.what):
            outcome.frame(self.what).show(self.rows, truncate=False)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """Any function of a DataFrame and the batch's number, as `foreachBatch` takes it. It is called again for a batch
    that is repeated: by the number it knows what it has done before."""

    function: Callable[["DataFrame", int], Any]
    what: What = "notifications"

    def __call__(self, outcome: Outcome) -> None:
        self.function(outcome.frame(self.what), outcome.batch)


class IntoHub:
    """Publishes every notification into a hub of this process, once, as an event of its own.

    It has the attributes that the subscriber got, and `subscription` and `subscriber` beside them. Of a sealed event
    nothing is published: see `rows.check_plain`.
    """

    what: What = "notifications"

    def __init__(self, hub: Hub, publisher: str = "pipeline", *, name: str = "spark-sink") -> None:
        self.hub_sink: HubSink = to_hub(hub, publisher, name=name)

    def __call__(self, outcome: Outcome) -> None:
        self.hub_sink(_as_events(outcome.notifications), outcome.batch)


class HubFolder:
    """`IntoHub` for a hub in a folder, which is opened with the first batch, where the batches are, and closed at the
    end. A hub that is open already is given to `IntoHub` as it is."""

    what: What = "notifications"

    def __init__(self, path: str, publisher: str = "pipeline", *, name: str = "spark-sink") -> None:
        self.path, self._publisher, self._name = path, publisher, name
        self._open: tuple[OpenHub, IntoHub] | None = None

    def __call__(self, outcome: Outcome) -> None:
        if self._open is None:
            hub = OpenHub(self.path)
            self._open = hub, IntoHub(hub, self._publisher, name=self._name)
        self._open[1](outcome)

    def close(self) -> None:
        if self._open is not None:
            self._open[0].close()
            self._open = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(HubFolder, name=self._name), (self.path, self._publisher)


class IntoBroker(msgspec.Struct, frozen=True):
    """Publishes every notification through a live broker, once, as an event of its own: as `IntoHub` does, but from
    where the rows are, by a client a partition. What belongs to one subscription comes from one client, in its order.
    """

    clients: BrokerClients

    @property
    def what(self) -> What:
        return "notifications"

    def __call__(self, outcome: Outcome) -> None:
        name = self.clients.name
        if outcome.count(self.what):
            sink = BrokerSink(self.clients, str(outcome.folder / "published" / quote(name, safe="")), "subscription_id")
            sink(_as_events(outcome.notifications, f"{name} {outcome.batch} "), outcome.batch)

    def has_published(self, publisher: "Column") -> "Column":
        """Whether an event of a journal came from here: whoever reads the broker's journal shall not route it again."""
        from pyspark.sql import functions as f

        name = self.clients.name
        return f.coalesce((publisher == name) | publisher.startswith(f"{name}/"), f.lit(False))


def _as_events(notifications: "DataFrame", where: str = "") -> "DataFrame":
    """With ids that are the same each time. Texts of JSON are put together, so that 1 and 1.0 stay what they are."""
    from pyspark.sql import functions as f

    told = f.to_json(f.struct(f.col("subscription_id").alias("subscription"), "subscriber"))
    more = f.when(f.col("attributes") == "{}", "}").otherwise(f.concat(f.lit(","), f.expr("substr(attributes, 2)")))
    return notifications.select(
        f.concat(f.lit(where), "event_id", f.lit(" "), "subscription_id").alias("id"),
        f.concat(f.left(told, f.length(told) - 1), more).alias("attributes"),
        *("timestamp", "payload", "subscription_id", "signature"),
    )

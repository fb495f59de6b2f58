"""Turn the physical rows that workers emit into the DataFrames that users see: matches, notifications and so on."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Views(ABC):
    """The results of routing as lazy DataFrames over physical rows, which subclasses provide.

    `shards` is the number of shards that may have processed the same event.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards

    @abstractmethod
    def _physical_rows(self, *, notifications: bool = False) -> "DataFrame": ...

    @property
    def matches(self) -> "DataFrame":
        """A row per event that matches: `event_id`, `timestamp`, and the ids of its `subscriptions`."""
        return matches(self._physical_rows(), self._shards)

    @property
    def notifications(self) -> "DataFrame":
        """A row per notification, with attributes and trace as JSON text."""
        return notifications(self._physical_rows(notifications=True))

    @property
    def rejected(self) -> "DataFrame":
        """A row per refused event or change, with `step`, `reason` and `kind`."""
        return rejected(self._physical_rows())

    @property
    def meta_events(self) -> "DataFrame":
        """A row per meta-event, with its attributes as JSON text."""
        return meta_events(self._physical_rows())


def matches(physical: "DataFrame", shards: int) -> "DataFrame":
    """Return a row per event that matches, with its subscriptions; the matches of several shards are combined."""
    from pyspark.sql import functions as f

    subscriptions = f.expr(
        "flatten(transform(notes, note -> coalesce(note.subscriptions, array(note.subscription_id))))"
    )
    per_shard = physical.filter("subscriptions IS NOT NULL OR notes IS NOT NULL").select(
        "event_id", "timestamp", f.coalesce("subscriptions", subscriptions).alias("subscriptions")
    )
    if shards == 1:
        return per_shard.select("event_id", _time(), "subscriptions")
    combined = per_shard.groupBy("event_id", "timestamp").agg(f.flatten(f.collect_list("subscriptions")).alias("all"))
    return combined.select("event_id", _time(), f.sort_array("all").alias("subscriptions"))


def notifications(physical: "DataFrame") -> "DataFrame":
    """Return a row per notification. Attributes and trace are JSON text; a sealed one has its token and signature."""
    from pyspark.sql import functions as f

    columns = ("event_id", _time(), "attributes", "payload", "token", "signature", f.explode("notes").alias("note"))
    return (
        physical.filter("notes IS NOT NULL")
        .select(*columns)
        .selectExpr(
            *("event_id", "note.subscription_id", "note.subscriber", "timestamp"),
            "coalesce(note.attributes, attributes) AS attributes",
            "coalesce(note.payload, payload) AS payload",
            "note.trace",
            "coalesce(note.subscriptions, array(note.subscription_id)) AS subscriptions",
            *("token", "coalesce(note.signature, signature) AS signature"),
        )
    )


def rejected(physical: "DataFrame") -> "DataFrame":
    """Return a row per refused event (`kind` is `publish`) or change (`kind` is its operation), with `step` and
    `reason`.
    """
    return physical.filter("step IS NOT NULL").select("event_id", "step", "reason", "kind")


def meta_events(physical: "DataFrame") -> "DataFrame":
    """Return a row per meta-event that the rules emitted, with its attributes as JSON text."""
    from pyspark.sql import functions as f

    rows = physical.filter("meta IS NOT NULL")
    return rows.select("event_id", _time(), f.col("meta").alias("attributes"))


def _time() -> "Column":
    from pyspark.sql import functions as f

    return f.timestamp_micros("timestamp").alias("timestamp")

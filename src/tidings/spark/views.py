"""What users see of the physical rows: `matches`, `notifications`, `rejected` and `meta_events`, lazily."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Views(ABC):
    """What became of the events, as DataFrames on physical rows that whoever inherits this has or makes."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    @abstractmethod
    def _physical(self, *, notifications: bool = False) -> "DataFrame": ...

    @property
    def matches(self) -> "DataFrame":
        return matches(self._physical(), self._shards)

    @property
    def notifications(self) -> "DataFrame":
        return notifications(self._physical(notifications=True))

    @property
    def rejected(self) -> "DataFrame":
        return rejected(self._physical())

    @property
    def meta_events(self) -> "DataFrame":
        return meta_events(self._physical())


def matches(physical: "DataFrame", shards: int) -> "DataFrame":
    """A row an event that concerns somebody; where it went to several shards, what they found is brought together."""
    from pyspark.sql import functions as f

    noted = f.expr("flatten(transform(notes, note -> coalesce(note.subscriptions, array(note.subscription_id))))")
    found = physical.filter("subscriptions IS NOT NULL OR notes IS NOT NULL").select(
        "event_id", "timestamp", f.coalesce("subscriptions", noted).alias("subscriptions")
    )
    if shards == 1:
        return found.select("event_id", _time(), "subscriptions")
    together = found.groupBy("event_id", "timestamp").agg(f.flatten(f.collect_list("subscriptions")).alias("all"))
    return together.select("event_id", _time(), f.sort_array("all").alias("subscriptions"))


def notifications(physical: "DataFrame") -> "DataFrame":
    """A row each; attributes and trace are JSON text. A sealed one has its token and its seal."""
    from pyspark.sql import functions as f

    shown = ("event_id", _time(), "attributes", "payload", "token", "signature", f.explode("notes").alias("note"))
    return (
        physical.filter("notes IS NOT NULL")
        .select(*shown)
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
    """What was refused, at which step and why; `kind` is `publish` for an event, and else the change that it was."""
    return physical.filter("step IS NOT NULL").select("event_id", "step", "reason", "kind")


def meta_events(physical: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    found = physical.filter("meta IS NOT NULL")
    return found.select("event_id", _time(), f.col("meta").alias("attributes"))


def _time() -> "Column":
    from pyspark.sql import functions as f

    return f.timestamp_micros("timestamp").alias("timestamp")

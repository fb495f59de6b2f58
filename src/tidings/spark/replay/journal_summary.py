"""Summaries of a journal for operators: counts, subscriptions with their notifications, events with their receivers."""

from typing import TYPE_CHECKING, Any

from tidings.journal.record import LOST
from tidings.spark import history
from tidings.spark.replay.retrace import RetraceResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def overview(journal: "DataFrame") -> dict[str, Any]:
    """Return counts about a journal: `records`, `first` and `last` time, `events`, `clients` and others."""
    from pyspark.sql import functions as f

    meta = f.coalesce(f.get_json_object("body", "$.journey.meta") == "true", f.lit(False))
    is_event = (f.col("kind") == "publish") & ~meta
    counts = {
        "records": f.count("*"),
        "first": f.min("timestamp"),
        "last": f.max("timestamp"),
        "events": f.count_if(is_event),
        "meta_events": f.count_if((f.col("kind") == "publish") & meta),
        "publishers": f.count_distinct(f.when(is_event, f.col("publisher"))),
        "clients": f.count_distinct(f.coalesce("client", f.when(is_event, f.col("publisher")))),
        "subscriptions": f.count_distinct(f.when(f.col("kind") == "subscribe", f.col("id"))),
        "advertisements": f.count_distinct(f.when(f.col("kind") == "advertise", f.col("id"))),
        "context_changes": f.count_if(f.col("kind") == "set_context"),
        "lost_records": f.count_if(f.col("kind") == LOST),
    }
    row = journal.agg(*(count.alias(name) for name, count in counts.items())).first()
    return {} if row is None else row.asDict()


def subscriptions(
    journal: "DataFrame", counts: "DataFrame", *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """Return the latest version of each subscription with its number of notifications, the most notified first.

    Args:
        journal: The rows of the journal.
        counts: `RetraceResult.per_subscription` of the journal.
        subscription: Only the subscription with this id.
        client: Only subscriptions of this client.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    versions = history.subscriptions(journal)
    if subscription is not None:
        versions = versions.where(f.col("id") == subscription)
    if client is not None:
        versions = versions.where(f.col("subscriber") == client)
    latest = Window.partitionBy("journal", "id").orderBy(f.desc("offset"))
    first_since = f.min("since").over(Window.partitionBy("journal", "id"))
    newest = (
        versions.withColumn("since", first_since).withColumn("place", f.row_number().over(latest)).where("place = 1")
    )
    counted = counts.select(f.col("subscription_id").alias("id"), "notifications", "last")
    joined = newest.join(counted, "id", "left")
    summary = joined.select(
        *("id", "subscriber", "content", "publishers", "since", "until"),
        f.coalesce("notifications", f.lit(0)).alias("notifications"),
        "last",
    )
    return summary.orderBy(f.desc("notifications"), "id")


def events(
    journal: "DataFrame", retraced: RetraceResult, *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """Return the events in order, each with the `subscriptions` that were notified.

    Args:
        journal: The rows of the journal.
        retraced: The replay of the journal.
        subscription: Only events that this subscription was notified of.
        client: Only events that this client published or was notified of.
    """
    from pyspark.sql import functions as f

    receivers = retraced.of_events.withColumn("subscription_id", f.explode("subscriptions"))
    receivers = receivers.groupBy("event_id").agg(
        f.sort_array(f.collect_set("subscription_id")).alias("subscriptions"),
        f.collect_set("subscriber").alias("subscribers"),
    )
    published = history.events(journal).select(
        f.col("id").alias("event_id"), "timestamp", "publisher", "subject", "attributes"
    )
    selected = published.join(receivers, "event_id", "left")
    if subscription is not None:
        selected = selected.where(f.array_contains("subscriptions", subscription))
    if client is not None:
        selected = selected.where((f.col("publisher") == client) | f.array_contains("subscribers", client))
    nobody = f.array().cast("array<string>")
    summary = selected.select(
        *("event_id", "timestamp", "publisher", "subject", "attributes"),
        f.coalesce("subscriptions", nobody).alias("subscriptions"),
    )
    return summary.orderBy("timestamp", "event_id")


def pairs(
    journal: "DataFrame", event: str, *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """Return pairs of an event and subscriptions, as `explain_journal` takes them.

    Args:
        journal: The rows of the journal.
        event: The id of the event.
        subscription: The id of the only subscription to pair it with. None: all subscriptions of `client`.
        client: The client whose subscriptions, of any time, are paired with the event.
    """
    from pyspark.sql import functions as f

    if subscription is not None:
        ids = journal.sparkSession.range(1).select(f.lit(subscription).alias("subscription_id"))
    else:
        versions = history.subscriptions(journal).where(f.col("subscriber") == client)
        ids = versions.select(f.col("id").alias("subscription_id")).distinct()
    return ids.select(f.lit(event).alias("event_id"), "subscription_id")

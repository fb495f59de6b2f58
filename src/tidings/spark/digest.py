"""What an operator asks of a journal: how much of what there was, who had what, and which events went where."""

from typing import TYPE_CHECKING, Any

from tidings.journal.record import LOST
from tidings.spark import history
from tidings.spark.retrace import Retraced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def overview(journal: "DataFrame") -> dict[str, Any]:
    """Of the rows of a journal: `records`, `first` and `last` time, counts by what they are, `clients` by name."""
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
    row = journal.agg(*(one.alias(name) for name, one in counts.items())).first()
    return {} if row is None else row.asDict()


def subscriptions(
    journal: "DataFrame", counts: "DataFrame", *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """The last form of each subscription, with the number of its notifications and the `last` of them, most first.

    `counts` are `Retraced.per_subscription`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    held = history.subscriptions(journal)
    if subscription is not None:
        held = held.where(f.col("id") == subscription)
    if client is not None:
        held = held.where(f.col("subscriber") == client)
    latest = Window.partitionBy("journal", "id").orderBy(f.desc("offset"))
    begun = f.min("since").over(Window.partitionBy("journal", "id"))
    newest = held.withColumn("since", begun).withColumn("place", f.row_number().over(latest)).where("place = 1")
    counted = counts.select(f.col("subscription_id").alias("id"), "notifications", "last")
    joined = newest.join(counted, "id", "left")
    found = joined.select(
        *("id", "subscriber", "content", "publishers", "since", "until"),
        f.coalesce("notifications", f.lit(0)).alias("notifications"),
        "last",
    )
    return found.orderBy(f.desc("notifications"), "id")


def events(
    journal: "DataFrame", retraced: Retraced, *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """The events in their order, each with the `subscriptions` that it went to.

    With `subscription`, those that went to it; with `client`, those that it published or got.
    """
    from pyspark.sql import functions as f

    went = retraced.of_events.withColumn("subscription_id", f.explode("subscriptions"))
    went = went.groupBy("event_id").agg(
        f.sort_array(f.collect_set("subscription_id")).alias("subscriptions"),
        f.collect_set("subscriber").alias("subscribers"),
    )
    published = history.events(journal).select(
        f.col("id").alias("event_id"), "timestamp", "publisher", "subject", "attributes"
    )
    found = published.join(went, "event_id", "left")
    if subscription is not None:
        found = found.where(f.array_contains("subscriptions", subscription))
    if client is not None:
        found = found.where((f.col("publisher") == client) | f.array_contains("subscribers", client))
    none = f.array().cast("array<string>")
    chosen = found.select(
        *("event_id", "timestamp", "publisher", "subject", "attributes"),
        f.coalesce("subscriptions", none).alias("subscriptions"),
    )
    return chosen.orderBy("timestamp", "event_id")


def pairs(
    journal: "DataFrame", event: str, *, subscription: str | None = None, client: str | None = None
) -> "DataFrame":
    """An event with a subscription, or with all that a client ever had: what `explain_journal` is asked."""
    from pyspark.sql import functions as f

    if subscription is not None:
        named = journal.sparkSession.range(1).select(f.lit(subscription).alias("subscription_id"))
    else:
        held = history.subscriptions(journal).where(f.col("subscriber") == client)
        named = held.select(f.col("id").alias("subscription_id")).distinct()
    return named.select(f.lit(event).alias("event_id"), "subscription_id")

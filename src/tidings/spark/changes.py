"""What changes over time: contexts, and subscriptions that begin and end, as rows between the events.

At the same time control changes come first, then contexts, then events. Everything here is column expressions.
"""

from typing import TYPE_CHECKING

from tidings.model.errors import InvalidValueError
from tidings.spark.events import ORDER, SHARD, microseconds
from tidings.spark.registry import shard_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What happens at the same time happens in this order: what ends, what begins, contexts, events.
_POLICY_ENDS, _ENDS, _BEGINS, _POLICY_BEGINS, _CONTEXT, _EVENT = range(6)
_SAID = ("content", "publishers", "format", "subject", "policy", "notify")


def context_changes(contexts: "DataFrame") -> "DataFrame":
    """`client`, `timestamp` in microseconds, and the whole context as JSON text in `body`."""
    from pyspark.sql import functions as f

    for name in ("client", "timestamp"):
        if name not in contexts.columns:
            raise InvalidValueError(f"contexts: there is no column {name}")
    kinds = dict(contexts.dtypes)
    if "context" in contexts.columns:
        context = f.col("context") if kinds["context"] == "string" else f.to_json("context")
    else:
        named = [name for name in contexts.columns if name not in ("client", "timestamp")]
        context = f.to_json(f.struct(*(f.col(f"`{name}`") for name in named)))
    time = microseconds("timestamp", kinds["timestamp"])
    body = f.coalesce(context, f.lit("{}"))
    return contexts.select(f.col("client").cast("string"), time.alias("timestamp"), body.alias("body"))


def with_publishers_contexts(events: "DataFrame", changes: "DataFrame") -> "DataFrame":
    """Events that bring no context get their publisher's, as it was when they were published."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if "context" in events.columns:
        return events
    known = changes.select(
        f.col("client").alias("publisher"), "timestamp", f.col("body").alias("context"), f.lit(_CONTEXT).alias(ORDER)
    )
    both = events.withColumn(ORDER, f.lit(_EVENT)).unionByName(known, allowMissingColumns=True)
    before = Window.partitionBy("publisher").orderBy("timestamp", ORDER).rowsBetween(Window.unboundedPreceding, 0)
    filled = both.withColumn("context", f.last("context", ignorenulls=True).over(before))
    return filled.filter(f.col(ORDER) == _EVENT).drop(ORDER)


def in_order(
    events: "DataFrame",
    changes: "DataFrame | None",
    subscriptions: "DataFrame",
    policies: "DataFrame | None",
    shards: int,
) -> "DataFrame":
    """Changes in the shard of their client, events in every shard, each shard in the order of time."""
    from pyspark.sql import functions as f

    everywhere = f.explode(f.sequence(f.lit(0), f.lit(shards - 1))) if shards > 1 else f.lit(0)
    rows = (
        events.withColumn(SHARD, everywhere)
        .withColumn(ORDER, f.lit(_EVENT))
        .withColumn("kind", f.lit("publish"))
        .withColumn("client", f.lit(None).cast("string"))
        .withColumn("body", f.lit(None).cast("string"))
    )
    others = [] if changes is None else [_contexts(changes)]
    others += [] if policies is None else _policies(policies, subscriptions)
    for more in (*_windows(subscriptions), *others):
        rows = rows.unionByName(more.withColumn(SHARD, shard_of(f.col("client"), shards)), allowMissingColumns=True)
    return rows.repartitionById(shards, SHARD).sortWithinPartitions(SHARD, "timestamp", ORDER, "id")


def has_windows(frame: "DataFrame | None") -> bool:
    return frame is not None and ("since" in frame.columns or "until" in frame.columns)


def from_the_start(subscriptions: "DataFrame") -> "DataFrame":
    """Those that no change begins."""
    return subscriptions.filter("since IS NULL") if "since" in subscriptions.columns else subscriptions


def _contexts(changes: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return changes.withColumn("kind", f.lit("set_context")).withColumn(ORDER, f.lit(_CONTEXT))


def _windows(subscriptions: "DataFrame") -> list["DataFrame"]:
    """Beginnings, and ends."""
    from pyspark.sql import functions as f

    kinds = dict(subscriptions.dtypes)
    subscriber = f.coalesce("subscriber", "id") if "subscriber" in kinds else f.col("id")
    client = subscriber.cast("string").alias("client")
    found = []
    if "since" in kinds:
        said = f.to_json(f.struct(*(f.col(name).cast("string").alias(name) for name in _SAID if name in kinds)))
        begin = microseconds("since", kinds["since"]).alias("timestamp")
        found.append(
            subscriptions.filter("since IS NOT NULL").select(
                *(f.col("id").cast("string"), client, begin, said.alias("body")),
                *(f.lit("subscribe").alias("kind"), f.lit(_BEGINS).alias(ORDER)),
            )
        )
    if "until" in kinds:
        end = microseconds("until", kinds["until"]).alias("timestamp")
        found.append(
            subscriptions.filter("until IS NOT NULL").select(
                *(f.col("id").cast("string"), client, end, f.lit("{}").alias("body")),
                *(f.lit("unsubscribe").alias("kind"), f.lit(_ENDS).alias(ORDER)),
            )
        )
    return found


def _policies(policies: "DataFrame", subscriptions: "DataFrame") -> list["DataFrame"]:
    """Policies that were set, and those that were taken back; what came with a subscription is there already."""
    from pyspark.sql import functions as f

    missing = [name for name in ("id", "policy", "since", "until", "by") if name not in policies.columns]
    if missing:
        raise InvalidValueError(f"policies: {missing[0]} is missing beside since and until")
    kinds = dict(policies.dtypes)
    begin, end = microseconds("since", kinds["since"]), microseconds("until", kinds["until"])
    said = f.to_json(f.struct(f.col("policy").cast("string").alias("policy")))
    brought = subscriptions.filter("policy IS NOT NULL").select("id", "since") if _brings(subscriptions) else None
    later = policies if brought is None else policies.join(brought, ["id", "since"], "left_anti")
    named = [f.col("id").cast("string").alias("id"), f.col("by").cast("string").alias("client")]
    kind = f.lit("set_policy").alias("kind")
    return [
        later.filter("since IS NOT NULL").select(
            *(*named, begin.alias("timestamp"), said.alias("body"), kind),
            f.lit(_POLICY_BEGINS).alias(ORDER),
        ),
        policies.filter("until IS NOT NULL").select(
            *(*named, end.alias("timestamp"), f.lit('{"policy":null}').alias("body"), kind),
            f.lit(_POLICY_ENDS).alias(ORDER),
        ),
    ]


def _brings(subscriptions: "DataFrame") -> bool:
    return "policy" in subscriptions.columns and "since" in subscriptions.columns

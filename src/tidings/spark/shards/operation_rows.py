"""Turn DataFrames of events, contexts, subscriptions, policies and journals into rows of operations for the engine.

Every row has the columns of a journal, and `$event`, `$order`, `$scheduled` and `$problem` (see
`tidings.spark.events`). At the same time, control changes come first, then contexts, then events. All functions build
column expressions.
"""

from functools import reduce
from typing import TYPE_CHECKING

from tidings.engine.journal_codec import SIGNED
from tidings.journal.record import LOST, PUBLISH
from tidings.model.errors import InvalidValueError
from tidings.spark.events import (
    EVERYWHERE,
    KEY,
    ORDER,
    PROBLEM,
    SCHEDULED,
    SHARD,
    microseconds,
    pack_attributes,
    prepare_events,
)
from tidings.spark.history import CHANGES
from tidings.spark.shards.registry import as_text, shard_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The order of operations at the same time: ends, begins, contexts, events.
_POLICY_ENDS, _ENDS, _BEGINS, _POLICY_BEGINS, _CONTEXT, _EVENT = range(6)
_BODY_FIELDS = ("content", "publishers", "format", "subject", "structure", "policy", "durable", "notify", "token")
_NULL = "CAST(NULL AS STRING)"


def event_rows(events: "DataFrame") -> "DataFrame":
    """Return events as rows of `publish`; their attributes are packed into one column, since names could collide."""
    from pyspark.sql import functions as f

    return pack_attributes(prepare_events(events)).select(
        "*",
        f.lit(PUBLISH).alias("kind"),
        *(f.expr(_NULL).alias(name) for name in ("client", "body")),
        *_order(_EVENT),
    )


def context_rows(contexts: "DataFrame") -> "DataFrame":
    """Return changes of contexts as rows of `set_context`, each with the client's whole context.

    The columns are `client`, `timestamp`, and `context` (JSON text or nested) or a column per context name.
    """
    from pyspark.sql import functions as f

    for name in ("client", "timestamp"):
        if name not in contexts.columns:
            raise InvalidValueError(f"contexts: there is no column {name}; there are {', '.join(contexts.columns)}")
    kinds = dict(contexts.dtypes)
    if "context" in contexts.columns:
        context = f.col("context") if kinds["context"] == "string" else f.to_json("context")
    else:
        names = [name for name in contexts.columns if name not in ("client", "timestamp", PROBLEM)]
        context = f.to_json(f.struct(*(f.col(f"`{name}`") for name in names)))
    client = f.col("client").cast("string")
    return contexts.select(
        client.alias(KEY),
        f.expr(_NULL).alias("id"),
        microseconds("timestamp", kinds["timestamp"]).alias("timestamp"),
        f.lit("set_context").alias("kind"),
        client.alias("client"),
        f.coalesce(context, f.lit("{}")).alias("body"),
        _problem(kinds).alias(PROBLEM),
        *_order(_CONTEXT),
    )


def subscription_rows(subscriptions: "DataFrame") -> "DataFrame":
    """Return subscriptions as rows of `subscribe` at `since`, and `unsubscribe` at `until`.

    Without `since` a subscription begins at once. A row with `until` and without `content` is an end only.
    """
    from pyspark.sql import functions as f

    kinds = dict(subscriptions.dtypes)
    missing = [name for name in ("id", "content") if name not in kinds]
    if missing:
        raise InvalidValueError(f"subscriptions: there is no column {missing[0]}; there are {', '.join(kinds)}")
    client = (f.coalesce("subscriber", "id") if "subscriber" in kinds else f.col("id")).cast("string")
    body = f.to_json(f.struct(*(as_text(name, subscriptions).alias(name) for name in _BODY_FIELDS if name in kinds)))
    since, until = (_time(name, kinds) for name in ("since", "until"))
    ends_it = f.col("until").isNotNull() if "until" in kinds else f.lit(False)
    empty = f.when(f.col("content").isNull() & ~ends_it, f.lit("the subscription has neither content nor until"))
    problem = _problem(kinds, "since", "until", more=empty)
    checked = subscriptions.withColumn(PROBLEM, problem)
    begins = checked.filter(f.col("content").isNotNull() | f.col(f"`{PROBLEM}`").isNotNull()).select(
        *_change_columns("subscribe", client, since, body), f.col(f"`{PROBLEM}`"), *_order(_BEGINS, scheduled=True)
    )
    ends = checked.filter(ends_it & f.col(f"`{PROBLEM}`").isNull()).select(
        *_change_columns("unsubscribe", client, until, f.lit("{}")),
        f.col(f"`{PROBLEM}`"),
        *_order(_ENDS, scheduled=True),
    )
    return begins.unionByName(ends) if "until" in kinds else begins


def policy_rows(policies: "DataFrame") -> "DataFrame":
    """Return policies as rows of `set_policy` at `since` (without one, at once), and their removals at `until`."""
    begins = policy_begins(policies)
    return begins.unionByName(policy_ends(policies)) if "until" in policies.columns else begins


def policy_begins(policies: "DataFrame") -> "DataFrame":
    """Return the rows of `set_policy` that set policies at `since`."""
    from pyspark.sql import functions as f

    body = f.to_json(f.struct(f.col("policy").cast("string").alias("policy")), {"ignoreNullFields": "false"})
    return _policy_changes(policies, "since", body, _POLICY_BEGINS)


def policy_ends(policies: "DataFrame") -> "DataFrame":
    """Return the rows of `set_policy` that remove policies at `until`."""
    from pyspark.sql import functions as f

    kinds = dict(policies.dtypes)
    ending = policies.filter(f.col("until").isNotNull() & _problem(kinds, "since", "until").isNull())
    return _policy_changes(ending, "until", f.lit('{"policy":null}'), _POLICY_ENDS)


def _policy_changes(policies: "DataFrame", time_column: str, body: "Column", order: int) -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = dict(policies.dtypes)
    missing = [name for name in ("id", "policy", "by") if name not in kinds]
    if missing:
        raise InvalidValueError(f"policies: there is no column {missing[0]}; there are {', '.join(kinds)}")
    by = f.col("by").cast("string")
    problem = _problem(kinds, "since", "until").alias(PROBLEM)
    columns = _change_columns("set_policy", by, _time(time_column, kinds), body)
    return policies.select(*columns, problem, *_order(order, scheduled=True))


def journal_rows(journal: "DataFrame", *, secured: bool = False) -> "DataFrame":
    """Return the rows of a hub's or broker's journal that are operations of the engine.

    Left out are meta-events (the engine emits them again), the broker's internal records, and events that another
    broker accepted. Lost records remain, so that they are reported. Rows about secure topics remain only if events are
    checked (`secured`).
    """
    from pyspark.sql import functions as f

    missing = [name for name in ("kind", "timestamp", "offset", "body") if name not in journal.columns]
    if missing:
        raise InvalidValueError(f"these are not the rows of a journal: there is no column {missing[0]}")
    kind = f.col("kind")
    is_meta = f.coalesce(f.get_json_object("body", "$.journey.meta") == "true", f.lit(False))
    order = f.when(kind == PUBLISH, _EVENT).when(kind == "set_context", _CONTEXT).otherwise(_BEGINS)
    kinds = dict(journal.dtypes)
    change_kinds = CHANGES if secured else [kind for kind in CHANGES if kind not in SIGNED]
    is_operation = ((kind == PUBLISH) & ~is_meta) | kind.isin(*change_kinds, LOST)
    return journal.filter(is_operation).select(
        f.coalesce("id", "client", "kind").alias(KEY),
        microseconds("timestamp", kinds["timestamp"]).alias("timestamp"),
        microseconds("published", kinds["published"]).alias("published"),
        *(name for name in journal.columns if name not in ("journal", "offset", "timestamp", "published")),
        order.cast("int").alias(ORDER),
        f.lit(False).alias(SCHEDULED),
    )


def union_rows(rows: "list[DataFrame]") -> "DataFrame":
    """Return the union of rows; columns that some of them lack are null there."""
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), rows)


def in_order(rows: "DataFrame", shards: int, *, start: int = 0, spread_contexts: bool = False) -> "DataFrame":
    """Assign rows to shards, and sort each shard by time: changes go to their client's shard, events to every shard.

    Args:
        rows: Rows of operations.
        shards: The number of shards.
        start: Earlier changes take effect at this time (microseconds).
        spread_contexts: Whether contexts go to all shards, since events get the contexts of their publishers.
    """
    from pyspark.sql import functions as f

    time = f.when(f.col(SCHEDULED), f.coalesce("timestamp", f.lit(start))).otherwise(f.col("timestamp"))
    is_change = (f.col("kind") != PUBLISH) & time.isNotNull()
    timed = rows.withColumn("timestamp", f.when(is_change, f.greatest(time, f.lit(start))).otherwise(time))
    if shards == 1:
        assigned = timed.withColumn(SHARD, f.lit(0))
    else:
        kinds = [*EVERYWHERE, "set_context"] if spread_contexts else EVERYWHERE
        everywhere = f.sequence(f.lit(0), f.lit(shards - 1))
        own = f.array(shard_of(f.col("client"), shards))
        assigned = timed.withColumn(SHARD, f.explode(f.when(f.col("kind").isin(*kinds), everywhere).otherwise(own)))
    # Ties are broken by all columns, so that a repeated batch is processed in the same order.
    return assigned.repartitionById(shards, SHARD).sortWithinPartitions(
        SHARD, "timestamp", ORDER, "id", KEY, "client", "body"
    )


def has_windows(frame: "DataFrame | None") -> bool:
    """Return whether a DataFrame has `since` or `until`."""
    return frame is not None and ("since" in frame.columns or "until" in frame.columns)


def initial_subscriptions(subscriptions: "DataFrame") -> "DataFrame":
    """Return the subscriptions without `since`, which are built into the shards; rows that only end one are dropped."""
    initial = subscriptions.filter("since IS NULL") if "since" in subscriptions.columns else subscriptions
    return initial.filter("content IS NOT NULL OR until IS NULL") if "until" in subscriptions.columns else initial


def later_changes(subscriptions: "DataFrame") -> "DataFrame":
    """Return the changes of subscriptions after the start: those that begin later, and the ends of all."""
    from pyspark.sql import functions as f

    began = f.col("since").isNull() if "since" in subscriptions.columns else f.lit(True)
    ends = f.col("until").isNotNull() if "until" in subscriptions.columns else f.lit(False)
    rest = subscriptions.withColumn("content", f.when(~began, f.col("content")))
    return rest.filter(~began | ends)


def without_brought_policies(policies: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """Return the policies without those that begin together with a subscription, which brings them itself."""
    if not {"policy", "since"} <= set(subscriptions.columns):
        return policies
    brought = subscriptions.filter("policy IS NOT NULL").select("id", "since")
    return policies.join(brought, ["id", "since"], "left_anti")


def _time(name: str, kinds: dict[str, str]) -> "Column":
    from pyspark.sql import functions as f

    return microseconds(name, kinds[name]) if name in kinds else f.lit(None).cast("bigint")


def _problem(kinds: dict[str, str], *times: str, more: "Column | None" = None) -> "Column":
    """Return why a row cannot be used: the source's reason, a time that cannot be read, or `more`; else null."""
    from pyspark.sql import functions as f

    problems = [f.col(f"`{PROBLEM}`")] if PROBLEM in kinds else []
    for name in times:
        if kinds.get(name) == "string":
            unread = f.col(name).isNotNull() & microseconds(name, "string").isNull()
            problem = f.concat(f.lit(f"{name}: '"), f.left(f.col(name), f.lit(40)), f.lit("' is not a time"))
            problems.append(f.when(unread, problem))
    problems += [more] if more is not None else []
    return f.coalesce(*problems, f.lit(None).cast("string"))


def _change_columns(kind: str, client: "Column", time: "Column", body: "Column") -> list["Column"]:
    from pyspark.sql import functions as f

    name = f.col("id").cast("string")
    return [
        name.alias(KEY),
        name.alias("id"),
        time.alias("timestamp"),
        f.lit(kind).alias("kind"),
        client.alias("client"),
        body.alias("body"),
    ]


def _order(order: int, *, scheduled: bool = False) -> list["Column"]:
    from pyspark.sql import functions as f

    return [f.lit(order).alias(ORDER), f.lit(scheduled).alias(SCHEDULED)]

"""Operations as rows: events, and beside them what changes: contexts, subscriptions that begin and end, policies.

At the same time control changes come first, then contexts, then events. Everything here is column expressions.
"""

from functools import reduce
from typing import TYPE_CHECKING

from tidings.engine.records import SIGNED
from tidings.journal.record import LOST, PUBLISH
from tidings.model.errors import InvalidValueError
from tidings.spark.events import EVERYWHERE, KEY, ORDER, PROBLEM, SCHEDULED, SHARD, microseconds, packed, prepared
from tidings.spark.history import CHANGES
from tidings.spark.registry import as_text, shard_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What happens at the same time happens in this order: what ends, what begins, contexts, events.
_POLICY_ENDS, _ENDS, _BEGINS, _POLICY_BEGINS, _CONTEXT, _EVENT = range(6)
_SAID = ("content", "publishers", "format", "subject", "structure", "policy", "durable", "notify", "token")
_NULL = "CAST(NULL AS STRING)"


def event_rows(events: "DataFrame") -> "DataFrame":
    """Events of any form; their attributes are packed, since some may have a name that rows use."""
    from pyspark.sql import functions as f

    return packed(prepared(events)).select(
        "*",
        f.lit(PUBLISH).alias("kind"),
        *(f.expr(_NULL).alias(name) for name in ("client", "body")),
        *_order(_EVENT),
    )


def context_rows(contexts: "DataFrame") -> "DataFrame":
    """The whole context of a client from a time on: `client`, `timestamp`, and `context` or a column a name."""
    from pyspark.sql import functions as f

    for name in ("client", "timestamp"):
        if name not in contexts.columns:
            raise InvalidValueError(f"contexts: there is no column {name}; there are {', '.join(contexts.columns)}")
    kinds = dict(contexts.dtypes)
    if "context" in contexts.columns:
        context = f.col("context") if kinds["context"] == "string" else f.to_json("context")
    else:
        named = [name for name in contexts.columns if name not in ("client", "timestamp", PROBLEM)]
        context = f.to_json(f.struct(*(f.col(f"`{name}`") for name in named)))
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
    """Beginnings (`since`; without one, at once) and ends (`until`); without content a row is an end only."""
    from pyspark.sql import functions as f

    kinds = dict(subscriptions.dtypes)
    missing = [name for name in ("id", "content") if name not in kinds]
    if missing:
        raise InvalidValueError(f"subscriptions: there is no column {missing[0]}; there are {', '.join(kinds)}")
    client = (f.coalesce("subscriber", "id") if "subscriber" in kinds else f.col("id")).cast("string")
    said = f.to_json(f.struct(*(as_text(name, subscriptions).alias(name) for name in _SAID if name in kinds)))
    since, until = (_time(name, kinds) for name in ("since", "until"))
    ends_it = f.col("until").isNotNull() if "until" in kinds else f.lit(False)
    empty = f.when(f.col("content").isNull() & ~ends_it, f.lit("the subscription has neither content nor until"))
    problem = _problem(kinds, "since", "until", more=empty)
    judged = subscriptions.withColumn(PROBLEM, problem)
    begins = judged.filter(f.col("content").isNotNull() | f.col(f"`{PROBLEM}`").isNotNull()).select(
        *_named("subscribe", client, since, said), f.col(f"`{PROBLEM}`"), *_order(_BEGINS, scheduled=True)
    )
    ends = judged.filter(ends_it & f.col(f"`{PROBLEM}`").isNull()).select(
        *_named("unsubscribe", client, until, f.lit("{}")), f.col(f"`{PROBLEM}`"), *_order(_ENDS, scheduled=True)
    )
    return begins.unionByName(ends) if "until" in kinds else begins


def policy_rows(policies: "DataFrame") -> "DataFrame":
    """Policies that are set by somebody on a filter (`since`; without one, at once), and taken back (`until`)."""
    begins = policy_begins(policies)
    return begins.unionByName(policy_ends(policies)) if "until" in policies.columns else begins


def policy_begins(policies: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    said = f.to_json(f.struct(f.col("policy").cast("string").alias("policy")), {"ignoreNullFields": "false"})
    return _policies(policies, "since", said, _POLICY_BEGINS)


def policy_ends(policies: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = dict(policies.dtypes)
    ending = policies.filter(f.col("until").isNotNull() & _problem(kinds, "since", "until").isNull())
    return _policies(ending, "until", f.lit('{"policy":null}'), _POLICY_ENDS)


def _policies(policies: "DataFrame", when: str, said: "Column", order: int) -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = dict(policies.dtypes)
    missing = [name for name in ("id", "policy", "by") if name not in kinds]
    if missing:
        raise InvalidValueError(f"policies: there is no column {missing[0]}; there are {', '.join(kinds)}")
    by = f.col("by").cast("string")
    problem = _problem(kinds, "since", "until").alias(PROBLEM)
    named = _named("set_policy", by, _time(when, kinds), said)
    return policies.select(*named, problem, *_order(order, scheduled=True))


def journal_rows(journal: "DataFrame", *, secured: bool = False) -> "DataFrame":
    """The rows of a hub's or broker's journal, which are operations as they are; meta-events are made anew.

    What a broker has noted for itself is passed over, and so are events that another one has accepted. Records that
    are lost stay: somebody should hear of them. What is told of secure topics is for who checks them (`secured`).
    """
    from pyspark.sql import functions as f

    missing = [name for name in ("kind", "timestamp", "offset", "body") if name not in journal.columns]
    if missing:
        raise InvalidValueError(f"these are not the rows of a journal: there is no column {missing[0]}")
    kind = f.col("kind")
    made_there = f.coalesce(f.get_json_object("body", "$.journey.meta") == "true", f.lit(False))
    order = f.when(kind == PUBLISH, _EVENT).when(kind == "set_context", _CONTEXT).otherwise(_BEGINS)
    kinds = dict(journal.dtypes)
    told = CHANGES if secured else [one for one in CHANGES if one not in SIGNED]
    routed = ((kind == PUBLISH) & ~made_there) | kind.isin(*told, LOST)
    return journal.filter(routed).select(
        f.coalesce("id", "client", "kind").alias(KEY),
        microseconds("timestamp", kinds["timestamp"]).alias("timestamp"),
        microseconds("published", kinds["published"]).alias("published"),
        *(name for name in journal.columns if name not in ("journal", "offset", "timestamp", "published")),
        order.cast("int").alias(ORDER),
        f.lit(False).alias(SCHEDULED),
    )


def together(rows: "list[DataFrame]") -> "DataFrame":
    """One frame; what a kind of rows does not have is null."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)


def in_order(rows: "DataFrame", shards: int, *, start: int = 0, spread_contexts: bool = False) -> "DataFrame":
    """Changes in the shard of their client, events in every shard, each shard in the order of time.

    No change is earlier than `start`. Contexts are spread over all shards where events need their publishers'.
    """
    from pyspark.sql import functions as f

    time = f.when(f.col(SCHEDULED), f.coalesce("timestamp", f.lit(start))).otherwise(f.col("timestamp"))
    late = (f.col("kind") != PUBLISH) & time.isNotNull()
    timed = rows.withColumn("timestamp", f.when(late, f.greatest(time, f.lit(start))).otherwise(time))
    if shards == 1:
        placed = timed.withColumn(SHARD, f.lit(0))
    else:
        kinds = [*EVERYWHERE, "set_context"] if spread_contexts else EVERYWHERE
        everywhere = f.sequence(f.lit(0), f.lit(shards - 1))
        own = f.array(shard_of(f.col("client"), shards))
        placed = timed.withColumn(SHARD, f.explode(f.when(f.col("kind").isin(*kinds), everywhere).otherwise(own)))
    # To the last tie, so that a batch that is given again is worked through in the same order.
    return placed.repartitionById(shards, SHARD).sortWithinPartitions(
        SHARD, "timestamp", ORDER, "id", KEY, "client", "body"
    )


def has_windows(frame: "DataFrame | None") -> bool:
    return frame is not None and ("since" in frame.columns or "until" in frame.columns)


def from_the_start(subscriptions: "DataFrame") -> "DataFrame":
    """Those that no change begins; a row that only ends one is none."""
    begun = subscriptions.filter("since IS NULL") if "since" in subscriptions.columns else subscriptions
    return begun.filter("content IS NOT NULL OR until IS NULL") if "until" in subscriptions.columns else begun


def later(subscriptions: "DataFrame") -> "DataFrame":
    """What else happens to them: those that begin later, and the ends of all."""
    from pyspark.sql import functions as f

    began = f.col("since").isNull() if "since" in subscriptions.columns else f.lit(True)
    ends = f.col("until").isNotNull() if "until" in subscriptions.columns else f.lit(False)
    rest = subscriptions.withColumn("content", f.when(~began, f.col("content")))
    return rest.filter(~began | ends)


def set_apart(policies: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """The policies without the beginnings of those that subscriptions bring with them."""
    if not {"policy", "since"} <= set(subscriptions.columns):
        return policies
    brought = subscriptions.filter("policy IS NOT NULL").select("id", "since")
    return policies.join(brought, ["id", "since"], "left_anti")


def _time(name: str, kinds: dict[str, str]) -> "Column":
    from pyspark.sql import functions as f

    return microseconds(name, kinds[name]) if name in kinds else f.lit(None).cast("bigint")


def _problem(kinds: dict[str, str], *times: str, more: "Column | None" = None) -> "Column":
    """Why a row cannot be taken: what its reader has found, or a time that is there and cannot be read."""
    from pyspark.sql import functions as f

    found = [f.col(f"`{PROBLEM}`")] if PROBLEM in kinds else []
    for name in times:
        if kinds.get(name) == "string":
            unread = f.col(name).isNotNull() & microseconds(name, "string").isNull()
            told = f.concat(f.lit(f"{name}: '"), f.left(f.col(name), f.lit(40)), f.lit("' is not a time"))
            found.append(f.when(unread, told))
    found += [more] if more is not None else []
    return f.coalesce(*found, f.lit(None).cast("string"))


def _named(kind: str, client: "Column", time: "Column", said: "Column") -> list["Column"]:
    from pyspark.sql import functions as f

    name = f.col("id").cast("string")
    return [
        name.alias(KEY),
        name.alias("id"),
        time.alias("timestamp"),
        f.lit(kind).alias("kind"),
        client.alias("client"),
        said.alias("body"),
    ]


def _order(order: int, *, scheduled: bool = False) -> list["Column"]:
    from pyspark.sql import functions as f

    return [f.lit(order).alias(ORDER), f.lit(scheduled).alias(SCHEDULED)]

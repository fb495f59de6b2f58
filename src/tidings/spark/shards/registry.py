"""Build the shards: compile subscriptions, policies, advertisements and schemas into engines stored in files.

Every shard is built by one task, in a folder of its own; workers map the files into memory. No subscription passes
through the driver. Shards may work independently unless policies may emit meta-events: these go to all subscribers, and
a policy conflict is reported only once. So rules that may emit meta-events need one shard with all subscriptions, and
rules that may conflict need that shard to process all events in order (`MetaEventScope`).
"""

from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidings.engine import Settings
from tidings.engine.matcher import RequestedValues
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import compiled_text
from tidings.engine.state.static_projections import constant_projection
from tidings.filters import Filter
from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.subscription import Subscription
from tidings.spark.events import PROBLEM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidings.spark.shards.shard_builder import ShardPlan


MAX_REPORTED = 1_000  # refused subscriptions reported per shard
_COLUMNS = (
    *("id", "subscriber", "content", "publishers", "format", "subject", "structure", "policy", "notify", "token"),
    PROBLEM,
)

MAX_SUBSCRIPTIONS_PER_SHARD = 2_000_000  # subscriptions: about half a gigabyte of index, and as much again of texts


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """The shards that were built; `folder/0`, `folder/1`, ... hold one shard each."""

    folder: str
    shards: int
    subscriptions: int
    rejected: list[tuple[str, str]]  # id and reason of refused subscriptions; at most 1,000 per shard
    requested_values: list[RequestedValues | None] = []  # per shard: values that all its subscriptions need
    is_plain: bool = False  # no rules, no schemas: an event without matches has no effect

    def shard(self, number: int) -> Path:
        """Return the folder of a shard."""
        return Path(self.folder) / str(number)


def shards_for(subscriptions: int) -> int:
    """Return the least number of shards such that one task can build and map each of them.

    Fewer shards are better, since every shard processes every event.
    """
    return max(1, -(-subscriptions // MAX_SUBSCRIPTIONS_PER_SHARD))


def shard_of(subscriber: "Column", shards: int) -> "Column":
    """Return the column of a client's shard; its subscriptions and its contexts are in the same one."""
    from pyspark.sql import functions as f

    return f.pmod(f.xxhash64(subscriber), f.lit(shards)).cast("int")


def as_text(name: str, subscriptions: "DataFrame") -> "Column":
    """Return a column of subscriptions as text; a token in bytes is encoded in base64."""
    from pyspark.sql import functions as f

    column = f.col(f"`{name}`")
    if dict(subscriptions.dtypes)[name] != "binary":
        return column.cast("string")
    return f.translate(f.base64(column), "\r\n", "")  # Spark breaks base64 into lines


def build_registry(subscriptions: "DataFrame", plan: "ShardPlan", shards: int) -> Registry:
    """Compile the subscriptions into shards, spread by subscriber; every task builds one shard."""
    from pyspark.sql import functions as f

    from tidings.spark.shards.shard_builder import DDL, ShardBuilder

    missing = [name for name in ("id", "content") if name not in subscriptions.columns]
    if missing:
        raise InvalidValueError(f"subscriptions: there is no column {missing[0]}")
    rows = subscriptions.select(
        *(as_text(name, subscriptions).alias(name) for name in _COLUMNS if name in subscriptions.columns)
    )
    subscriber = f.coalesce("subscriber", "id") if "subscriber" in rows.columns else f.col("id")
    no_content = f.when(f.col("content").isNull(), f.lit("there is no content; the filter TRUE is for everything"))
    problem = f.coalesce(f.col(f"`{PROBLEM}`"), no_content) if PROBLEM in rows.columns else no_content
    rows = rows.withColumn("subscriber", subscriber).withColumn(PROBLEM, problem)
    spread = rows.withColumn("shard", shard_of(f.col("subscriber"), shards)).repartitionById(shards, "shard")
    builder = ShardBuilder(plan)
    # A row per shard, and at most 1,000 per shard for refused subscriptions: small enough to collect.
    reports = spread.mapInArrow(builder, DDL).collect()
    report_of_shard = {row["shard"]: row for row in reports if row["subscriptions"] is not None}
    requested_values: list[RequestedValues | None] = []
    for number in range(shards):
        if number in report_of_shard:
            requested_values.append(msgspec.json.decode(report_of_shard[number]["asked"], type=RequestedValues | None))
        else:  # no subscriber hashes to this shard
            builder.build(number, None)
            requested_values.append(RequestedValues("", [], []))
    return Registry(
        folder=plan.folder,
        shards=shards,
        subscriptions=sum(row["subscriptions"] for row in report_of_shard.values()),
        requested_values=requested_values,
        is_plain=not plan.advertisements and not plan.schemas and "policy" not in subscriptions.columns,
        rejected=sorted((row["id"], row["reason"]) for row in reports if row["subscriptions"] is None),
    )


_MAX_POLICIES = 256  # distinct policies that are analysed


class MetaEventScope(IntEnum):
    """What a worker must see to emit the same meta-events as a single engine."""

    NOTHING = 0  # no meta-events: shards are independent
    OF_EACH = 1  # they depend on one event and all subscriptions: one shard, any task
    ONCE = 2  # once per conflict: one shard processes all events in order


def scope_of_subscriptions(subscriptions: "DataFrame | None", settings: Settings) -> MetaEventScope:
    """Return the scope of the meta-events that the policies of these subscriptions may emit.

    It applies where there are no other policies. The subscriptions' distinct policies are collected, at most 256.
    """
    from pyspark.sql import functions as f

    if subscriptions is None or "policy" not in subscriptions.columns:
        return MetaEventScope.NOTHING
    if subscriptions.isStreaming or settings.govern:
        return MetaEventScope.ONCE
    columns = subscriptions.columns
    own = f.col("subscriber") == settings.name if "subscriber" in columns else f.lit(False)
    is_client_subscription = f.col("notify") == "client" if "notify" in columns else f.lit(False)
    shared = f.coalesce(own | is_client_subscription, f.lit(False)).alias("shared")  # others' rules act on the copy
    policies = subscriptions.filter("policy IS NOT NULL").select(f.col("policy").cast("string"), shared)
    distinct = policies.distinct().limit(_MAX_POLICIES + 1).collect()
    if len(distinct) > _MAX_POLICIES:
        return MetaEventScope.ONCE
    return max(
        (scope_of_policy(row["policy"], shared=row["shared"]) for row in distinct), default=MetaEventScope.NOTHING
    )


def scope_of_policy(policy: str, *, shared: bool = False) -> MetaEventScope:
    """Return the scope of the meta-events that one policy of a subscription may emit.

    Two rules may conflict about a copy, and an action of a single rule may fail. A rule that always makes the same
    projection can do neither. `shared`: rules of other subscriptions act on the same copy.
    """
    try:
        example = Subscription.of(Filter.parse("a = 1"), id="s", subscriber="s", policy=policy)
        rules = compiled_text(policy).policy.rules
    except TidingsError:  # subscriptions with this policy are refused
        return MetaEventScope.NOTHING
    if shared or len(rules) > 1:
        return MetaEventScope.ONCE
    return MetaEventScope.NOTHING if constant_projection(BrokerState(), example) is not None else MetaEventScope.OF_EACH

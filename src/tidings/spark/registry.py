"""The registry: subscriptions, policies, advertisements and schemas, compiled into engines that workers map.

Every shard is built by a task of its own, in a folder of its own; no subscription passes through the driver.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidings.engine.matcher import Asked
from tidings.model.errors import InvalidValueError
from tidings.spark.events import PROBLEM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidings.spark.building import Plan

MOST_REPORTED = 1_000  # refused subscriptions of a shard
_COLUMNS = (
    *("id", "subscriber", "content", "publishers", "format", "subject", "structure", "policy", "notify", "token"),
    PROBLEM,
)

MOST_IN_A_SHARD = 2_000_000  # subscriptions: about half a gigabyte of index, and as much again of texts


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """What was built: `folder/0`, `folder/1`, ... hold a shard each."""

    folder: str
    shards: int
    subscriptions: int
    rejected: list[tuple[str, str]]  # ids of subscriptions that could not be taken, and why; some of each shard
    asked: list[Asked | None] = []  # by shard what everyone there asks for, if there is such a thing
    is_plain: bool = False  # there are no rules and no schemas: an event that concerns nobody has no consequences

    def shard(self, number: int) -> Path:
        return Path(self.folder) / str(number)


def shards_for(subscriptions: int) -> int:
    """So many that none is too large to be built and mapped by one task, and no more: every shard sees the events."""
    return max(1, -(-subscriptions // MOST_IN_A_SHARD))


def shard_of(subscriber: "Column", shards: int) -> "Column":
    """A client's subscriptions and its contexts are in one shard."""
    from pyspark.sql import functions as f

    return f.pmod(f.xxhash64(subscriber), f.lit(shards)).cast("int")


def as_text(name: str, subscriptions: "DataFrame") -> "Column":
    """A column of subscriptions as an index takes it; tokens may be bytes, or written in base64 already."""
    from pyspark.sql import functions as f

    column = f.col(f"`{name}`")
    if dict(subscriptions.dtypes)[name] != "binary":
        return column.cast("string")
    return f.translate(f.base64(column), "\r\n", "")  # Spark writes it in lines


def built(subscriptions: "DataFrame", plan: "Plan", shards: int) -> Registry:
    """Compiles the subscriptions, spread by their subscribers."""
    from pyspark.sql import functions as f

    from tidings.spark.building import DDL, Builder

    missing = [name for name in ("id", "content") if name not in subscriptions.columns]
    if missing:
        raise InvalidValueError(f"subscriptions: there is no column {missing[0]}")
    given = subscriptions.select(
        *(as_text(name, subscriptions).alias(name) for name in _COLUMNS if name in subscriptions.columns)
    )
    subscriber = f.coalesce("subscriber", "id") if "subscriber" in given.columns else f.col("id")
    contentless = f.when(f.col("content").isNull(), f.lit("there is no content; the filter TRUE is for everything"))
    problem = f.coalesce(f.col(f"`{PROBLEM}`"), contentless) if PROBLEM in given.columns else contentless
    given = given.withColumn("subscriber", subscriber).withColumn(PROBLEM, problem)
    spread = given.withColumn("shard", shard_of(f.col("subscriber"), shards)).repartitionById(shards, "shard")
    builder = Builder(plan)
    # A row a shard, and one for each of the first subscriptions that were refused: never data-sized.
    reports = spread.mapInArrow(builder, DDL).collect()
    counted = {row["shard"]: row for row in reports if row["subscriptions"] is not None}
    asked: list[Asked | None] = []
    for number in range(shards):
        if number in counted:
            asked.append(msgspec.json.decode(counted[number]["asked"], type=Asked | None))
        else:  # nobody hashes to it
            builder.build(number, None)
            asked.append(Asked("", [], []))
    return Registry(
        folder=plan.folder,
        shards=shards,
        subscriptions=sum(row["subscriptions"] for row in counted.values()),
        asked=asked,
        is_plain=not plan.advertisements and not plan.schemas and "policy" not in subscriptions.columns,
        rejected=sorted((row["id"], row["reason"]) for row in reports if row["subscriptions"] is None),
    )

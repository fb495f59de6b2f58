"""The journals of brokers that are linked, as if there had been one broker for all their clients.

An event counts once, where it was accepted; who got it may be at any of them. The order is that of the brokers' clocks:
what two of them took down at the same moment may have come in either order.
"""

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from tidings.journal.record import LOST, PUBLISH
from tidings.model.errors import InvalidValueError
from tidings.spark import history
from tidings.spark.events import ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, WindowSpec

# A broker's own filters govern what passes it, and its own context what it does: neither is said of the overlay.
_OF_CLIENTS = ("subscribe", "unsubscribe", "advertise", "unadvertise", "set_context", "entrust")


def read(
    spark: "SparkSession",
    folders: Iterable[str],
    since: str | None = None,
    until: str | None = None,
    *,
    name: str = "overlay",
) -> "DataFrame":
    """The journals in these folders, `as_one`; the times are those of `history.read`."""
    journals = [history.read(spark, folder, since, until) for folder in folders]
    if not journals:
        raise InvalidValueError("folders: at least one, that of a broker's journal")
    return as_one(reduce(lambda one, other: one.unionByName(other), journals), name)


def as_one(journals: "DataFrame", name: str = "overlay") -> "DataFrame":
    """Rows of several journals in the form of one, whose `journal` is `name`: what reads journals reads it.

    `offset` is the time in microseconds. Where a client connects to another broker, and says there what it wants, what
    it had at the first one ends. An operator's policies on filters of clients are the operator's of it all; the
    filters that brokers have themselves are left out, since one place cannot say what passes another.
    """
    from pyspark.sql import functions as f

    is_own = f.col("client") == f.col("journal")
    events = journals.where(f.col("kind").isin(PUBLISH, LOST))
    said = journals.where(f.col("kind").isin(*history.CHANGES, "connect"))
    said = said.where(f.col("client").isNotNull() & ~(is_own & f.col("kind").isin(*_OF_CLIENTS)))
    placed = said.withColumn("home", f.last(_connected(), ignorenulls=True).over(_by("client")))
    # What a broker says of a client that is elsewhere by then, which is that it has gone, has ended before.
    here = placed.where(f.col("home").isNull() | (f.col("home") == f.col("journal")) | is_own)
    came = here.withColumn("before", f.lag("home").over(_by("client")))
    elsewhere = came.where("kind = 'connect' AND before <> journal")
    rows = [
        came.where("kind <> 'connect'").withColumn(ORDER, f.lit(0)),
        elsewhere.withColumns({"kind": f.lit("disconnect"), "body": _nothing(), ORDER: f.lit(0)}),
        _left_behind(came),
        events.withColumn(ORDER, f.lit(0)),
    ]
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)
    return together.select(*journals.columns, ORDER).withColumns(
        {
            "client": f.when(is_own, f.lit(name)).otherwise(f.col("client")),
            "offset": f.unix_micros("timestamp"),
            "journal": f.lit(name),
        }
    )


def _left_behind(said: "DataFrame") -> "DataFrame":
    """The ends of durable subscriptions that stood where a client was before. A broker that a client comes to with
    what it had elsewhere says so (`moved`); what it wants of that, it has said there again."""
    from pyspark.sql import functions as f

    moves = said.where((f.col("kind") == "connect") & (f.get_json_object("body", "$.moved") == "true")).select(
        f.col("client").alias("who"), f.col("journal").alias("to"), f.col("timestamp").alias("left")
    )
    filters = said.where(f.col("kind").isin("subscribe", "unsubscribe"))
    held = filters.withColumn("following", f.lead("timestamp").over(_by("client", "id")))
    durable = held.where((f.col("kind") == "subscribe") & f.get_json_object("body", "$.durable").isNotNull())
    after = (f.col("who") == f.col("client")) & (f.col("to") != f.col("journal")) & (f.col("left") > f.col("timestamp"))
    stood = f.col("following").isNull() | (f.col("following") > f.col("left"))
    ended = durable.join(moves, after & stood)
    first = ended.groupBy("journal", "client", "id", "offset").agg(f.min("left").alias("timestamp"))
    return first.withColumns({"kind": f.lit("unsubscribe"), ORDER: f.lit(1)})


def _connected() -> "Column":
    """Where a row says that its client is."""
    from pyspark.sql import functions as f

    return f.when(f.col("kind") == "connect", f.col("journal"))


def _nothing() -> "Column":
    from pyspark.sql import functions as f

    return f.lit(None).cast("string")


def _by(*columns: str) -> "WindowSpec":
    from pyspark.sql import Window

    return Window.partitionBy(*columns).orderBy("timestamp", "journal", "offset")

"""Merge the journals of linked brokers into one, as if one broker had served all their clients.

An event counts once, at the broker that accepted it; its subscribers may be clients of any broker. The order is that of
the brokers' clocks: what two brokers recorded at the same moment may have happened in either order.

A client is at the broker that recorded its last `connect`; what other brokers record about it afterwards is dropped.
When it connects to another broker, its subscriptions at the former one end: those that are not durable by a
`disconnect`, and the durable ones, if the client moved, by an `unsubscribe`.
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

# A broker's own filters and context apply to that broker only, not to the overlay: these kinds are dropped for it.
_OF_CLIENTS = ("subscribe", "unsubscribe", "advertise", "unadvertise", "set_context", "entrust")


def read(
    spark: "SparkSession",
    folders: Iterable[str],
    since: str | None = None,
    until: str | None = None,
    *,
    name: str = "overlay",
) -> "DataFrame":
    """Read the journals in several folders and merge them with `as_one`.

    Args:
        spark: The session, with the data source `tidings` registered.
        folders: The folders of the journals, which all executors see.
        since: The acceptance time of the first events; see `history.read`.
        until: The acceptance time before which rows end.
        name: The name of the merged journal.

    Raises:
        InvalidValueError: `folders` is empty.
    """
    journals = [history.read(spark, folder, since, until) for folder in folders]
    if not journals:
        raise InvalidValueError("folders: at least one, that of a broker's journal")
    return as_one(reduce(lambda left, right: left.unionByName(right), journals), name)


def as_one(journals: "DataFrame", name: str = "overlay") -> "DataFrame":
    """Return the rows of several journals as rows of one journal called `name`, which all readers of journals accept.

    `offset` is the time in microseconds. Operators' policies on filters of clients are kept as the operator's of the
    merged journal; the filters of the brokers themselves are dropped, since one broker cannot represent what another
    lets pass.
    """
    from pyspark.sql import functions as f

    is_own = f.col("client") == f.col("journal")
    events = journals.where(f.col("kind").isin(PUBLISH, LOST))
    control = journals.where(f.col("kind").isin(*history.CHANGES, "connect"))
    control = control.where(f.col("client").isNotNull() & ~(is_own & f.col("kind").isin(*_OF_CLIENTS)))
    with_home = control.withColumn("home", f.last(_connected(), ignorenulls=True).over(_by("client")))
    # A broker may record a client's disconnect after the client connected elsewhere: that is dropped.
    here = with_home.where(f.col("home").isNull() | (f.col("home") == f.col("journal")) | is_own)
    with_former_home = here.withColumn("before", f.lag("home").over(_by("client")))
    elsewhere = with_former_home.where("kind = 'connect' AND before <> journal")
    rows = [
        with_former_home.where("kind <> 'connect'").withColumn(ORDER, f.lit(0)),
        elsewhere.withColumns({"kind": f.lit("disconnect"), "body": _nothing(), ORDER: f.lit(0)}),
        _ends_at_former_broker(with_former_home),
        events.withColumn(ORDER, f.lit(0)),
    ]
    merged = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), rows)
    return merged.select(*journals.columns, ORDER).withColumns(
        {
            "client": f.when(is_own, f.lit(name)).otherwise(f.col("client")),
            "offset": f.unix_micros("timestamp"),
            "journal": f.lit(name),
        }
    )


def _ends_at_former_broker(control: "DataFrame") -> "DataFrame":
    """Return an `unsubscribe` for each durable subscription that a client left at its former broker.

    A broker records `moved` when a client comes to it with its subscriptions; the client then subscribes again there.
    """
    from pyspark.sql import functions as f

    moves = control.where((f.col("kind") == "connect") & (f.get_json_object("body", "$.moved") == "true")).select(
        f.col("client").alias("who"), f.col("journal").alias("to"), f.col("timestamp").alias("left")
    )
    filters = control.where(f.col("kind").isin("subscribe", "unsubscribe"))
    with_following = filters.withColumn("following", f.lead("timestamp").over(_by("client", "id")))
    durable = with_following.where((f.col("kind") == "subscribe") & f.get_json_object("body", "$.durable").isNotNull())
    after = (f.col("who") == f.col("client")) & (f.col("to") != f.col("journal")) & (f.col("left") > f.col("timestamp"))
    was_in_force = f.col("following").isNull() | (f.col("following") > f.col("left"))
    ended = durable.join(moves, after & was_in_force)
    first = ended.groupBy("journal", "client", "id", "offset").agg(f.min("left").alias("timestamp"))
    return first.withColumns({"kind": f.lit("unsubscribe"), ORDER: f.lit(1)})


def _connected() -> "Column":
    """Return the journal of a row that records that its client connected, else null."""
    from pyspark.sql import functions as f

    return f.when(f.col("kind") == "connect", f.col("journal"))


def _nothing() -> "Column":
    from pyspark.sql import functions as f

    return f.lit(None).cast("string")


def _by(*columns: str) -> "WindowSpec":
    from pyspark.sql import Window

    return Window.partitionBy(*columns).orderBy("timestamp", "journal", "offset")

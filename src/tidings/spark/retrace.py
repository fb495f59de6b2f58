"""`retrace`: the rows of a journal once more through engines, to see who got what, or would have."""

from typing import TYPE_CHECKING, Any

from tidings.engine.records import SIGNED
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.model.packages import optional_packages
from tidings.spark import history, views
from tidings.spark.events import EVERYWHERE, KEY, ORDER, SHARD
from tidings.spark.physical import DDL
from tidings.spark.retracer import JOURNAL, META, Retracer
from tidings.spark.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Retraced(views.Views):
    """What became of the events, lazily: the journal is gone through when something of it is asked for.

    `matches`, `notifications`, `rejected` and `meta_events` are as those of `route`. The counts are DataFrames too.
    """

    def __init__(self, rows: "DataFrame", settings: Settings, **how: Any) -> None:
        super().__init__(2)  # what shards found is brought together
        self._rows, self._settings, self._how = rows, settings, how

    @property
    def of_events(self) -> "DataFrame":
        """The notifications without those of meta-events, whose ids are new each time that they are told."""
        return views.notifications(self._physical(notifications=True).filter(f"kind IS NULL OR kind <> '{META}'"))

    @property
    def per_subscription(self) -> "DataFrame":
        """`subscription_id`, `notifications`, and when the `first` and the `last` event of them was accepted."""
        from pyspark.sql import functions as f

        found = self._physical().filter("subscriptions IS NOT NULL")
        each = found.select(
            f.timestamp_micros("timestamp").alias("timestamp"), f.explode("subscriptions").alias("subscription_id")
        )
        return each.groupBy("subscription_id").agg(
            f.count("*").alias("notifications"), f.min("timestamp").alias("first"), f.max("timestamp").alias("last")
        )

    @property
    def per_step(self) -> "DataFrame":
        """`step`, `reason`, `kind` and `count` of what was refused."""
        return self.rejected.groupBy("step", "reason", "kind").count()

    def _physical(self, *, notifications: bool = False) -> "DataFrame":
        return self._rows.mapInArrow(Retracer(self._settings, notifications=notifications, **self._how), DDL)


@optional_packages()
def retrace(
    journal: "DataFrame",
    *,
    settings: Settings | None = None,
    shards: int | None = None,
    policy: str | None = None,
    governed: bool = True,
    tokens: "DataFrame | None" = None,
) -> Retraced:
    """Who got what, from the rows of a journal (`history.read`): all of it as the hub or broker did it.

    A journal's name is its broker's; `settings` say what else it was configured with. With `policy`, its operator has
    that one for everything; without `governed`, nobody has any. Where there are rules, which may tell meta-events to
    everyone, a journal is gone through in one piece; else the clients are spread over `shards`.

    With `tokens`, as `tidings.spark.trust` describes them, sealed events and tokens are checked again. The authority is
    enough: what was known of topics, epochs and revocations at each moment is in the journal.
    """
    trust = None if tokens is None else Trust.of(tokens)
    whole = policy is not None or (governed and has_rules(journal))
    rows = in_order(_known(journal, trust), shards or cores(journal), whole=whole or trust is not None)
    return Retraced(rows, settings or Settings(), policy=policy, governed=governed, trust=trust)


def _known(journal: "DataFrame", trust: Trust | None) -> "DataFrame":
    """Without what is told of secure topics where nothing is checked."""
    from pyspark.sql import functions as f

    return journal if trust is not None else journal.where(~f.col("kind").isin(*SIGNED))


def has_rules(journal: "DataFrame") -> bool:
    """Whether anybody has given a policy. This reads the journal up to the first one."""
    from pyspark.sql import functions as f

    said = f.col("policy").isNotNull() | ((f.col("kind") != "publish") & f.contains("body", f.lit("PolicyStatement")))
    return not journal.where(said).isEmpty()


def in_order(journal: "DataFrame", shards: int, *, whole: bool, asked: "DataFrame | None" = None) -> "DataFrame":
    """The rows as engines take them, each shard in the order of the journal.

    `whole`: all of a journal is in one shard. `asked` has the ids of events (`event_id`) and what else is wanted to
    stand beside them; other events are left out.
    """
    from pyspark.sql import functions as f

    if shards < 1:
        raise InvalidValueError(f"shards: at least 1, not {shards}")
    events = history.events(journal).withColumn("kind", f.lit("publish"))
    if asked is not None:
        events = events.join(asked, events["id"] == asked["event_id"]).drop("event_id")
    control = journal.where(f.col("kind").isin(*history.CHANGES))
    order = f.col(ORDER) if ORDER in journal.columns else f.lit(0)
    told = control.select(
        *("journal", "offset", "timestamp", "kind", "client", "id", "body", "token", "payload"),
        f.lit(None).cast("bigint").alias("published"),
        order.alias(ORDER),
    )
    rows = events.unionByName(told, allowMissingColumns=True)
    rows = rows.withColumns(
        {
            KEY: f.coalesce("id", "client"),
            "timestamp": f.unix_micros("timestamp"),
            ORDER: f.coalesce(ORDER, f.lit(0)),
        }
    )
    whole_shard = f.pmod(f.xxhash64("journal"), f.lit(shards)).cast("int")
    shard = whole_shard if whole else shard_of_client(shards, "set_policy")
    placed = rows.withColumn(SHARD, shard).repartitionById(shards, SHARD)
    return placed.sortWithinPartitions(JOURNAL, SHARD, "offset", ORDER)


def shard_of_client(shards: int, *more: str) -> "Column":
    """Rows of a client go to its shard; events, and what else all have to know (also the kinds `more`), to every one.

    So does what the broker itself has, since its filters govern what everyone gets.
    """
    from pyspark.sql import functions as f

    everywhere = f.col("kind").isin(*EVERYWHERE, *more) | (f.col("client") == f.col("journal"))
    own = f.array(f.pmod(f.xxhash64("journal", "client"), f.lit(shards)).cast("int"))
    return f.explode(f.when(everywhere, f.sequence(f.lit(0), f.lit(shards - 1))).otherwise(own))


def cores(journal: "DataFrame") -> int:
    return max(1, int(journal.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))

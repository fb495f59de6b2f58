"""`retrace`: replay a journal through engines to recompute which subscription got which event."""

from typing import TYPE_CHECKING, Any

from tidings.engine.journal_codec import SIGNED
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.model.packages import optional_packages
from tidings.spark import history, views
from tidings.spark.events import EVERYWHERE, KEY, ORDER, SHARD
from tidings.spark.replay.retrace_worker import JOURNAL, META, RetraceWorker
from tidings.spark.shards.output_rows import DDL
from tidings.spark.shards.trusted_keys import TrustedKeys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class RetraceResult(views.Views):
    """The results of replaying a journal, as lazy DataFrames; every action on one of them replays the journal again.

    `matches`, `notifications`, `rejected` and `meta_events` are as those of `RouteResult`.
    """

    def __init__(self, rows: "DataFrame", settings: Settings, **how: Any) -> None:
        super().__init__(2)  # several shards may match an event: combine their matches
        self._rows, self._settings, self._how = rows, settings, how

    @property
    def of_events(self) -> "DataFrame":
        """The notifications of events, without those of meta-events, whose ids differ in each replay."""
        return views.notifications(self._physical_rows(notifications=True).filter(f"kind IS NULL OR kind <> '{META}'"))

    @property
    def per_subscription(self) -> "DataFrame":
        """A row per subscription: the number of `notifications`, and the times of the `first` and `last` event."""
        from pyspark.sql import functions as f

        matched = self._physical_rows().filter("subscriptions IS NOT NULL")
        each = matched.select(
            f.timestamp_micros("timestamp").alias("timestamp"), f.explode("subscriptions").alias("subscription_id")
        )
        return each.groupBy("subscription_id").agg(
            f.count("*").alias("notifications"), f.min("timestamp").alias("first"), f.max("timestamp").alias("last")
        )

    @property
    def per_step(self) -> "DataFrame":
        """A row per `step`, `reason` and `kind` of rejections, with their `count`."""
        return self.rejected.groupBy("step", "reason", "kind").count()

    def _physical_rows(self, *, notifications: bool = False) -> "DataFrame":
        return self._rows.mapInArrow(RetraceWorker(self._settings, notifications=notifications, **self._how), DDL)


@optional_packages()
def retrace(
    journal: "DataFrame",
    *,
    settings: Settings | None = None,
    shards: int | None = None,
    policy: str | None = None,
    governed: bool = True,
    tokens: "DataFrame | None" = None,
) -> RetraceResult:
    """Replay the rows of a journal (`history.read`) through engines, as the hub or broker processed them.

    A journal's name is the name of its broker. With tokens, or where there are policies, which may emit meta-events,
    each journal is replayed by one engine; otherwise its clients are spread over shards.

    Args:
        journal: The rows of one or more journals.
        settings: The settings of the broker, except its name.
        shards: The number of shards. None: as many as shuffle partitions.
        policy: A policy that the operator has on everything from the beginning, besides those in the journal.
        governed: Whether the policies in the journal apply.
        tokens: Keys as `tidings.spark.shards.trusted_keys` describes them. With them tokens and sealed events are
            checked again. The authority's certificate is enough: topics, epochs and revocations are in the journal.
    """
    trust = None if tokens is None else TrustedKeys.of(tokens)
    single_shard = policy is not None or (governed and has_rules(journal))
    rows = in_order(
        _without_secure_rows(journal, trust), shards or cores(journal), single_shard=single_shard or trust is not None
    )
    return RetraceResult(rows, settings or Settings(), policy=policy, governed=governed, trust=trust)


def _without_secure_rows(journal: "DataFrame", trust: TrustedKeys | None) -> "DataFrame":
    """Drop the rows about secure topics if nothing is checked."""
    from pyspark.sql import functions as f

    return journal if trust is not None else journal.where(~f.col("kind").isin(*SIGNED))


def has_rules(journal: "DataFrame") -> bool:
    """Return whether the journal contains a policy. This reads the journal up to the first one."""
    from pyspark.sql import functions as f

    has_policy = f.col("policy").isNotNull() | (
        (f.col("kind") != "publish") & f.contains("body", f.lit("PolicyStatement"))
    )
    return not journal.where(has_policy).isEmpty()


def in_order(
    journal: "DataFrame", shards: int, *, single_shard: bool, event_ids: "DataFrame | None" = None
) -> "DataFrame":
    """Assign the rows of a journal to shards, and sort each shard by journal offset.

    Args:
        journal: The rows of one or more journals.
        shards: The number of shards.
        single_shard: Whether all rows of a journal go to one shard; else each client's rows go to its own.
        event_ids: Ids of events (`event_id`) and columns to add to them; other events are left out. None: all events.

    Raises:
        InvalidValueError: `shards` is less than 1.
    """
    from pyspark.sql import functions as f

    if shards < 1:
        raise InvalidValueError(f"shards: at least 1, not {shards}")
    events = history.events(journal).withColumn("kind", f.lit("publish"))
    if event_ids is not None:
        events = events.join(event_ids, events["id"] == event_ids["event_id"]).drop("event_id")
    control = journal.where(f.col("kind").isin(*history.CHANGES))
    order = f.col(ORDER) if ORDER in journal.columns else f.lit(0)
    changes = control.select(
        *("journal", "offset", "timestamp", "kind", "client", "id", "body", "token", "payload"),
        f.lit(None).cast("bigint").alias("published"),
        order.alias(ORDER),
    )
    rows = events.unionByName(changes, allowMissingColumns=True)
    rows = rows.withColumns(
        {
            KEY: f.coalesce("id", "client"),
            "timestamp": f.unix_micros("timestamp"),
            ORDER: f.coalesce(ORDER, f.lit(0)),
        }
    )
    whole_shard = f.pmod(f.xxhash64("journal"), f.lit(shards)).cast("int")
    shard = whole_shard if single_shard else shard_of_client(shards, "set_policy")
    assigned = rows.withColumn(SHARD, shard).repartitionById(shards, SHARD)
    return assigned.sortWithinPartitions(JOURNAL, SHARD, "offset", ORDER)


def shard_of_client(shards: int, *more: str) -> "Column":
    """Return a column that repeats each row for its shards: the client's shard, or all shards.

    Events, the kinds in `EVERYWHERE` and `more`, and the broker's own filters, which apply to all clients, go to all.
    """
    from pyspark.sql import functions as f

    everywhere = f.col("kind").isin(*EVERYWHERE, *more) | (f.col("client") == f.col("journal"))
    own = f.array(f.pmod(f.xxhash64("journal", "client"), f.lit(shards)).cast("int"))
    return f.explode(f.when(everywhere, f.sequence(f.lit(0), f.lit(shards - 1))).otherwise(own))


def cores(journal: "DataFrame") -> int:
    """Return the number of shuffle partitions of the journal's session."""
    return max(1, int(journal.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))

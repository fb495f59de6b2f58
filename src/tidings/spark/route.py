"""`route`: who gets which of very many events, on DataFrames."""

import tempfile
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.spark import changes
from tidings.spark.events import prepared
from tidings.spark.registry import Registry, built

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MATCHES = "event_id string, timestamp bigint, subscriptions array<string>, step string, reason string, meta string"
_NOTIFICATIONS = (
    "event_id string, subscription_id string, subscriber string, timestamp bigint, attributes string, "
    "payload binary, trace string, subscriptions array<string>"
)


class Routed:
    """What became of the events. Everything is lazy: events are matched when something of it is asked for.

    `matches` has a row an event that concerns somebody; `notifications` a row each, with attributes as JSON text;
    `rejected` says at which step and why an event was refused; `meta_events` are those that a broker would publish.
    """

    def __init__(self, rows: "DataFrame", registry: Registry, worker: type, settings: Settings) -> None:
        self.registry = registry
        self._rows, self._worker, self._settings = rows, worker, settings

    @property
    def matches(self) -> "DataFrame":
        from pyspark.sql import functions as f

        found = self._routed.filter("subscriptions IS NOT NULL")
        time = f.timestamp_micros("timestamp").alias("timestamp")
        if self.registry.shards == 1:
            return found.select("event_id", time, "subscriptions")
        together = found.groupBy("event_id", "timestamp").agg(f.flatten(f.collect_list("subscriptions")).alias("all"))
        return together.select("event_id", time, f.sort_array("all").alias("subscriptions"))

    @property
    def rejected(self) -> "DataFrame":
        return self._routed.filter("step IS NOT NULL").select("event_id", "step", "reason")

    @property
    def meta_events(self) -> "DataFrame":
        from pyspark.sql import functions as f

        found = self._routed.filter("meta IS NOT NULL")
        time = f.timestamp_micros("timestamp").alias("timestamp")
        return found.select("event_id", time, f.col("meta").alias("attributes"))

    @property
    def notifications(self) -> "DataFrame":
        from pyspark.sql import functions as f

        made = self._rows.mapInArrow(self._made(notifications=True), _NOTIFICATIONS)
        return made.withColumn("timestamp", f.timestamp_micros("timestamp"))

    @property
    def _routed(self) -> "DataFrame":
        return self._rows.mapInArrow(self._made(notifications=False), _MATCHES)

    def _made(self, *, notifications: bool) -> Any:
        return self._worker(self.registry.folder, self._settings, notifications=notifications)


def route(
    events: "DataFrame",
    subscriptions: "DataFrame",
    contexts: "DataFrame | None" = None,
    advertisements: "DataFrame | None" = None,
    policies: "DataFrame | None" = None,
    schemas: "DataFrame | None" = None,
    tokens: "DataFrame | None" = None,
    *,
    shards: int | None = None,
    folder: str | None = None,
    settings: Settings | None = None,
) -> Routed:
    """Compiles the subscriptions into `folder`, which all executors can see, and answers what is due to whom.

    Without contexts and without subscriptions that begin or end, any worker matches any event, where it is. Else the
    clients are spread over `shards`, and each shard sees changes and events in the order of time.
    """
    from tidings.spark.building import Advertised, Plan
    from tidings.spark.worker import ShardWorker, Worker

    if schemas is not None or tokens is not None:
        raise InvalidValueError("schemas and tokens are not routed by yet; leave them out")
    settings = settings or Settings(name="spark")
    folder = tempfile.mkdtemp(prefix="tidings-") if folder is None else folder
    wanted = _with_policies(subscriptions, policies)
    announced = []
    if advertisements is not None:
        given = _with_policies(advertisements, policies)
        announced = [msgspec.convert(row.asDict(), Advertised) for row in given.collect()]
    plan = Plan(folder=folder, settings=settings, advertisements=announced)
    ready = prepared(events)
    if contexts is None and not changes.has_windows(wanted):
        return Routed(ready, built(wanted, plan, 1), Worker, settings)
    # Meta-events are for everyone: where rules may tell some, one shard has all subscriptions.
    count = 1 if announced or "policy" in wanted.columns else shards or _cores(events)
    moved = None if contexts is None else changes.context_changes(contexts)
    if moved is not None:
        ready = changes.with_publishers_contexts(ready, moved)
    rows = changes.in_order(ready, moved, wanted, count)
    return Routed(rows, built(changes.from_the_start(wanted), plan, count), ShardWorker, settings)


def _cores(events: "DataFrame") -> int:
    return max(1, int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))


def _with_policies(filters: "DataFrame", policies: "DataFrame | None") -> "DataFrame":
    """A policy that is set on a filter takes the place of the one that was given with it."""
    from pyspark.sql import functions as f

    if policies is None:
        return filters
    later = policies.select(f.col("id").alias("$id"), f.col("policy").alias("$policy"))
    joined = filters.join(later, filters["id"] == later["$id"], "left")
    before = f.col("policy") if "policy" in filters.columns else f.lit(None).cast("string")
    return joined.withColumn("policy", f.coalesce("$policy", before)).drop("$id", "$policy")

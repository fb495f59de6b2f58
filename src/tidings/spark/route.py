"""`route`: who gets which of very many events, on DataFrames."""

import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.model.packages import optional_packages
from tidings.spark import changes
from tidings.spark.events import prepared, spread
from tidings.spark.physical import DDL
from tidings.spark.registry import Registry, built, shards_for
from tidings.spark.sieve import possible
from tidings.spark.telling import Telling, telling
from tidings.spark.trust import Trust
from tidings.spark.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.spark.building import Plan


class Routed(Views):
    """What became of the events. Everything is lazy: events are matched when something of it is asked for.

    `matches` has a row an event that concerns somebody; `notifications` a row each, with attributes as JSON text;
    `rejected` says at which step and why an event was refused; `meta_events` are those that a broker would publish.
    """

    def __init__(self, rows: "DataFrame", registry: Registry, worker: Callable[[bool], Any]) -> None:
        """`worker` makes what is run on the rows; it is told whether notifications are wanted."""
        super().__init__(registry.shards)
        self.registry, self.worker = registry, worker
        self.rows = rows  # the events and changes that are routed

    def _physical(self, *, notifications: bool = False) -> "DataFrame":
        return self.rows.mapInArrow(self.worker(notifications), DDL)


@optional_packages()
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

    Without contexts and without subscriptions that begin or end, any worker matches any event, where it is, as long as
    one shard holds all subscriptions: up to two million, or whatever `shards` says. Else the clients are spread over
    `shards`; each shard sees the events, and where there are changes, changes and events in the order of time. Where
    rules may tell meta-events, one shard sees everything.

    `tokens` is what is trusted, as `tidings.spark.trust` describes it: then events with a token and a signature are
    checked, what is not to be trusted is refused, and sealed events go to subscriptions with a `token` for them. Time
    is that at which an event was accepted.
    """
    trust = None if tokens is None else Trust.of(tokens)
    settings = settings or Settings(name="spark")
    folder = _temporary_folder() if folder is None else folder
    set_later = policies if changes.has_windows(policies) else None
    constant = None if set_later is not None else policies
    wanted = with_policies(subscriptions, constant)
    plan = planned(folder, settings, advertisements, constant, schemas)
    rules = bool(plan.advertisements) or set_later is not None or "policy" in events.columns
    tells = Telling.ONCE if rules else telling(wanted, settings)
    if contexts is None and tells is not Telling.ONCE and not changes.has_windows(wanted):
        count = 1 if tells else shards or shards_for(wanted.count())
        registry = built(wanted, plan, count)
        return Routed(_placed(events, registry, settings, trust), registry, worker_of(registry, settings, trust))
    count = 1 if tells else shards or _cores(events)
    rows = [changes.event_rows(events)]
    if contexts is not None:
        rows.append(changes.context_rows(contexts))
    if changes.has_windows(wanted):
        rows.append(changes.subscription_rows(changes.later(wanted)))
    if set_later is not None:
        rows += [changes.policy_begins(changes.set_apart(set_later, wanted)), changes.policy_ends(set_later)]
    fills = contexts is not None and "context" not in events.columns
    ordered = changes.in_order(changes.together(rows), count, spread_contexts=fills)
    registry = built(changes.from_the_start(wanted), plan, count)
    return Routed(ordered, registry, partial(_shard_worker, registry, settings, fills, trust))


def _placed(events: "DataFrame", registry: Registry, settings: Settings, trust: Trust | None) -> "DataFrame":
    """The events that may concern somebody, or be refused: where they are, or at the shards that they may concern."""
    from pyspark.sql import functions as f

    ready = prepared(events)
    shards = possible(ready, registry, settings, trust)
    if registry.shards == 1:
        return ready if shards is None else ready.filter(shards[0])
    return spread(ready, shards or [f.lit(True)] * registry.shards, _cores(events))


def worker_of(registry: Registry, settings: Settings, trust: Trust | None = None) -> Callable[[bool], Any]:
    """What is run on events that any worker may match."""
    return partial(_worker, registry, settings, trust)


def _worker(registry: Registry, settings: Settings, trust: Trust | None, notifications: bool) -> Any:
    from tidings.spark.worker import Worker

    return Worker(registry.folder, settings, notifications=notifications, trust=trust)


def _shard_worker(
    registry: Registry, settings: Settings, fills_contexts: bool, trust: Trust | None, notifications: bool
) -> Any:
    from tidings.spark.shard import ShardWorker

    return ShardWorker(
        registry.folder, settings, spread_contexts=fills_contexts, notifications=notifications, trust=trust
    )


_temporary: list["tempfile.TemporaryDirectory[str]"] = []  # DataFrames may be used as long as the process lives


def _temporary_folder() -> str:
    _temporary.append(tempfile.TemporaryDirectory(prefix="tidings-", ignore_cleanup_errors=True))
    return _temporary[-1].name


def planned(
    folder: str,
    settings: Settings,
    advertisements: "DataFrame | None",
    policies: "DataFrame | None",
    schemas: "DataFrame | None",
) -> "Plan":
    """What all shards have in common: there are few advertisements and schemas, and every shard has them all."""
    from tidings.spark.building import Advertised, Plan

    announced = [] if advertisements is None else with_policies(advertisements, policies).collect()
    return Plan(
        folder=folder,
        settings=settings,
        advertisements=[msgspec.convert(row.asDict(), Advertised) for row in announced],
        schemas=_defined(schemas),
    )


def _defined(schemas: "DataFrame | None") -> dict[str, list[dict[str, str]]]:
    """By subject what each version has added, of the longest that there is: schemas only grow."""
    longest: dict[str, list[dict[str, str]]] = {}
    for row in [] if schemas is None else schemas.select("subject", "versions").collect():
        versions = msgspec.json.decode(row["versions"], type=list[dict[str, str]])
        if len(versions) > len(longest.get(row["subject"], [])):
            longest[row["subject"]] = versions
    return longest


def _cores(events: "DataFrame") -> int:
    return max(1, int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))


def with_policies(filters: "DataFrame", policies: "DataFrame | None") -> "DataFrame":
    """A policy that is set on a filter takes the place of the one that was given with it."""
    from pyspark.sql import functions as f

    if policies is None:
        return filters
    later = policies.select(f.col("id").alias("$id"), f.col("policy").alias("$policy"))
    joined = filters.join(later, filters["id"] == later["$id"], "left")
    before = f.col("policy") if "policy" in filters.columns else f.lit(None).cast("string")
    return joined.withColumn("policy", f.coalesce("$policy", before)).drop("$id", "$policy")

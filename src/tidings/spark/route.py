"""Route a DataFrame of events: compute which subscriptions get which event."""

import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.engine.settings import Settings
from tidings.model.packages import optional_packages
from tidings.spark.events import prepare_events, spread_to_shards
from tidings.spark.shards import operation_rows
from tidings.spark.shards.output_rows import DDL
from tidings.spark.shards.prefilter import shard_conditions
from tidings.spark.shards.registry import MetaEventScope, Registry, build_registry, scope_of_subscriptions, shards_for
from tidings.spark.shards.trusted_keys import TrustedKeys
from tidings.spark.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidings.spark.shards.shard_builder import ShardPlan


class RouteResult(Views):
    """The results of routing, as lazy DataFrames; every action on one of them matches the events again.

    `matches` has a row per event that matches a subscription, `notifications` a row per notification with the
    attributes as JSON text, `rejected` a row per refused event or change with step and reason, and `meta_events` a row
    per meta-event that a broker would publish.
    """

    def __init__(self, rows: "DataFrame", registry: Registry, worker: Callable[[bool], Any]) -> None:
        """Route `rows` lazily, on shards that are already built.

        Args:
            rows: The events, and the changes if there are any, that are routed.
            registry: The compiled subscriptions.
            worker: Returns the function for `mapInArrow`; its argument says whether it emits notifications or only
                matches.
        """
        super().__init__(registry.shards)
        self.registry, self.worker = registry, worker
        self.rows = rows

    def _physical_rows(self, *, notifications: bool = False) -> "DataFrame":
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
) -> RouteResult:
    """Match events with subscriptions and return matches, notifications, rejected events and meta-events.

    The subscriptions are compiled into `folder` at once; the events are routed lazily. Without contexts and without
    subscriptions or policies that begin or end, each event is matched by whatever task reads it, as long as one shard
    holds all subscriptions. Otherwise clients are spread over shards, and every shard processes the events, and the
    changes of its clients, in the order of time. Where rules may emit meta-events, one shard processes everything. The
    time of an event is the time of its acceptance.

    Args:
        events: The events; `tidings.spark.events` names their columns.
        subscriptions: `id` and `content`, and optionally `subscriber`, `publishers`, `policy`, `since`, `until` and
            others.
        contexts: Changes of clients' contexts: `client`, `timestamp`, and `context` or a column per context name.
        advertisements: Advertisements that every shard has from the start.
        policies: Policies of subscriptions and advertisements by `id`; with `since` or `until` they are valid for a
            time.
        schemas: The schemas of subjects.
        tokens: Keys for sealed events, as `tidings.spark.shards.trusted_keys` describes them. With them tokens and
            signatures are checked, events that fail are rejected, and sealed events go to subscriptions with a matching
            `token`.
        shards: The number of shards. None: enough for two million subscriptions each, or with changes as many as
            shuffle partitions.
        folder: Where the shards are written; all executors must see it. None: a temporary folder of this machine.
        settings: The engine's settings.

    Raises:
        InvalidValueError: A DataFrame lacks a column or has one of a wrong type.
        TidingsError: An advertisement or a schema is refused.
    """
    trust = None if tokens is None else TrustedKeys.of(tokens)
    settings = settings or Settings(name="spark")
    folder = _temporary_folder() if folder is None else folder
    timed_policies = policies if operation_rows.has_windows(policies) else None
    constant_policies = None if timed_policies is not None else policies
    governed_subscriptions = with_policies(subscriptions, constant_policies)
    plan = shard_plan(folder, settings, advertisements, constant_policies, schemas)
    rules = bool(plan.advertisements) or timed_policies is not None or "policy" in events.columns
    scope = MetaEventScope.ONCE if rules else scope_of_subscriptions(governed_subscriptions, settings)
    if contexts is None and scope is not MetaEventScope.ONCE and not operation_rows.has_windows(governed_subscriptions):
        count = 1 if scope else shards or shards_for(governed_subscriptions.count())
        registry = build_registry(governed_subscriptions, plan, count)
        return RouteResult(
            _matchable_events(events, registry, settings, trust), registry, worker_of(registry, settings, trust)
        )
    count = 1 if scope else shards or _cores(events)
    rows = [operation_rows.event_rows(events)]
    if contexts is not None:
        rows.append(operation_rows.context_rows(contexts))
    if operation_rows.has_windows(governed_subscriptions):
        rows.append(operation_rows.subscription_rows(operation_rows.later_changes(governed_subscriptions)))
    if timed_policies is not None:
        rows += [
            operation_rows.policy_begins(
                operation_rows.without_brought_policies(timed_policies, governed_subscriptions)
            ),
            operation_rows.policy_ends(timed_policies),
        ]
    fills_contexts = contexts is not None and "context" not in events.columns
    operations = operation_rows.in_order(operation_rows.union_rows(rows), count, spread_contexts=fills_contexts)
    registry = build_registry(operation_rows.initial_subscriptions(governed_subscriptions), plan, count)
    return RouteResult(operations, registry, partial(_shard_worker, registry, settings, fills_contexts, trust))


def _matchable_events(
    events: "DataFrame", registry: Registry, settings: Settings, trust: TrustedKeys | None
) -> "DataFrame":
    """Return the events that may match or be rejected.

    With one shard they stay where they are; with several there is a copy for each shard where the event may match.
    """
    from pyspark.sql import functions as f

    normalised = prepare_events(events)
    shards = shard_conditions(normalised, registry, settings, trust)
    if registry.shards == 1:
        return normalised if shards is None else normalised.filter(shards[0])
    return spread_to_shards(normalised, shards or [f.lit(True)] * registry.shards, _cores(events))


def worker_of(registry: Registry, settings: Settings, trust: TrustedKeys | None = None) -> Callable[[bool], Any]:
    """Return the factory of stateless workers, for events that any worker may match."""
    return partial(_worker, registry, settings, trust)


def _worker(registry: Registry, settings: Settings, trust: TrustedKeys | None, notifications: bool) -> Any:
    from tidings.spark.shards.stateless_worker import StatelessWorker

    return StatelessWorker(registry.folder, settings, notifications=notifications, trust=trust)


def _shard_worker(
    registry: Registry, settings: Settings, fills_contexts: bool, trust: TrustedKeys | None, notifications: bool
) -> Any:
    from tidings.spark.shards.shard_worker import ShardWorker

    return ShardWorker(
        registry.folder, settings, spread_contexts=fills_contexts, notifications=notifications, trust=trust
    )


_temporary: list["tempfile.TemporaryDirectory[str]"] = []  # never removed earlier: lazy results read them


def _temporary_folder() -> str:
    _temporary.append(tempfile.TemporaryDirectory(prefix="tidings-", ignore_cleanup_errors=True))
    return _temporary[-1].name


def shard_plan(
    folder: str,
    settings: Settings,
    advertisements: "DataFrame | None",
    policies: "DataFrame | None",
    schemas: "DataFrame | None",
) -> "ShardPlan":
    """Return what every shard is built with: its folder, settings, and all advertisements and schemas.

    Advertisements and schemas are collected to the driver, since there are few.

    Args:
        folder: Where the shards are written.
        settings: The engine's settings.
        advertisements: Advertisements as rows, or None.
        policies: Policies by `id` that replace those of the advertisements, or None.
        schemas: `subject` and `versions`, or None.
    """
    from tidings.spark.shards.shard_builder import AdvertisementText, ShardPlan

    advertisement_rows = [] if advertisements is None else with_policies(advertisements, policies).collect()
    return ShardPlan(
        folder=folder,
        settings=settings,
        advertisements=[msgspec.convert(row.asDict(), AdvertisementText) for row in advertisement_rows],
        schemas=_longest_schemas(schemas),
    )


def _longest_schemas(schemas: "DataFrame | None") -> dict[str, list[dict[str, str]]]:
    """Return for each subject what each version of its longest schema adds; schemas only grow."""
    longest: dict[str, list[dict[str, str]]] = {}
    for row in [] if schemas is None else schemas.select("subject", "versions").collect():
        versions = msgspec.json.decode(row["versions"], type=list[dict[str, str]])
        if len(versions) > len(longest.get(row["subject"], [])):
            longest[row["subject"]] = versions
    return longest


def _cores(events: "DataFrame") -> int:
    return max(1, int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))


def with_policies(filters: "DataFrame", policies: "DataFrame | None") -> "DataFrame":
    """Return subscriptions or advertisements with the policies set by id, which replace the filters' own policies."""
    from pyspark.sql import functions as f

    if policies is None:
        return filters
    later = policies.select(f.col("id").alias("$id"), f.col("policy").alias("$policy"))
    joined = filters.join(later, filters["id"] == later["$id"], "left")
    before = f.col("policy") if "policy" in filters.columns else f.lit(None).cast("string")
    return joined.withColumn("policy", f.coalesce("$policy", before)).drop("$id", "$policy")

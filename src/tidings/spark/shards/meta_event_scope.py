"""Decide whether shards may work independently, given the meta-events that policies may emit.

Meta-events go to all subscribers, and a policy conflict is reported only once. So rules that may emit meta-events need
one shard with all subscriptions, and rules that may conflict need that shard to process all events in order.
"""

from enum import IntEnum
from typing import TYPE_CHECKING

from tidings.engine import Settings
from tidings.engine.state.broker_state import BrokerState
from tidings.engine.state.filter_rules import compiled_text
from tidings.engine.state.static_projections import constant_projection
from tidings.filters import Filter
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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

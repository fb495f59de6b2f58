"""What rules may tell: meta-events are for everyone, and a conflict is told once. So not all can be done apart."""

from enum import IntEnum
from typing import TYPE_CHECKING

from tidings.engine import Engine, Settings
from tidings.engine.compiling import compiled_text
from tidings.engine.cuts import always_cut
from tidings.filters import Filter
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST = 256  # different policies that are looked at


class Telling(IntEnum):
    NOTHING = 0  # shards can do without each other
    OF_EACH = 1  # of an event by itself: whoever takes the event has to know all subscriptions
    ONCE = 2  # of the first event that shows it: one has to see all events, in their order


def telling(subscriptions: "DataFrame | None", settings: Settings) -> Telling:
    """The most that the policies of subscriptions can do, where there are no others."""
    from pyspark.sql import functions as f

    if subscriptions is None or "policy" not in subscriptions.columns:
        return Telling.NOTHING
    if subscriptions.isStreaming or settings.govern:
        return Telling.ONCE
    columns = subscriptions.columns
    own = f.col("subscriber") == settings.name if "subscriber" in columns else f.lit(False)
    together = f.col("notify") == "client" if "notify" in columns else f.lit(False)
    shared = f.coalesce(own | together, f.lit(False)).alias("shared")  # beside it, other rules act on the same copy
    given = subscriptions.filter("policy IS NOT NULL").select(f.col("policy").cast("string"), shared)
    found = given.distinct().limit(_MOST + 1).collect()
    if len(found) > _MOST:
        return Telling.ONCE
    return max((telling_of(row["policy"], shared=row["shared"]) for row in found), default=Telling.NOTHING)


def telling_of(policy: str, *, shared: bool = False) -> Telling:
    """Two rules may disagree about a copy, and of one rule an action may fail; only what always cuts alike cannot."""
    try:
        anybody = Subscription.of(Filter.parse("a = 1"), id="s", subscriber="s", policy=policy)
        rules = compiled_text(policy).policy.rules
    except TidingsError:  # whoever has it is refused
        return Telling.NOTHING
    if shared or len(rules) > 1:
        return Telling.ONCE
    return Telling.NOTHING if always_cut(Engine(), anybody) is not None else Telling.OF_EACH

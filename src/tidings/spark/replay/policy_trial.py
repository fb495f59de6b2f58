"""`try_policy`: compare what a journal's events led to with what they would have led to under another policy.

The journal is replayed twice, and the notifications are compared.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidings.engine.message import Refusal
from tidings.engine.settings import Settings
from tidings.engine.steps.admit import admit_policy
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.model.packages import optional_packages
from tidings.policy.placement import PolicyPlace
from tidings.policy.policy import Policy
from tidings.spark.events import ORDER
from tidings.spark.replay.explain import explain_journal
from tidings.spark.replay.retrace import RetraceResult, retrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOST, GAINED, ALTERED = "lost", "gained", "altered"
_BEGINS = {"subscribe": "subscription", "advertise": "advertisement"}
_KEY = ["event_id", "subscription_id"]


class PolicyTrial:
    """The notifications before and after a policy was changed, as lazy DataFrames.

    `compared` has a row for each event and subscription with a notification before or after. `change` is `lost`,
    `gained`, `altered` or null; `before` and `after` are the attributes as JSON text, `payload_before` and
    `payload_after` the payloads. Meta-events are left out. Every action replays the journal twice: `cache` the
    DataFrame before several.
    """

    def __init__(self, compared: "DataFrame") -> None:
        self.compared = compared

    @property
    def changes(self) -> "DataFrame":
        """The rows of `compared` with a change."""
        return self.compared.where("change IS NOT NULL")

    @property
    def per_subscription(self) -> "DataFrame":
        """A row per subscription: notifications `before` and `after`, and how many were lost, gained and altered."""
        from pyspark.sql import functions as f

        return self.compared.groupBy("subscription_id").agg(
            f.max("subscriber").alias("subscriber"),
            f.count("before").alias("before"),
            f.count("after").alias("after"),
            *(f.count_if(f.col("change") == change).alias(change) for change in (LOST, GAINED, ALTERED)),
        )

    def examples(self, each: int = 3) -> "DataFrame":
        """Return the first `each` rows of each kind of change."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        order = Window.partitionBy("change").orderBy("timestamp", *_KEY)
        ranked = self.changes.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= each)
        return ranked.drop("rank").orderBy("change", "timestamp", *_KEY)


@optional_packages()
def per_rule(journal: "DataFrame", *, settings: Settings | None = None) -> "DataFrame":
    """Return for each policy rule how many notifications it `blocked` and how many it `shaped`, with the column `rule`.

    The journal is replayed with all policies and with none, and each difference is explained. `rule` is null where no
    rule on events explains the difference: a rule on subscriptions has widened a filter, or refused it.
    """
    from pyspark.sql import functions as f

    trial = compare(retrace(journal, settings=settings, governed=False), retrace(journal, settings=settings))
    why = explain_journal(journal, trial.changes, settings=settings)
    each = why.select("delivered", f.explode_outer("rules").alias("rule"))
    return each.groupBy("rule").agg(
        f.count_if(~f.col("delivered")).alias("blocked"), f.count_if("delivered").alias("shaped")
    )


class _TrialTarget(NamedTuple):
    """A filter on which a policy is tried."""

    kind: str  # the operation that created the filter
    owner: str
    journal: str


@optional_packages()
def try_policy(
    journal: "DataFrame",
    policy: Policy | str | None,
    on: str | None = None,
    *,
    as_owner: bool = False,
    settings: Settings | None = None,
) -> PolicyTrial:
    """Return what would have been different with another policy in force throughout the journal.

    The events are those in `journal`: `history.read` selects them by time.

    Args:
        journal: The rows of a journal.
        policy: The policy; None removes the one in the journal.
        on: The id of a subscription or an advertisement. None: the policy is the broker's own, on everything.
        as_owner: Whether the policy replaces the owner's; else it is the operator's, besides the owner's.
        settings: The settings of the broker, except its name.

    Raises:
        InvalidValueError: Without `on`, `policy` is None or `as_owner` is true.
        RefusedError: The policy may not stand there, or the journal has no such filter.
    """
    text = None if policy is None else str(policy if isinstance(policy, Policy) else Policy.parse(policy))
    before = retrace(journal, settings=settings)
    if on is None:
        if text is None or as_owner:
            raise InvalidValueError("on: say whose policy is taken away or replaced, by the id of its filter")
        _check(text, PolicyPlace.BROKER_ADVERTISEMENT)
        return compare(before, retrace(journal, settings=settings, policy=text))
    target = _trial_target(journal, on)
    own = target.owner == target.journal
    where = PolicyPlace[f"{'BROKER' if own else 'ASSOCIATED_WITH'}_{_BEGINS[target.kind].upper()}"]
    _check(text, where)
    return compare(before, retrace(_with_policy(journal, text, on, as_owner=as_owner), settings=settings))


def compare(before: RetraceResult, after: RetraceResult) -> PolicyTrial:
    """Return the differences between the notifications of two replays of a journal."""
    from pyspark.sql import functions as f

    joined = _notes(before, "before").join(_notes(after, "after"), _KEY, "full_outer")
    same = [f.col(f"before.{name}").eqNullSafe(f.col(f"after.{name}")) for name in ("attributes", "payload", "trace")]
    gained, lost = f.col("before").isNull(), f.col("after").isNull()
    change = f.when(gained, GAINED).when(lost, LOST).when(~(same[0] & same[1] & same[2]), ALTERED)
    return PolicyTrial(
        joined.select(
            *_KEY,
            *(f.coalesce(f"before.{name}", f"after.{name}").alias(name) for name in ("subscriber", "timestamp")),
            change.alias("change"),
            *(f.col(f"{side}.attributes").alias(side) for side in ("before", "after")),
            *(f.col(f"{side}.payload").alias(f"payload_{side}") for side in ("before", "after")),
        )
    )


def _notes(retraced: RetraceResult, name: str) -> "DataFrame":
    """Return the notifications by event and subscription; one for several subscriptions has a row for each."""
    from pyspark.sql import functions as f

    notes = retraced.of_events.withColumn("subscription_id", f.explode("subscriptions"))
    return notes.select(*_KEY, f.struct("subscriber", "timestamp", "attributes", "payload", "trace").alias(name))


def _check(text: str | None, place: PolicyPlace) -> None:
    try:
        admit_policy(text, place)
    except Refusal as refusal:
        raise RefusedError(refusal.step, refusal.reason) from None


def _trial_target(journal: "DataFrame", filter_id: str) -> _TrialTarget:
    from pyspark.sql import functions as f

    begins = journal.where(f.col("kind").isin(*_BEGINS) & (f.col("id") == filter_id))
    rows: list[Any] = begins.select("kind", "client", "journal").limit(1).collect()
    if not rows:
        raise RefusedError(
            "admit",
            f"the journal has no subscription or advertisement {filter_id}; history.subscriptions lists those it has",
        )
    return _TrialTarget(*rows[0])


def _with_policy(journal: "DataFrame", text: str | None, filter_id: str, *, as_owner: bool) -> "DataFrame":
    """Return the journal with the policy set right after each version of the filter, and without other policies on it.

    Only the operator's policies on the filter are replaced, or with `as_owner` the owner's.
    """
    from pyspark.sql import functions as f

    is_operators = f.col("client") == f.col("journal")
    is_replaced = (
        (f.col("kind") == "set_policy") & (f.col("id") == filter_id) & (~is_operators if as_owner else is_operators)
    )
    begins = journal.where(f.col("kind").isin(*_BEGINS) & (f.col("id") == filter_id))
    setting = begins.select(
        *("journal", "offset", "timestamp", "id"),
        f.lit("set_policy").alias("kind"),
        f.col("client" if as_owner else "journal").alias("client"),
        f.lit(msgspec.json.encode({"policy": text}).decode()).alias("body"),
        f.lit(1).alias(ORDER),
    )
    return journal.where(~f.coalesce(is_replaced, f.lit(False))).unionByName(setting, allowMissingColumns=True)

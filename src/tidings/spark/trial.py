"""`try_policy`: what would have changed, had a policy been set. The journal is gone through twice, and compared."""

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidings.engine.admission import admit_policy
from tidings.engine.refusal import Refused
from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError, RefusedError
from tidings.model.packages import optional_packages
from tidings.policy.placement import Where
from tidings.policy.policy import Policy
from tidings.spark.events import ORDER
from tidings.spark.explain import explain_journal
from tidings.spark.retrace import Retraced, retrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOST, GAINED, ALTERED = "lost", "gained", "altered"
_BEGINS = {"subscribe": "subscription", "advertise": "advertisement"}
_KEY = ["event_id", "subscription_id"]


class Trial:
    """`compared` has a row for each subscription and event of which there is a notification, before or after.

    `change` is `lost`, `gained` or `altered`, or null where nothing did; `before` and `after` are attributes as JSON
    text, `payload_before` and `payload_after` the payloads. Meta-events are left out. It is lazy, and both ways through
    the journal are gone for every action on it: `cache` it where there are several.
    """

    def __init__(self, compared: "DataFrame") -> None:
        self.compared = compared

    @property
    def changes(self) -> "DataFrame":
        return self.compared.where("change IS NOT NULL")

    @property
    def per_subscription(self) -> "DataFrame":
        """`subscription_id`, `subscriber`, notifications `before` and `after`; of these `lost`, `gained`, `altered`."""
        from pyspark.sql import functions as f

        return self.compared.groupBy("subscription_id").agg(
            f.max("subscriber").alias("subscriber"),
            f.count("before").alias("before"),
            f.count("after").alias("after"),
            *(f.count_if(f.col("change") == what).alias(what) for what in (LOST, GAINED, ALTERED)),
        )

    def examples(self, each: int = 3) -> "DataFrame":
        """The first few of each kind of change."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        order = Window.partitionBy("change").orderBy("timestamp", *_KEY)
        ranked = self.changes.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= each)
        return ranked.drop("rank").orderBy("change", "timestamp", *_KEY)


@optional_packages()
def per_rule(journal: "DataFrame", *, settings: Settings | None = None) -> "DataFrame":
    """What each rule of each policy did: `rule`, and how many notifications it `blocked` and `shaped`.

    That is told by going through the journal with policies and without any, and asking for the reason of each
    difference. `rule` is null where no rule on events is the reason: one on subscriptions has widened a filter, or
    kept it out.
    """
    from pyspark.sql import functions as f

    trial = compare(retrace(journal, settings=settings, governed=False), retrace(journal, settings=settings))
    why = explain_journal(journal, trial.changes, settings=settings)
    each = why.select("delivered", f.explode_outer("rules").alias("rule"))
    return each.groupBy("rule").agg(
        f.count_if(~f.col("delivered")).alias("blocked"), f.count_if("delivered").alias("shaped")
    )


class _Place(NamedTuple):
    """A filter that a policy is tried on."""

    kind: str  # the operation that begins it
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
) -> Trial:
    """What would have been different with this policy in force as long as the journal goes.

    `on` is the id of a subscription or an advertisement, on which it is the operator's, beside the owner's, or with
    `as_owner` in the place of the owner's; None takes what is there away. Without `on` it is the broker's own, for
    everything. The events that it is tried on are those of the journal: `history.read` leaves out others.
    """
    text = None if policy is None else str(policy if isinstance(policy, Policy) else Policy.parse(policy))
    before = retrace(journal, settings=settings)
    if on is None:
        if text is None or as_owner:
            raise InvalidValueError("on: say whose policy is taken away or replaced, by the id of its filter")
        _check(text, Where.BROKER_ADVERTISEMENT)
        return compare(before, retrace(journal, settings=settings, policy=text))
    place = _place(journal, on)
    own = place.owner == place.journal
    where = Where[f"{'BROKER' if own else 'ASSOCIATED_WITH'}_{_BEGINS[place.kind].upper()}"]
    _check(text, where)
    return compare(before, retrace(_with_policy(journal, text, on, as_owner=as_owner), settings=settings))


def compare(before: Retraced, after: Retraced) -> Trial:
    from pyspark.sql import functions as f

    joined = _notes(before, "before").join(_notes(after, "after"), _KEY, "full_outer")
    same = [f.col(f"before.{name}").eqNullSafe(f.col(f"after.{name}")) for name in ("attributes", "payload", "trace")]
    gained, lost = f.col("before").isNull(), f.col("after").isNull()
    change = f.when(gained, GAINED).when(lost, LOST).when(~(same[0] & same[1] & same[2]), ALTERED)
    return Trial(
        joined.select(
            *_KEY,
            *(f.coalesce(f"before.{name}", f"after.{name}").alias(name) for name in ("subscriber", "timestamp")),
            change.alias("change"),
            *(f.col(f"{side}.attributes").alias(side) for side in ("before", "after")),
            *(f.col(f"{side}.payload").alias(f"payload_{side}") for side in ("before", "after")),
        )
    )


def _notes(retraced: Retraced, name: str) -> "DataFrame":
    """By event and subscription; a notification for several of a client's is one for each."""
    from pyspark.sql import functions as f

    notes = retraced.of_events.withColumn("subscription_id", f.explode("subscriptions"))
    return notes.select(*_KEY, f.struct("subscriber", "timestamp", "attributes", "payload", "trace").alias(name))


def _check(text: str | None, where: Where) -> None:
    try:
        admit_policy(text, where)
    except Refused as refusal:
        raise RefusedError(refusal.step, refusal.reason) from None


def _place(journal: "DataFrame", on: str) -> _Place:
    from pyspark.sql import functions as f

    begins = journal.where(f.col("kind").isin(*_BEGINS) & (f.col("id") == on))
    found: list[Any] = begins.select("kind", "client", "journal").limit(1).collect()
    if not found:
        raise RefusedError(
            "admit", f"the journal has no subscription or advertisement {on}; history.subscriptions lists those it has"
        )
    return _Place(*found[0])


def _with_policy(journal: "DataFrame", text: str | None, on: str, *, as_owner: bool) -> "DataFrame":
    """The journal, had the policy been set right after the filter, whenever it began, and no other one since."""
    from pyspark.sql import functions as f

    is_operators = f.col("client") == f.col("journal")
    replaced = (f.col("kind") == "set_policy") & (f.col("id") == on) & (~is_operators if as_owner else is_operators)
    begins = journal.where(f.col("kind").isin(*_BEGINS) & (f.col("id") == on))
    setting = begins.select(
        *("journal", "offset", "timestamp", "id"),
        f.lit("set_policy").alias("kind"),
        f.col("client" if as_owner else "journal").alias("client"),
        f.lit(msgspec.json.encode({"policy": text}).decode()).alias("body"),
        f.lit(1).alias(ORDER),
    )
    return journal.where(~f.coalesce(replaced, f.lit(False))).unionByName(setting, allowMissingColumns=True)

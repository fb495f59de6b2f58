"""`explain`: why subscriptions did, or did not, get events, for pairs of them in a DataFrame."""

from typing import TYPE_CHECKING

from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.model.packages import optional_packages
from tidings.spark import changes, history
from tidings.spark.events import KEY, ORDER, SCHEDULED, SHARD, microseconds
from tidings.spark.explainer import ASKED, DDL, Explainer
from tidings.spark.retrace import cores, in_order, shard_of_client
from tidings.spark.retracer import JOURNAL
from tidings.spark.route import with_policies

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PAIR = ["event_id", "subscription_id"]
# What governs subscriptions comes before them, where all begin at the same time.
_SCHEMAS, _ENDS, _BEGINS = -3, -2, -1


@optional_packages()
def explain(
    events: "DataFrame",
    subscriptions: "DataFrame",
    pairs: "DataFrame",
    contexts: "DataFrame | None" = None,
    advertisements: "DataFrame | None" = None,
    policies: "DataFrame | None" = None,
    schemas: "DataFrame | None" = None,
    *,
    shards: int | None = None,
    settings: Settings | None = None,
) -> "DataFrame":
    """For each of the `pairs` (`event_id`, `subscription_id`) whether it is `delivered`, and if not at which `step` and
    for what `reason`; `rules` are those that stopped or shaped it. `Engine.explain` says the same at the event's time.

    The other DataFrames are those of `route`; advertisements and schemas may have `since` and `until` as well. Of
    events and subscriptions only those are looked at that the pairs need.
    """
    from pyspark.sql import functions as f

    settings = settings or Settings(name="spark")
    shards = shards or cores(events)
    asked = _asked(pairs)
    constant = None if changes.has_windows(policies) else policies
    wanted = _needed(with_policies(subscriptions, constant), asked, settings.name)
    published = changes.event_rows(events)
    published = published.join(_by_event(asked), published[KEY] == f.col("event_id")).drop("event_id")
    rows = [published, changes.subscription_rows(wanted)]
    if contexts is not None:
        rows.append(changes.context_rows(contexts))
    if advertisements is not None:
        rows += _advertised(with_policies(advertisements, constant))
    if policies is not None and constant is None:
        rows += [changes.policy_begins(changes.set_apart(policies, wanted)), changes.policy_ends(policies)]
    if schemas is not None:
        rows.append(_defined(schemas, settings.name))
    fills = contexts is not None and "context" not in events.columns
    everywhere = ("set_policy", "set_context") if fills else ("set_policy",)
    told = changes.together(rows).withColumns(
        {
            JOURNAL: f.lit(settings.name),
            "timestamp": f.when(f.col(SCHEDULED), f.coalesce("timestamp", f.lit(0))).otherwise(f.col("timestamp")),
        }
    )
    placed = told.withColumn(SHARD, shard_of_client(shards, *everywhere)).repartitionById(shards, SHARD)
    ordered = placed.sortWithinPartitions(JOURNAL, SHARD, "timestamp", ORDER, "id")
    answers = ordered.mapInArrow(Explainer(settings, fills_contexts=fills), DDL)
    return _answered(asked, answers, events.select(f.col("id").cast("string").alias("event_id")))


@optional_packages()
def explain_journal(
    journal: "DataFrame", pairs: "DataFrame", *, shards: int | None = None, settings: Settings | None = None
) -> "DataFrame":
    """The same for events of a journal (`history.read`), as the hub or broker would have said it at that time."""
    asked = _asked(pairs)
    rows = in_order(journal, shards or cores(journal), whole=False, asked=_by_event(asked))
    answers = rows.mapInArrow(Explainer(settings or Settings()), DDL)
    return _answered(asked, answers, history.events(journal).selectExpr("id AS event_id"))


def _asked(pairs: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    missing = [name for name in _PAIR if name not in pairs.columns]
    if missing:
        raise InvalidValueError(f"pairs: there is no column {missing[0]}; there are {', '.join(pairs.columns)}")
    return pairs.select(*(f.col(name).cast("string").alias(name) for name in _PAIR)).dropna().distinct()


def _by_event(asked: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return asked.groupBy("event_id").agg(f.collect_list("subscription_id").alias(ASKED))


def _needed(subscriptions: "DataFrame", asked: "DataFrame", broker: str) -> "DataFrame":
    """Those that are asked about, what is told to their clients together with them, and the broker's own."""
    from pyspark.sql import functions as f

    named = asked.select(f.col("subscription_id").alias("id")).distinct()
    wanted = subscriptions.join(named, "id", "left_semi")
    if "subscriber" not in subscriptions.columns:
        return wanted
    others = subscriptions.join(named, "id", "left_anti")
    own = others.where(f.col("subscriber") == broker)
    if "notify" not in subscriptions.columns:
        return wanted.unionByName(own)
    clients = wanted.where("notify = 'client'").select("subscriber").distinct()
    together = others.where((f.col("notify") == "client") & (f.col("subscriber") != broker))
    return wanted.unionByName(own).unionByName(together.join(clients, "subscriber", "left_semi"))


def _advertised(advertisements: "DataFrame") -> "list[DataFrame]":
    """Beginnings and ends; a context offer is an array of names, its JSON text, or the text of a filter. A null
    `publisher_context` offers all names."""
    from pyspark.sql import functions as f

    kinds = dict(advertisements.dtypes)
    missing = [name for name in ("id", "publisher") if name not in kinds]
    if missing:
        raise InvalidValueError(f"advertisements: there is no column {missing[0]}; there are {', '.join(kinds)}")

    def offer(name: str) -> "Column":
        if name not in kinds:
            return f.lit("[]")
        if kinds[name] != "string":
            return f.coalesce(f.to_json(name), f.lit("[]"))
        is_list = f.startswith(f.col(name), f.lit("["))
        return f.when(f.col(name).isNull(), "[]").when(is_list, f.col(name)).otherwise(_quoted(f.col(name)))

    content, policy = (f.col(name) if name in kinds else f.lit(None).cast("string") for name in ("content", "policy"))
    parts = {
        "content": _quoted(f.coalesce(content, f.lit(""))),
        "publisher_context": offer("publisher_context"),
        "subscriber_context": offer("subscriber_context"),
        "policy": f.coalesce(_quoted(policy), f.lit("null")),
    }
    offered = f.col("publisher_context") if "publisher_context" in kinds else f.lit(None)
    parts["publisher_context_all"] = f.when(offered.isNull(), "true").otherwise("false")
    body = f.concat(f.lit("{"), f.concat_ws(",", *(f.concat(f.lit(f'"{n}":'), one) for n, one in parts.items())))
    found = [
        _control(advertisements, "advertise", "id", f.col("publisher"), f.concat(body, f.lit("}")), "since", _BEGINS)
    ]
    if "until" in kinds:
        ended = advertisements.where("until IS NOT NULL")
        found.append(_control(ended, "unadvertise", "id", f.col("publisher"), f.lit("{}"), "until", _ENDS))
    return found


def _defined(schemas: "DataFrame", broker: str) -> "DataFrame":
    """Without `since`, the longest version of each: schemas only grow."""
    from pyspark.sql import functions as f

    if "since" not in schemas.columns:
        length = f.size(f.from_json("versions", "array<map<string, string>>"))
        schemas = schemas.groupBy("subject").agg(f.max_by("versions", length).alias("versions"))
    body = f.concat(f.lit('{"versions":'), f.col("versions"), f.lit("}"))
    return _control(schemas, "schema", "subject", f.lit(broker), body, "since", _SCHEMAS)


def _control(
    frame: "DataFrame", kind: str, name: str, client: "Column", body: "Column", when: str, order: int
) -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = dict(frame.dtypes)
    return frame.select(
        *(f.col(name).cast("string").alias(one) for one in (KEY, "id")),
        (microseconds(when, kinds[when]) if when in kinds else f.lit(None).cast("bigint")).alias("timestamp"),
        f.lit(kind).alias("kind"),
        client.cast("string").alias("client"),
        body.alias("body"),
        f.lit(order).alias(ORDER),
        f.lit(True).alias(SCHEDULED),
    )


def _quoted(text: "Column") -> "Column":
    """As a JSON string; null stays null."""
    from pyspark.sql import functions as f

    listed = f.to_json(f.array(text))
    return f.when(text.isNotNull(), f.substring(listed, f.lit(2), f.length(listed) - 2))


def _answered(asked: "DataFrame", answers: "DataFrame", known: "DataFrame") -> "DataFrame":
    """A row for each pair, also where the one or the other did not exist."""
    from pyspark.sql import functions as f

    there = known.join(asked.select("event_id").distinct(), "event_id", "left_semi").distinct()
    joined = asked.join(answers, _PAIR, "left").join(there.withColumn("known", f.lit(True)), "event_id", "left")
    no_subscription = f.concat(f.lit("there was no subscription "), "subscription_id", f.lit(" at that time"))
    missing = f.when(f.col("known"), no_subscription).otherwise(f.concat(f.lit("there is no event "), "event_id"))
    return joined.select(
        *_PAIR,
        f.coalesce("delivered", f.lit(False)).alias("delivered"),
        f.coalesce("step", f.lit("admit")).alias("step"),
        f.coalesce("reason", missing).alias("reason"),
        f.coalesce("rules", f.array().cast("array<string>")).alias("rules"),
    )

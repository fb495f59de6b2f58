"""`explain`: say why subscriptions got, or did not get, events, for pairs of event and subscription in a DataFrame."""

from typing import TYPE_CHECKING

from tidings.engine.settings import Settings
from tidings.model.errors import InvalidValueError
from tidings.model.packages import optional_packages
from tidings.spark import history
from tidings.spark.events import KEY, ORDER, SCHEDULED, SHARD, microseconds
from tidings.spark.replay.explain_worker import ASKED, DDL, ExplainWorker
from tidings.spark.replay.retrace import cores, in_order, shard_of_client
from tidings.spark.replay.retrace_worker import JOURNAL
from tidings.spark.route import with_policies
from tidings.spark.shards import operation_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PAIR = ["event_id", "subscription_id"]
# At the same time, schemas and advertisements take effect before subscriptions.
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
    """Explain for each pair of event and subscription whether the event is delivered, and why.

    The result has `event_id`, `subscription_id`, `delivered`, the `step` and the `reason` that decided, and the `rules`
    that blocked or changed the copy: the same as `Engine.explain` at the event's time. Only the events and
    subscriptions that the pairs need are processed. The DataFrames are those of `route`.

    Args:
        events: The events.
        subscriptions: The subscriptions.
        pairs: The pairs, with `event_id` and `subscription_id`.
        contexts: Changes of clients' contexts.
        advertisements: Advertisements, which may also have `since` and `until`.
        policies: Policies by `id`.
        schemas: Schemas of subjects, which may also have `since`.
        shards: The number of shards. None: as many as shuffle partitions.
        settings: The engine's settings.

    Raises:
        InvalidValueError: A DataFrame lacks a column.
    """
    from pyspark.sql import functions as f

    settings = settings or Settings(name="spark")
    shards = shards or cores(events)
    valid_pairs = _valid_pairs(pairs)
    constant_policies = None if operation_rows.has_windows(policies) else policies
    needed = _needed_subscriptions(with_policies(subscriptions, constant_policies), valid_pairs, settings.name)
    published = operation_rows.event_rows(events)
    published = published.join(_subscriptions_by_event(valid_pairs), published[KEY] == f.col("event_id")).drop(
        "event_id"
    )
    rows = [published, operation_rows.subscription_rows(needed)]
    if contexts is not None:
        rows.append(operation_rows.context_rows(contexts))
    if advertisements is not None:
        rows += _advertisement_rows(with_policies(advertisements, constant_policies))
    if policies is not None and constant_policies is None:
        rows += [
            operation_rows.policy_begins(operation_rows.without_brought_policies(policies, needed)),
            operation_rows.policy_ends(policies),
        ]
    if schemas is not None:
        rows.append(_schema_rows(schemas, settings.name))
    fills_contexts = contexts is not None and "context" not in events.columns
    everywhere = ("set_policy", "set_context") if fills_contexts else ("set_policy",)
    operations = operation_rows.union_rows(rows).withColumns(
        {
            JOURNAL: f.lit(settings.name),
            "timestamp": f.when(f.col(SCHEDULED), f.coalesce("timestamp", f.lit(0))).otherwise(f.col("timestamp")),
        }
    )
    assigned = operations.withColumn(SHARD, shard_of_client(shards, *everywhere)).repartitionById(shards, SHARD)
    ordered = assigned.sortWithinPartitions(JOURNAL, SHARD, "timestamp", ORDER, "id")
    answers = ordered.mapInArrow(ExplainWorker(settings, fills_contexts=fills_contexts), DDL)
    return _with_missing(valid_pairs, answers, events.select(f.col("id").cast("string").alias("event_id")))


@optional_packages()
def explain_journal(
    journal: "DataFrame", pairs: "DataFrame", *, shards: int | None = None, settings: Settings | None = None
) -> "DataFrame":
    """Explain for each pair of event and subscription in a journal whether the event was delivered, and why.

    The result has the columns of `explain`, and the answers are those of the hub or broker at that time.

    Args:
        journal: The rows of one or more journals (`history.read`).
        pairs: The pairs, with `event_id` and `subscription_id`.
        shards: The number of shards. None: as many as shuffle partitions.
        settings: The settings of the broker, except its name.
    """
    valid_pairs = _valid_pairs(pairs)
    rows = in_order(
        journal, shards or cores(journal), single_shard=False, event_ids=_subscriptions_by_event(valid_pairs)
    )
    answers = rows.mapInArrow(ExplainWorker(settings or Settings()), DDL)
    return _with_missing(valid_pairs, answers, history.events(journal).selectExpr("id AS event_id"))


def _valid_pairs(pairs: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    missing = [name for name in _PAIR if name not in pairs.columns]
    if missing:
        raise InvalidValueError(f"pairs: there is no column {missing[0]}; there are {', '.join(pairs.columns)}")
    return pairs.select(*(f.col(name).cast("string").alias(name) for name in _PAIR)).dropna().distinct()


def _subscriptions_by_event(pairs: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return pairs.groupBy("event_id").agg(f.collect_list("subscription_id").alias(ASKED))


def _needed_subscriptions(subscriptions: "DataFrame", pairs: "DataFrame", broker: str) -> "DataFrame":
    """Return the subscriptions asked about, those notified together with them, and the broker's own."""
    from pyspark.sql import functions as f

    ids = pairs.select(f.col("subscription_id").alias("id")).distinct()
    requested = subscriptions.join(ids, "id", "left_semi")
    if "subscriber" not in subscriptions.columns:
        return requested
    others = subscriptions.join(ids, "id", "left_anti")
    own = others.where(f.col("subscriber") == broker)
    if "notify" not in subscriptions.columns:
        return requested.unionByName(own)
    clients = requested.where("notify = 'client'").select("subscriber").distinct()
    client_subscriptions = others.where((f.col("notify") == "client") & (f.col("subscriber") != broker))
    return requested.unionByName(own).unionByName(client_subscriptions.join(clients, "subscriber", "left_semi"))


def _advertisement_rows(advertisements: "DataFrame") -> "list[DataFrame]":
    """Return the rows of `advertise` at `since`, and of `unadvertise` at `until`.

    A context offer is an array of names, its JSON text, or the text of a filter. A `publisher_context` of null offers
    all names.
    """
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
        return f.when(f.col(name).isNull(), "[]").when(is_list, f.col(name)).otherwise(_json_string(f.col(name)))

    content, policy = (f.col(name) if name in kinds else f.lit(None).cast("string") for name in ("content", "policy"))
    parts = {
        "content": _json_string(f.coalesce(content, f.lit(""))),
        "publisher_context": offer("publisher_context"),
        "subscriber_context": offer("subscriber_context"),
        "policy": f.coalesce(_json_string(policy), f.lit("null")),
    }
    offered = f.col("publisher_context") if "publisher_context" in kinds else f.lit(None)
    parts["publisher_context_all"] = f.when(offered.isNull(), "true").otherwise("false")
    body = f.concat(f.lit("{"), f.concat_ws(",", *(f.concat(f.lit(f'"{n}":'), part) for n, part in parts.items())))
    rows = [
        _control_rows(
            advertisements, "advertise", "id", f.col("publisher"), f.concat(body, f.lit("}")), "since", _BEGINS
        )
    ]
    if "until" in kinds:
        ended = advertisements.where("until IS NOT NULL")
        rows.append(_control_rows(ended, "unadvertise", "id", f.col("publisher"), f.lit("{}"), "until", _ENDS))
    return rows


def _schema_rows(schemas: "DataFrame", broker: str) -> "DataFrame":
    """Return the rows of `schema` at `since`; without that column, of the longest version of each schema."""
    from pyspark.sql import functions as f

    if "since" not in schemas.columns:
        length = f.size(f.from_json("versions", "array<map<string, string>>"))
        schemas = schemas.groupBy("subject").agg(f.max_by("versions", length).alias("versions"))
    body = f.concat(f.lit('{"versions":'), f.col("versions"), f.lit("}"))
    return _control_rows(schemas, "schema", "subject", f.lit(broker), body, "since", _SCHEMAS)


def _control_rows(
    frame: "DataFrame", kind: str, name: str, client: "Column", body: "Column", time_column: str, order: int
) -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = dict(frame.dtypes)
    return frame.select(
        *(f.col(name).cast("string").alias(alias) for alias in (KEY, "id")),
        (microseconds(time_column, kinds[time_column]) if time_column in kinds else f.lit(None).cast("bigint")).alias(
            "timestamp"
        ),
        f.lit(kind).alias("kind"),
        client.cast("string").alias("client"),
        body.alias("body"),
        f.lit(order).alias(ORDER),
        f.lit(True).alias(SCHEDULED),
    )


def _json_string(text: "Column") -> "Column":
    """Return text as a JSON string; null stays null."""
    from pyspark.sql import functions as f

    listed = f.to_json(f.array(text))
    return f.when(text.isNotNull(), f.substring(listed, f.lit(2), f.length(listed) - 2))


def _with_missing(pairs: "DataFrame", answers: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Return a row for each pair, also where the event or the subscription does not exist."""
    from pyspark.sql import functions as f

    existing = events.join(pairs.select("event_id").distinct(), "event_id", "left_semi").distinct()
    joined = pairs.join(answers, _PAIR, "left").join(existing.withColumn("known", f.lit(True)), "event_id", "left")
    no_subscription = f.concat(f.lit("there was no subscription "), "subscription_id", f.lit(" at that time"))
    missing = f.when(f.col("known"), no_subscription).otherwise(f.concat(f.lit("there is no event "), "event_id"))
    return joined.select(
        *_PAIR,
        f.coalesce("delivered", f.lit(False)).alias("delivered"),
        f.coalesce("step", f.lit("admit")).alias("step"),
        f.coalesce("reason", missing).alias("reason"),
        f.coalesce("rules", f.array().cast("array<string>")).alias("rules"),
    )

"""The journal as the DataFrames that routing takes: events, subscriptions, advertisements, contexts, policies, schemas.

Each function takes a DataFrame with the columns of a journal (`spark.read.format("tidings")`, or the Parquet segments)
and gives a lazy one, made of column expressions and windows alone. What is valid for a time has `since`, from which on
it is, and `until`, from which on it no longer is (null: it still is); both are the journal's timestamps, which rise
strictly, so that every event stands before or after.
"""

from typing import TYPE_CHECKING

from tidings.engine.records import SIGNED
from tidings.journal.record import LOST, PUBLISH
from tidings.model.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, WindowSpec

CHANGES = (
    *("subscribe", "unsubscribe", "advertise", "unadvertise", "set_context", "entrust", "set_policy", "schema"),
    *("disconnect", *SIGNED),
)
"""The kinds of rows that decide, beside the events, who gets what: all others are passed over."""

CONTROL = ",".join((*CHANGES, "connect"))
"""The option `kinds` for all but events: where there are many of those, they need not be read for the rest."""

_NOTES = r'(?s),?"\$[^"\\]*":.*$'  # what a hub notes for itself stands last in a body, and has such names
_PLACE = ("offset", "journal")
_SUBSCRIPTION = "content, publishers, policy, subject, structure, durable, notify"
_ADVERTISEMENT = "content, publisher_context, subscriber_context, policy"
_OFFERS_ALL = "publisher_context_all"


def read(
    spark: "SparkSession", folder: str, since: str | None = None, until: str | None = None, end: int | None = None
) -> "DataFrame":
    """The journal in a folder, of which events only from `since` on and before `until` (`2026-01-31T12:00:00Z`).

    What was said before counts for them: control rows are read from the beginning. Where the journal is being written,
    `end`, the offset after the last one, keeps several questions to the same rows.
    """
    limits = {name: str(value) for name, value in (("until", until), ("endingOffset", end)) if value is not None}

    def rows(**options: str) -> "DataFrame":
        return spark.read.format("tidings").options(**limits, **options).load(folder)

    return rows() if since is None else rows(kinds=CONTROL).unionByName(rows(kinds=PUBLISH, since=since))


def events(journal: "DataFrame", *, meta: bool = False) -> "DataFrame":
    """The publications; with `meta`, also those that the hub or broker made itself (routing makes them anew).

    `timestamp` is when the event was accepted, which is its place in the order; `published` is its own,
    in microseconds, as the engine's batches take it.
    """
    from pyspark.sql import functions as f

    rows = _of(journal, PUBLISH)
    if not meta:
        made_here = f.get_json_object("body", "$.journey.meta") == "true"
        rows = rows.where(~f.coalesce(made_here, f.lit(False)))
    return rows.select(
        *("id", "timestamp", "publisher", "subject", "payload", "context", "subscribers", "policy"),
        *("token", "signature", "sequence", f.unix_micros("published").alias("published"), "attributes", *_PLACE),
    )


def subscriptions(journal: "DataFrame") -> "DataFrame":
    """A row for each time that a subscription was made or changed, with how long it held.

    It ends where the next of the same client and id begins, where it is taken back, and, unless it is durable, where
    the client leaves. `policy` is the one that it was made with; `policies` knows what came later.
    """
    lives = _lives(journal, ("subscribe",), ("unsubscribe",), _SUBSCRIPTION)
    said = [f"said.{name}" for name in _SUBSCRIPTION.split(", ")]
    return lives.selectExpr("id", "client AS subscriber", *said, "token", *_VALIDITY, *_PLACE)


def advertisements(journal: "DataFrame") -> "DataFrame":
    """As `subscriptions`; a context offer is a JSON array of names, or the text of a filter. The `publisher_context` of
    a publisher that offers all names is null."""
    lives = _lives(journal, ("advertise",), ("unadvertise",), f"{_ADVERTISEMENT}, {_OFFERS_ALL}")
    said = [f"said.{name}" for name in _ADVERTISEMENT.split(", ")]
    listed = f"IF(said.{_OFFERS_ALL} = 'true', NULL, said.publisher_context) AS publisher_context"
    said[said.index("said.publisher_context")] = listed
    return lives.selectExpr("id", "client AS publisher", *said, *_VALIDITY, *_PLACE)


def contexts(journal: "DataFrame") -> "DataFrame":
    """Every change of a context: `client`, `timestamp`, `context` (JSON text), `by` (who set it, if another client).

    Where a client leaves and has no durable subscription, its context is forgotten: a change to `{}`.
    """
    from pyspark.sql import functions as f

    rows = _of(journal, "set_context", "disconnect", "subscribe", "unsubscribe")
    durable = f.when(f.col("kind") == "subscribe", f.get_json_object("body", "$.durable").isNotNull().cast("int"))
    durable = f.when(f.col("kind").isin("subscribe", "unsubscribe"), f.coalesce(durable, f.lit(0)))
    before = f.lag("is_durable").over(_window("journal", "client", "subscription"))
    held = f.sum("change").over(_window("journal", "client"))
    told = (
        rows.repartition("journal", "client")  # one shuffle for both windows
        .withColumn("is_durable", durable)
        .withColumn("subscription", f.when(f.col("is_durable").isNotNull(), f.col("id")))
        .withColumn("change", f.col("is_durable") - f.coalesce(before, f.lit(0)))
        .withColumn("held", f.coalesce(held, f.lit(0)))
    )
    is_set = f.col("kind") == "set_context"
    context = f.when(is_set, _body()).otherwise("{}")
    kept = told.where(is_set | ((f.col("kind") == "disconnect") & (f.col("held") == 0)))
    return kept.select("client", "timestamp", context.alias("context"), f.col("id").alias("by"), *_PLACE)


def policies(journal: "DataFrame") -> "DataFrame":
    """Every policy of a subscription or an advertisement while it was in force: `id`, `policy`, `since`, `until`, `by`.

    `by` is the owner, or the operator (the hub or broker itself), whose policy stands beside the owner's. Those that
    came with a subscription or an advertisement are among them.
    """
    from pyspark.sql import functions as f

    lives = _lives(journal, ("subscribe", "advertise"), ("unsubscribe", "unadvertise"), "policy, durable", "set_policy")
    begins = "named_struct('offset', offset, 'timestamp', timestamp, 'by', client, 'policy', said.policy)"
    ends = "named_struct('offset', end.offset, 'timestamp', end.timestamp, 'by', NULL, 'policy', NULL)"
    gone = "kind != 'set_policy' AND end IS NOT NULL AND NOT end.again"
    marks = lives.selectExpr("journal", "id", f"inline(IF({gone}, array({begins}, {ends}), array({begins})))")
    following = f.lead("timestamp").over(_window("journal", "id", "by"))
    end = f.min(f.when(f.col("by").isNull(), f.col("timestamp"))).over(_after("journal", "id"))
    valid = marks.withColumn("end", end).withColumn("until", f.least(following, "end"))
    return valid.where("policy IS NOT NULL").selectExpr("id", "policy", "timestamp AS since", "until", "by", *_PLACE)


def schemas(journal: "DataFrame") -> "DataFrame":
    """Every version of a subject's schema: `subject`, `versions` (JSON text: what each has added), `by`."""
    from pyspark.sql import functions as f

    rows = _of(journal, "schema").withColumn("until", f.lead("timestamp").over(_window("journal", "id")))
    return rows.selectExpr(
        "id AS subject",
        "get_json_object(body, '$.versions') AS versions",
        *("timestamp AS since", "until", "client AS by", *_PLACE),
    )


def lost(journal: "DataFrame") -> "DataFrame":
    """The places of records that repair could not save: what they said is in none of the other DataFrames."""
    return _of(journal, LOST).select("timestamp", *_PLACE)


_VALIDITY = ("timestamp AS since", "end.timestamp AS until")


def _lives(
    journal: "DataFrame", begins: tuple[str, ...], ends: tuple[str, ...], fields: str, *others: str
) -> "DataFrame":
    """The rows that begin something of a client, what they say, and where it ends; `again`: another took its place.

    Rows of `others` come along, with what they say.
    """
    from pyspark.sql import functions as f

    rows = _of(journal, *begins, *ends, "disconnect", *others)
    said = f.from_json("body", ", ".join(f"{name} string" for name in fields.split(", ")))
    kind = f.col("kind")
    place = f.struct("offset", "timestamp", kind.isin(*begins).alias("again"))
    what = f.regexp_replace("kind", "^un", "")  # what ends something is of its kind
    told = (
        rows.withColumn("said", f.when(kind.isin(*begins, *others), said))
        .withColumn("what", what)
        # First the wider window: the other one then needs no shuffle of its own.
        .withColumn("left", f.min(f.when(kind == "disconnect", place)).over(_after("journal", "client")))
        .withColumn("following", f.lead(place).over(_window("journal", "client", "id", "what")))
        .where(kind.isin(*begins, *others))
    )
    stays = f.col("said.durable").isNotNull() if "durable" in fields else f.lit(False)
    return told.withColumn("end", f.least("following", f.when(~stays, f.col("left"))))


def _of(journal: "DataFrame", *kinds: str) -> "DataFrame":
    from pyspark.sql import functions as f

    missing = {"journal", "offset", "timestamp", "kind", "body"} - set(journal.columns)
    if missing:
        raise InvalidValueError(
            f"these are not the rows of a journal: there is no column {sorted(missing)[0]!r}; "
            'spark.read.format("tidings").load(folder) gives them'
        )
    return journal.where(f.col("kind").isin(*kinds))


def _window(*by: str) -> "WindowSpec":
    from pyspark.sql import Window

    return Window.partitionBy(*by).orderBy("offset")


def _after(*by: str) -> "WindowSpec":
    """The rows behind one. In reverse, since Spark looks at each of them but once then."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    return Window.partitionBy(*by).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)


def _body() -> "Column":
    """The body, without what a hub notes in it for itself."""
    from pyspark.sql import functions as f

    return f.when(f.contains("body", f.lit('"$')), f.regexp_replace("body", _NOTES, "}")).otherwise(f.col("body"))

"""Views of a journal as the DataFrames that `route` takes: events, subscriptions, contexts, policies and others.

Each function takes a DataFrame with the columns of a journal (`spark.read.format("tidings")`, or the Parquet segments)
and returns a lazy one, built of column expressions and windows alone.

What is valid for a time has `since` (inclusive) and `until` (exclusive; null while it is still valid). Both are
timestamps of the journal, which rise strictly, so that every event is either before or after a change.

How the end of a subscription or an advertisement is found: it is the earliest of the next row of the same client and id
(a newer version, or its removal) and, unless it is durable, the client's next `disconnect`.
"""

from typing import TYPE_CHECKING

from tidings.engine.journal_codec import SIGNED
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

_HUB_FIELDS = r'(?s),?"\$[^"\\]*":.*$'  # fields that a hub adds for itself: last in a body, names with $
_OFFSET_COLUMNS = ("offset", "journal")
_SUBSCRIPTION = "content, publishers, policy, subject, structure, durable, notify"
_ADVERTISEMENT = "content, publisher_context, subscriber_context, policy"
_OFFERS_ALL = "publisher_context_all"


def read(
    spark: "SparkSession", folder: str, since: str | None = None, until: str | None = None, end: int | None = None
) -> "DataFrame":
    """Read the journal in a folder: all control rows, and the events from `since` on and before `until`.

    Control rows are read from the beginning, since they decide about later events.

    Args:
        spark: The session, with the data source `tidings` registered.
        folder: The folder of the journal, which all executors see.
        since: The acceptance time of the first events, as in `2026-01-31T12:00:00Z`. None: from the beginning.
        until: The acceptance time before which rows end. None: up to the end.
        end: The offset after the last row. While the journal is being written, several queries with the same `end` see
            the same rows.
    """
    limits = {name: str(value) for name, value in (("until", until), ("endingOffset", end)) if value is not None}

    def rows(**options: str) -> "DataFrame":
        return spark.read.format("tidings").options(**limits, **options).load(folder)

    return rows() if since is None else rows(kinds=CONTROL).unionByName(rows(kinds=PUBLISH, since=since))


def events(journal: "DataFrame", *, meta: bool = False) -> "DataFrame":
    """Return the publications in a journal; with `meta` also the meta-events of the hub or broker.

    Meta-events are left out by default because routing emits them again. `timestamp` is the time of acceptance, which
    orders the events; `published` is the publisher's time, in microseconds, as `Engine.batch` takes it.
    """
    from pyspark.sql import functions as f

    rows = _rows_of_kinds(journal, PUBLISH)
    if not meta:
        is_meta = f.get_json_object("body", "$.journey.meta") == "true"
        rows = rows.where(~f.coalesce(is_meta, f.lit(False)))
    return rows.select(
        *("id", "timestamp", "publisher", "subject", "payload", "context", "subscribers", "policy"),
        *(
            "token",
            "signature",
            "sequence",
            f.unix_micros("published").alias("published"),
            "attributes",
            *_OFFSET_COLUMNS,
        ),
    )


def subscriptions(journal: "DataFrame") -> "DataFrame":
    """Return a row for each version of each subscription, with the time for which it was valid.

    A version ends where the same client subscribes again with the same id, unsubscribes, or disconnects while the
    subscription is not durable. `policy` is the one sent with `subscribe`; `policies` has later ones too.
    """
    versions = _validity_rows(journal, ("subscribe",), ("unsubscribe",), _SUBSCRIPTION)
    fields = [f"said.{name}" for name in _SUBSCRIPTION.split(", ")]
    return versions.selectExpr("id", "client AS subscriber", *fields, "token", *_VALIDITY, *_OFFSET_COLUMNS)


def advertisements(journal: "DataFrame") -> "DataFrame":
    """Return a row for each version of each advertisement, with the time for which it was valid.

    A context offer is a JSON array of names or the text of a filter. A `publisher_context` of null offers all names.
    """
    versions = _validity_rows(journal, ("advertise",), ("unadvertise",), f"{_ADVERTISEMENT}, {_OFFERS_ALL}")
    fields = [f"said.{name}" for name in _ADVERTISEMENT.split(", ")]
    listed = f"IF(said.{_OFFERS_ALL} = 'true', NULL, said.publisher_context) AS publisher_context"
    fields[fields.index("said.publisher_context")] = listed
    return versions.selectExpr("id", "client AS publisher", *fields, *_VALIDITY, *_OFFSET_COLUMNS)


def contexts(journal: "DataFrame") -> "DataFrame":
    """Return every change of a context: `client`, `timestamp`, `context` (JSON text), and `by`.

    `by` is the client that made the change, if it is another one. Where a client without a durable subscription
    disconnects, its context is forgotten: there is a change to `{}`.
    """
    from pyspark.sql import functions as f

    rows = _rows_of_kinds(journal, "set_context", "disconnect", "subscribe", "unsubscribe")
    durable = f.when(f.col("kind") == "subscribe", f.get_json_object("body", "$.durable").isNotNull().cast("int"))
    durable = f.when(f.col("kind").isin("subscribe", "unsubscribe"), f.coalesce(durable, f.lit(0)))
    before = f.lag("is_durable").over(_window("journal", "client", "subscription"))
    durable_count = f.sum("change").over(_window("journal", "client"))
    counted = (
        rows.repartition("journal", "client")  # one shuffle serves both windows
        .withColumn("is_durable", durable)
        .withColumn("subscription", f.when(f.col("is_durable").isNotNull(), f.col("id")))
        .withColumn("change", f.col("is_durable") - f.coalesce(before, f.lit(0)))
        .withColumn("held", f.coalesce(durable_count, f.lit(0)))
    )
    is_set = f.col("kind") == "set_context"
    context = f.when(is_set, _body()).otherwise("{}")
    changes = counted.where(is_set | ((f.col("kind") == "disconnect") & (f.col("held") == 0)))
    return changes.select("client", "timestamp", context.alias("context"), f.col("id").alias("by"), *_OFFSET_COLUMNS)


def policies(journal: "DataFrame") -> "DataFrame":
    """Return every policy of a subscription or an advertisement while it was in force.

    The columns are `id`, `policy`, `since`, `until` and `by`: the owner of the filter or the operator (the hub or
    broker itself); both may have a policy on one filter. Policies that were sent with a subscription or an
    advertisement are included.
    """
    from pyspark.sql import functions as f

    versions = _validity_rows(
        journal, ("subscribe", "advertise"), ("unsubscribe", "unadvertise"), "policy, durable", "set_policy"
    )
    begins = "named_struct('offset', offset, 'timestamp', timestamp, 'by', client, 'policy', said.policy)"
    ends = "named_struct('offset', end.offset, 'timestamp', end.timestamp, 'by', NULL, 'policy', NULL)"
    is_removed = "kind != 'set_policy' AND end IS NOT NULL AND NOT end.again"
    marks = versions.selectExpr("journal", "id", f"inline(IF({is_removed}, array({begins}, {ends}), array({begins})))")
    following = f.lead("timestamp").over(_window("journal", "id", "by"))
    end = f.min(f.when(f.col("by").isNull(), f.col("timestamp"))).over(_after("journal", "id"))
    valid = marks.withColumn("end", end).withColumn("until", f.least(following, "end"))
    return valid.where("policy IS NOT NULL").selectExpr(
        "id", "policy", "timestamp AS since", "until", "by", *_OFFSET_COLUMNS
    )


def schemas(journal: "DataFrame") -> "DataFrame":
    """Return every version of a subject's schema: `subject`, `versions` (JSON text: what each version adds), `by`."""
    from pyspark.sql import functions as f

    rows = _rows_of_kinds(journal, "schema").withColumn("until", f.lead("timestamp").over(_window("journal", "id")))
    return rows.selectExpr(
        "id AS subject",
        "get_json_object(body, '$.versions') AS versions",
        *("timestamp AS since", "until", "client AS by", *_OFFSET_COLUMNS),
    )


def lost(journal: "DataFrame") -> "DataFrame":
    """Return the offsets and times of records that repair could not recover; the other views lack their content."""
    return _rows_of_kinds(journal, LOST).select("timestamp", *_OFFSET_COLUMNS)


_VALIDITY = ("timestamp AS since", "end.timestamp AS until")


def _validity_rows(
    journal: "DataFrame", begins: tuple[str, ...], ends: tuple[str, ...], fields: str, *others: str
) -> "DataFrame":
    """Return the rows that begin a subscription or an advertisement, with their parsed bodies (`said`) and their `end`.

    `end.again` is true where a newer version of the same filter ends one. Rows of the kinds `others` are included, with
    their bodies parsed too.
    """
    from pyspark.sql import functions as f

    rows = _rows_of_kinds(journal, *begins, *ends, "disconnect", *others)
    body = f.from_json("body", ", ".join(f"{name} string" for name in fields.split(", ")))
    kind = f.col("kind")
    place = f.struct("offset", "timestamp", kind.isin(*begins).alias("again"))
    filter_kind = f.regexp_replace("kind", "^un", "")  # group `unsubscribe` with `subscribe`
    parsed = (
        rows.withColumn("said", f.when(kind.isin(*begins, *others), body))
        .withColumn("what", filter_kind)
        # The wider window comes first, so that the other one needs no shuffle.
        .withColumn("left", f.min(f.when(kind == "disconnect", place)).over(_after("journal", "client")))
        .withColumn("following", f.lead(place).over(_window("journal", "client", "id", "what")))
        .where(kind.isin(*begins, *others))
    )
    is_durable = f.col("said.durable").isNotNull() if "durable" in fields else f.lit(False)
    return parsed.withColumn("end", f.least("following", f.when(~is_durable, f.col("left"))))


def _rows_of_kinds(journal: "DataFrame", *kinds: str) -> "DataFrame":
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
    """Return the window of the rows after the current one.

    The order is reversed because Spark then visits each row only once.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    return Window.partitionBy(*by).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)


def _body() -> "Column":
    """Return the body column without the fields that a hub adds for itself."""
    from pyspark.sql import functions as f

    return f.when(f.contains("body", f.lit('"$')), f.regexp_replace("body", _HUB_FIELDS, "}")).otherwise(f.col("body"))

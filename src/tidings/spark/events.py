"""Normalise DataFrames of events: the system's columns, and attributes in any of the supported forms.

Events have `id` and `timestamp`, optionally the other columns in `SYSTEM`, and attributes in one column `attributes`
(struct, map, VARIANT or JSON text) or in a column each. All functions build column expressions, which the JVM runs.
"""

from typing import TYPE_CHECKING

from tidings.engine.journal_codec import SIGNED
from tidings.model.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXTS = ("publisher", "subject", "subscribers", "policy")
BYTES = ("payload", "token", "signature")
SYSTEM = ("id", "timestamp", "sequence", "context", *TEXTS, *BYTES)
KEY = "$event"  # the event's id as the user wrote it; `id` is a UUIDv7
SHARD, ORDER = "$shard", "$order"  # a row's shard; its order among rows of the same time
EVERYWHERE = (
    "publish",
    "schema",
    "advertise",
    "unadvertise",
    *SIGNED,
)  # the kinds of rows that go to every shard
PROBLEM = "$problem"  # why the source could not read a row; null if it could
SCHEDULED = "$scheduled"  # a change that states when it takes effect; it does not advance the latest time
REPORTED = "$told"  # a change whose effects an earlier batch has reported already
_UUID7 = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


def prepare_events(events: "DataFrame") -> "DataFrame":
    """Return the events with the columns and types that workers read.

    `$event` is the id as it was given, `id` a UUIDv7 (the given id, or one derived from it), `timestamp` is in
    microseconds, VARIANT columns and nested contexts and attributes are JSON text, and a missing `publisher` is
    `unknown`.

    Raises:
        InvalidValueError: `id` or `timestamp` is missing, or is of a wrong type.
    """
    from pyspark.sql import functions as f

    for name in ("id", "timestamp"):
        if name not in events.columns:
            raise InvalidValueError(f"events: there is no column {name}; there are {', '.join(events.columns)}")
    kinds = dict(events.dtypes)
    columns: list[Column] = [f.col("`id`").cast("string").alias(KEY)]
    timestamp = microseconds("timestamp", kinds["timestamp"])
    columns += [_uuid7(timestamp).alias("id"), timestamp.alias("timestamp")]
    if "publisher" not in events.columns:
        columns.append(f.lit("unknown").alias("publisher"))
    for name in events.columns:
        if name not in ("id", "timestamp"):
            columns.append(_readable(name, kinds[name]))
    return events.select(*columns)


def spread_to_shards(events: "DataFrame", conditions: "list[Column]", tasks: int) -> "DataFrame":
    """Copy each prepared event to every shard whose item of `conditions` is true, and partition the copies by shard.

    If there are more tasks than shards, the events of a shard are divided among several tasks.
    """
    from pyspark.sql import functions as f

    parts = max(1, -(-tasks // len(conditions)))
    part = f.pmod(f.xxhash64(KEY, "timestamp"), f.lit(parts)).cast("int")
    numbers = f.array_compact(
        f.array(*(f.when(condition, f.lit(number)) for number, condition in enumerate(conditions)))
    )
    copies = events.withColumn(SHARD, f.explode(numbers)).withColumn(ORDER, f.col(SHARD) * parts + part)
    return copies.repartitionById(len(conditions) * parts, ORDER)


def pack_attributes(events: "DataFrame") -> "DataFrame":
    """Return prepared events with their attributes in one column `attributes`, whatever the attributes are called."""
    from pyspark.sql import functions as f

    if "attributes" in events.columns:
        return events
    system = [name for name in events.columns if name in (*SYSTEM, KEY, PROBLEM)]
    attributes = [f.col(f"`{name}`") for name in events.columns if name not in system]
    return events.select(*system, (f.struct(*attributes) if attributes else f.lit("{}")).alias("attributes"))


def microseconds(name: str, kind: str) -> "Column":
    """Return the column `name` of the Spark type `kind` (a time, its text, or an integer) as microseconds since the
    epoch.

    Text that cannot be read gives null. Raises an `InvalidValueError` for other types.
    """
    from pyspark.sql import functions as f

    if kind in ("bigint", "int"):
        return f.col(name).cast("bigint")
    if kind.startswith("timestamp") or kind == "date":
        return f.unix_micros(f.col(name).cast("timestamp"))
    if kind == "string":
        text = f.col(name)
        return f.coalesce(text.try_cast("bigint"), f.unix_micros(f.try_to_timestamp(text)))
    raise InvalidValueError(f"{name}: a timestamp, its text, or microseconds as a bigint, not {kind}")


def _uuid7(timestamp: "Column") -> "Column":
    """Return the id if it is a UUIDv7, else a UUIDv7 made from the timestamp and the id's hash."""
    from pyspark.sql import functions as f

    event_id = f.lower(f.col("`id`").cast("string"))
    time = f.lpad(f.lower(f.hex((f.greatest(f.lit(0), timestamp) / 1000).cast("bigint"))), 12, "0")
    hashed = f.md5(f.col("`id`").cast("string").cast("binary"))
    derived = f.concat_ws(
        "-",
        f.substring(time, 1, 8),
        f.substring(time, 9, 4),
        f.concat(f.lit("7"), f.substring(hashed, 1, 3)),
        f.concat(f.lit("8"), f.substring(hashed, 4, 3)),
        f.substring(hashed, 7, 12),
    )
    return f.when(f.col("`id`").isNull(), f.lit(None)).when(event_id.rlike(_UUID7), event_id).otherwise(derived)


def _readable(name: str, kind: str) -> "Column":
    """Cast a column to a type that Arrow can transfer to Python and that attributes may have.

    A column that needs no cast gets no alias: for every alias Spark derives constraints from those of the column, and
    with a filter on many columns their number doubles with each alias.
    """
    from pyspark.sql import functions as f

    column = f.col(f"`{name}`")
    if kind == "variant" or (name in ("attributes", "context") and kind.startswith("struct")):
        return f.to_json(column).alias(name)
    arrow_type = _type_of(name, kind)
    return column if arrow_type == kind else column.cast(arrow_type).alias(name)


def _type_of(name: str, kind: str) -> str:
    if name in TEXTS:
        return "string"
    if name in BYTES:
        return "binary"
    if kind in ("tinyint", "smallint", "int"):
        return "bigint"
    if kind == "float" or kind.startswith("decimal"):
        return "double"
    return "string" if kind.startswith("timestamp") or kind == "date" else kind

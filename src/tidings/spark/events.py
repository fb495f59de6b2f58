"""Events as DataFrames: the columns of the system, and attributes in any of the forms that they may come in.

Everything here is column expressions: the JVM does the work.
"""

from typing import TYPE_CHECKING

from tidings.engine.records import SIGNED
from tidings.model.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXTS = ("publisher", "subject", "subscribers", "policy")
BYTES = ("payload", "token", "signature")
SYSTEM = ("id", "timestamp", "sequence", "context", *TEXTS, *BYTES)
KEY = "$event"  # the event's own id, whatever it looks like
SHARD, ORDER = "$shard", "$order"  # where a row goes, and what comes first of what happens at the same time
EVERYWHERE = (
    "publish",
    "schema",
    "advertise",
    "unadvertise",
    *SIGNED,
)  # the kinds of rows that every shard has to know
PROBLEM = "$problem"  # why a row cannot be taken, where whoever read it has found that out
SCHEDULED = "$scheduled"  # of a change: said beforehand, so that it does not tell how late it is
TOLD = "$told"  # of a change: met by an earlier batch, which told what followed from it
_UUID7 = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


def prepared(events: "DataFrame") -> "DataFrame":
    """The events as workers read them: `$event` is the id as it was given, `id` a UUIDv7 that stands for it,
    `timestamp` is in microseconds, and what is nested or VARIANT is JSON text."""
    from pyspark.sql import functions as f

    for name in ("id", "timestamp"):
        if name not in events.columns:
            raise InvalidValueError(f"events: there is no column {name}; there are {', '.join(events.columns)}")
    kinds = dict(events.dtypes)
    chosen: list[Column] = [f.col("`id`").cast("string").alias(KEY)]
    timestamp = microseconds("timestamp", kinds["timestamp"])
    chosen += [_uuid7(timestamp).alias("id"), timestamp.alias("timestamp")]
    if "publisher" not in events.columns:
        chosen.append(f.lit("unknown").alias("publisher"))
    for name in events.columns:
        if name not in ("id", "timestamp"):
            chosen.append(_readable(name, kinds[name]))
    return events.select(*chosen)


def spread(events: "DataFrame", shards: "list[Column]", tasks: int) -> "DataFrame":
    """Prepared events, once for every shard of which that is true; several tasks have a part each of what it sees."""
    from pyspark.sql import functions as f

    parts = max(1, -(-tasks // len(shards)))
    part = f.pmod(f.xxhash64(KEY, "timestamp"), f.lit(parts)).cast("int")
    numbers = f.array_compact(f.array(*(f.when(one, f.lit(number)) for number, one in enumerate(shards))))
    placed = events.withColumn(SHARD, f.explode(numbers)).withColumn(ORDER, f.col(SHARD) * parts + part)
    return placed.repartitionById(len(shards) * parts, ORDER)


def packed(events: "DataFrame") -> "DataFrame":
    """Prepared events whose attributes are one column, whatever their names are."""
    from pyspark.sql import functions as f

    if "attributes" in events.columns:
        return events
    system = [name for name in events.columns if name in (*SYSTEM, KEY, PROBLEM)]
    named = [f.col(f"`{name}`") for name in events.columns if name not in system]
    return events.select(*system, (f.struct(*named) if named else f.lit("{}")).alias("attributes"))


def microseconds(name: str, kind: str) -> "Column":
    """A column of times as microseconds since the epoch."""
    from pyspark.sql import functions as f

    if kind in ("bigint", "int"):
        return f.col(name).cast("bigint")
    if kind.startswith("timestamp") or kind == "date":
        return f.unix_micros(f.col(name).cast("timestamp"))
    if kind == "string":
        written = f.col(name)
        return f.coalesce(written.try_cast("bigint"), f.unix_micros(f.try_to_timestamp(written)))
    raise InvalidValueError(f"{name}: a timestamp, its text, or microseconds as a bigint, not {kind}")


def _uuid7(timestamp: "Column") -> "Column":
    """The id if it is a UUIDv7, and else one made of the time and the id's hash."""
    from pyspark.sql import functions as f

    given = f.lower(f.col("`id`").cast("string"))
    time = f.lpad(f.lower(f.hex((f.greatest(f.lit(0), timestamp) / 1000).cast("bigint"))), 12, "0")
    hashed = f.md5(f.col("`id`").cast("string").cast("binary"))
    made = f.concat_ws(
        "-",
        f.substring(time, 1, 8),
        f.substring(time, 9, 4),
        f.concat(f.lit("7"), f.substring(hashed, 1, 3)),
        f.concat(f.lit("8"), f.substring(hashed, 4, 3)),
        f.substring(hashed, 7, 12),
    )
    return f.when(f.col("`id`").isNull(), f.lit(None)).when(given.rlike(_UUID7), given).otherwise(made)


def _readable(name: str, kind: str) -> "Column":
    """A column in a form that Arrow brings over to Python, and that attributes may have.

    Without an alias where it is as it should be: Spark derives what must hold of every alias from what holds of its
    column, and with a filter on many columns that doubles with each of them.
    """
    from pyspark.sql import functions as f

    column = f.col(f"`{name}`")
    if kind == "variant" or (name in ("attributes", "context") and kind.startswith("struct")):
        return f.to_json(column).alias(name)
    wanted = _type_of(name, kind)
    return column if wanted == kind else column.cast(wanted).alias(name)


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

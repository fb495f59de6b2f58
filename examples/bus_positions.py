"""Recorded positions of buses, and incidents, from CSV files: what can be used, and why the rest cannot.

All of it is column expressions on DataFrames; nothing is collected but counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from tidings import TidingsError

RADIUS = 6_371_008.8  # of the sphere that geo_distance measures on
FASTEST = 50  # m/s; recorders write 255 mph where they do not know
SILENCE = "5 minutes"  # after which nobody knows where a bus is
STEP = 30  # metres; between two positions of a bus that stands
STAND = "10 minutes"
OTHERS = 2  # where more than so many buses stood is a terminus or a depot
CELL = 0.002  # degrees, some 200 m: 'where' in the line above is a cell and the eight around it
LONGEST = "7 days"  # an incident's end beyond that is a slip of the pen


@dataclass(frozen=True)
class Rows:
    """What a CSV has: rows that can be used, and how many cannot, by reason."""

    good: DataFrame
    read: int
    rejected: dict[str, int]


def read_positions(spark: SparkSession, files: Sequence[str]) -> Rows:
    """`vehicle`, `timestamp`, `route`, `speed`, `lat`, `lon`; it holds until `expires`, when the next one comes or, if
    the bus is `silent`, nobody knows any more.
    """
    needed = ["vehicle_id", "timestamp", "speed", "route_id", "latitude", "longitude"]
    raw = reduce(DataFrame.unionByName, [_csv(spark, file, needed) for file in files])
    speed = f.col("speed").try_cast("double")
    same = Window.partitionBy("vehicle_id", _time("timestamp")).orderBy("route_id", "latitude", "longitude", "speed")
    rows = _judged(
        raw.withColumn("again", f.row_number().over(same) > 1),
        {
            "no vehicle_id": f.col("vehicle_id").isNull(),
            f"speed is not a number from 0 to {FASTEST} m/s": ~f.coalesce(speed.between(0, FASTEST), f.lit(False)),
            **_reasons_of_places(),
            "the vehicle has another position at this time": f.col("again"),
        },
        [f.concat(f.lit("bus "), "vehicle_id").alias("vehicle"), speed.alias("speed")],
    )
    following = f.lead("timestamp").over(Window.partitionBy("vehicle").orderBy("timestamp"))
    forgotten = f.col("timestamp") + f.expr(f"INTERVAL {SILENCE}")
    until = {"expires": f.least(following, forgotten), "silent": f.coalesce(following > forgotten, f.lit(True))}
    return Rows(rows.good.withColumns(until), rows.read, rows.rejected)


def read_incidents(spark: SparkSession, file: str) -> Rows:
    """Reports, one a minute from `timestamp` to `until`: `incident`, `reporter`, `timestamp`, `route`, `lat`, `lon`."""
    raw = _csv(spark, file, ["id", "timestamp", "route_id", "latitude", "longitude"], ["until"])
    begin, end = _time("timestamp"), f.coalesce(_time("until"), _time("timestamp"))
    rows = _judged(
        raw,
        {
            "no id": f.col("id").isNull(),
            "until is no time with an offset": f.col("until").isNotNull() & _time("until").isNull(),
            **_reasons_of_places(),
            f"until is before timestamp or more than {LONGEST} after it": (end < begin)
            | (end > begin + f.expr(f"INTERVAL {LONGEST}")),
        },
        [f.col("id").alias("incident"), end.alias("until")],
    )
    every_minute = f.sequence("timestamp", "until", f.expr("INTERVAL 1 MINUTE"))
    reports = rows.good.withColumn("timestamp", f.explode(every_minute)).drop("until")
    reporter = f.concat(f.lit("reporter of "), "incident").alias("reporter")
    return Rows(reports.select("*", reporter), rows.read, rows.rejected)


def standing(positions: DataFrame) -> DataFrame:
    """Reports as `read_incidents` has them, by buses that stand still where hardly another one does."""
    by_time = Window.partitionBy("vehicle").orderBy("timestamp")
    before = {name: f.lag(name).over(by_time) for name in ("lat", "lon", "route", "expires")}
    here, there = (f.col("lat"), f.col("lon")), (before["lat"], before["lon"])
    goes_on = (metres(here, there) <= STEP) & (f.col("route") == before["route"])
    heard = before["expires"] >= f.col("timestamp")
    stays = f.sum(f.when(goes_on & heard, 0).otherwise(1)).over(by_time)
    began = f.min("timestamp").over(Window.partitionBy("vehicle", "stay"))
    late = positions.withColumn("stay", stays).withColumn("began", began)
    late = late.filter(f.col("timestamp") >= f.col("began") + f.expr(f"INTERVAL {STAND}"))
    cell = [f.floor(f.col(name) / CELL).alias(f"cell_{name}") for name in ("lat", "lon")]
    late = late.select("*", *cell)
    around = [f.explode(f.sequence(f.col(name) - 1, f.col(name) + 1)).alias(name) for name in ("cell_lat", "cell_lon")]
    visits = late.select("vehicle", "cell_lat", "cell_lon").distinct()
    spread = visits.select("vehicle", around[0], "cell_lon").select("vehicle", "cell_lat", around[1])
    usual = spread.groupBy("cell_lat", "cell_lon").agg(f.countDistinct("vehicle").alias("vehicles"))
    odd = late.join(usual.filter(f.col("vehicles") <= OTHERS), ["cell_lat", "cell_lon"])
    name = f.concat("vehicle", f.lit(" since "), f.date_format("began", "yyyy-MM-dd HH:mm:ss"))
    return odd.select(name.alias("incident"), f.col("vehicle").alias("reporter"), "timestamp", "route", "lat", "lon")


def metres(one: tuple[Column, Column], other: tuple[Column, Column]) -> Column:
    """What `geo_distance` is, for latitudes and longitudes in columns."""
    (lat1, lon1), (lat2, lon2) = ([f.radians(angle) for angle in place] for place in (one, other))
    across = f.cos(lat1) * f.cos(lat2) * f.pow(f.sin((lon2 - lon1) / 2), f.lit(2))
    return 2 * RADIUS * f.asin(f.sqrt(f.least(f.lit(1.0), f.pow(f.sin((lat2 - lat1) / 2), f.lit(2)) + across)))


def _csv(spark: SparkSession, file: str, needed: Sequence[str], optional: Sequence[str] = ()) -> DataFrame:
    """Every column as text; `$broken` has the lines that have not as many values as the header."""
    try:
        names = spark.read.csv(file, header=True).columns
    except AnalysisException as error:
        raise TidingsError(f"{file}: Spark cannot read that: {error.getMessage()}") from error
    missing = [name for name in needed if name not in names]
    if missing:
        raise TidingsError(f"{file}: there is no column {missing[0]}; its header has {', '.join(names) or 'nothing'}")
    schema = StructType([StructField(name, StringType()) for name in [*names, "$broken"]])
    # Pruned to the columns that are asked for, Spark would not see how many values a line has; and where a folder has
    # files with other headers, it would read their columns under the wrong names.
    reader = spark.read.option("columnPruning", False).option("columnNameOfCorruptRecord", "$broken")
    read = reader.csv(file, schema, header=True, enforceSchema=False, ignoreTrailingWhiteSpace=True)
    absent = [f.lit(None).cast("string").alias(name) for name in optional if name not in names]
    return read.select(*needed, *(name for name in optional if name in names), *absent, "$broken")


def _judged(raw: DataFrame, reasons: dict[str, Column], columns: list[Column]) -> Rows:
    """The first reason that holds is why a row is refused."""
    first = f.when(f.col("$broken").isNotNull(), "not as many values as columns")
    for reason, holds in reasons.items():
        first = first.when(holds, reason)
    rows = raw.withColumn("reason", first).cache()  # it is counted, and used several times
    counts = {row["reason"]: row["count"] for row in rows.groupBy("reason").count().collect()}
    place = [_number("latitude").alias("lat"), _number("longitude").alias("lon"), f.col("route_id").alias("route")]
    good = rows.filter("reason IS NULL").select(*columns, _time("timestamp").alias("timestamp"), *place)
    return Rows(good, sum(counts.values()), {reason: counts[reason] for reason in sorted(counts.keys() - {None})})


def _reasons_of_places() -> dict[str, Column]:
    lat, lon = _number("latitude"), _number("longitude")
    on_earth = lat.between(-90, 90) & lon.between(-180, 180)
    return {
        "no route_id": f.col("route_id").isNull(),
        "timestamp is no time with an offset": _time("timestamp").isNull(),
        "latitude and longitude are no place": ~f.coalesce(on_earth, f.lit(False)),
        "latitude and longitude are 0: nobody knows the place": (lat == 0) & (lon == 0),
    }


def _number(name: str) -> Column:
    return f.col(name).try_cast("double")


def _time(name: str) -> Column:
    """None where there is no offset: guessing one would move the bus."""
    return f.when(f.col(name).rlike(r"(Z|[+-]\d\d:?\d\d)$"), f.try_to_timestamp(name))

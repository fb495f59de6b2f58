"""Which moving buses come within 500 m of incidents on other routes? Asked of recorded positions, with tidings.spark.

    python examples/near_incidents.py positions.csv --plot map.png
    python examples/near_incidents.py 'days/*.csv' --incidents incidents.csv --write encounters --json

Positions are CSV with a header: `vehicle_id`, `timestamp` (ISO 8601 with an offset), `speed` (m/s), `route_id`,
`latitude`, `longitude` (degrees); other columns are ignored. Such files come from CapMetrics, the buses of Austin.
Incidents are CSV too: `id`, `timestamp`, `route_id`, `latitude`, `longitude`, and where it lasts `until`. Without
such a file a bus that stands still for 10 minutes where hardly another one does is an incident on its route.

A bus is a client whose context (position, route, speed) changes with every row and is forgotten after 5 minutes of
silence. Whoever reports an incident is at its place, and reports it again and again while it lasts: every minute, or
with every position of the bus that stands. All buses have the same subscription, which never changes while they move.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidings import TidingsError
from tidings.spark import route, session

try:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    from bus_positions import metres, read_incidents, read_positions, standing
except ImportError:
    sys.exit("this example needs PySpark: pip install 'tidings[spark]'")

NEAR_ME = "geo_distance(lat, lon, this.lat, this.lon) <= {metres} and route != this.route and this.speed >= 1"

err = Console(stderr=True, highlight=False)


def encounters(positions: DataFrame, reports: DataFrame, within: float = 500) -> DataFrame:
    """A row a bus and incident: routes of both, since when it is near, and where and how near it came closest."""
    reports = reports.withColumn("id", f.concat("incident", f.lit(" at "), f.unix_micros("timestamp")))
    place = f.struct("lat", "lon", "route").alias("context")
    events = reports.select(
        "id", "timestamp", f.col("reporter").alias("publisher"), place, f.lit("incident").alias("kind")
    )
    client = f.col("vehicle").alias("client")
    moves = positions.select(client, "timestamp", "lat", "lon", "route", "speed")
    forgotten = positions.filter("silent").select(client, f.col("expires").alias("timestamp"))
    subscriptions = (
        positions.select("vehicle")
        .distinct()
        .select(
            f.col("vehicle").alias("id"),
            f.col("vehicle").alias("subscriber"),
            f.lit("kind = 'incident'").alias("content"),
            f.lit(NEAR_ME.format(metres=within)).alias("publishers"),
        )
    )
    routed = route(events, subscriptions, moves.unionByName(forgotten, allowMissingColumns=True))
    told = routed.notifications.select(f.col("event_id").alias("id"), f.col("subscriber").alias("vehicle"))
    # Who was told is known; where the bus was then is for the reader.
    seen = ("vehicle", "timestamp", "expires", "lat", "lon", "route")
    bus = positions.select(*(f.col(name).alias(f"bus_{name}") for name in seen))
    then = "vehicle = bus_vehicle AND bus_timestamp <= timestamp AND timestamp < bus_expires"
    met = told.join(reports, "id").join(bus, f.expr(then))
    apart = metres((f.col("lat"), f.col("lon")), (f.col("bus_lat"), f.col("bus_lon")))
    closest = f.min(f.struct(apart.alias("metres"), "lat", "lon", "bus_lat", "bus_lon", "bus_route"))
    both = met.groupBy("incident", "route", "vehicle")
    return both.agg(f.min("timestamp").alias("since"), closest.alias("closest")).select(
        "incident", "route", "vehicle", "since", "closest.*"
    )


def draw(positions: DataFrame, found: DataFrame, path: Path) -> None:
    """Where buses were (grey), incidents that some of them came near (red), and where those were closest (blue)."""
    try:
        import matplotlib
    except ImportError as error:
        raise TidingsError("--plot needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Cells and the busiest few thousand: a picture has so many points and no more, however many rows there are.
    cells = positions.groupBy(*(f.round(name, 3).alias(name) for name in ("lat", "lon"))).count()
    ground = cells.orderBy(f.desc("count"), "lat", "lon").limit(20_000).collect()
    places = found.groupBy("incident").agg(
        f.count("*").alias("buses"), f.first("lat").alias("lat"), f.first("lon").alias("lon")
    )
    red = places.orderBy(f.desc("buses"), "incident").limit(1_000).collect()
    blue = found.orderBy("metres", "incident", "vehicle").limit(5_000).collect()
    figure, axes = pyplot.subplots(figsize=(8, 8), layout="constrained")
    axes.scatter([row.lon for row in ground], [row.lat for row in ground], s=1, color="lightgray", label="positions")
    axes.scatter(
        [row.bus_lon for row in blue], [row.bus_lat for row in blue], s=6, color="tab:blue", label="buses told"
    )
    sizes = [15 + 3 * row.buses for row in red]
    axes.scatter(
        [row.lon for row in red], [row.lat for row in red], s=sizes, color="tab:red", alpha=0.6, label="incidents"
    )
    middle = sum(row.lat for row in ground) / max(1, len(ground))
    axes.set_aspect(1 / max(0.1, math.cos(math.radians(middle))))
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def summary(found: DataFrame, show: int) -> dict[str, Any]:
    by_incident = found.groupBy("incident", "route").agg(
        f.count("*").alias("buses"), f.countDistinct("bus_route").alias("routes"), f.min("metres").alias("closest")
    )
    counts = (f.count("*"), f.countDistinct("vehicle"), f.countDistinct("incident"))
    total = found.agg(*counts).collect()[0]
    most = by_incident.orderBy(f.desc("buses"), "closest", "incident").limit(show).collect()
    return {
        "encounters": total[0],
        "buses": total[1],
        "incidents_met": total[2],
        "most": [{**row.asDict(), "closest": round(row["closest"], 1)} for row in most],
    }


def tell(result: dict[str, Any]) -> None:
    out = Console(highlight=False)
    for what in ("positions", "incident rows"):
        if what in result:
            refused = result[what]["rejected"]
            out.print(f"{result[what]['read']:,} {what} read, {sum(refused.values()):,} of them refused")
            for reason, count in refused.items():
                out.print(f"  {count:,}: {reason}")
    out.print(f"{result['incidents']:,} incidents, reported {result['reports']:,} times")
    buses, met = f"{result['buses']:,} buses", f"{result['incidents_met']:,} of them"
    out.print(f"{buses} came within {result['within']:g} m of {met}: {result['encounters']:,} encounters")
    table = Table("incident", "route", box=None, pad_edge=False)
    for name in ("buses told", "their routes", "closest, m"):
        table.add_column(name, justify="right")
    for row in result["most"]:
        table.add_row(
            row["incident"], row["route"], f"{row['buses']:,}", f"{row['routes']:,}", f"{row['closest']:,.0f}"
        )
    out.print(table)


def main(
    positions: Annotated[
        list[str], typer.Argument(help="CSV files or folders of vehicle positions; '*' may stand in names")
    ],
    incidents: Annotated[
        str | None, typer.Option(help="CSV of incidents; without it, buses that stand are incidents")
    ] = None,
    within: Annotated[float, typer.Option(help="how near is near, in metres", min=1)] = 500,
    show: Annotated[int, typer.Option(help="so many incidents in the table", min=0)] = 10,
    plot: Annotated[Path | None, typer.Option(help="a map as PNG")] = None,
    write: Annotated[str | None, typer.Option(help="a new folder for all encounters, as Parquet")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the result as one line of JSON")] = False,
) -> None:
    """Which moving buses come within 500 m of reported incidents on other routes?"""
    try:
        result = run(positions, incidents, within, show, plot, write)
    except TidingsError as error:
        err.print(f"near_incidents: {error}", soft_wrap=True, markup=False)
        raise typer.Exit(1) from None
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        tell(result)


def run(
    files: Sequence[str], incidents: str | None, within: float, show: int, plot: Path | None, write: str | None
) -> dict[str, Any]:
    if plot and not plot.parent.is_dir():
        raise TidingsError(f"{plot}: there is no folder {plot.parent}; make it, or name another")
    with err.status("starting Spark ...") as now:
        spark = session("near incidents")
        now.update("reading positions ...")
        rows = read_positions(spark, files)
        positions = rows.good.cache()
        result: dict[str, Any] = {"within": within, "positions": {"read": rows.read, "rejected": rows.rejected}}
        now.update("reading incidents ..." if incidents else "looking for buses that stand ...")
        if incidents:
            given = read_incidents(spark, incidents)
            result["incident rows"] = {"read": given.read, "rejected": given.rejected}
        reports = (given.good if incidents else standing(positions)).cache()
        result["incidents"], result["reports"] = reports.select("incident").distinct().count(), reports.count()
        now.update("asking who is told ...")
        found = encounters(positions, reports, within).cache()
        result |= summary(found, show)
        if write:
            now.update(f"writing {write} ...")
            try:
                found.write.parquet(write)
            except AnalysisException as error:
                raise TidingsError(f"{write}: choose a folder that is not there yet: {error.getMessage()}") from error
        if plot:
            now.update(f"drawing {plot} ...")
            draw(positions, found, plot)
    return result


if __name__ == "__main__":
    typer.run(main)

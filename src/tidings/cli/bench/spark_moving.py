"""Subscribers that move while events come, on Spark: beside an as-of join of the same question."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.cli.bench import Measurement, moving_workload, steps, timed
from tidings.spark import route, session

CHANGES, EVENTS = 1_000_000, 200_000
_SAMPLE = 100  # of so many events Spark's join is asked one
_SHARDS = 2


def measure(count: int, changes: int = CHANGES, events: int = EVENTS) -> list[Measurement]:
    """`count` subscribers with boxes of 40 km; ids out, Parquet to Parquet."""
    with steps(4) as step, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        step("making the data")
        _write(folder, count, changes, events)
        spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": _SHARDS})
        try:
            given = {name: spark.read.parquet(str(folder / name)) for name in ("events", "contexts", "subscriptions")}
            step("compiling the subscriptions")
            routed = route(given["events"], given["subscriptions"], given["contexts"], shards=_SHARDS)
            step("routing")
            matching = min(timed(lambda: _written(routed.matches, folder / "matches")) for _ in range(2))
            found = spark.read.parquet(str(folder / "matches")).selectExpr("sum(size(subscriptions))").first()
            step("joining as of")
            sample = given["events"].filter(f"timestamp % {_SAMPLE} = 0")
            asked = sample.count()
            joining = timed(lambda: _written(_joined(spark, sample, given), folder / "joined"))
        finally:
            spark.stop()
    pairs = 0 if found is None else int(found[0] or 0)
    rate, join = events / matching, asked / joining
    return [
        Measurement(
            "changes and events together",
            (changes + count + events) / matching,
            "rows/s",
            "150,000",
            f"{pairs / events:,.3g} matches an event",
        ),
        Measurement("events, with all changes", rate, "events/s"),
        Measurement("Spark's join as of, on a sample", join, "events/s", "", f"{asked:,} events"),
        Measurement("that many times as fast", rate / join, "times", "20"),
    ]


def _write(folder: Path, count: int, changes: int, events: int) -> None:
    """Everybody has a position first; then changes and events come mixed."""
    pq.write_table(moving_workload.subscriptions(count, moving_workload.BOX), folder / "subscriptions")
    times = np.random.default_rng(5).permutation(changes + events) + count
    first, moves = moving_workload.everyone(count), moving_workload.moves(changes, count)
    all_moves = pa.concat_tables([first, moves])
    when = np.concatenate([np.arange(count), np.sort(times[:changes])])
    pq.write_table(all_moves.append_column("timestamp", pa.array(when)), folder / "contexts")
    published = moving_workload.events(events).append_column("timestamp", pa.array(np.sort(times[changes:])))
    names = pa.array([f"e{number}" for number in range(events)])
    pq.write_table(published.append_column("id", names), folder / "events")


def _written(frame: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    frame.write.parquet(str(folder))


def _joined(spark: Any, events: Any, given: dict[str, Any]) -> Any:
    """As one who knows Spark would ask: positions become intervals of time in cells of a grid, and an event looks into
    the cells around it."""
    width = 2 * moving_workload.HALF
    given["contexts"].createOrReplaceTempView("contexts")
    content = given["subscriptions"].selectExpr(
        "id AS sid",
        "subscriber",
        "regexp_extract(content, \"kind = '(k.)'\", 1) AS wanted",
        "CAST(regexp_extract(content, 'between ([0-9.e-]+) and', 1) AS DOUBLE) AS low",
        "CAST(regexp_extract(content, 'and ([0-9.e-]+)$', 1) AS DOUBLE) AS high",
    )
    content.createOrReplaceTempView("wanted")
    events.createOrReplaceTempView("asked")
    query = f"""
        WITH intervals AS (
            SELECT client, x, y, timestamp AS since, floor(x / {width}) AS cx, floor(y / {width}) AS cy,
                   lead(timestamp) OVER (PARTITION BY client ORDER BY timestamp) AS until
            FROM contexts
        ), looking AS (
            SELECT id, kind, level, timestamp, context.x AS ex, context.y AS ey,
                   floor(context.x / {width}) + i AS cx, floor(context.y / {width}) + j AS cy
            FROM asked LATERAL VIEW explode(array(-1, 0, 1)) AS i LATERAL VIEW explode(array(-1, 0, 1)) AS j
        )
        SELECT id, sid FROM looking JOIN intervals USING (cx, cy) JOIN wanted ON subscriber = client
        WHERE since <= timestamp AND (until IS NULL OR until > timestamp)
          AND ex BETWEEN x - {moving_workload.HALF} AND x + {moving_workload.HALF}
          AND ey BETWEEN y - {moving_workload.HALF} AND y + {moving_workload.HALF}
          AND kind = wanted AND level BETWEEN low AND high
    """  # noqa: S608
    return spark.sql(query)

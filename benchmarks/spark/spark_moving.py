"""Measure subscribers that move while events arrive, on Spark, compared with an as-of join that gives the same
matches."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import moving_workload
from tidings.cli.measurement import Measurement, steps, time_once
from tidings.spark import route, session

CHANGES, EVENTS = 1_000_000, 200_000
_SAMPLE = 100  # one of so many events is in the sample for Spark's join
_SHARDS = 2


def measure(count: int, changes: int = CHANGES, events: int = EVENTS) -> list[Measurement]:
    """Measure `count` subscribers with boxes of 40 km; the output is matches, Parquet to Parquet."""
    with steps(4) as step, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        step("making the data")
        _write(folder, count, changes, events)
        spark = session("tidings bench", None, **{"spark.sql.shuffle.partitions": _SHARDS})
        try:
            frames = {name: spark.read.parquet(str(folder / name)) for name in ("events", "contexts", "subscriptions")}
            step("compiling the subscriptions")
            routed = route(frames["events"], frames["subscriptions"], frames["contexts"], shards=_SHARDS)
            step("routing")
            matching = min(time_once(lambda: _write_frame(routed.matches, folder / "matches")) for _ in range(2))
            row = spark.read.parquet(str(folder / "matches")).selectExpr("sum(size(subscriptions))").first()
            step("joining as of")
            sample = frames["events"].filter(f"timestamp % {_SAMPLE} = 0")
            sampled = sample.count()
            joining = time_once(lambda: _write_frame(_as_of_join(spark, sample, frames), folder / "joined"))
        finally:
            spark.stop()
    pairs = 0 if row is None else int(row[0] or 0)
    rate, join = events / matching, sampled / joining
    return [
        Measurement(
            "changes and events together",
            (changes + count + events) / matching,
            "rows/s",
            "150,000",
            f"{pairs / events:,.3g} matches an event",
        ),
        Measurement("events, with all changes", rate, "events/s"),
        Measurement("Spark's join as of, on a sample", join, "events/s", "", f"{sampled:,} events"),
        Measurement("that many times as fast", rate / join, "times", "20"),
    ]


def _write(folder: Path, count: int, changes: int, events: int) -> None:
    """Write the data: a first position of each client, then changes and events mixed in time."""
    pq.write_table(moving_workload.subscriptions(count, moving_workload.BOX), folder / "subscriptions")
    times = np.random.default_rng(5).permutation(changes + events) + count
    first, moves = moving_workload.everyone(count), moving_workload.moves(changes, count)
    all_moves = pa.concat_tables([first, moves])
    when = np.concatenate([np.arange(count), np.sort(times[:changes])])
    pq.write_table(all_moves.append_column("timestamp", pa.array(when)), folder / "contexts")
    published = moving_workload.events(events).append_column("timestamp", pa.array(np.sort(times[changes:])))
    names = pa.array([f"e{number}" for number in range(events)])
    pq.write_table(published.append_column("id", names), folder / "events")


def _write_frame(frame: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    frame.write.parquet(str(folder))


def _as_of_join(spark: Any, events: Any, frames: dict[str, Any]) -> Any:
    """Return the matches as a skilled Spark user would compute them.

    Positions become time intervals in cells of a grid, and each event is joined with the cells around it.
    """
    width = 2 * moving_workload.HALF
    frames["contexts"].createOrReplaceTempView("contexts")
    content = frames["subscriptions"].selectExpr(
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

"""A pipeline gives what an engine gives, however its batches are cut, and whenever it is stopped and goes on."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sizes import sized, variants
from tests.spark.cuts import cut, streams, write
from tests.spark.test_route import EVENTS, SUBSCRIPTIONS, expected, got, history
from tidings import TidingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CONTEXTS = "client string, timestamp bigint, x double"
LAST = 1_000
ROWS_A_BATCH = sized(19, 9)


@pytest.mark.parametrize(
    ("seed", "with_policies", "ends", "shards"),
    variants(
        2,
        [
            (12, False, [5, 6, 30, 55, LAST], 2),
            (13, True, [20, 21, 40, LAST], None),
            (11, False, [LAST], 2),
            (14, False, [*range(3, 60, ROWS_A_BATCH), LAST], 3),
        ],
    ),
)
def test_however_it_is_cut(
    spark: "SparkSession", tmp_path: Path, seed: int, with_policies: bool, ends: list[int], shards: int | None
) -> None:
    from tidings.spark.pipeline import Folder, Pipeline

    events, subscriptions, contexts = history(seed, with_policies=with_policies)
    write(tmp_path / "events", EVENTS, cut(events, 1, ends))
    write(tmp_path / "contexts", CONTEXTS, cut(contexts, 1, ends))
    write(tmp_path / "subscriptions", SUBSCRIPTIONS, cut(subscriptions, 5, ends))
    given = streams(spark, tmp_path / "subscriptions", SUBSCRIPTIONS)
    pipeline = Pipeline(
        streams(spark, tmp_path / "events", EVENTS),
        given if with_policies else given.drop("policy"),
        streams(spark, tmp_path / "contexts", CONTEXTS),
        checkpoint=tmp_path / "checkpoint",
        sinks=[Folder(path=str(tmp_path / what), what=what) for what in ("notifications", "matches", "rejected")],
        trigger="available-now",
        shards=shards,
    )
    pipeline.start().await_termination()
    due = expected(events, subscriptions, contexts)
    assert got(spark.read.parquet(str(tmp_path / "notifications"))) == due
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    assert {(row["event_id"], one) for row in rows for one in row["subscriptions"]} == {one[:2] for one in due}
    assert not (tmp_path / "rejected").exists()
    assert len(pipeline.ledger.batches()) == len(ends) + 1


def test_stopped_between_two_batches_it_goes_on(spark: "SparkSession", tmp_path: Path) -> None:
    from tidings.spark.pipeline import Folder, Pipeline

    events, subscriptions, contexts = history(15, with_policies=False)
    ends = [*range(10, 60, 10), LAST]
    write(tmp_path / "events", EVENTS, cut(events, 1, ends))
    write(tmp_path / "contexts", CONTEXTS, cut(contexts, 1, ends))

    def pipeline(trigger: str) -> Pipeline:
        return Pipeline(
            streams(spark, tmp_path / "events", EVENTS),
            spark.createDataFrame(subscriptions, SUBSCRIPTIONS).drop("policy"),
            streams(spark, tmp_path / "contexts", CONTEXTS),
            checkpoint=tmp_path / "checkpoint",
            sinks=[Folder(path=str(tmp_path / "notifications"))],
            trigger=trigger,
            shards=2,
        )

    first = pipeline("0 seconds").start()
    with pytest.raises(TidingsError, match="runs in process"):
        pipeline("0 seconds").start()
    while len(first.ledger.batches()) < 3:
        assert first.query.isActive
    first.stop()
    assert first.query.exception() is None or "StoppingError" in str(first.query.exception())
    pipeline("available-now").start().await_termination()
    assert got(spark.read.parquet(str(tmp_path / "notifications"))) == expected(events, subscriptions, contexts)


def test_a_pipeline_starts_that_was_killed_while_spark_wrote_its_first_offsets(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from tidings.spark.pipeline import Folder, Pipeline

    events, subscriptions, contexts = history(15, with_policies=False)
    write(tmp_path / "events", EVENTS, [events])
    write(tmp_path / "contexts", CONTEXTS, [contexts])
    offsets = tmp_path / "checkpoint" / "spark" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.2c9ce546-d4d0-4b32-ae0a-f575e0a32e5a.tmp", "..0.2c9ce546-d4d0-4b32-ae0a-f575e0a32e5a.tmp.crc"):
        (offsets / name).touch()
    Pipeline(
        streams(spark, tmp_path / "events", EVENTS),
        spark.createDataFrame(subscriptions, SUBSCRIPTIONS).drop("policy"),
        streams(spark, tmp_path / "contexts", CONTEXTS),
        checkpoint=tmp_path / "checkpoint",
        sinks=[Folder(path=str(tmp_path / "notifications"))],
        trigger="available-now",
        shards=2,
    ).start().await_termination()
    assert got(spark.read.parquet(str(tmp_path / "notifications"))) == expected(events, subscriptions, contexts)

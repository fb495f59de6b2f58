"""Journals of live brokers on Spark: notifications of them are those that clients were told, whatever happened."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.drivers import Told
from tests.sizes import sized
from tests.spark.mortal import MortalDriver, everybody_back, steps, take_all
from tidings.simulation.topologies import line
from tidings.spark import history, retrace, route
from tidings.spark.pipeline import Folder, Pipeline
from tidings.spark.replay import merged_journals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def told_by(notifications: "DataFrame", events: "DataFrame") -> Counter[Told]:
    known = {row["id"]: (row["publisher"], row["sequence"]) for row in events.collect()}
    return Counter(
        Told(row["subscriber"], name, *known[row["event_id"]], tuple(sorted(json.loads(row["attributes"]).items())))
        for row in notifications.collect()
        for name in row["subscriptions"]
    )


def lived(folder: Path, brokers: int, seed: int, count: int) -> Counter[Told]:
    """A life with a power cut in the middle; its journals are in `folder/after`."""
    topology = line(brokers)
    driver = MortalDriver(topology, folder / "before")
    try:
        told = take_all(driver, steps(seed, count, topology))
        driver.power_cut(folder / "before", folder / "after")
        told += take_all(driver, [*everybody_back(), *steps(seed + 1, count, topology)])
    finally:
        driver.close()
    return Counter(told)


@pytest.mark.parametrize("seed", range(sized(1, 3)))
def test_one_broker(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    told = lived(tmp_path, 1, seed, 150)
    (folder,) = (tmp_path / "after").iterdir()
    journal = history.read(spark, str(folder)).cache()
    kinds = {row["kind"] for row in journal.select("kind").distinct().collect()}
    assert {"connect", "disconnect", "acknowledge"} <= kinds
    assert len(told) > 50
    retraced = retrace(journal)
    assert told_by(retraced.notifications, history.events(journal)) == told
    assert retraced.rejected.count() == 0
    checkpoint, out = tmp_path / "checkpoint", str(tmp_path / "out")
    rows = spark.readStream.format("tidings").option("maxRowsPerBatch", 600).load(str(folder))
    sinks = [Folder(path=f"{out}/{what}", what=what) for what in ("notifications", "rejected")]
    Pipeline(journal=rows, checkpoint=checkpoint, sinks=sinks, trigger="available-now").start().await_termination()
    assert told_by(spark.read.parquet(f"{out}/notifications"), history.events(journal)) == told
    assert not Path(out, "rejected").exists()


@pytest.mark.parametrize("seed", range(sized(1, 10)))
def test_two_linked_brokers(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    told = lived(tmp_path, 2, seed, 150)
    folders = [str(one) for one in sorted((tmp_path / "after").iterdir())]
    journals = [spark.read.format("tidings").load(folder) for folder in folders]
    passed = sum(one.where("kind = 'passed'").count() for one in journals)
    assert passed > 0
    together = merged_journals.read(spark, folders).cache()
    events = history.events(together)
    assert events.count() == sum(history.events(one).count() for one in journals)
    assert events.select("id").distinct().count() == events.count()
    retraced = retrace(together)
    assert told_by(retraced.notifications, events) == told
    assert retraced.rejected.count() == 0
    assert len({one.client for one in told}) == 5
    routed = route(
        events,
        history.subscriptions(together),
        contexts=history.contexts(together),
        policies=history.policies(together),
    )
    assert told_by(routed.notifications, events) == told

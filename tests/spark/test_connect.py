"""Under Spark Connect everything works as it does without: the client has neither a Java of its own nor a context."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.shell import ROOT
from tests.limits import PATIENCE
from tests.spark.settings import defaults

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()

from tidings.spark import Pipeline, route

events = spark.createDataFrame([("e1", 10, 3), ("e2", 20, 1)], "id string, timestamp bigint, n bigint")
subscriptions = spark.createDataFrame(
    [("s1", "car", "n >= 2"), ("s2", "car", "n >")], "id string, subscriber string, content string"
)
contexts = spark.createDataFrame([("car", 0, 1.0)], "client string, timestamp bigint, x double")
alone, situated = route(events, subscriptions), route(events, subscriptions, contexts)
pipeline = Pipeline.from_file(sys.argv[1], spark, trigger="available-now").start()
pipeline.await_termination()
print(json.dumps({
    "matches": [(row["event_id"], row["subscriptions"]) for row in alone.matches.collect()],
    "refused": [name for name, _ in alone.registry.rejected],
    "notes": [(row["event_id"], row["attributes"]) for row in situated.notifications.collect()],
    "batch": pipeline.progress().batch,
    "counts": [pipeline.progress().so_far.matches, pipeline.progress().so_far.rejected],
    "client": type(spark).__module__,
}))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_route_and_a_pipeline(tmp_path: Path) -> None:
    kept = shutil.ignore_patterns("checkpoint", "out")
    city = shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "city", ignore=kept)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{city}/pipeline.toml"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": defaults().name},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("client") == "pyspark.sql.connect.session"
    assert told == {
        "matches": [["e1", ["s1"]]],
        "refused": ["s2"],
        "notes": [["e1", '{"n":3}']],
        "batch": 0,
        "counts": [5, 3],
    }
    assert list(Path(city).glob("out/notifications/batch=0/*.json"))

"""Under Spark Connect everything works as it does without: the client has neither a Java of its own nor a context."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.shell import ROOT
from tests.limits import PATIENCE
from tests.spark.settings import defaults

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
print("started", flush=True)

from tidings.spark import Pipeline, route

events = spark.createDataFrame([("e1", 10, 3), ("e2", 20, 1)], "id string, timestamp bigint, n bigint")
subscriptions = spark.createDataFrame(
    [("s1", "car", "n >= 2"), ("s2", "car", "n >")], "id string, subscriber string, content string"
)
contexts = spark.createDataFrame([("car", 0, 1.0)], "client string, timestamp bigint, x double")
alone, situated = route(events, subscriptions), route(events, subscriptions, contexts)
matches = [(row["event_id"], row["subscriptions"]) for row in alone.matches.collect()]
print("matched", flush=True)
notes = [(row["event_id"], row["attributes"]) for row in situated.notifications.collect()]
print("notified", flush=True)
pipeline = Pipeline.from_file(sys.argv[1], spark, trigger="available-now").start()
pipeline.await_termination()
print(json.dumps({
    "matches": matches,
    "refused": [name for name, _ in alone.registry.rejected],
    "notes": notes,
    "batch": pipeline.progress().batch,
    "counts": [pipeline.progress().so_far.matches, pipeline.progress().so_far.rejected],
    "client": type(spark).__module__,
}))
"""


def lines_of(running: "subprocess.Popen[bytes]", output: Path) -> list[str]:
    """Waits for each line of the program, or for its end."""
    lines: list[str] = []
    for number in range(1, 5):
        deadline = time.monotonic() + PATIENCE
        while len(lines := output.read_text().splitlines()) < number and running.poll() is None:
            assert time.monotonic() < deadline, f"the program has not come further than {lines}"
            time.sleep(0.1)
    return lines


@pytest.mark.slow
@pytest.mark.spark
def test_route_and_a_pipeline(tmp_path: Path) -> None:
    kept = shutil.ignore_patterns("checkpoint", "out")
    city = shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "city", ignore=kept)
    with (tmp_path / "output").open("wb") as output, (tmp_path / "errors").open("wb") as errors:
        running = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, f"{city}/pipeline.toml"],
            stdout=output,
            stderr=errors,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": defaults().name},
        )
    try:
        lines = lines_of(running, tmp_path / "output")
        assert running.wait(PATIENCE) == 0, (tmp_path / "errors").read_text()[-3000:]
    finally:
        running.kill()
        running.wait()
    told = json.loads(lines[-1])
    assert told.pop("client") == "pyspark.sql.connect.session"
    assert told == {
        "matches": [["e1", ["s1"]]],
        "refused": ["s2"],
        "notes": [["e1", '{"n":3}']],
        "batch": 0,
        "counts": [5, 3],
    }
    assert list(Path(city).glob("out/notifications/batch=0/*.json"))

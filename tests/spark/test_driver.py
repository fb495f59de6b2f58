"""Nothing data-sized passes through the driver: with room for next to nothing there, very many events are routed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]

SCRIPT = """
import sys
from tidings.spark import route, session

settings = {"spark.driver.maxResultSize": "256k", "spark.sql.shuffle.partitions": 2}
spark = session("driver", "local-cluster[2,1,1024]", **settings)
events = spark.range(120_000).selectExpr("CAST(id AS STRING) AS id", "id AS timestamp", "id % 500 AS n", "'x' AS c")
wanted = spark.range(20_000).selectExpr("concat('s', id) AS id", "concat('n = ', id % 500) AS content")
for shards in (1, 2):
    routed = route(events, wanted, shards=shards)
    assert routed.registry.subscriptions == 20_000
    for name, rows in (("matches", 120_000), ("notifications", 120_000 * 40)):
        folder = f"{sys.argv[1]}/{name}{shards}"
        getattr(routed, name).write.parquet(folder)
        assert spark.read.parquet(folder).count() == rows, name
try:
    spark.read.parquet(folder).collect()
except Exception as error:
    assert "maxResultSize" in str(error)
else:
    raise AssertionError("the driver had room for the result: this shows nothing")
"""


def test_the_driver_holds_nothing_of_the_data(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

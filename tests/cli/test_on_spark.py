"""The commands that use Spark: in this process, which has a session, and each leaves it running."""

import json

import pytest

from tests.cli.command import run
from tidings.spark.session import is_running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_the_demo_with_spark() -> None:
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["merged"] == [100, 1]
    assert told["loops"]["second loop"] == ["velocity monitor"]
    assert 0 < told["notifications"] < 25
    assert told["tidings"] == told["spark"] > 1_000
    assert told["stream"]["hub"] == told["stream"]["spark"] > 100
    assert done.stderr == ""
    assert is_running()


def test_routing_on_spark_is_measured() -> None:
    done = run("bench", "spark", "--count", "300", "--events", "1000", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    units = ["s", "events/s", "events/s", "times", "events/s", "times", "events/s", "events/s", "times"]
    assert [one["unit"] for one in found] == [*units, "% on top", "% on top", "times"]

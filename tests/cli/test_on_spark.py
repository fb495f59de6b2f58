"""The commands that start a Spark session of their own."""

import json

import pytest

from tests.cli.command import run_alone

pytestmark = pytest.mark.spark


def test_the_demo_with_spark() -> None:
    done = run_alone("demo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["merged"] == [100, 1]
    assert told["loops"]["second loop"] == ["velocity monitor"]
    assert 0 < told["notifications"] < 25
    assert told["tidings"] == told["spark"] > 1_000
    assert told["stream"]["hub"] == told["stream"]["spark"] > 100
    assert done.stderr == "starting Spark ...\n"


def test_routing_on_spark_is_measured() -> None:
    done = run_alone("bench", "spark", "--count", "300", "--events", "1000", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    units = ["s", "events/s", "events/s", "times", "events/s", "times", "events/s", "events/s", "times"]
    assert [one["unit"] for one in found] == [*units, "% on top", "% on top", "times"]

"""The commands that start a Spark session of their own."""

import json

import pytest

from tests.cli.command import as_json, run

pytestmark = pytest.mark.spark


def test_the_demo_with_spark() -> None:
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["tidings"] == told["spark"] > 1_000
    assert told["stream"]["hub"] == told["stream"]["spark"] > 100
    assert done.stderr == "starting Spark ...\n"


def test_routing_on_spark_is_measured() -> None:
    found = as_json("bench", "spark", "--count", "300", "--events", "1000")
    units = ["s", "events/s", "events/s", "times", "events/s", "times", "events/s", "events/s", "times"]
    assert [one["unit"] for one in found] == [*units, "% on top", "% on top", "times"]

"""The commands that use Spark: in this process, which has a session, and each leaves it running."""

import json
from pathlib import Path

import pytest

from tests.cli.command import run
from tidings.cli import demo
from tidings.spark.session import is_running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_the_demo_on_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scenes on Spark, and the one whose journal the last of them reads; `test_cli.py` plays the others."""
    demo.show([one for one in demo.scenes(tmp_path, spark=True) if demo.needs_spark(one)], as_json=True)
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert facts["tidings"] == facts["spark"] > 1_000
    assert facts["stream"]["hub"] == facts["stream"]["spark"] > 100
    assert shown.err == ""
    assert is_running()


@pytest.mark.slow
def test_routing_on_spark_is_measured() -> None:
    done = run("bench", "spark", "--count", "100", "--events", "300", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    units = ["s", "events/s", "events/s", "times", "events/s", "times", "events/s", "events/s", "times"]
    assert [one["unit"] for one in found] == [*units, "% on top", "% on top", "times"]

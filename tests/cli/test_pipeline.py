"""`tidings pipeline` as a user runs it: what it shows and sums up, how it is stopped, what it says when it fails."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli import command
from tests.docs.shell import ROOT
from tests.limits import PATIENCE
from tests.spark.settings import TOML as SETTINGS_IN_TOML
from tests.spark.settings import lent_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = f"""\
checkpoint = "checkpoint"
trigger = "200 milliseconds"
[spark]
master = "local[1]"
{SETTINGS_IN_TOML}
[events]
path = "events"
schema = "id string, timestamp string, n bigint"
[subscriptions]
path = "subscriptions"
follow = false
[[sinks]]
format = "json"
what = "matches"
path = "matches"
"""


@pytest.fixture
def lent(spark: "SparkSession") -> Iterator[None]:
    with lent_session():
        yield


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """The example, where it may be written."""
    kept = shutil.ignore_patterns("checkpoint", "out")
    return Path(shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "city", ignore=kept))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A pipeline of content alone, with one event and one subscription of two that can be taken."""
    for name in ("events", "subscriptions"):
        (tmp_path / name).mkdir()
    (tmp_path / "events" / "1.json").write_text('{"id": "e1", "timestamp": "10", "n": 1}\n')
    (tmp_path / "subscriptions" / "1.json").write_text(
        '{"id": "s", "content": "n > 0"}\n{"id": "bad", "content": "n >"}\n'
    )
    (tmp_path / "pipeline.toml").write_text(FILE)
    return tmp_path / "pipeline.toml"


def tidings(*arguments: Any) -> command.Done:
    return command.run("pipeline", *map(str, arguments))


@pytest.mark.spark
@pytest.mark.usefixtures("lent")
def test_the_example_once_and_again(city: Path) -> None:
    file = city / "pipeline.toml"
    done = tidings("run", file, "--once")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("batch 0: 5 events, 7 changes, 5 matches, 3 rejected, ")
    assert "backlog 0 files" in done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert ["rejected", "3", "3"] in told
    notes = [
        json.loads(line) for one in city.glob("out/notifications/*/*.json") for line in one.read_text().splitlines()
    ]
    assert sorted((one["event_id"], one["subscription_id"]) for one in notes) == [
        ("e1", "everything"),
        ("e1", "near-me"),
        ("e2", "everything"),
        ("e2", "near-me"),
        ("e3", "everything"),
    ]
    (city / "events" / "2.json").write_text(
        '{"id": "e6", "timestamp": "2026-03-01T08:01:00Z", "publisher": "cam-2", "attributes": {"severity": 1}}\n'
    )
    again = tidings("run", file, "--once", "--json")
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert (answer["batch"], answer["run"]["events"], answer["so_far"]["events"]) == (1, 1, 6)
    for place in (file, city / "checkpoint"):
        asked = json.loads(tidings("status", place, "--json").stdout)
        assert (asked["running"], asked["so_far"]) == (False, answer["so_far"])
        assert asked["watermark"] == "2026-03-01T08:00:50.000Z"
        assert asked["state_bytes"] > 0


@pytest.mark.process
@pytest.mark.spark
def test_it_runs_until_it_is_stopped_between_two_batches(small: Path) -> None:
    with command.start("pipeline", "run", str(small)) as running:
        assert running.stderr is not None
        try:
            assert running.stderr.readline().startswith("batch 0: 1 events, 0 changes, 1 matches, 0 rejected")
            told = tidings("status", small)
            assert f"running      yes, in process {running.pid}" in told.stdout
            assert "refused at the start: bad: the filter ends too early" in told.stderr
            other = tidings("run", small, "--once")
            assert other.returncode == 1
            assert f"runs in process {running.pid}; stop it, or take another folder" in other.stderr
        finally:
            os.kill(running.pid, signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert ["events", "1", "1"] in [line.split() for line in out.splitlines()]
    assert "running      no" in tidings("status", small).stdout


@pytest.mark.spark
@pytest.mark.usefixtures("lent")
def test_a_batch_that_fails_is_told_in_one_line(small: Path) -> None:
    (small.parent / "matches").write_text("in the way")
    done = tidings("run", small, "--once")
    assert done.returncode == 1
    complaint = done.stderr.splitlines()[-1]
    assert complaint.startswith(f"tidings: {small}: a batch failed: ")
    assert "matches" in complaint
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


def test_what_is_wrong_is_told_in_one_line(small: Path) -> None:
    small.write_text(FILE.replace('"json"', '"xml"'))
    done = tidings("run", small)
    assert (done.returncode, done.stdout) == (1, "")
    line = FILE[: FILE.index('"json"')].count("\n") + 1
    complaint = "sinks[0].format: 'xml' is none of parquet, json, console, hub, broker"
    assert done.stderr == f"tidings: {small}:{line}: {complaint}\n"
    assert "Traceback" not in done.stderr
    nothing = tidings("status", small.parent / "events")
    assert nothing.returncode == 1
    assert "there is no ledger of a pipeline here" in nothing.stderr
    assert tidings("status", small.parent / "none.toml").returncode == 1
    assert tidings("run").returncode == 2

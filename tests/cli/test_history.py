"""`tidings history` and `tidings policy try`, run in this process on the session that there is."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import tidings as td
from tests.cli.command import run
from tidings.cli.app import app

pytestmark = pytest.mark.process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("history") / "road"
    with td.Hub(made, name="road") as hub:
        car, bus, camera = hub.client("car-1"), hub.client("bus-7"), hub.client("cam-1")
        car.set_context(x=10.0)
        car.subscribe("msg = 'accident'", id="accidents", policy=td.policies.trim())
        bus.subscribe("lanes > 1", id="wide")
        for lanes in range(1, 6):
            camera.publish({"msg": "accident" if lanes % 2 else "jam", "lanes": lanes})
    return made


def answer(*arguments: Any) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exception is None, done.exception
    return done.stdout


@pytest.mark.spark
def test_the_summary_says_how_much_there_was_and_who_got_how_much(spark: "SparkSession", folder: Path) -> None:
    told = json.loads(answer("history", folder, "--json"))
    counts = {name: told[name] for name in ("journal", "records", "events", "publishers", "clients", "subscriptions")}
    assert counts == {
        "journal": "road",
        "records": 8,
        "events": 5,
        "publishers": 1,
        "clients": 3,
        "subscriptions": 2,
    }
    assert (told["notifications"], told["refused"], told["reasons"]) == (7, 0, [])
    assert [(row["id"], row["notifications"]) for row in told["subscribed"]] == [("wide", 4), ("accidents", 3)]
    shown = answer("history", folder, "--subscription", "wide", "--until", "2100-01-01").splitlines()
    assert "events           5" in shown
    assert "refused          0" in shown
    last = told["subscribed"][0]["last"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", last)
    assert shown[-1].split() == ["wide", "bus-7", "4", f"{last[:23]}Z", "lanes", ">", "1"]
    with pytest.raises(td.TidingsError, match="no subscription nobody"):
        CliRunner().invoke(app, ["history", str(folder), "--subscription", "nobody"], catch_exceptions=False)
    assert spark.range(3).count() == 3  # who brought the session, keeps it


@pytest.mark.spark
def test_events_policies_and_reasons(spark: "SparkSession", folder: Path) -> None:
    lines = answer("history", folder, "--events", "--client", "car-1", "--json").splitlines()
    events = [json.loads(line) for line in lines]
    assert [json.loads(one["attributes"])["lanes"] for one in events] == [1, 3, 5]
    assert [one["subscriptions"] for one in events] == [["accidents"], ["accidents", "wide"], ["accidents", "wide"]]
    assert answer("history", folder, "--events", "--limit", "1").count("cam-1") == 1
    assert json.loads(answer("history", folder, "--policies", "--json")) == [
        {"rule": "rule 1 of the subscription accidents", "blocked": 0, "shaped": 3}
    ]
    [why] = json.loads(answer("history", folder, "--why", events[0]["event_id"], "--client", "bus-7", "--json"))
    assert (why["delivered"], why["reason"]) == (False, "lanes > 1 is false: lanes is 1")
    with pytest.raises(td.TidingsError, match="there is no event nothing in the journal"):
        CliRunner().invoke(
            app, ["history", str(folder), "--why", "nothing", "--client", "bus-7"], catch_exceptions=False
        )


@pytest.mark.spark
def test_a_policy_is_tried_on_what_was(spark: "SparkSession", folder: Path, tmp_path: Path) -> None:
    policy = tmp_path / "new.policy"
    policy.write_text("PolicyStatement { On(Publication) { If {} Then {BlockMessage()} } }")
    told = json.loads(answer("policy", "try", policy, folder, "--on", "wide", "--examples", "1", "--json"))
    assert {name: told[name] for name in ("before", "after", "lost", "gained", "altered")} == {
        "before": 7,
        "after": 3,
        "lost": 4,
        "gained": 0,
        "altered": 0,
    }
    assert [row["subscription_id"] for row in told["subscriptions"]] == ["wide"]
    [example] = told["examples"]
    assert (example["change"], example["before"], example["after"]) == ("lost", '{"msg":"jam","lanes":2}', None)
    policy.write_text(str(td.policies.remove("lanes")))
    shown = answer("policy", "try", policy, folder).splitlines()
    assert ["all", "7", "7", "0", "0", "4"] in [line.split() for line in shown]
    assert '  after  {"msg":"jam"}' in shown


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["history", "no/such"], 1, "no/such is not a journal: there is no journal.toml"),
        (["history", "no/such", "--since", "yesterday"], 2, "'yesterday' is not a time such as 2026-01-31T12:00:00Z"),
        (["history", "no/such", "--since", "2026-02-01", "--until", "2026-01-01"], 2, "must be later than --since"),
        (["history", "no/such", "--events", "--policies"], 2, "one of --events, --policies and --why at a time"),
        (["policy", "try", "no/such.policy", "no/such"], 1, "no/such is not a journal"),
    ],
)
def test_errors_are_one_line_with_the_right_code(arguments: list[str], code: int, complaint: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert done.stderr.startswith("tidings: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.spark
def test_what_spark_says_of_a_damaged_journal_is_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    from tidings.journal import JournalOptions

    with td.Hub(tmp_path / "hub", options=JournalOptions(roll_records=2)) as hub:
        for n in range(5):
            hub.client("cam").publish({"n": n})
        hub.snapshot()
    damaged = sorted((tmp_path / "hub").rglob("*.parquet"))[0]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    with pytest.raises(td.TidingsError) as caught:
        CliRunner().invoke(app, ["history", str(tmp_path / "hub")], catch_exceptions=False)
    assert "\n" not in str(caught.value)
    assert damaged.name in str(caught.value)

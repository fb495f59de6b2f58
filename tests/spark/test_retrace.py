"""A journal, retraced on Spark, gives what the hub gave, and the reasons that the hub would have told at that time."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidings as td
from tests.spark.lives import Life, Note, lived, written
from tidings.spark import explain_journal, history, per_rule, retrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    return history.read(spark, str(tmp_path / "hub")).cache()  # it is gone through several times


def notes(notifications: "DataFrame") -> set[Note]:
    found: list[Note] = [
        (row["event_id"], name, written(json.loads(row["attributes"])), row["payload"] and bytes(row["payload"]))
        for row in notifications.collect()
        for name in row["subscriptions"]
    ]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize(("seed", "governed"), [(1, True), (2, True), (3, False)])
def test_everyone_gets_what_the_hub_gave(spark: "SparkSession", tmp_path: Path, seed: int, governed: bool) -> None:
    life = lived(tmp_path / "hub", seed, governed=governed)
    retraced = retrace(read(spark, tmp_path), shards=2)
    assert len(life.notes) > 30
    # Meta-events have the time and the number that they had, and so the same ids.
    assert notes(retraced.notifications) == life.notes
    told = life.notes - of_events(life)
    assert bool(told) == governed


def of_events(life: Life) -> set[Note]:
    """What was not told by the hub itself."""
    events = {event for event, _ in life.told}
    return {note for note in life.notes if note[0] in events}


def test_counts(spark: "SparkSession", tmp_path: Path) -> None:
    life = lived(tmp_path / "hub", 5)
    retraced = retrace(read(spark, tmp_path))
    assert notes(retraced.of_events) == of_events(life) < life.notes
    counts = {row["subscription_id"]: row["notifications"] for row in retraced.per_subscription.collect()}
    assert counts == Counter(name for _, name, _, _ in life.notes)
    assert retraced.per_step.collect() == []


@pytest.mark.parametrize("seed", [1, 4])
def test_it_says_why_as_the_hub_did(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    life = lived(tmp_path / "hub", seed)
    pairs = spark.createDataFrame(list(life.told), "event_id string, subscription_id string")
    found = explain_journal(read(spark, tmp_path), pairs, shards=3).collect()
    got = {(row[0], row[1]): (row["delivered"], row["step"], row["reason"], tuple(row["rules"])) for row in found}
    assert len(found) == len(life.told)
    assert got == life.told
    steps = {step for _, step, _, _ in life.told.values()}
    assert {"content", "publishers", "subscribers", "govern", "route"} <= steps


def test_a_part_of_the_time_knows_what_was_said_before(spark: "SparkSession", tmp_path: Path) -> None:
    with td.Hub(tmp_path / "hub") as hub:
        hub.client("car").subscribe("n > 0", id="s")
        ids = [str(hub.client("cam").publish({"n": n}).event.id) for n in range(1, 5)]
        times = [str(hub.client("cam").publish({"n": 0}).event.timestamp)]
        ids.append(str(hub.client("cam").publish({"n": 5}).event.id))
    folder = str(tmp_path / "hub")

    def got(journal: "DataFrame") -> set[str]:
        return {row["event_id"] for row in retrace(journal).matches.collect()}

    assert got(history.read(spark, folder)) == set(ids)
    assert got(history.read(spark, folder, since=times[0])) == {ids[-1]}
    assert got(history.read(spark, folder, until=times[0])) == set(ids[:-1])
    assert got(history.read(spark, folder, end=4)) == set(ids[:3])


def test_what_would_be_refused_now_is_told_by_step_and_reason(spark: "SparkSession", tmp_path: Path) -> None:
    from tidings.engine import Settings

    with td.Hub(tmp_path / "hub") as hub:
        for n in range(3):
            hub.client("cam").publish({"n": n})
    journal = read(spark, tmp_path)
    for shards in (1, 2):
        strict = retrace(journal, settings=Settings(advertisements_required=True), shards=shards)
        [row] = strict.per_step.collect()
        assert (row["step"], row["kind"], row["count"]) == ("admit", "publish", 3)
        assert "advertise it first" in row["reason"]


def test_what_each_rule_did(spark: "SparkSession", tmp_path: Path) -> None:
    block = "PolicyStatement { On(Publication) { If {StrictMatch()} Then {BlockMessage()} } }"
    with td.Hub(tmp_path / "hub", name="h") as hub:
        hub.client("car").subscribe("n > 0", id="s", policy=block)
        hub.client("bus").subscribe("n > 0", id="t", policy=td.policies.trim())
        hub.set_policy("t", td.policies.remove("m"))
        for said in ({"n": 1}, {"n": 2}, {"n": 3, "m": 1}, {"n": 4, "o": 1}, {"n": 0}):
            hub.client("cam").publish(said)
    found = {row["rule"]: (row["blocked"], row["shaped"]) for row in per_rule(read(spark, tmp_path)).collect()}
    assert found == {
        "rule 1 of the subscription s": (2, 0),
        "rule 1 of the subscription t": (0, 2),
        "rule 1 of the subscription t, by the operator": (0, 1),
    }


def test_pairs_that_do_not_exist_are_answered_too(spark: "SparkSession", tmp_path: Path) -> None:
    with td.Hub(tmp_path / "hub") as hub:
        before = str(hub.client("cam").publish({"n": 1}).event.id)
        hub.client("car").subscribe("n > 0", id="s")
    pairs: list[Any] = [(before, "s"), ("nothing", "s"), (before, "t")]
    given = spark.createDataFrame(pairs, "event_id string, subscription_id string")
    found = {
        (row[0], row[1]): (row["step"], row["reason"])
        for row in explain_journal(read(spark, tmp_path), given).collect()
    }
    assert found == {
        (before, "s"): ("admit", "there was no subscription s at that time"),
        ("nothing", "s"): ("admit", "there is no event nothing"),
        (before, "t"): ("admit", "there was no subscription t at that time"),
    }

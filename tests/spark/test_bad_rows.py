"""What cannot be read or taken is refused with its reason, the rest is unaffected, and the counts add up."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.cuts import streams, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark
EVENTS = "id string, timestamp string, publisher string, n bigint, $problem string"
GOOD = [(f"e{n}", str(n), "p", n, None) for n in range(10)]
FAR = str(10**17)
BAD = {
    "unread": ("unread", "5", "p", 3, "the line ends too early"),
    "timeless": ("timeless", None, "p", 3, None),
    "when": ("when", "yesterday", "p", 3, None),
    "far": ("far", FAR, "p", 3, None),
    None: (None, "5", "p", 3, None),
}
REASONS = {
    "unread": ("read", "the line ends too early"),
    "timeless": ("admit", "there is no timestamp, or none that can be read"),
    "when": ("admit", "there is no timestamp, or none that can be read"),
    "far": ("admit", "the timestamp lies further in the future than `ahead` allows"),
}


def run(spark: "SparkSession", folder: Path, subscriptions: "DataFrame", **more: Any) -> tuple[Any, "list[Row]", Any]:
    """The ledger's counts, what was rejected, and the ids of events that matched."""
    from tidings.spark.pipeline import Folder, Pipeline

    pipeline = Pipeline(
        streams(spark, folder / "events", EVENTS.replace("$problem", "`$problem`")),
        subscriptions,
        checkpoint=folder / "checkpoint",
        sinks=[Folder(path=str(folder / what), what=what) for what in ("matches", "rejected")],
        trigger="available-now",
        **more,
    )
    pipeline.start().await_termination()
    last = pipeline.ledger.last()
    assert last is not None
    rejected = spark.read.parquet(str(folder / "rejected")).collect()
    matched = {row["event_id"] for row in spark.read.parquet(str(folder / "matches")).collect()}
    return last.counts, rejected, matched


@pytest.mark.parametrize("in_order", [False, True])
def test_events(spark: "SparkSession", tmp_path: Path, in_order: bool) -> None:
    write(tmp_path / "events", EVENTS, [[*GOOD, *BAD.values()]])
    subscriptions = spark.createDataFrame([("s", "n >= 4")], "id string, content string")
    more: dict[str, Any] = {}
    if in_order:
        write(tmp_path / "contexts", "client string, timestamp bigint, x double", [[("p", 0, 1.0)]])
        contexts = streams(spark, tmp_path / "contexts", "client string, timestamp bigint, x double")
        more = {"contexts": contexts, "shards": 2}
    counts, rejected, matched = run(spark, tmp_path, subscriptions, **more)
    assert matched == {f"e{n}" for n in range(4, 10)}
    assert {row["event_id"] for row in rejected} == set(BAD)
    told = {row["event_id"]: (row["step"], row["reason"]) for row in rejected}
    assert {name: told[name] for name in REASONS} == REASONS
    unmatched = 4
    assert counts.events == len(GOOD) + len(BAD) == len(matched) + unmatched + len(rejected)
    assert (counts.matched, counts.matches, counts.rejected) == (len(matched), len(matched), len(BAD))


def test_changes(spark: "SparkSession", tmp_path: Path) -> None:
    subscriptions = "id string, subscriber string, content string, since string, until string, $problem string"
    contexts = "client string, timestamp string, context string, $problem string"
    write(tmp_path / "events", EVENTS, [GOOD])
    given = [
        ("good", "a", "n >= 4", None, None, None),
        ("ends", "a", "n >= 0", "0", "2", None),
        ("unread", None, None, None, None, "not JSON"),
        ("nothing", "a", None, None, None, None),
        ("when", "a", "n >= 0", "tomorrow", None, None),
        ("filter", "a", "n >", None, None, None),
    ]
    write(tmp_path / "subscriptions", subscriptions, [given])
    situations = [
        ("a", "0", '{"x": 1}', None),
        ("b", "then", '{"x": 1}', None),
        ("c", "0", None, "not JSON"),
        ("d", "0", '{"x": [1]}', None),
    ]
    write(tmp_path / "contexts", contexts, [situations])
    counts, rejected, matched = run(
        spark,
        tmp_path,
        streams(spark, tmp_path / "subscriptions", subscriptions.replace("$problem", "`$problem`")),
        contexts=streams(spark, tmp_path / "contexts", contexts.replace("$problem", "`$problem`")),
        shards=3,
    )
    assert matched == {"e0", "e1", *(f"e{n}" for n in range(4, 10))}
    told = {(row["kind"], row["event_id"]): row["reason"] for row in rejected}
    assert set(told) == {
        *(("subscribe", name) for name in ("unread", "nothing", "when", "filter")),
        *(("set_context", name) for name in ("b", "c", "d")),
    }
    assert told["subscribe", "unread"] == told["set_context", "c"] == "not JSON"
    assert told["subscribe", "nothing"] == "the subscription has neither content nor until"
    assert told["subscribe", "when"] == "since: 'tomorrow' is not a time"
    assert "ends too early" in told["subscribe", "filter"]
    ends = 1
    assert counts.changes == len(given) + ends + len(situations)
    assert (counts.events, counts.rejected) == (len(GOOD), len(told))


def test_what_nobody_asks_for_is_refused_all_the_same(spark: "SparkSession") -> None:
    """Events that no subscription asks for do not reach Python, but those that are refused do."""
    from tidings.spark import route

    rows = [("e1", 1, "a", None), ("e2", 2, "b", None), ("e3", 3, "b", "not JSON")]
    events = spark.createDataFrame(rows, "id string, timestamp bigint, class string, `$problem` string")
    routed = route(events, spark.createDataFrame([("s", "class = 'a'")], "id string, content string"))
    assert [row["event_id"] for row in routed.matches.collect()] == ["e1"]
    assert [(row["event_id"], row["reason"]) for row in routed.rejected.collect()] == [("e3", "not JSON")]


def test_subscriptions_that_stand_from_the_start(spark: "SparkSession", tmp_path: Path) -> None:
    from tidings.spark import route

    rows = [("good", "n = 1", None), ("unread", None, "not JSON"), ("filter", "n >", None), ("empty", None, None)]
    subscriptions = spark.createDataFrame(rows, "id string, content string, `$problem` string")
    events = spark.createDataFrame([("e", 1, 1)], "id string, timestamp bigint, n bigint")
    routed = route(events, subscriptions)
    assert dict(routed.registry.rejected)["unread"] == "not JSON"
    assert {name for name, _ in routed.registry.rejected} == {"unread", "filter", "empty"}
    assert [row["subscriptions"] for row in routed.matches.collect()] == [["good"]]

"""What Spark is asked to do: no Python row by row, no product of tables, no shuffle but the one to the shards."""

import contextlib
import io
from typing import TYPE_CHECKING

import pytest

from tests.spark.test_route import EVENTS, SUBSCRIPTIONS, history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NEVER = ("BatchEvalPython", "ArrowEvalPython", "CartesianProduct", "NestedLoopJoin", "FlatMapGroups", "CoalescedRDD")


def plan(frame: "DataFrame") -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain()
    return said.getvalue()


def test_of_what_changes_over_time(spark: "SparkSession") -> None:
    from tidings.spark import route

    events, subscriptions, contexts = history(1, with_policies=False)
    routed = route(
        spark.createDataFrame(events, EVENTS),
        spark.createDataFrame(subscriptions, SUBSCRIPTIONS).drop("policy"),
        spark.createDataFrame(contexts, "client string, timestamp bigint, x double"),
        shards=2,
    )
    for frame, exchanges in ((routed.notifications, 1), (routed.rejected, 1), (routed.matches, 2)):
        text = plan(frame)
        assert text.count("Exchange") == exchanges, text
        assert text.count("MapInArrow") == 1
        assert not [word for word in NEVER if word in text]


def test_of_content_alone(spark: "SparkSession") -> None:
    from tidings.spark import route

    events, subscriptions, _ = history(1, with_policies=True)
    given = spark.createDataFrame(subscriptions, SUBSCRIPTIONS).drop("since", "until", "publishers")
    routed = route(spark.createDataFrame(events, EVENTS), given)
    for frame in (routed.matches, routed.notifications, routed.rejected, routed.meta_events):
        text = plan(frame)
        assert "Exchange" not in text, text
        assert text.count("MapInArrow") == 1
        assert not [word for word in NEVER if word in text]


def test_columns_keep_their_names_without_aliases(spark: "SparkSession") -> None:
    """With an alias for each, and a filter on them all, Spark's optimiser would not come to an end."""
    from tidings.spark import route

    names = [f"a{number}" for number in range(24)]
    wide = spark.createDataFrame(
        [("e", 1, *[1.0] * 24)], f"id string, timestamp bigint, {' double, '.join(names)} double"
    )
    routed = route(wide, spark.createDataFrame([("s", "a0 = 1")], "id string, content string"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        routed.matches.explain(extended=True)
    assert not [name for name in names if f" AS {name}#" in said.getvalue()]
    assert [row["subscriptions"] for row in routed.matches.collect()] == [["s"]]

"""Events that cannot concern anybody are held back, and nothing is lost by it: no match, and no refusal."""

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.sizes import variants
from tidings.engine import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = "id string, timestamp bigint, publisher string, subject string, class string, n bigint, d double"
SUBSCRIPTIONS = "id string, subscriber string, content string, format string"
KINDS = [
    ["class = 'a' and n > {0}", "class = 'b'", "class in ('a', 'c') and d < {0}"],
    ["n = {0}", "n = {0}.0 and class = 'a'", "n = 0 and d > 0"],
    ["d = {0} and n > 0", "d = -0.0", "d = 2.5 or d = {0}"],
    ["class = 'a'", "n = {0}"],
    ["n between {0} and {0} and class LIKE 'a%'", "class = 'a' and n = 9007199254740993"],
    ["n > 5 and n < 5"],
]


def events(random: Random) -> list[Any]:
    return [
        (
            random.choice([f"e{number}"] * 9 + [None]),
            random.choice([number] * 9 + [-1, None]),
            random.choice(["bob"] * 9 + [None, "", "b" * 2_000]),
            random.choice([None, None, "Loop", ""]),
            random.choice(["a", "b", "c", None, "DropMessage", "x" * 70_000]),
            random.choice([0, 1, 2, 3, None, 9007199254740993, 9007199254740992]),
            random.choice([0.0, -0.0, 1.0, 2.5, None, float("nan"), float("inf")]),
        )
        for number in range(60)
    ]


@pytest.mark.parametrize(("kind", "shards"), variants(3, [(0, 3), (1, 1), (2, 1), (3, 3), (4, 3), (5, 1)]))
def test_nothing_is_lost(spark: "SparkSession", kind: int, shards: int) -> None:
    from tidings.spark import route
    from tidings.spark.events import prepare_events, spread_to_shards
    from tidings.spark.route import RouteResult, worker_of

    random = Random(kind)
    contents = [random.choice(KINDS[kind]).format(random.randrange(4)) for _ in range(6)]
    wanted = [(f"s{number}", f"c{number}", content, None) for number, content in enumerate(contents)]
    given = spark.createDataFrame(events(random), EVENTS)
    sieved = route(given, spark.createDataFrame(wanted, SUBSCRIPTIONS), shards=shards)
    assert kind == 3 or any(one is not None for one in sieved.registry.requested_values)
    everything = prepare_events(given)
    if shards > 1:
        from pyspark.sql import functions as f

        everything = spread_to_shards(everything, [f.lit(True)] * shards, 2)
    whole = RouteResult(everything, sieved.registry, worker_of(sieved.registry, Settings(name="spark")))
    for view in ("matches", "rejected"):
        with_it, without = (sorted(map(repr, getattr(one, view).collect())) for one in (sieved, whole))
        assert with_it == without
    if kind == 0:
        assert sieved.rows.count() < everything.count()

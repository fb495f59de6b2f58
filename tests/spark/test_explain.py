"""`explain` on DataFrames says what an engine says at the time of each event."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.messages import advertise, event, situate, subscribe
from tests.sizes import variants
from tests.spark.test_route import CLIENTS, EVENTS, SUBSCRIPTIONS, history
from tidings import InvalidValueError, Schema, policies
from tidings.engine import Engine, Settings
from tidings.engine.operations import Define, SetPolicy, Unadvertise, Unsubscribe
from tidings.spark import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIRS = "event_id string, subscription_id string"
Told = dict[tuple[str, str], tuple[bool, str, str, list[str]]]


def expected(events: list[Any], subscriptions: list[Any], contexts: list[Any], more: list[Any]) -> Told:
    """Every event and every subscription of its time, through an engine: control first, then contexts, then events."""
    engine, situations, found = Engine(Settings(name="spark")), dict[str, Any](), Told()
    operations = list(more)
    for name, client, content, publishers, policy, since, until in subscriptions:
        made = subscribe(name, content, client, publishers=publishers, policy=policy)
        operations.append((-1 if since is None else since, 2, name, made))
        if until is not None:
            operations.append((until, 1, name, Unsubscribe(client, name)))
    operations += [(time, 4, client, situate(client, x=x)) for client, time, x in contexts]
    operations += [(one[1], 5, one[0], one) for one in events]
    for time, _, _, operation in sorted(operations, key=lambda one: one[:3]):
        if not isinstance(operation, tuple):
            if hasattr(operation, "context"):
                situations[operation.client] = dict(operation.context)
            engine.handle(operation, max(0, time))
            continue
        name, _, publisher, kind, n, d, subscribers = operation
        attributes = {key: value for key, value in (("class", kind), ("n", n), ("d", d)) if value is not None}
        said = event(attributes, publisher, time + 1, subscribers=subscribers, context=situations.get(publisher, {}))
        for filed in engine.state.filters.subscriptions:
            [why] = engine.explain(said, subscription=filed.id, now=time)
            found[name, filed.id] = why.delivered, why.step, why.reason, list(why.rules)
    return found


def got(answers: "DataFrame") -> Told:
    rows = answers.collect()
    found = {(row[0], row[1]): (row["delivered"], row["step"], row["reason"], row["rules"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize(("seed", "shards"), variants(1, [(1, 3), (2, 1)]))
def test_every_pair_as_an_engine_explains_it(spark: "SparkSession", seed: int, shards: int) -> None:
    events, subscriptions, contexts = history(seed, with_policies=True)
    block = "PolicyStatement { On(Publication) { If {} Then {BlockMessage()} } }"
    ads = [("ad1", CLIENTS[0], "n > 2", str(policies.remove("n")), 10, 50), ("ad2", CLIENTS[1], "", block, None, None)]
    later = [("s03", block, 30, 55, "spark"), ("ad1", str(policies.to_json()), 20, 40, CLIENTS[0])]
    more: list[Any] = []
    for name, publisher, content, policy, since, until in ads:
        more.append((-1 if since is None else since, -1, name, advertise(name, content, publisher, policy)))
        more += [] if until is None else [(until, -2, name, Unadvertise(publisher, name))]
    for name, policy, since, until, by in later:
        more += [(since, 3, name, SetPolicy(by, name, policy)), (until, 0, name, SetPolicy(by, name, None))]
    told = expected(events, subscriptions, contexts, more)
    answers = explain(
        spark.createDataFrame(events, EVENTS),
        spark.createDataFrame(subscriptions, SUBSCRIPTIONS),
        spark.createDataFrame(list(told), PAIRS).repartition(3),
        spark.createDataFrame(contexts, "client string, timestamp bigint, x double"),
        spark.createDataFrame(
            ads, "id string, publisher string, content string, policy string, since bigint, until bigint"
        ),
        spark.createDataFrame(later, "id string, policy string, since bigint, until bigint, by string"),
        shards=shards,
    )
    assert got(answers) == told
    assert len(told) > 1_000
    assert {step for _, step, _, _ in told.values()} >= {"content", "publishers", "subscribers", "govern", "route"}


def test_only_what_is_asked_about_is_looked_at(spark: "SparkSession") -> None:
    """Beside it what is told to the same client together, and what the broker itself has."""
    events = spark.createDataFrame([("e1", 1, 4), ("e2", 2, 1)], "id string, timestamp bigint, n int")
    block = "PolicyStatement { On(Publication) { If {} Then {BlockMessage()} } }"
    wanted = [
        ("s1", "car", "n > 3", "client", str(policies.remove("m"))),
        ("s2", "car", "n > 2", "client", str(policies.remove("n"))),
        ("s3", "bus", "n >", "subscription", None),
        ("own", "spark", "n < 2", "subscription", block),
    ]
    given = spark.createDataFrame(wanted, "id string, subscriber string, content string, notify string, policy string")
    pairs = [("e1", "s1"), ("e2", "s1"), ("e1", "s3"), ("e1", "s9"), ("e9", "s1"), ("e2", "own")]
    found = got(explain(events, given, spark.createDataFrame(pairs, PAIRS), shards=2))
    assert found["e1", "s1"] == (True, "route", "goes to car", ["rule 1 of the subscription s2"])
    assert found["e2", "s1"][1:3] == ("content", "n > 3 is false: n is 1")
    assert found["e2", "own"][0] is False
    assert {pair: said[1:3] for pair, said in found.items() if said[1] == "admit"} == {
        ("e1", "s3"): (
            "admit",
            "the subscription was refused: the filter ends too early; a value or a condition is missing",
        ),
        ("e1", "s9"): ("admit", "there was no subscription s9 at that time"),
        ("e9", "s1"): ("admit", "there is no event e9"),
    }


def test_bad_rows_schemas_and_policies_of_all_times(spark: "SparkSession") -> None:
    rows = [("e1", 1, "bob", "Loop", 1, None), ("e2", 2, "bob", "Loop", 1, 5), ("e3", None, "bob", None, 1, 5)]
    events = spark.createDataFrame(rows, "id string, timestamp bigint, publisher string, subject string, li int, x int")
    versions = [("Loop", '[{"li": "int"}]'), ("Loop", '[{"li": "int"}, {"ts": "int"}]')]
    wanted = spark.createDataFrame([("s1", "li > 0")], "id string, content string")
    found = got(
        explain(
            events,
            wanted,
            spark.createDataFrame([(f"e{number}", "s1") for number in (1, 2, 3)], PAIRS),
            policies=spark.createDataFrame([("s1", str(policies.remove("li")))], "id string, policy string"),
            schemas=spark.createDataFrame(versions, "subject string, versions string"),
        )
    )
    engine = Engine(Settings(name="spark"))
    engine.handle(Define("spark", Schema("Loop", {"li": int}).extend({"ts": int})), 0)
    engine.handle(subscribe("s1", "li > 0", "s1", policy=policies.remove("li")), 0)
    for name, _, _, _, li, x in rows[:2]:
        said = event({"li": li} | ({} if x is None else {"x": x}), "bob", subject="Loop")
        [why] = engine.explain(said, subscription="s1")
        assert found[name, "s1"] == (why.delivered, why.step, why.reason, list(why.rules))
    assert [found[f"e{number}", "s1"][1] for number in (1, 2, 3)] == ["route", "admit", "admit"]


def test_missing_columns_are_named(spark: "SparkSession") -> None:
    events = spark.createDataFrame([("e1", 1)], "id string, timestamp bigint")
    wanted = spark.createDataFrame([("s1", "")], "id string, content string")
    with pytest.raises(InvalidValueError, match="pairs: there is no column subscription_id"):
        explain(events, wanted, spark.createDataFrame([("e1",)], "event_id string"))
    with pytest.raises(InvalidValueError, match="advertisements: there is no column publisher"):
        explain(events, wanted, spark.createDataFrame([("e1", "s1")], PAIRS), advertisements=wanted)

"""`route` on DataFrames gives what an engine gives, operation by operation in the order of time."""

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.messages import event, situate, subscribe
from tests.sizes import variants
from tidings import InvalidValueError, policies
from tidings.engine import Engine, Settings
from tidings.engine.effects import Deliver
from tidings.engine.operations import Publish, Unsubscribe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CLIENTS = [f"c{number}" for number in range(8)]
EVENTS = "id string, timestamp bigint, publisher string, class string, n bigint, d double, subscribers string"
SUBSCRIPTIONS = (
    "id string, subscriber string, content string, publishers string, policy string, since bigint, until bigint"
)
TRIM, JSON = str(policies.trim()), str(policies.remove("d", convert="json"))


def history(seed: int, *, with_policies: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """Events, subscriptions with their times, and changes of context, at times that often are the same."""
    random = Random(seed)
    events = [
        (
            f"event {number}",
            random.randrange(60),
            random.choice(CLIENTS),
            random.choice("abc"),
            random.randrange(10),
            random.choice([None, 0.5, 2.5]),
            random.choice([None, None, "x > 3"]),
        )
        for number in range(120)
    ]
    contents = ["class = 'a'", "n > 4 and d > 1", "class in ('b', 'c')", "", "d IS NULL and n < 7"]
    subscriptions = [
        (
            f"s{number:02}",
            random.choice(CLIENTS),
            random.choice(contents),
            random.choice([None, "x between this.x - 3 and this.x + 3", "x > 5"]),
            random.choice([None, TRIM, JSON]) if with_policies else None,
            random.choice([None, None, random.randrange(60)]),
            random.choice([None, None, 60 + random.randrange(1, 9), random.randrange(30, 60)]),
        )
        for number in range(25)
    ]
    windows = [one for one in subscriptions if one[5] is None or one[6] is None or one[5] < one[6]]
    # Of two changes of one client at one time, no order says which is the later.
    moved = {(random.choice(CLIENTS), random.randrange(60)): float(random.randrange(10)) for _ in range(60)}
    return events, windows, [(client, time, x) for (client, time), x in moved.items()]


def expected(events: list[Any], subscriptions: list[Any], contexts: list[Any]) -> set[tuple[Any, ...]]:
    """The same through an engine: control first, then contexts, then events."""
    engine = Engine(Settings(name="spark"))
    operations: list[tuple[int, int, str, Any]] = []
    for name, client, content, publishers, policy, since, until in subscriptions:
        made = subscribe(name, content, client, publishers=publishers, policy=policy)
        operations.append((-1 if since is None else since, 0, name, made))
        if until is not None:
            operations.append((until, 0, name, Unsubscribe(client, name)))
    for client, time, x in contexts:
        operations.append((time, 1, client, situate(client, x=x)))
    situations: dict[str, dict[str, float]] = {}
    for number, (name, time, *_) in enumerate(events):
        operations.append((time, 2, name, number))
    found = set()
    for time, _, _, operation in sorted(operations, key=lambda one: one[:3]):
        if isinstance(operation, int):
            name, _, publisher, kind, n, d, subscribers = events[operation]
            attributes = {"class": kind, "n": n, "d": d}
            context = situations.get(publisher, {})
            said = event(attributes, publisher, time + 1, subscribers=subscribers, context=context)
            for effect in engine.handle(Publish(said), time):
                assert isinstance(effect, Deliver)
                note = effect.notification
                found.add((name, note.subscription, note.subscriber, _sorted(note.attributes), note.payload))
        else:
            if hasattr(operation, "context"):
                situations[operation.client] = dict(operation.context)
            engine.handle(operation, max(0, time))
    return found


def _sorted(attributes: Any) -> str:
    return json.dumps(attributes, sort_keys=True)


COLUMNS = ("event_id", "subscription_id", "subscriber", "attributes", "payload")


def got(notifications: "DataFrame") -> set[tuple[Any, ...]]:
    return once(notifications.select(*COLUMNS).collect())


def once(rows: Iterable[Sequence[Any]]) -> set[tuple[Any, ...]]:
    """The notifications in rows of `COLUMNS`, of which no two are the same."""
    found = [(one[0], one[1], one[2], _sorted(json.loads(one[3])), one[4] and bytes(one[4])) for one in rows]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize(("seed", "with_policies", "shards"), variants(2, [(1, False, 3), (2, True, 1), (3, False, 2)]))
def test_contexts_windows_and_policies_as_an_engine_has_them(
    spark: "SparkSession", seed: int, with_policies: bool, shards: int
) -> None:
    from tidings.spark import route

    events, subscriptions, contexts = history(seed, with_policies=with_policies)
    given = spark.createDataFrame(subscriptions, SUBSCRIPTIONS)
    routed = route(
        spark.createDataFrame(events, EVENTS),
        given if with_policies else given.drop("policy"),
        spark.createDataFrame(contexts, "client string, timestamp bigint, x double"),
        shards=shards,
    )
    due = expected(events, subscriptions, contexts)
    assert len(due) > 100
    assert got(routed.notifications) == due
    matched = {(row["event_id"], one) for row in routed.matches.collect() for one in row["subscriptions"]}
    assert matched == {(name, subscription) for name, subscription, *_ in due}
    assert routed.registry.shards == shards


@pytest.mark.parametrize("shards", variants(1, [2, 5]))
def test_content_in_several_shards(spark: "SparkSession", shards: int) -> None:
    from tidings.spark import route

    events, subscriptions, _ = history(6, with_policies=False)
    plain = [(*one[:3], None, None, None, None) for one in subscriptions]
    without = [(*one[:6], None) for one in events]
    refused = ("refused", -1, "c1", "a", 1, None, None)
    given = spark.createDataFrame(plain, SUBSCRIPTIONS).select("id", "subscriber", "content")
    routed = route(spark.createDataFrame([*without, refused], EVENTS), given, shards=shards)
    due = expected(without, plain, [])
    assert got(routed.notifications) == due
    matched = {(row["event_id"], one) for row in routed.matches.collect() for one in row["subscriptions"]}
    assert matched == {(name, subscription) for name, subscription, *_ in due}
    assert [row["event_id"] for row in routed.rejected.collect()] == ["refused"]  # by one of them
    assert routed.registry.shards == shards


def test_so_many_shards_as_subscriptions_need() -> None:
    from tidings.spark.shards.registry import MAX_SUBSCRIPTIONS_PER_SHARD, shards_for

    assert [shards_for(one) for one in (0, 1, MAX_SUBSCRIPTIONS_PER_SHARD, MAX_SUBSCRIPTIONS_PER_SHARD + 1)] == [
        1,
        1,
        1,
        2,
    ]


def test_content_is_matched_where_the_events_are(spark: "SparkSession") -> None:
    from tidings.spark import route

    events, subscriptions, _ = history(4, with_policies=True)
    plain = [(*one[:3], None, one[4], None, None) for one in subscriptions]
    without = [(*one[:6], None) for one in events]
    given = spark.createDataFrame(plain, SUBSCRIPTIONS).drop("since", "until")
    routed = route(spark.createDataFrame(without, EVENTS).repartition(3), given)
    assert got(routed.notifications) == expected(without, plain, [])
    plan = routed.matches._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 1  # the test's own
    assert "PythonUDF" not in plan


@pytest.mark.parametrize(
    "form", ["struct(class, n, d)", "to_json(struct(class, n, d))", "parse_json(to_json(struct(class, n, d)))"]
)
def test_attributes_in_any_form(spark: "SparkSession", form: str) -> None:
    from tidings.spark import route

    events, subscriptions, _ = history(5, with_policies=False)
    plain = [(*one[:3], None, None, None, None) for one in subscriptions]
    without = [(*one[:6], None) for one in events]
    frame = spark.createDataFrame(without, EVENTS).selectExpr("id", "timestamp", "publisher", f"{form} AS attributes")
    routed = route(frame, spark.createDataFrame(plain, SUBSCRIPTIONS).select("id", "subscriber", "content"))
    assert got(routed.notifications) == expected(without, plain, [])


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(spark: "SparkSession") -> None:
    from tidings.spark import route

    events = [
        ("e1", 1, "bob", 1),
        (None, 2, "bob", 2),
        ("e3", None, "bob", 3),
        ("e4", 4, None, 4),
        ("e5", -5, "bob", 5),
    ]
    wanted = [("s1", "n > 0", None), ("s2", "n >", None), (None, "n > 0", None), ("s4", "n > 1", "Policy {")]
    routed = route(
        spark.createDataFrame(events, "id string, timestamp bigint, publisher string, n int"),
        spark.createDataFrame(wanted, "id string, content string, policy string"),
    )
    assert [(row["event_id"], row["subscriptions"]) for row in routed.matches.collect()] == [("e1", ["s1"])]
    refused = {row["event_id"]: (row["step"], row["reason"]) for row in routed.rejected.collect()}
    assert refused.keys() == {None, "e3", "e4", "e5"}
    assert all(step == "admit" and reason for step, reason in refused.values())
    assert {name for name, _ in routed.registry.rejected} == {"", "s2", "s4"}
    assert routed.registry.subscriptions == 1


def test_rules_tell_meta_events(spark: "SparkSession") -> None:
    from tidings.spark import route

    told = 'PolicyStatement { On(Publication) { If {} Then {Publish("[class,Seen],[n,1]")} } }'
    events = spark.createDataFrame([("e1", 1, "bob", 1)], "id string, timestamp bigint, publisher string, n int")
    wanted = [("s1", "n > 0 and class IS NULL", told), ("s2", "class = 'Seen'", None)]
    routed = route(events, spark.createDataFrame(wanted, "id string, content string, policy string"))
    [meta] = routed.meta_events.collect()
    assert json.loads(meta["attributes"]) == {"class": "Seen", "n": 1}
    assert {row["event_id"]: row["subscriptions"] for row in routed.matches.collect()} == {
        "e1": ["s1"],
        meta["event_id"]: ["s2"],
    }


def test_missing_columns_are_named(spark: "SparkSession") -> None:
    from tidings.spark import route

    events = spark.createDataFrame([("e1", 1)], "id string, timestamp bigint")
    wanted = spark.createDataFrame([("s1", "")], "id string, content string")
    for bad, good, complaint in (
        (events.drop("id"), wanted, "events: there is no column id"),
        (events.withColumnRenamed("timestamp", "time"), wanted, "events: there is no column timestamp"),
        (events, wanted.drop("content"), "subscriptions: there is no column content"),
    ):
        with pytest.raises(InvalidValueError, match=complaint):
            route(bad, good)


def test_events_conform_to_the_schema_of_their_subject(spark: "SparkSession") -> None:
    from tidings.spark import route

    rows = [("e1", 1, "bob", "Loop", 1, None), ("e2", 2, "bob", "Loop", 1, 5), ("e3", 3, "bob", None, 1, 5)]
    events = spark.createDataFrame(rows, "id string, timestamp bigint, publisher string, subject string, li int, x int")
    versions = [("Loop", '[{"li": "int"}]'), ("Loop", '[{"li": "int"}, {"ts": "int"}]')]
    schemas = spark.createDataFrame(versions, "subject string, versions string")
    wanted = [("s1", "li > 0", None), ("s2", "speed > 1", "Loop"), ("s3", "ts IS NULL", "Loop")]
    routed = route(events, spark.createDataFrame(wanted, "id string, content string, subject string"), schemas=schemas)
    assert {row["event_id"]: row["subscriptions"] for row in routed.matches.collect()} == {
        "e1": ["s1", "s3"],
        "e3": ["s1"],
    }
    [refused] = routed.rejected.collect()
    assert refused["reason"] == "Loop: has no attribute x; version 2 has li, ts"
    assert [name for name, _ in routed.registry.rejected] == ["s2"]


def test_what_is_told_once_is_told_once_by_many_tasks(spark: "SparkSession") -> None:
    """A conflict between two rules: the first event tells of it, wherever the others are."""
    from tidings.spark import route

    one, other = str(policies.trim()), str(policies.remove("n", convert="json"))
    advertisement = [("a", "p", "class = 'x'", other)]
    subscriptions = [("s", "c", "class = 'x'", str(policies.to_xml())), ("w", "w", "class = 'PolicyConflict'", one)]
    events = [(f"e{number:02}", number, "p", "x", number) for number in range(24)]
    routed = route(
        spark.createDataFrame(
            events, "id string, timestamp bigint, publisher string, class string, n bigint"
        ).repartition(3),
        spark.createDataFrame(subscriptions, "id string, subscriber string, content string, policy string"),
        advertisements=spark.createDataFrame(
            advertisement, "id string, publisher string, content string, policy string"
        ),
    )
    (told,) = routed.meta_events.collect()
    assert json.loads(told["attributes"])["class"] == "PolicyConflict"
    assert [row["event_id"] for row in routed.notifications.filter("subscription_id = 'w'").collect()] == [
        told["event_id"]
    ]


def test_what_only_cuts_is_done_by_many_shards(spark: "SparkSession") -> None:
    from tidings.spark import route

    events, subscriptions, contexts = history(5, with_policies=True)
    cut = [(*one[:4], one[4] and TRIM, *one[5:]) for one in subscriptions]
    routed = route(
        spark.createDataFrame(events, EVENTS),
        spark.createDataFrame(cut, SUBSCRIPTIONS),
        spark.createDataFrame(contexts, "client string, timestamp bigint, x double"),
        shards=3,
    )
    assert routed.registry.shards == 3
    assert got(routed.notifications) == expected(events, cut, contexts)


@pytest.mark.parametrize("kind", ["array<string>", "string"])
def test_a_null_offers_all_names_of_a_context_and_an_empty_array_none(spark: "SparkSession", kind: str) -> None:
    """In `route` and in `explain`; the journal's own form of an offer is text."""
    from tidings.engine import journal_codec
    from tidings.journal import Operation
    from tidings.spark.replay.explain import _advertisement_rows
    from tidings.spark.route import shard_plan
    from tidings.spark.shards.shard_builder import base_engine as engine_of

    offers: dict[str, list[str] | None] = {"all": None, "none": [], "some": ["x"]}
    given = [
        (name, "p", "", json.dumps(offer) if offer is not None and kind == "string" else offer)
        for name, offer in offers.items()
    ]
    frame = spark.createDataFrame(given, f"id string, publisher string, content string, publisher_context {kind}")
    wanted = {name: None if offer is None else tuple(offer) for name, offer in offers.items()}
    engine = engine_of(shard_plan("", Settings(name="spark"), frame, None, None))
    assert {one.id: one.value.publisher_context for one in engine.state.filters.advertisements} == wanted
    [begins] = _advertisement_rows(frame)
    rows = [Operation(kind="advertise", client="p", id=row["id"], body=row["body"]) for row in begins.collect()]
    explained = [journal_codec.operation(row) for row in rows]
    assert {one.advertisement.id: one.advertisement.publisher_context for one in explained} == wanted  # type: ignore[union-attr]
    [left_out] = _advertisement_rows(frame.select("id", "publisher"))
    assert all('"publisher_context_all":true' in row["body"] for row in left_out.collect())

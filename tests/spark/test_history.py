"""The history of a hub as DataFrames: the same that the hub itself knew at every moment."""

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidings as td
from tests.sizes import sized
from tidings.engine import Settings
from tidings.journal import JournalOptions
from tidings.spark import history, route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[td.Hub]:
    with td.Hub(tmp_path / "hub", name="h", options=JournalOptions(roll_records=6)) as hub:
        yield hub


def journal(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    return spark.read.format("tidings").load(str(tmp_path / "hub"))


def rows(frame: "DataFrame") -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["offset"])


def test_events(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    camera = hub.client("cam-1")
    camera.set_context(x=1.0, ok=True)
    first = camera.publish({"n": 1, "f": 1.0}, subscribers="x < 100", payload=b"jpg", subject="road")
    second = camera.publish({"s": 'say "$what": no'})
    found = rows(history.events(journal(spark, tmp_path)))
    assert [row["id"] for row in found] == [str(first.event.id), str(second.event.id)]
    assert found[0]["attributes"] == '{"n":1,"f":1.0}'
    assert found[0]["context"] == '{"x":1.0,"ok":true}'
    assert (found[0]["publisher"], found[0]["subject"], bytes(found[0]["payload"])) == ("cam-1", "road", b"jpg")
    assert (found[0]["subscribers"], found[0]["policy"], found[0]["sequence"]) == ("x < 100", None, 1)
    assert [row["offset"] for row in found] == [first.offset, second.offset]
    assert found[0]["published"] == first.event.timestamp


def test_routing_it_gives_what_the_hub_gave(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    car, camera = hub.client("car"), hub.client("cam")
    car.set_context(x=1.0)
    sub = car.subscribe("n > 0", id="s", publishers="x > this.x")
    camera.set_context(x=5.0)
    for number in range(4):
        camera.publish({"n": number})
    car.set_context(x=9.0)
    camera.publish({"n": 7})
    car.set_context(x=2.0)
    camera.publish({"n": 8})
    got = {(str(note.event.id), note.subscription) for note in sub.take()}
    sub.unsubscribe()
    camera.publish({"n": 9})
    frame = journal(spark, tmp_path)
    routed = route(history.events(frame), history.subscriptions(frame), contexts=history.contexts(frame))
    assert {(row.event_id, one) for row in routed.matches.collect() for one in row.subscriptions} == got
    assert len(got) == 4


def test_routing_it_under_the_policies_of_their_time_gives_what_the_hub_gave(
    spark: "SparkSession", tmp_path: Path, hub: td.Hub
) -> None:
    car, bus, camera = hub.client("car"), hub.client("bus"), hub.client("cam")
    inboxes = [car.subscribe("n > 0", id="s", policy=td.policies.trim()), bus.subscribe("m > 0", id="t")]
    steps: list[tuple[Any, str, Any]] = [
        (bus, "t", td.policies.remove("n")),
        (car, "s", None),
        (hub, "s", td.policies.to_json()),
        (bus, "t", td.policies.keep_only("m")),
        (hub, "s", None),
    ]
    for who, name, policy in steps:
        camera.publish({"n": 1, "m": 2, "o": 3})
        who.set_policy(name, policy)
    camera.publish({"n": 1, "m": 2, "o": 3})
    car.subscribe("n > 0 and m > 1", id="s", policy=td.policies.remove("o"))  # in its place
    camera.publish({"n": 1, "m": 2, "o": 3})
    due = {
        (str(note.event.id), note.subscription, tuple(sorted(note.attributes.items())), note.payload)
        for inbox in inboxes
        for note in inbox.take()
    }
    frame = journal(spark, tmp_path)
    routed = route(
        history.events(frame),
        history.subscriptions(frame),
        policies=history.policies(frame),
        settings=Settings(name=hub.name),
    )
    got = {
        (
            row["event_id"],
            row["subscription_id"],
            tuple(sorted(json.loads(row["attributes"]).items())),
            row["payload"] and bytes(row["payload"]),
        )
        for row in routed.notifications.collect()
    }
    assert got == due
    assert len({attributes for _, _, attributes, _ in due}) > 3
    assert routed.rejected.count() == 0


def test_meta_events_are_left_out_unless_they_are_asked_for(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    everything = hub.client("log").subscribe("", limit=1)
    for number in range(3):
        hub.client("cam-1").publish({"n": number})
    assert everything.lost
    rows_of = journal(spark, tmp_path)
    told = {row["publisher"] for row in rows(history.events(rows_of, meta=True))}
    assert told == {"cam-1", "h"}
    assert {row["publisher"] for row in rows(history.events(rows_of))} == {"cam-1"}


def test_subscriptions_hold_until_they_are_changed_taken_back_or_left(
    spark: "SparkSession", tmp_path: Path, hub: td.Hub
) -> None:
    car, bus = hub.client("car"), hub.client("bus")
    car.subscribe("n > 1", id="a", publishers="x > this.x", subject="road")
    car.subscribe("n > 2", id="a")  # in its place
    car.subscribe("n > 3", id="b", durable="mine")
    bus.subscribe("n > 4", id="c")
    car.subscribe("n > 5", id="d").unsubscribe()
    car.close()
    hub.client("car").subscribe("n > 6", id="a")
    hub.client("car").unsubscribe("b")
    frame = journal(spark, tmp_path)
    found = rows(history.subscriptions(frame))
    at = {row["offset"]: row["timestamp"] for row in rows(frame)}
    assert [(row["id"], row["content"], row["since"]) for row in found] == [
        *(("a", "n > 1", at[0]), ("a", "n > 2", at[1]), ("b", "n > 3", at[2]), ("c", "n > 4", at[3])),
        *(("d", "n > 5", at[4]), ("a", "n > 6", at[7])),
    ]
    assert [row["until"] for row in found] == [at[1], at[6], at[8], None, at[5], None]
    assert [row["subscriber"] for row in found] == ["car", "car", "car", "bus", "car", "car"]
    assert (found[0]["publishers"], found[0]["subject"], found[2]["durable"]) == ("x > this.x", "road", "mine")
    now = {row["id"] for row in found if row["until"] is None}
    assert now == {one["id"] for one in rows_of_tables(hub)}


def rows_of_tables(hub: td.Hub) -> list[dict[str, Any]]:
    return [{"id": one.id} for client in ("car", "bus") for one in hub.client(client).subscriptions()]


def test_advertisements(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    camera = hub.client("cam-1")
    camera.advertise("n > 0", publisher_context=["x", "y"], subscriber_context="z > 1", id="one")
    camera.advertise("n > 1", id="two")
    camera.advertise("n > 1", [], id="three")
    camera.unadvertise("one")
    camera.close()
    frame = journal(spark, tmp_path)
    at = {row["offset"]: row["timestamp"] for row in rows(frame)}
    one, two, three = rows(history.advertisements(frame))
    assert [row["publisher_context"] for row in (two, three)] == [None, "[]"]  # all names, and none
    assert (one["publisher"], one["publisher_context"], one["subscriber_context"]) == ("cam-1", '["x","y"]', "z > 1")
    assert [row["until"] for row in (one, two, three)] == [at[3], at[4], at[4]]


def test_contexts_change_and_are_forgotten(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    car, bus = hub.client("car"), hub.client("bus")
    car.set_context(x=1.0, n=1, s='"$load":', ok=False)
    hub.set_load(0.5)
    car.set_context(x=2.0)  # the hub notes the load in this row
    car.let_set_context("gps")
    hub.client("gps").set_context(x=3.0, of="car")
    bus.set_context(x=9.0)
    bus.subscribe("n > 0", id="keeps", durable="mine")
    car.subscribe("n > 0", id="s", durable="mine")
    car.unsubscribe("s")
    bus.close()  # has something durable: its context stays
    car.close()
    frame = journal(spark, tmp_path)
    assert '"$load":0.5' in {row["offset"]: row["body"] for row in rows(frame)}[1]
    found = [(row["client"], json.loads(row["context"]), row["by"]) for row in rows(history.contexts(frame))]
    assert found == [
        ("car", {"x": 1.0, "n": 1, "s": '"$load":', "ok": False}, None),
        ("car", {"x": 2.0}, None),
        ("car", {"x": 3.0}, "gps"),
        ("bus", {"x": 9.0}, None),
        ("car", {}, None),
    ]
    assert hub.client("bus").context == {"x": 9.0}
    assert hub.client("car").context == {}


def test_policies_are_in_force_until_another_comes_or_the_filter_goes(
    spark: "SparkSession", tmp_path: Path, hub: td.Hub
) -> None:
    one, two, three = (str(td.policies.remove(name)) for name in ("a", "b", "c"))
    car = hub.client("car")
    car.subscribe("n > 0", id="s", policy=one)  # 0
    hub.set_policy("s", two)  # 1: the operator's, beside it
    car.set_policy("s", three)  # 2
    car.subscribe("n > 1", id="s")  # 3: in its place, with the policy that was set; the operator's stays
    hub.set_policy("s", None)  # 4
    hub.set_policy("s", one)  # 5
    hub.client("cam-1").advertise("n > 0", id="ad", policy=two)  # 6
    car.close()  # 7
    frame = journal(spark, tmp_path)
    at = {row["offset"]: row["timestamp"] for row in rows(frame)}
    found = [(row["id"], row["policy"], row["since"], row["until"], row["by"]) for row in rows(history.policies(frame))]
    assert found == [
        ("s", one, at[0], at[2], "car"),
        ("s", two, at[1], at[4], "h"),
        ("s", three, at[2], at[3], "car"),
        ("s", three, at[3], at[7], "car"),
        ("s", one, at[5], at[7], "h"),
        ("ad", two, at[6], None, "cam-1"),
    ]


def test_schemas(spark: "SparkSession", tmp_path: Path, hub: td.Hub) -> None:
    loop = td.Schema("Loop", {"li": int})
    hub.schema(loop)
    hub.client("car").schema(loop.extend({"lo": str}))
    one, two = rows(history.schemas(journal(spark, tmp_path)))
    assert (one["subject"], json.loads(one["versions"]), one["by"]) == ("Loop", [{"li": "int"}], "h")
    assert (json.loads(two["versions"]), two["by"]) == ([{"li": "int"}, {"lo": "str"}], "car")
    assert (one["until"], two["until"]) == (two["since"], None)


def a_step(hub: td.Hub, chance: random.Random) -> None:
    """Anything that a client or the operator may do; what the hub refuses changes nothing."""
    client = hub.client(chance.choice(["car", "bus", "cam"]))
    about = chance.choice(["a", "b", "c", "d"])
    content = f"n > {chance.randrange(100)}"
    policy = chance.choice([None, str(td.policies.remove("x")), str(td.policies.remove("y"))])
    match chance.randrange(10):
        case 0 | 1 | 2:
            client.subscribe(content, id=about, policy=policy)
        case 3:
            client.subscribe(content, durable=chance.choice(["one", "two"]), policy=policy)
        case 4:
            held = client.subscriptions()
            client.unsubscribe(held[0].id if held else about)
        case 5:
            client.advertise(content, id=f"ad-{about}", policy=policy)
        case 6:
            client.unadvertise(f"ad-{about}")
        case 7:
            client.set_context({chance.choice("xyz"): chance.choice([1, 1.5, "one", True])})
        case 8:
            chance.choice([hub, client]).set_policy(chance.choice([about, f"ad-{about}"]), policy)  # type: ignore[attr-defined]
        case _:
            client.close()


@pytest.mark.parametrize("seed", range(sized(1, 2)))
def test_at_every_moment_it_says_what_the_hub_had(
    spark: "SparkSession", tmp_path: Path, hub: td.Hub, seed: int
) -> None:
    chance, moments = random.Random(seed), {}
    for _ in range(150):
        with contextlib.suppress(td.RefusedError, td.InvalidValueError):
            a_step(hub, chance)
        moments[hub.stats().offset - 1] = hub.tables()
    frame = spark.read.format("tidings").option("kinds", history.CONTROL).load(str(tmp_path / "hub"))
    at = {row["offset"]: row["timestamp"] for row in rows(journal(spark, tmp_path))}
    subscribed, advertised, contexts, governed = (
        rows(make(frame))
        for make in (history.subscriptions, history.advertisements, history.contexts, history.policies)
    )
    assert len(moments) > 60
    for offset, tables in moments.items():
        if offset < 0:
            continue
        now = at[offset]

        def held(found: list[dict[str, Any]], now: Any = now) -> list[dict[str, Any]]:
            return [row for row in found if row["since"] <= now and (row["until"] is None or now < row["until"])]

        assert {(row["id"], row["subscriber"], row["content"]) for row in held(subscribed)} == {
            (one.id, one.subscriber, str(one.content)) for one in tables.subscriptions
        }
        assert {(row["id"], row["publisher"], row["content"]) for row in held(advertised)} == {
            (one.id, one.publisher, str(one.content)) for one in tables.advertisements
        }
        latest = {row["client"]: json.loads(row["context"]) for row in contexts if row["timestamp"] <= now}
        assert {name: one for name, one in latest.items() if one} == tables.contexts
        owners = {(row["id"], row["policy"]) for row in held(governed) if row["by"] != "h"}
        assert owners == set(tables.policies.items())
        operators = {(row["id"], row["policy"]) for row in held(governed) if row["by"] == "h"}
        assert operators == set(tables.operator_policies.items())


def test_the_plans_hold_no_python_and_one_shuffle_a_window_key(
    spark: "SparkSession", tmp_path: Path, hub: td.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.client("car").set_context(x=1.0)
    frame = journal(spark, tmp_path)
    shuffles = {}
    every = (history.subscriptions, history.advertisements, history.contexts, history.policies, history.schemas)
    for make in (history.events, *every):
        make(frame).explain()
        plan = capsys.readouterr().out
        assert "PythonUDF" not in plan
        assert "CartesianProduct" not in plan
        assert plan.count("BatchScan") == 1
        shuffles[make.__name__] = plan.count("Exchange ")
    assert shuffles == {
        "events": 0,
        "subscriptions": 1,
        "advertisements": 1,
        "contexts": 1,
        "schemas": 1,
        "policies": 2,  # by client, and by what a policy is of
    }


def test_what_is_no_journal_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(td.InvalidValueError, match="there is no column 'body'"):
        history.events(spark.range(1))

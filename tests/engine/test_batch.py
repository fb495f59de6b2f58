"""Batches by example: the forms that events come in, what stands in the result, and what a batch refuses."""

import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.effects import Deliver, Reject
from tidings.engine.matcher import NaiveMatcher
from tidings.engine.operations import Advertise, Join, Publish, SetPolicy, Subscribe, Trust
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.errors import InvalidValueError
from tidings.model.identity import uuid7
from tidings.model.subscription import Subscription
from tidings.policy import presets

IDS = [uuid7(now, bytes(10)) for now in range(1, 5)]
ROWS: list[dict[str, Any]] = [{"a": 1, "b": 0.5}, {"a": 2, "c": "x"}, {"c": "y"}, {"a": 3, "b": 1.5, "c": "x"}]
AUTHENTICATED = """PolicyStatement { On(Forward, Publication) {
    If { AuthenticateReceiver('friends') } Then {} Elseif {} Then { BlockMessage() } } }"""
TELLING = (
    "PolicyStatement { On(Forward, Publication) { If {} Then { Publish('[class,DropMessage],[was,$Message]') } } }"
)


@pytest.fixture(autouse=True)
def _always_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 0)


def engine(*contents: str, policy: str | None = None, **settings: Any) -> Engine:
    """Subscriptions s0, s1, ... of the clients c0, c1, ..."""
    made = Engine(Settings(**settings))
    for number, content in enumerate(contents):
        subscribe(made, content, f"s{number}", f"c{number}", policy=policy)
    return made


def subscribe(made: Engine, content: str, name: str, client: str, **more: Any) -> None:
    made.handle(Subscribe(Subscription.of(Filter.parse(content), id=name, subscriber=client, **more)), 0)


def table(rows: list[dict[str, Any]] = ROWS, **more: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "id": [str(one) for one in IDS[: len(rows)]],
        "timestamp": range(1, 1 + len(rows)),
        "publisher": ["p"] * len(rows),
        **{name: [one.get(name) for one in rows] for name in ("a", "b", "c")},
    }
    return pa.table({**columns, **more})


def whole(attributes: Any) -> pa.Table:
    return table(attributes=attributes).drop_columns(["a", "b", "c"])


def pairs(given: pa.Table) -> list[tuple[int, str]]:
    return list(zip(given["event"].to_pylist(), given["subscription"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "given",
    [
        table(),
        whole(pa.array(ROWS, pa.struct([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())]))),
        whole([json.dumps(one) for one in ROWS]),
        table(id=pa.array([one.bytes for one in IDS], pa.binary(16))),
        table(id=pa.array([one.bytes for one in IDS], pa.binary())),
        table(timestamp=pa.array(range(1, 5), pa.timestamp("us", tz="UTC"))),
        table(timestamp=pa.array([1000, 2000, 3000, 4000], pa.timestamp("ns"))),
        table(c=pa.array([one.get("c") for one in ROWS]).dictionary_encode()),
    ],
    ids=["columns", "struct", "json", "id of 16 bytes", "id of bytes", "timestamps", "nanoseconds", "dictionary"],
)
def test_the_forms_of_events(given: pa.Table) -> None:
    found = engine("a >= 2", "c = 'x' or b < 1").batch(given)
    assert pairs(found.matches) == [(0, "s1"), (1, "s0"), (1, "s1"), (3, "s0"), (3, "s1")]
    assert set(found.matches["shape"].to_pylist()) == {0}
    notes = found.notifications().to_pylist()
    assert [json.loads(one["attributes"]) for one in notes] == [ROWS[0], ROWS[1], ROWS[1], ROWS[3], ROWS[3]]
    event = found.effects()[3][0].notification.event  # type: ignore[union-attr]
    assert (event.id, event.timestamp, event.publisher) == (IDS[3], 4, "p")


def test_a_map_has_values_of_one_kind() -> None:
    given = whole(pa.array([[("a", 1)], [("a", 2)], [], None], pa.map_(pa.string(), pa.int64())))
    assert pairs(engine("a = 2", "").batch(given).matches) == [(0, "s1"), (1, "s0"), (1, "s1"), (2, "s1"), (3, "s1")]


def test_shapes_are_the_distinct_decisions() -> None:
    made = engine("a >= 0", "a >= 1", policy=str(presets.trim()))
    subscribe(made, "a >= 0", "s2", "c2", policy=str(presets.remove("a", convert="json")))
    found = made.batch(table())
    assert found.matches.num_rows == 9
    assert found.shapes.select(["keeps", "removes", "conversion"]).to_pylist() == [
        {"keeps": None, "removes": [], "conversion": None},
        {"keeps": None, "removes": ["a"], "conversion": "json"},
        {"keeps": ["a"], "removes": [], "conversion": None},
    ]
    first, second, third = found.notifications().to_pylist()[:3]
    assert (first["attributes"], second["attributes"], third["attributes"]) == ('{"a":1}', '{"a":1}', '{"b":0.5}')
    assert json.loads(third["payload"])["attributes"] == {"b": 0.5}


def test_rows_that_hold_no_event_are_rejected_and_the_others_are_not() -> None:
    given = table(
        b=[float("nan"), 1.0, 1.0, 1.0],
        id=[str(IDS[0]), "no id", str(UUID(int=5)), str(IDS[3])],
        subscribers=[None, None, None, "x >"],
    )
    found = engine("").batch(given)
    assert found.matches.num_rows == 0
    assert [(one["event"], one["step"]) for one in found.rejected.to_pylist()] == [(row, "admit") for row in range(4)]
    reasons = found.rejected["reason"].to_pylist()
    assert "not a finite number" in reasons[0]
    assert "UUIDv7" in reasons[1]
    assert "UUIDv7" in reasons[2]
    assert pairs(engine("").batch(table(b=[float("inf"), 1.0, 1.0, 1.0])).matches) == [(1, "s0"), (2, "s0"), (3, "s0")]


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("column", ["attributes", "context"])
def test_a_text_that_is_no_object_is_the_problem_of_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, few: int, column: str
) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", few)
    texts = ['{"a": 1}', '{"a": ', "[1]", '{"a": 2}']
    given = whole(['{"a": 1}'] * 4)
    given = given.drop_columns([column]) if column in given.column_names else given
    found = engine("a >= 1" if column == "attributes" else "").batch(given.append_column(column, pa.array(texts)))
    assert pairs(found.matches) == [(0, "s0"), (3, "s0")]
    first, second = found.rejected.to_pylist()
    assert (first["event"], second["event"]) == (1, 2)
    assert first["reason"].startswith(f"{column}: not JSON: ")
    assert second["reason"] == f"{column}: must be a JSON object"


def test_what_drivers_note_for_themselves_is_passed_over_and_what_nobody_knows_is_not() -> None:
    kinds = ["publish", "passed", "debts", "publish"]
    given = table(kind=kinds, client=[None] * 4, body=[None] * 4)
    batch = engine("a > 0 or c = 'y'").batch(given)
    assert batch.matches["event"].to_pylist() == [0, 3]
    assert batch.rejected.num_rows == 0
    assert [len(one) for one in batch.effects()] == [1, 0, 0, 1]
    unknown = engine("a > 0").batch(given.set_column(given.schema.get_field_index("kind"), "kind", [["$lost"] * 4]))
    reasons = unknown.rejected["reason"].to_pylist()
    assert len(reasons) == 4
    assert all("a row of the kind '$lost' holds no operation of an engine" in one for one in reasons)


def test_what_is_not_admitted_is_rejected_with_the_words_of_handle() -> None:
    made = engine("", advertisements_required=True)
    made.handle(Advertise(Advertisement.of(Filter.parse("a > 1"), id="ad", publisher="p")), 0)
    given = table(policy=[None, None, None, "On(Nothing)"])
    given = given.append_column("class", pa.array(["x", "DropMessage", None, None]))
    found = made.batch(given)
    expected = [made.handle(Publish(found.event(row)), row + 1) for row in range(4)]
    assert [bool(one) and isinstance(one[0], Reject) for one in expected] == [True] * 4
    assert found.effects() == expected


def test_a_copy_that_needs_an_answer_is_withheld_and_nothing_waits() -> None:
    made = engine("a >= 0", "a >= 0", policy=AUTHENTICATED)
    made.handle(Trust("c0", "friends", member=True, until=3), 0)
    found = made.batch(table())
    assert pairs(found.matches) == [(0, "s0"), (1, "s0")]
    asked = [(one["event"], one["party"], one["group"]) for one in found.asks.to_pylist()]
    assert asked == [(0, "c1", "friends"), (1, "c1", "friends"), (3, "c0", "friends"), (3, "c1", "friends")]
    assert not made.deferred
    for client in ("c0", "c1"):
        made.handle(Trust(client, "friends", member=client == "c1", until=100), 0)
    assert pairs(made.batch(table()).matches) == [(0, "s1"), (1, "s1"), (3, "s1")]


def test_meta_events_are_numbered_on_and_their_deliveries_are_matches() -> None:
    made = engine("a = 1", policy=TELLING)
    subscribe(made, "class = 'DropMessage'", "m", "watcher")
    found = made.batch(table())
    assert pairs(found.matches) == [(0, "s0"), (4, "m")]
    (told,) = found.meta_events.to_pylist()
    assert (told["event"], told["cause"]) == (4, 0)
    assert json.loads(told["attributes"]) == {"class": "DropMessage", "was": "[a,1],[b,0.5]"}
    assert [type(one).__name__ for one in found.effects()[0]] == ["Deliver", "MetaEventPublished", "Deliver"]


def test_together_a_client_gets_one_notification() -> None:
    made = engine()
    for name in ("s0", "s1"):
        subscribe(made, "a = 1", name, "c", notify="client")
    found = made.batch(table())
    assert pairs(found.matches) == [(0, "s0"), (0, "s1")]
    assert found.notifications()["subscriptions"].to_pylist() == [["s0", "s1"]]


def test_what_was_delivered_stays_so_whatever_changes_afterwards() -> None:
    made = engine("a = 1")
    found = made.batch(table())
    before = found.effects()
    made.handle(SetPolicy("c0", "s0", str(presets.trim())), 9)
    subscribe(made, "a = 2", "s0", "c0", durable="d")
    assert found.effects() == before
    (delivered,) = before[0]
    assert isinstance(delivered, Deliver)
    assert delivered.durable is None


def test_few_are_taken_one_by_one_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine("a >= 0", policy=str(presets.trim()))
    in_columns = made.batch(table()).effects()
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 100)
    assert made.batch(table()).effects() == in_columns


def test_nothing_in_nothing_out() -> None:
    found = engine("").batch(table().slice(0, 0))
    assert (found.matches.num_rows, found.notifications().num_rows, found.effects()) == (0, 0, [])


def test_what_a_batch_refuses() -> None:
    made = engine("")
    with pytest.raises(InvalidValueError, match="no column publisher"):
        made.batch(table().drop_columns(["publisher"]))
    with pytest.raises(InvalidValueError, match="d: a column is of booleans, numbers or strings"):
        made.batch(table(d=pa.array([b"", b"", b"", b""])))
    with pytest.raises(InvalidValueError, match="not both: a"):
        made.batch(table(attributes=["{}"] * 4))
    with pytest.raises(InvalidValueError, match="needs the index"):
        Engine(matcher=NaiveMatcher()).batch(table())
    made.handle(Join("other"), 0)
    with pytest.raises(InvalidValueError, match="without neighbours"):
        made.batch(table())


def test_a_firewall_of_the_broker_stops_events_for_everyone_and_tells_nothing() -> None:
    made = engine("", "a >= 0")
    subscribe(made, "a > 1", "wall", "hub", policy=str(presets.firewall(strict=False)))
    found = made.batch(table())
    assert pairs(found.matches) == [(0, "s0"), (0, "s1"), (2, "s0")]
    assert found.effects() == [made.handle(Publish(found.event(row)), row + 1) for row in range(4)]
    (why,) = made.explain(found.event(1), subscription="s0")
    assert not why.delivered
    assert "wall" in why.reason

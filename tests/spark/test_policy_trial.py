"""A policy, tried on history: what would have changed is what an engine with and without it gives."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidings as td
from tests.engine.messages import advertise
from tests.sizes import variants
from tests.spark.lives import NAME, lived, written
from tidings.engine import Engine, Settings, journal_codec
from tidings.engine.effects import Deliver
from tidings.engine.operations import Advertise, Publish, SetPolicy, Subscribe
from tidings.journal import Journal
from tidings.spark import history, try_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BLOCK = "PolicyStatement { On(Publication) { If {StrictMatch()} Then {BlockMessage()} } }"
Given = dict[tuple[str, str], tuple[str, bytes | None]]


def given(folder: Path, policy: Any = None, on: str | None = None, *, tried: bool, as_owner: bool = False) -> Given:
    """By event and subscription what an engine gives, one operation after the other."""
    engine, found = Engine(Settings(name=NAME)), Given()
    if tried and on is None:
        engine.handle(advertise("$trial", "", NAME, policy), 0)
    with Journal.open(folder) as journal:
        rows = [one for one in journal.read() if one.operation.kind != "persist"]
    for row in rows:
        operation = journal_codec.operation(row.operation)
        if isinstance(operation, Publish) and operation.journey.meta:
            continue
        is_set = isinstance(operation, SetPolicy) and operation.id == on
        if tried and is_set and (row.operation.client == NAME) != as_owner:
            continue
        for effect in engine.handle(operation, row.timestamp):
            if isinstance(effect, Deliver) and isinstance(operation, Publish):
                note = effect.notification
                if note.event.id == operation.event.id:
                    for name in note.subscriptions or (note.subscription,):
                        found[str(note.event.id), name] = written(note.attributes), note.payload
        begun = operation.subscription if isinstance(operation, Subscribe) else None
        begun = operation.advertisement if isinstance(operation, Advertise) else begun  # type: ignore[assignment]
        if tried and begun is not None and begun.id == on:
            owner = row.operation.client or ""
            engine.handle(SetPolicy(owner if as_owner else NAME, on or "", policy), row.timestamp)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("life") / "hub"
    lived(made, 2)
    return made


@pytest.fixture(scope="module")
def journal(spark: "SparkSession", folder: Path) -> "DataFrame":
    return history.read(spark, str(folder)).cache()


@pytest.fixture(scope="module")
def small(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "DataFrame":
    made = tmp_path_factory.mktemp("small") / "hub"
    with td.Hub(made, name=NAME) as hub:
        hub.client("car").subscribe("n > 0", id="s")
        hub.client("bus").subscribe("", id="t")
        for said in ({"n": 1, "m": 1}, {"n": 2}, {"n": 0, "m": 3}, {"n": 4}):
            hub.client("cam").publish(said)
    return history.read(spark, str(made)).cache()


@pytest.mark.parametrize(
    ("policy", "on", "as_owner"),
    variants(
        3,
        [
            (str(td.policies.remove("n")), "ad-b-car", False),
            (BLOCK, "a-bus", True),
            (None, "b-car", True),
            (str(td.policies.remove("x")), None, False),
            (None, "b-cam", False),
            (str(td.policies.keep_only("n")), "c-car", False),
        ],
    ),
)
def test_what_would_change_is_what_engines_give(
    journal: "DataFrame", folder: Path, policy: str | None, on: str | None, as_owner: bool
) -> None:
    before = given(folder, tried=False)
    after = given(folder, policy, on, tried=True, as_owner=as_owner)
    trial = try_policy(journal, policy, on, as_owner=as_owner)
    found = {(row["event_id"], row["subscription_id"]): row for row in trial.compared.collect()}
    assert found.keys() == before.keys() | after.keys()
    for key, row in found.items():
        sides = before.get(key), after.get(key)
        kinds = {(False, True): "gained", (True, False): "lost"}
        changed = kinds.get((sides[0] is not None, sides[1] is not None), "altered")
        assert row["change"] == (None if sides[0] == sides[1] else changed)
        for side, name in zip(sides, ("before", "after"), strict=True):
            payload = row[f"payload_{name}"]
            said = None if row[name] is None else (written(json.loads(row[name])), payload and bytes(payload))
            assert said == side
    assert before != after


def test_counts_and_a_few_examples(small: "DataFrame") -> None:
    trial = try_policy(small, BLOCK, "s")
    counts = {row["subscription_id"]: row.asDict() for row in trial.per_subscription.collect()}
    names = ("subscriber", "before", "after", "lost", "gained", "altered")
    assert [counts["s"][name] for name in names] == ["car", 3, 1, 2, 0, 0]
    assert [counts["t"][name] for name in names] == ["bus", 4, 4, 0, 0, 0]
    trimmed = try_policy(small, td.policies.remove("m"))
    examples = trimmed.examples(1).collect()
    assert [(row["change"], row["before"], row["after"]) for row in examples] == [
        ("altered", '{"n":1,"m":1}', '{"n":1}')
    ]
    assert trimmed.changes.count() == 3


def test_what_cannot_be_tried_is_refused(small: "DataFrame") -> None:
    inserting = "PolicyStatement { On(Insert, Subscription) { If {} Then {Log()} } }"
    with pytest.raises(td.RefusedError, match="no subscription or advertisement nobody"):
        try_policy(small, BLOCK, "nobody")
    with pytest.raises(td.RefusedError, match="cannot be associated with a subscription"):
        try_policy(small, inserting, "s")
    with pytest.raises(td.PolicyError):
        try_policy(small, "PolicyStatement {", "s")
    for policy, as_owner in ((None, False), (BLOCK, True)):
        with pytest.raises(td.InvalidValueError, match="by the id of its filter"):
            try_policy(small, policy, as_owner=as_owner)

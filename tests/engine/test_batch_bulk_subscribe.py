"""Subscriptions that come together: the same as one by one, on a shelf and off it."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.mapped_table import load, save
from tidings.engine.operations import Advertise, Define, Disconnect, SetPolicy, Subscribe
from tidings.filters import Filter
from tidings.model.advertisement import Advertisement
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_FILTER_CHARACTERS, MAX_NAME_CHARACTERS
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.policy import presets

SUBSCRIPTIONS: list[tuple[str | None, str | None, Any]] = [
    ("s1", "ann", {"content": "a = 1"}),
    ("s2", "ann", {"content": "a >", "$note": 1}),
    ("s3", "bob", {"content": "a = 1", "publishers": "x > this.x"}),
    ("s4", "bob", {"content": "a = 1", "publishers": "x >"}),
    ("s1", "ann", {"content": "a = 2"}),
    ("s1", "bob", {"content": "a = 1"}),
    ("$s", "bob", {"content": "a = 1"}),
    ("known", "cyd", {"content": "a = 1"}),
    ("known", "bob", {"content": "a = 3"}),
    ("offer", "ann", {"content": "a = 1"}),
    ("s5", None, {"content": "a = 1"}),
    ("s5", "n" * (MAX_NAME_CHARACTERS + 1), {"content": "a = 1"}),
    (None, "ann", {"content": "a = 1"}),
    ("", "ann", {"content": "a = 1"}),
    ("s6", "ann", {"content": "a = 1", "notify": "client"}),
    ("s7", "ann", {"content": "a = 1", "notify": "nobody"}),
    ("s8", "ann", {"content": "a = 1", "durable": "d"}),
    ("s9", "ann", {"content": "a = 1", "policy": str(presets.trim())}),
    ("s10", "ann", {"content": "a = 1", "policy": "On(Nothing)"}),
    ("s11", "ann", {"content": "/e[a=1]", "format": "xpath"}),
    ("s12", "ann", {"content": 1}),
    ("s13", "ann", {}),
    ("s14", "ann", "broken"),
    ("s15", "ann", {"content": "a = 1 " + "or a = 1 " * MAX_FILTER_CHARACTERS}),
    ("s16", "hub", {"content": "a = 1"}),
    ("s17", "ann", {"content": "a = 1", "subject": "S"}),
    ("s18", "ann", {"content": "b = 1", "subject": "S"}),
]
EVENT = {"kind": "publish", "id": str(uuid7(1, bytes(10))), "publisher": "p", "a": 1, "timestamp": 2}


def table() -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "kind": "subscribe",
            "id": name,
            "client": client,
            "body": said if isinstance(said, str) else msgspec.json.encode(said).decode(),
            "timestamp": 1,
        }
        for name, client, said in SUBSCRIPTIONS
    ]
    names = {"kind": pa.string(), "id": pa.string(), "client": pa.string(), "publisher": pa.string()}
    kinds = {**names, "body": pa.string(), "timestamp": pa.int64(), "a": pa.int64()}
    return pa.Table.from_pylist([*rows, EVENT], pa.schema(list(kinds.items())))


def engine(folder: Path | None, *, schema: bool, rule: bool) -> Engine:
    made = Engine()
    made.handle(Subscribe(Subscription.of(Filter.parse("a = 1"), id="known", subscriber="bob")), 0)
    made.handle(SetPolicy(made.state.name, "known", str(presets.trim())), 0)
    policy = "PolicyStatement { On(Insert, Subscription) { If {} Then { UninsertMessage() } } }" if rule else None
    offer = Advertisement.of(Filter.parse("a = 1"), id="offer", publisher="ann", policy=policy)
    made.handle(Advertise(offer), 0)
    if schema:
        made.handle(Define("ann", Schema("S", {"a": int})), 0)
    if folder is None:
        return made
    save(made, folder)
    return load(Settings(), folder)


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize("schema", [False, True])
@pytest.mark.parametrize("shelved", [False, True])
def test_those_that_come_together_are_let_in_or_refused_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shelved: bool, schema: bool, rule: bool
) -> None:
    found = []
    for few in (0, 1_000):
        monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", few)
        folder = tmp_path / str(few)
        made = engine(folder if shelved else None, schema=schema, rule=rule)
        batch = made.batch(table())
        effects, known, policies = (
            batch.effects(),
            [one.id for one in made.state.filters.subscriptions],
            made.tables().policies,
        )
        made.handle(Disconnect("ann"), 3)
        assert sorted(one.id for one in made.state.filters.subscriptions.of("ann")) == (
            ["s8"] if "s8" in known else []
        )  # durable
        found.append((effects, sorted(known), policies))
    assert found[0] == found[1]
    refused = [row for row, effects in enumerate(found[0][0]) if effects and "Reject" in type(effects[0]).__name__]
    assert {1, 3, 5, 6, 7, 10, 11, 12, 13, 15, 18, 20, 22, 23} <= set(refused)
    if not rule:
        assert {"s1", "s3", "s6", "s8", "s9", "s11", "s13", "s16", "s17"} <= set(found[0][1])


def test_they_count_for_the_events_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 0)
    made = engine(None, schema=False, rule=False)
    subscribed = table().slice(0, 1)
    event = table().slice(len(SUBSCRIPTIONS), 1)
    found = made.batch(pa.concat_tables([event, subscribed, event])).matches
    assert found["subscription"].to_pylist() == ["known", "known", "s1"]

"""Contexts that change between the events of a batch, by example: the forms in which they come, and what is refused."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tidings.engine import Engine
from tidings.engine.batch import publication_run
from tidings.engine.operations import DelegateContext, SetContext, Subscribe
from tidings.filters import ContextFilter, Filter
from tidings.matching.index.spatial import group
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_CONTEXT_COLUMNS, MAX_STRING_CHARACTERS
from tidings.model.subscription import Subscription
from tidings.model.values import Context

NEAR = "x between this.x - 1 and this.x + 1"
Row = tuple[str, Any]  # "publish" and the publisher's x, or a client and its context


@pytest.fixture(autouse=True)
def _always_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 0)


def engine(*clients: str, publishers: str | None = NEAR, policy: str | None = None) -> Engine:
    """A subscription of each client."""
    made = Engine()
    wanted = None if publishers is None else ContextFilter.parse(publishers)
    for client in clients:
        content = Filter.parse("a >= 0")
        one = Subscription.of(content, id=f"s-{client}", subscriber=client, publishers=wanted, policy=policy)
        made.handle(Subscribe(one), 0)
    return made


def table(rows: list[Row], context: pa.DataType | None = None, **more: Any) -> pa.Table:
    """Contexts as JSON text in `body`, or in the column `context`, of that type."""
    columns: dict[str, list[Any]] = {
        "kind": ["publish" if kind == "publish" else "set_context" for kind, _ in rows],
        "id": [str(uuid7(now, bytes(10))) if kind == "publish" else None for now, (kind, _) in enumerate(rows, 1)],
        "publisher": ["p" if kind == "publish" else None for kind, _ in rows],
        "client": [None if kind == "publish" else kind for kind, _ in rows],
        "timestamp": list(range(1, len(rows) + 1)),
        "a": [1 if kind == "publish" else None for kind, _ in rows],
        "body": [None] * len(rows),
        **more,
    }
    if context is None:
        columns["body"] = [None if kind == "publish" else json.dumps(said) for kind, said in rows]
    said: list[Any] = [{"x": float(one)} if kind == "publish" else one if context else None for kind, one in rows]
    if context is not None and (pa.types.is_string(context) or pa.types.is_large_string(context)):
        said = [json.dumps(one) for one in said]
    if context is not None and pa.types.is_map(context):
        said = [list(one.items()) for one in said]
    kind = context or pa.struct([("x", pa.float64())])
    return pa.table({**columns, "body": pa.array(columns["body"], pa.string()), "context": pa.array(said, kind)})


def pairs(made: Engine, given: pa.Table) -> list[tuple[int, str]]:
    found = made.batch(given).matches
    return list(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True))


ROWS: list[Row] = [
    ("publish", 0),
    ("ann", {"x": 0.0}),
    ("publish", 0),
    ("bob", {"x": 1.0}),
    ("ann", {"x": 5.0}),
    ("publish", 0),
    ("publish", 5),
    ("ann", {}),
    ("publish", 5),
    ("bob", {"x": 7.0}),
]


@pytest.mark.parametrize(
    "context",
    [None, pa.struct([("x", pa.float64())]), pa.map_(pa.string(), pa.float64()), pa.string(), pa.large_string()],
    ids=["JSON in the body", "struct", "map", "JSON", "JSON, large"],
)
@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("many", [20_000, 0])
def test_each_event_meets_the_contexts_of_its_time(
    context: Any, few: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", few)
    monkeypatch.setattr(group, "MANY_CLIENTS", many)  # with none, places are too crowded to be looked at
    made = engine("ann", "bob", "cyd")
    assert pairs(made, table(ROWS, context)) == [(2, "s-ann"), (5, "s-bob"), (6, "s-ann")]
    assert made.state.contexts.local == {"ann": Context(), "bob": Context({"x": 7.0})}
    assert pairs(made, table([("publish", 7), ("publish", 5)])) == [(0, "s-bob")]


def test_columns_of_few_texts_may_be_dictionaries() -> None:
    given = table(ROWS)
    for name in ("kind", "client", "body"):
        given = given.set_column(given.column_names.index(name), name, given[name].dictionary_encode())
    assert pairs(engine("ann", "bob", "cyd"), given) == [(2, "s-ann"), (5, "s-bob"), (6, "s-ann")]


def test_values_are_of_the_kind_that_was_said() -> None:
    said = [{"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {"x": None, "y": 2}, {"z": {"w": 1}}]
    made = engine("ann")
    given = [(f"c{number}", one) for number, one in enumerate(said)]
    assert pairs(made, table([*given, ("ann", {"x": 2, "y": 3.5}), ("publish", 1), *given])) == [(7, "s-ann")]
    expected: list[dict[str, Any]] = [{"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {"y": 2}, {"z.w": 1}]
    assert [made.state.contexts.local[f"c{number}"] for number in range(6)] == [Context(one) for one in expected]


def test_a_long_text_is_counted_in_characters() -> None:
    made, text = engine("ann"), "ä" * MAX_STRING_CHARACTERS
    rows: list[Row] = [("bob", {"x": text}), ("ann", {"x": 1.0, "y": 1}), ("ann", {"y": 1.5}), ("publish", 1)]
    for given in (rows, rows[:1], [*rows, ("cyd", {"x": text + "ä"})]):
        batch = made.batch(table(given))
        assert made.state.contexts.local["bob"] == Context({"x": text})
        assert batch.rejected["event"].to_pylist() == ([4] if len(given) > 4 else [])
    assert made.state.contexts.local["ann"] == Context({"y": 1.5})


BAD: list[tuple[str, str]] = [
    ("ann", '{"x": 1'),
    ("ann", "[1]"),
    ("ann", '{"x": 1} {"x": 2}'),
    ("ann", '{"x": [1]}'),
    ("ann", '{"x": 1e400}'),
    ("ann", '{"x": 9223372036854775808}'),
    ("ann", '{"": 1}'),
    ("ann", '{"x":' * 5_000),
    ("ann", '{"x": "%s"}' % ("long" * 100_000)),
    ("", '{"x": 1}'),
    ("n" * 5_000, '{"x": 1}'),
]


@pytest.mark.parametrize(("client", "body"), BAD, ids=range(len(BAD)))
def test_a_row_without_a_context_is_refused_alike_one_by_one_and_together(client: str, body: str) -> None:
    rows: list[Row] = [("ann", {"x": 4.0}), (client, {}), ("publish", 4), ("ann", {"x": 9.0, "$note": 1})]
    given = table(rows)
    bodies = ['{"x": 4.0}', body, None, given["body"][3].as_py()]
    given = given.set_column(given.column_names.index("body"), "body", pa.array(bodies, pa.string()))
    found = []
    for few in (0, 100):
        publication_run.MAX_SINGLE_ROWS = few
        made = engine("ann")
        batch = made.batch(given)
        assert [(one["event"], one["step"]) for one in batch.rejected.to_pylist()] == [(1, "admit")]
        assert made.state.contexts.local == {"ann": Context({"x": 9.0})}
        assert batch.matches.num_rows == 1
        found.append(batch.effects())
    assert found[0] == found[1]


def test_a_number_in_a_column_that_is_not_finite_is_refused() -> None:
    made = engine("ann")
    kind = pa.struct([("x", pa.float64())])
    batch = made.batch(table([("ann", {"x": 3.0}), ("ann", {"x": float("nan")}), ("publish", 3)], kind))
    assert [one["event"] for one in batch.rejected.to_pylist()] == [1]
    assert "not a finite number" in batch.rejected["reason"][0].as_py()
    assert batch.matches["subscription"].to_pylist() == ["s-ann"]


def test_others_set_a_context_only_if_they_are_let() -> None:
    made, rows = engine("ann"), [("ann", {"x": 1.0}), ("ann", {"x": 2.0}), ("publish", 1)]
    made.handle(DelegateContext("ann", "bob"), 0)
    given = table(rows, id=["bob", "cyd", str(uuid7(3, bytes(10)))])
    batch = made.batch(given)
    assert batch.rejected["reason"].to_pylist() == ["ann does not let cyd set its context"]
    assert batch.matches["subscription"].to_pylist() == ["s-ann"]


def test_more_names_than_the_index_has_columns_for() -> None:
    """They are taken one by one, and the index keeps its columns for what filters ask about."""
    made = engine("ann", "bob")
    names = {f"n{number}": number for number in range(MAX_CONTEXT_COLUMNS)}
    rows: list[Row] = [("ann", {"x": 1.0, **names}), ("publish", 1), ("bob", {"x": 1.5}), ("publish", 1)]
    assert pairs(made, table(rows)) == [(1, "s-ann"), (3, "s-ann"), (3, "s-bob")]
    assert made.state.contexts.local["ann"] == Context({"x": 1.0, **names})
    assert pairs(made, table(rows)) == [(1, "s-ann"), (1, "s-bob"), (3, "s-ann"), (3, "s-bob")]


TELLING = "PolicyStatement { On(Forward, Publication) { If {} Then { Publish('[class,DropMessage],[a,1]') } } }"


def test_what_events_tell_meets_the_contexts_of_their_time() -> None:
    """Who is told goes by a context alone: `this` is the one who is told."""
    made = engine("ann", publishers=None, policy=TELLING)
    told = Subscription.of(
        Filter.parse("class = 'DropMessage'"),
        id="s-bob",
        subscriber="bob",
        publishers=ContextFilter.parse("this.x > 2 and x is null"),
    )
    made.handle(Subscribe(told), 0)
    rows: list[Row] = [("publish", 0), ("bob", {"x": 3.0}), ("publish", 0), ("bob", {"x": 1.0}), ("publish", 0)]
    batch = made.batch(table(rows))
    metas = [one["cause"] for one in batch.meta_events.to_pylist()]
    assert metas == [0, 2, 4]
    assert [one for one in batch.matches.to_pylist() if one["subscription"] == "s-bob"] == [
        {"event": len(rows) + 1, "subscription": "s-bob", "shape": 0}
    ]


def test_nothing_is_known_of_a_client_that_was_never_anywhere() -> None:
    made = engine("ann")
    made.handle(SetContext("ann", Context({"x": 1.0})), 0)
    rows: list[Row] = [("zoe", {}), ("ann", {"x": 1.0}), ("publish", 1), ("yan", {"x": 1.0}), ("yan", {})]
    assert pairs(made, table(rows)) == [(2, "s-ann")]
    assert made.state.contexts.local == {"ann": Context({"x": 1.0}), "yan": Context()}
    assert "zoe" not in made.state.contexts.local

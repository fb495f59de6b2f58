"""`batch` is `handle`, but faster: the same effects row by row, and the same engine afterwards, whatever rules say."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.messages import subscribe
from tests.histories import LARGE, histories, own_elements
from tests.sizes import examples
from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.batch.batch import BatchResult
from tidings.engine.effects import Deliver, Effect
from tidings.engine.journal_codec import row
from tidings.engine.operations import Operation, Publish, SetContext, SetLoad, Trust
from tidings.journal.segment import SCHEMA
from tidings.model.event import Event
from tidings.model.identity import ENTROPY_BYTES, uuid7

History = list[tuple[int, Operation]]
_COLUMNS = {"a": pa.int64(), "b": pa.float64(), "c": pa.string(), "class": pa.string()}


@pytest.fixture(scope="module", autouse=True)
def _own_elements() -> Iterator[None]:
    with own_elements():
        yield


@pytest.fixture(autouse=True)
def _always_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 0)


def engine(**more: Any) -> Engine:
    return Engine(Settings(large_message_bytes=LARGE, host="here", govern=frozenset({"cyd"}), **more))


def handled(one: Engine, history: History) -> list[list[Effect]]:
    return [one.handle(operation, now) for now, operation in history]


def journal_table(history: History) -> pa.Table:
    """Operations as rows of a journal."""
    rows = []
    for offset, (now, operation) in enumerate(history):
        said = row(operation)
        fields = {name: getattr(said, name) for name in said.__struct_fields__}
        rows.append({**fields, "journal": "j", "offset": offset, "timestamp": now})
    return pa.Table.from_pylist(rows, SCHEMA)


def columns_table(events: list[Event]) -> pa.Table:
    """Publications with a column an attribute."""
    made: dict[str, Any] = {
        "id": pa.array([str(one.id) for one in events], pa.string()),
        "timestamp": pa.array([one.timestamp for one in events], pa.int64()),
        "publisher": pa.array([one.publisher for one in events]).dictionary_encode(),
        "sequence": pa.array([one.sequence for one in events], pa.int32()),
        "subject": pa.array([one.subject for one in events], pa.string()),
        "payload": pa.array([one.payload for one in events], pa.binary()),
        "context": pa.array(
            [dict(one.context) for one in events], pa.struct([("x", pa.int64()), ("role", pa.string())])
        ),
        "subscribers": pa.array([one.subscribers and str(one.subscribers) for one in events], pa.string()),
        "policy": pa.array([one.policy for one in events], pa.string()),
    }
    for name, kind in _COLUMNS.items():
        made[name] = pa.array([one.attributes.get(name) for one in events], kind)
    return pa.table(made)


def traffic_table(history: History) -> pa.Table:
    """Publications with a column an attribute, and between them contexts as structs."""
    moves = [(row, now, one) for row, (now, one) in enumerate(history) if isinstance(one, SetContext)]
    events = columns_table([one.event for _, one in history if isinstance(one, Publish)])
    events = events.append_column("kind", pa.array(["publish"] * events.num_rows, pa.string()))
    changes = pa.table(
        {
            "id": pa.array([one.by for _, _, one in moves], pa.string()),
            "timestamp": pa.array([now for _, now, _ in moves], pa.int64()),
            "client": pa.array([one.client for _, _, one in moves], pa.string()),
            "kind": pa.array(["set_context"] * len(moves), pa.string()),
            "context": pa.array([dict(one.context) for _, _, one in moves], events.schema.field("context").type),
            "body": pa.nulls(len(moves), pa.string()),
        }
    )
    rows = [row for row, (_, one) in enumerate(history) if isinstance(one, Publish)] + [row for row, _, _ in moves]
    both = pa.concat_tables([events, changes], promote_options="default")
    return both.take(pa.array(sorted(range(len(rows)), key=rows.__getitem__), pa.int64()))


def in_parts(history: History, goes_together: Any) -> Iterator[History]:
    """What can stand in one table, together; everything else alone."""
    part: History = []
    for one in history:
        if goes_together(one[1]):
            part.append(one)
            continue
        if part:
            yield part
        yield [one]
        part = []
    if part:
        yield part


def is_row(operation: Operation) -> bool:
    return not isinstance(operation, SetLoad | Trust)


def is_traffic(operation: Operation) -> bool:
    return isinstance(operation, Publish | SetContext)


def is_publication(operation: Operation) -> bool:
    return isinstance(operation, Publish)


def delivered(effects: list[list[Effect]]) -> list[Any]:
    """What was delivered; as text, which tells 1, 1.0 and true apart."""
    notes = [one.notification for row in effects for one in row if isinstance(one, Deliver)]
    return sorted(
        (
            str(one.subscription),
            one.subscriber,
            one.subscriptions or (one.subscription,),
            repr(sorted(one.attributes.items())),
            repr(one.payload),
            repr(one.trace and [{name: had for name, had in vars_of(hop) if had is not None} for hop in one.trace]),
        )
        for one in notes
    )


def vars_of(hop: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(hop, name)) for name in hop.__struct_fields__]


def noted(batch: BatchResult) -> list[Any]:
    """The same of the columns."""
    return sorted(
        (
            one["subscription"],
            one["subscriber"],
            tuple(one["subscriptions"]),
            repr(sorted(json.loads(one["attributes"]).items())),
            repr(one["payload"]),
            repr(json.loads(one["trace"]) if one["trace"] else ()),
        )
        for one in batch.notifications().to_pylist()
    )


@given(histories(), st.sampled_from([0, 0, 2, 100]))
@examples(15, 240)
def test_a_journal_leads_to_the_same_effects(history: History, few: int) -> None:
    publication_run.MAX_SINGLE_ROWS = few  # so many are taken one by one
    one, other = engine(), engine()
    for part in in_parts(history, is_row):
        expected = handled(one, part)
        if is_row(part[0][1]):
            found = other.batch(journal_table(part))
            assert found.effects() == expected
            assert noted(found) == delivered(expected)
        else:
            assert handled(other, part) == expected
    assert other.save() == one.save()


@given(histories(moving=True), st.sampled_from([0, 0, 0, 5]))
@examples(15, 270)
def test_contexts_that_change_between_events_lead_to_the_same_effects(history: History, few: int) -> None:
    test_a_journal_leads_to_the_same_effects.hypothesis.inner_test(history, few)  # type: ignore[attr-defined]


@given(histories(moving=True, columns=True))
@examples(18, 150)
def test_contexts_in_columns_lead_to_the_same_effects(history: History) -> None:
    one, other = engine(), engine()
    for part in in_parts(history, is_traffic):
        expected = handled(one, part)
        if is_traffic(part[0][1]):
            assert other.batch(traffic_table(part)).effects() == expected
        else:
            assert handled(other, part) == expected
    assert other.tables() == one.tables()
    assert list(other.state.contexts.local) == list(one.state.contexts.local)


@given(histories(columns=True), st.sampled_from([None, frozenset({"bob"})]), st.booleans())
@examples(15, 150)
def test_columns_lead_to_the_same_effects(history: History, observers: Any, required: bool) -> None:
    one, other = (engine(observers=observers, advertisements_required=required) for _ in range(2))
    for part in in_parts(history, is_publication):
        expected = handled(one, part)
        if is_publication(part[0][1]):
            table = columns_table([operation.event for _, operation in part])  # type: ignore[union-attr]
            found = other.batch(table)
            assert found.effects() == expected
            assert noted(found) == delivered(expected)
        else:
            assert handled(other, part) == expected
    assert other.save() == one.save()


@pytest.mark.parametrize(
    ("kind", "id", "client", "body"),
    [
        ("set_context", None, "c", "{broken"),
        ("set_context", None, "c", "[1]"),
        ("set_context", None, "c", '{"x": [1]}'),
        ("set_context", None, None, '{"x": 1}'),
        ("subscribe", "s", "c", '{"content": "n >"}'),
        ("subscribe", None, "c", '{"content": "n > 1"}'),
        ("subscribe", "s", "c", '{"content": 7}'),
        ("set_policy", "s", "c", "{}"),
        ("schema", "s", "c", '{"versions": "x"}'),
        ("advertise", "a", "c", '{"content": "n > 1"}'),
        ("entrust", "d", "c", "{}"),
        ("unheard-of", "a", "c", "{}"),
    ],
)
def test_a_change_that_cannot_be_read_is_refused_and_the_rest_goes_on(
    kind: str,
    id: str | None,  # noqa: A002 - the row's own word
    client: str | None,
    body: str,
) -> None:
    one = engine()
    one.handle(subscribe("other", "n = 1"), 0)
    event = str(uuid7(5_000_000, bytes(ENTROPY_BYTES)))
    rows = [
        {"timestamp": 1, "kind": kind, "id": id, "client": client, "body": body},
        {"timestamp": 5, "kind": "publish", "id": event, "publisher": "p", "attributes": '{"n": 1}'},
    ]
    names = ["timestamp", "kind", "id", "client", "body", "publisher", "attributes"]
    types = [pa.int64(), *[pa.string()] * 6]
    batch = one.batch(pa.Table.from_pylist(rows, pa.schema(list(zip(names, types, strict=True)))))
    assert batch.rejected["event"].to_pylist() == [0]
    assert batch.rejected["reason"][0].as_py()
    assert batch.matches["subscription"].to_pylist() == ["other"]

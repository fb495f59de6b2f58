"""Operations and their exact way through log and segment."""

import math
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.cases import NOW, UnsyncedDisk, event, parse
from tests.sizes import examples
from tests.strategies import conditions, contents, strings
from tidings import ContextFilter
from tidings.journal import Journal, Operation
from tidings.journal.record import decode_operation, encode_operations
from tidings.model import Event, InvalidValueError, uuid7
from tidings.model.limits import MAX_INTEGER

ids = st.builds(uuid7, st.integers(0, 2**47 * 1000), st.binary(min_size=10, max_size=10))
small = st.binary(max_size=20)
events = st.builds(
    Event.of,
    contents,
    id=ids,
    publisher=strings.filter(bool),
    timestamp=st.integers(0, MAX_INTEGER),
    sequence=st.integers(0, MAX_INTEGER),
    subject=st.none() | strings.filter(bool),
    payload=st.none() | small,
    context=contents,
    subscribers=st.none() | st.builds(ContextFilter, conditions(context=True)),
    policy=st.none() | strings,
    token=st.none() | small,
    signature=st.none() | small,
)
bodies = st.dictionaries(
    strings,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | strings,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@examples(35, 910)
@given(st.lists(events, min_size=1, max_size=5), st.lists(bodies, min_size=1, max_size=3))
def test_what_was_put_in_comes_out(given_events: list[Event], given_bodies: list[dict[str, Any]]) -> None:
    operations = [Operation.publication(one) for one in given_events]
    operations += [Operation.control("k", client="c", id="i", body=body, payload=b"\0") for body in given_bodies]
    with tempfile.TemporaryDirectory() as folder, Journal.open(folder, disk=UnsyncedDisk()) as journal:
        journal.commit(operations, NOW)
        from_log = [record.operation for record in journal.read()]
        journal.roll()
        from_segment = [record.operation for record in journal.read()]
        assert len(list(Path(folder, "segments").glob("*.parquet"))) == 1
    assert from_log == from_segment == operations
    number = len(given_events)
    back = [one.event(parse) for one in from_segment[:number]]
    assert [_exact(one) for one in back] == [_exact(one) for one in given_events]
    assert [_typed(one.content()) for one in from_segment[number:]] == [_typed(body) for body in given_bodies]


def _exact(one: Event) -> Any:
    fields = {name: getattr(one, name) for name in Event.__struct_fields__}
    return fields, _typed(dict(one.attributes)), _typed(dict(one.context))


def _typed(value: Any) -> Any:
    """Tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    if isinstance(value, dict):
        return {name: _typed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_typed(one) for one in value]
    sign = math.copysign(1, value) if isinstance(value, float) else None
    return type(value).__name__, value, sign


def test_bytes_of_an_operation() -> None:
    operation = Operation.publication(event(3))
    assert decode_operation(encode_operations([operation])[0]) == operation


def test_a_control_operation_holds_no_event() -> None:
    with pytest.raises(InvalidValueError, match="'subscribe' holds no event"):
        Operation.control("subscribe").event(parse)


@pytest.mark.parametrize("kind", ["", "$lost", "x" * 256, "publish", 3])
def test_kinds_that_are_refused(kind: Any) -> None:
    with pytest.raises(InvalidValueError, match="kind"):
        Operation.control(kind)


@pytest.mark.parametrize(
    "body",
    [
        {"x": math.nan},
        {"x": b"bytes"},
        {"x": (1, 2)},
        {1: 2},
        {"x": "\ud800"},
        {"x": UUID(int=1)},
        {"x": object()},
        [1],
    ],
)
def test_bodies_that_would_not_come_back_are_refused(body: Any) -> None:
    with pytest.raises(InvalidValueError, match="body"):
        Operation.control("k", body=body)


def test_names_that_no_encoding_can_carry_are_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        with pytest.raises(InvalidValueError, match="cannot be written"):
            journal.append([Operation.control("k"), Operation.control("k", client="\udc00")], NOW)
        assert journal.next == 0


def test_the_operation_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.journal.record.MAX_RECORD_BYTES", 100)
    with Journal.open(tmp_path) as journal:
        with pytest.raises(InvalidValueError, match=r"an operation of 2\d\d bytes is over MAX_RECORD_BYTES \(100\)"):
            journal.append([Operation.control("small"), Operation.control("large", payload=bytes(200))], NOW)
        assert journal.next == 0

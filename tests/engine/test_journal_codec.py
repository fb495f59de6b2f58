"""Operations and their rows in a journal: what is written is what is read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import characters, conditions, contents, integers, names, strings, values
from tidings import journal
from tidings.engine import journal_codec
from tidings.engine.headers import CopyChanges, ForwardingHeader
from tidings.engine.operations import (
    Advertise,
    Define,
    DelegateContext,
    Disconnect,
    Operation,
    Publish,
    SetContext,
    SetLoad,
    SetPolicy,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from tidings.filters import ContextFilter, Filter
from tidings.journal.record import decode_operation, encode_operations
from tidings.model import Advertisement, Attributes, Context, Event, InvalidValueError, Schema, Subscription, uuid7
from tidings.model.limits import MAX_INTEGER
from tidings.model.notification import Trace
from tidings.model.schema import AttributeFilter

ids = st.text(characters, min_size=1, max_size=8)
texts = st.none() | strings
contexts = contents.map(Context)
filters = conditions().map(Filter)
context_filters = conditions(context=True).map(ContextFilter)
times = st.integers(0, MAX_INTEGER)
event_ids = st.builds(uuid7, st.integers(0, 1000 * 2**48 - 1), st.binary(min_size=10, max_size=10))
events = st.builds(
    Event,
    id=event_ids,
    publisher=ids,
    timestamp=times,
    sequence=times,
    attributes=contents.map(Attributes),
    subject=st.none() | ids,
    payload=st.none() | st.binary(max_size=9),
    context=contexts,
    subscribers=st.none() | context_filters,
    policy=texts,
    token=st.none() | st.binary(max_size=9),
    signature=st.none() | st.binary(max_size=9),
)
shapes = st.builds(
    CopyChanges,
    st.booleans(),
    st.frozensets(names, max_size=3),
    st.lists(st.tuples(names, values), max_size=3).map(tuple),
    st.lists(st.builds(Trace, ids, texts, st.none() | st.floats(0, 1), st.none() | integers), max_size=2).map(tuple),
    st.none() | st.binary(max_size=9),
)
journeys = st.builds(ForwardingHeader, texts, st.booleans(), shapes, st.dictionaries(ids, shapes, max_size=2))
kinds = st.sampled_from([bool, int, float, str])


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    drawn = draw(st.lists(st.dictionaries(names, kinds, min_size=1, max_size=3), min_size=1, max_size=3))
    schema = Schema(draw(ids), drawn[0])
    for added in drawn[1:]:
        new = {name: kind for name, kind in added.items() if name not in schema.attributes}
        schema = schema.extend(new) if new else schema
    return schema


@st.composite
def structures(draw: st.DrawFn) -> AttributeFilter:
    schema = draw(schemas())
    present = draw(st.frozensets(st.sampled_from(list(schema.attributes))))
    absent = draw(st.frozensets(st.sampled_from(list(schema.attributes))))
    return AttributeFilter(schema, present, absent - present)


subscriptions = st.builds(
    Subscription,
    id=ids,
    subscriber=ids,
    subject=st.none() | ids,
    structure=st.none() | structures(),
    content=filters,
    publishers=st.none() | context_filters,
    policy=texts,
    durable=st.none() | ids,
    notify=st.sampled_from(["subscription", "client"]),
)
offers = st.lists(names, max_size=3).map(tuple) | context_filters
advertisements = st.builds(
    Advertisement,
    id=ids,
    publisher=ids,
    content=filters,
    publisher_context=st.none() | offers,
    subscriber_context=offers,
    policy=texts,
)
operations = st.one_of(
    st.builds(Publish, events),
    st.builds(Publish, events, journeys),
    st.builds(Advertise, advertisements),
    st.builds(Unadvertise, ids, ids, texts),
    st.builds(Subscribe, subscriptions),
    st.builds(Unsubscribe, ids, ids, texts),
    st.builds(SetContext, ids, contexts, st.none() | ids),
    st.builds(DelegateContext, ids, ids, st.booleans()),
    st.builds(SetPolicy, ids, ids, texts),
    st.builds(Define, ids, schemas()),
    st.builds(Disconnect, ids),
)


@examples(170, 2_500)
@given(operations)
def test_what_is_written_is_what_is_read(operation: Operation) -> None:
    row = journal_codec.row(operation)
    assert decode_operation(encode_operations([row])[0]) == row
    assert journal_codec.operation(row) == operation
    assert journal_codec.row(journal_codec.operation(row)) == row
    assert journal_codec.driver_notes(row) == {}


@examples(50, 2_000)
@given(operations)
def test_what_a_driver_adds_stays_apart(operation: Operation) -> None:
    row = journal_codec.row(operation, {"$due": ["s1"], "$load": 0.5})
    assert journal_codec.operation(row) == operation
    assert journal_codec.driver_notes(row) == {"$due": ["s1"], "$load": 0.5}


def test_rows_come_out_of_the_files_as_they_went_in(tmp_path: Path) -> None:
    given = Subscribe(Subscription.of(Filter.parse("n > 1.0 and s = 'ä'"), id="s1", subscriber="car-1", policy="p"))
    with journal.Journal.open(tmp_path) as opened:
        opened.commit([journal_codec.row(given)], 1)
        opened.roll()
        assert [journal_codec.operation(record.operation) for record in opened.read()] == [given]


def test_what_is_not_for_a_journal() -> None:
    with pytest.raises(InvalidValueError, match="SetLoad is not for a journal"):
        journal_codec.row(SetLoad(0.5))
    with pytest.raises(InvalidValueError, match=r"'\$lost' holds no operation"):
        journal_codec.operation(journal.Operation(journal.LOST))


def test_an_advertisement_of_an_older_version_keeps_its_meaning() -> None:
    """A version whose default offered no names has written the list, and nothing else."""
    written = '{"content":"n > 0","publisher_context":[],"subscriber_context":["y"]}'
    row = journal.Operation(kind="advertise", client="cam", id="a1", body=written)
    operation = journal_codec.operation(row)
    assert isinstance(operation, Advertise)
    assert operation.advertisement.publisher_context == ()
    assert journal_codec.row(operation) == row


def test_an_older_version_takes_an_offer_of_all_names_for_one_of_none() -> None:
    body = journal_codec.row(Advertise(Advertisement(id="a1", publisher="cam"))).content()
    assert body.pop("publisher_context_all") is True
    assert body == {"content": "TRUE", "publisher_context": [], "subscriber_context": []}

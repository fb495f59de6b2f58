"""The short way of publications comes to what the long one comes to, whatever stands in the tables."""

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.overlay import on_publications
from tests.sizes import examples
from tidings.engine.effects import Deliver, Effect
from tidings.engine.engine import Engine
from tidings.engine.operations import Advertise, Define, Disconnect, Join, Operation, Publish, SetContext, Subscribe
from tidings.engine.operations import Unsubscribe as Remove
from tidings.engine.settings import Settings
from tidings.engine.steps import admit, pipeline
from tidings.filters import ContextFilter, Filter
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context

CONTENTS = ("n >= 1", "k like '%b%'", "service_topic = 'here'", "", "")
RULES = (
    None,
    None,
    None,
    on_publications("KeepOnlyAttributes(n)"),
    on_publications("BlockMessage()", when="MessageSizeIndex() >= 0.5"),
)
BEFORE = on_publications("BlockMessage()", matching="Before")
numbers = st.integers(0, 3)
names = numbers.map(lambda number: f"c{number}")

subscriptions = st.builds(
    lambda number, content, scope, policy, notify, durable: Subscribe(
        Subscription.of(
            Filter.parse(content),
            id=f"s{number}",
            subscriber=f"c{number % 3}",
            publishers=None if scope is None else ContextFilter.parse(scope),
            policy=policy,
            notify=notify,
            durable=durable,
        )
    ),
    numbers,
    st.sampled_from(CONTENTS),
    st.sampled_from([None, None, "zone = this.zone"]),
    st.sampled_from(RULES),
    st.sampled_from(["subscription", "subscription", "client"]),
    st.sampled_from([None, None, "kept"]),
)
publications = st.builds(
    lambda number, publisher, attributes, wanted, subject, policy, sealed: Publish(
        Event(
            id=uuid7(number * 1_000, bytes(10)),
            publisher=publisher,
            timestamp=number,
            sequence=number,
            attributes=attributes,
            context=Context({"zone": "a"}),
            subscribers=None if wanted is None else ContextFilter.parse(wanted),
            subject=subject,
            policy=policy,
            payload=b"abc",
            signature=sealed,
        )
    ),
    numbers,
    st.sampled_from(["c0", "c0", "c1", "b1", "b2"]),
    st.fixed_dictionaries(
        {},
        optional={
            "n": numbers,
            "k": st.sampled_from(["a", "b", "ab"]),
            "service_topic": st.just("here"),
            "class": st.sampled_from(["own", "own", "DropMessage"]),
        },
    ).map(Attributes),
    st.sampled_from([None, None, "zone = 'a'"]),
    st.sampled_from([None, None, "Loop"]),
    st.sampled_from([None, None, RULES[-1], BEFORE, "no rule"]),
    st.sampled_from([None, None, None, b"seal"]),
)
changes = st.one_of(
    subscriptions,
    numbers.map(lambda number: Remove(f"c{number % 3}", f"s{number}")),
    st.builds(SetContext, names, st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}]).map(Context)),
    names.map(Disconnect),
    st.sampled_from(RULES[2:]).map(
        lambda policy: Advertise(Advertisement.of(Filter.parse("n >= 0"), id="a1", publisher="c0", policy=policy))
    ),
    st.sampled_from([None, BEFORE]).map(
        lambda policy: Advertise(Advertisement.of(Filter.parse("n >= 0"), id="a2", publisher="b1", policy=policy))
    ),
    st.just(Define("c0", Schema("Loop", {"n": int}))),
    st.just(Join("b2")),
)


def played(operations: list[Operation], settings: Settings) -> list[list[Effect]]:
    engine = Engine(settings)
    return [engine.handle(operation, now) for now, operation in enumerate(operations, 1)]


@examples(92, 3_000)
@given(
    st.lists(subscriptions, min_size=1, max_size=4),
    st.lists(st.tuples(changes, st.lists(publications, min_size=2, max_size=6)), min_size=1, max_size=4),
    st.booleans(),
)
def test_both_ways_come_to_the_same(
    first: list[Subscribe], then: list[tuple[Operation, list[Publish]]], is_required: bool
) -> None:
    operations: list[Operation] = [*first, *(one for change, events in then for one in (change, *events))]
    settings = Settings(name="b1", advertisements_required=is_required, large_message_bytes=10)
    short = played(operations, settings)
    with mock.patch.object(pipeline, "can_take_fast_path", return_value=False):
        assert short == played(operations, settings)


def event(**given: Any) -> Publish:
    return Publish(Event.of({"n": 1}, id=uuid7(0, bytes(10)), publisher="p", timestamp=1, **given))


@pytest.mark.parametrize(
    ("before", "is_short"),
    [
        ([], True),
        ([Subscribe(Subscription.of(Filter.parse("n = 1"), id="s", subscriber="c"))], True),
        ([Subscribe(Subscription.of(Filter.parse("n = 1"), id="s", subscriber="c", durable="kept"))], True),
        ([Subscribe(Subscription.of(Filter.parse("n = 1"), id="s", subscriber="c", notify="client"))], False),
        ([Subscribe(Subscription.of(Filter.parse("n = 1"), id="s", subscriber="c", policy=RULES[-1]))], False),
        ([Join("b2")], False),
    ],
)
def test_the_short_way_is_gone_where_it_can_be(before: list[Operation], is_short: bool) -> None:
    engine = Engine(Settings(name="b1"))
    for operation in before:
        engine.handle(operation, 1)
    with mock.patch.object(admit, "admit_publication", side_effect=admit.admit_publication) as long:
        effects = engine.handle(event(), 2)
    assert long.called is not is_short
    assert all(isinstance(one, Deliver) for one in effects) or not is_short
    if is_short and before:
        engine.handle(Remove("c", "s"), 3)
        assert engine.handle(event(), 4) == []

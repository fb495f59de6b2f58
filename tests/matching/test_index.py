"""The index against the reference: whatever is added, removed, replaced or moved, both say the same."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.strategies import LONG, conditions, contents, examples
from tidings import AttributeFilter, Context, ContextFilter, Event, Filter, Schema, Subscription, uuid7
from tidings.matching.index import Index
from tidings.matching.index.conjuncts import conjuncts_of
from tidings.matching.reference import due
from tidings.model.filter import ContextFilter as ContextFilterValue
from tidings.model.filter import Filter as FilterValue
from tidings.model.limits import MAX_CONJUNCTS
from tidings.model.values import Value

S = Schema("S", {"a": int, "b": int, "c": str})
structures = st.sampled_from([None, None, AttributeFilter(S, {"a"}), AttributeFilter(S, {"b"}, {"c"})])
subjects = st.sampled_from([None, "/a/b", "S", "x"])
clients = st.sampled_from(["ann", "bob", "cid"])
payloads = st.sampled_from([None, b"<order><item price='11'/></order>", b"<a><b/></a>", b"ab", b"\xff"])


class Both:
    """An index, and the subscriptions and contexts that it was told, for the reference."""

    def __init__(self) -> None:
        self.index = Index()
        self.subscriptions: dict[str, Subscription] = {}
        self.contexts: dict[str, Context] = {}

    def put(self, subscription: Subscription) -> None:
        self.index.put(subscription)
        self.subscriptions[subscription.id] = subscription

    def remove(self, id: str) -> None:  # noqa: A002
        self.index.remove(id)
        del self.subscriptions[id]

    def set_context(self, client: str, context: dict[str, Value]) -> None:
        self.index.set_context(client, context)
        self.contexts[client] = Context.of(context)

    def check(self, event: Event) -> None:
        found = self.index.match(
            event.attributes,
            context=event.context,
            subscribers=event.subscribers,
            subject=event.subject,
            payload=event.payload,
            publisher=event.publisher,
        )
        expected = {
            one.id
            for one in self.subscriptions.values()
            if due(one, event, self.contexts.get(one.subscriber, Context()))
        }
        assert found == expected, {id: str(self.subscriptions[id].content) for id in found ^ expected}


@st.composite
def events(draw: st.DrawFn) -> Event:
    return Event.of(
        draw(contents),
        id=uuid7(0, bytes(10)),
        publisher="pub",
        timestamp=0,
        subject=draw(subjects),
        payload=draw(payloads),
        context=draw(contents),
        subscribers=draw(st.one_of(st.none(), conditions(context=True).map(ContextFilterValue))),
    )


@st.composite
def subscriptions(draw: st.DrawFn, id: st.SearchStrategy[str]) -> Subscription:  # noqa: A002
    return Subscription(
        id=draw(id),
        subscriber=draw(clients),
        content=FilterValue(draw(conditions())),
        publishers=draw(st.one_of(st.none(), conditions(context=True).map(ContextFilterValue))),
        structure=draw(structures),
        subject=draw(st.one_of(st.none(), subjects)),
    )


class IndexMachine(RuleBasedStateMachine):
    """Random histories, checked after every step."""

    ids = st.integers(0, 9).map("s{}".format)

    @initialize()
    def begin(self) -> None:
        self.both = Both()
        self.event = Event.of({"a": 1}, id=uuid7(0, bytes(10)), publisher="pub", timestamp=0)

    @rule(subscription=subscriptions(ids))
    def put(self, subscription: Subscription) -> None:
        self.both.put(subscription)

    @rule(id=ids)
    def remove(self, id: str) -> None:  # noqa: A002
        if id in self.both.subscriptions:
            self.both.remove(id)
        else:
            with pytest.raises(KeyError):
                self.both.index.remove(id)

    @rule(client=clients, context=contents)
    def move(self, client: str, context: dict[str, Value]) -> None:
        self.both.set_context(client, context)

    @rule(event=events())
    def publish(self, event: Event) -> None:
        self.event = event

    @rule()
    def flush(self) -> None:
        self.both.index._store._flush()

    @invariant()
    def agree(self) -> None:
        self.both.check(self.event)
        assert len(self.both.index) == len(self.both.subscriptions)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(
    max_examples=2_000 if LONG else 80, stateful_step_count=20, deadline=None, derandomize=not LONG
)


@examples(150, 5_000)
@given(st.lists(subscriptions(st.uuids().map(str)), min_size=1, max_size=30), st.lists(events(), min_size=1, max_size=6))
def test_a_built_segment_agrees(given: list[Subscription], published: list[Event]) -> None:
    both = Both()
    for subscription in given:
        both.put(subscription)
    for client in ("ann", "bob"):
        both.set_context(client, {"a": 1, "b": 2.0})
    both.index._store._flush()
    for event in published:
        both.check(event)


def test_conjuncts_are_few() -> None:
    for text in ("a in (" + ",".join(map(str, range(1000))) + ")", " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(40))):
        found = conjuncts_of(Filter.parse(text).expression)
        assert 1 <= len(found) <= MAX_CONJUNCTS
        assert not found[0].exact


def one_by_one(index: Index, texts: list[str]) -> None:
    for i, text in enumerate(texts):
        index.put(Subscription(id=f"s{i}", subscriber="ann", content=Filter.parse(text)))


class TestManySubscriptions:
    def test_segments_grow_and_merge(self) -> None:
        index = Index()
        one_by_one(index, [f"class = 'c{i % 7}' and n between {i % 50} and {i % 50 + 5}" for i in range(6_000)])
        sizes = [shelf.size for shelf in index._store.shelves]
        assert len(sizes) < 4
        for k in range(0, 60, 7):
            expected = {f"s{i}" for i in range(6_000) if i % 7 == 3 and i % 50 <= k <= i % 50 + 5}
            assert index.match({"class": "c3", "n": k}) == expected

    def test_the_dead_are_buried(self) -> None:
        index = Index()
        one_by_one(index, [f"n = {i % 100}" for i in range(3_000)])
        for i in range(0, 3_000, 2):
            index.remove(f"s{i}")
        assert index._store.dead <= 0.25 * 3_000
        assert index.match({"n": 51}) == {f"s{i}" for i in range(51, 3_000, 100)}
        assert index.match({"n": 50}) == set()

    def test_identical_subscriptions_overflow_no_buffer(self) -> None:
        index = Index()
        one_by_one(index, ["n > 3"] * 10_000)
        assert len(index.match({"n": 4})) == 10_000
        assert index.match({"n": 3}) == set()

    def test_many_attributes(self) -> None:
        index = Index()
        one_by_one(index, [f"a{i} = 1" for i in range(5_000)])
        assert index.match({f"a{i}": 1 for i in range(0, 500)}) == {f"s{i}" for i in range(500)}


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("a > 9007199254740992", {"a": 2**53 + 1}, True),
        ("a > 9007199254740992.0", {"a": 2**53}, False),
        ("a = 9223372036854775807", {"a": 2**63 - 1}, True),
        ("a = 9223372036854775807", {"a": 2.0**63}, False),
        ("a < 9223372036854775807", {"a": 2**63 - 2}, True),
        ("a = 0", {"a": -0.0}, True),
        ("a = 1", {"a": True}, False),
        ("a = 'x' or a like '%y' or a is null", {}, True),
        ("a != 'x'", {"a": "z"}, True),
        ("a != 'x'", {"a": "x"}, False),
        ("a != 'x'", {"a": 1}, False),
    ],
)
@pytest.mark.parametrize("built", [False, True])
def test_edges(text: str, event: dict[str, Any], expected: bool, built: bool) -> None:
    index = Index()
    one_by_one(index, [text])
    if built:
        index._store._flush()
    assert (index.match(event) == {"s0"}) is expected


def test_an_unchanged_context_is_noticed() -> None:
    index = Index()
    assert index.set_context("ann", {"x": 1}) is True
    assert index.set_context("ann", {"x": 1}) is False
    assert index.set_context("ann", {"x": 1.0}) is True


def test_a_box_moves_with_its_subscriber() -> None:
    index = Index()
    near = ContextFilter.parse("x between this.x - 20 and this.x + 20")
    index.put(Subscription(id="s", subscriber="car", content=Filter.parse("msg = 'accident'"), publishers=near))
    accident = {"msg": "accident"}
    assert index.match(accident, context={"x": 5.0}) == set()
    index.set_context("car", {"x": 10.0})
    assert index.match(accident, context={"x": 5.0}) == {"s"}
    assert index.match(accident, context={"x": 5.0}, subscribers=ContextFilter.parse("x > 50")) == set()
    index.set_context("car", {"x": 100.0})
    assert index.match(accident, context={"x": 5.0}) == set()

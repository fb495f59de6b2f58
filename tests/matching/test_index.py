"""The index against the reference: whatever is added, removed, replaced or moved, both say the same."""

import json
import math
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tidings as td
from tests.sizes import examples
from tests.strategies import conditions, contents, long_strings, names, payloads
from tidings import (
    AttributeFilter,
    Context,
    ContextFilter,
    Event,
    Filter,
    InvalidValueError,
    Schema,
    Subscription,
    uuid7,
)
from tidings.matching.index.conjuncts import conjuncts_of
from tidings.matching.index.context_filters import ContextFilterPrograms
from tidings.matching.index.contexts import Contexts
from tidings.matching.index.index import SubscriptionIndex
from tidings.matching.index.kernels.programs import FALSE, TRUE
from tidings.matching.index.spatial import group
from tidings.matching.reference import calculate, due, geo_distance, matches_context
from tidings.model.expression import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Condition,
    Constant,
    IsNull,
    Negative,
    Not,
    OwnContextValue,
    ValueExpression,
    walk,
)
from tidings.model.filter import ContextFilterValue, FilterValue
from tidings.model.limits import MAX_CONJUNCTS, MAX_CONTEXT_COLUMNS
from tidings.model.values import Value

S = Schema("S", {"a": int, "b": int, "c": str})
structures = st.sampled_from([None, None, AttributeFilter(S, {"a"}), AttributeFilter(S, {"b"}, {"c"})])
subjects = st.sampled_from([None, "/a/b", "S", "x"])
clients = st.sampled_from(["ann", "bob", "cid"])
long_contents = st.builds(lambda short, long: short | long, contents, st.dictionaries(names, long_strings, max_size=1))


class Both:
    """An index, and the subscriptions and contexts that it was told, for the reference."""

    def __init__(self) -> None:
        self.index = td.Index()
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
        assert found == expected, {one: str(self.subscriptions[one].content) for one in found ^ expected}
        assert pairs(self.index, batch_of(event)) == {(0, one) for one in expected}


def batch_of(event: Event) -> pa.Table:
    """A batch of one event, whose values may be of any kind."""
    return pa.table(
        {
            "attributes": [json.dumps(event.attributes)],
            "context": [json.dumps(event.context)],
            "subscribers": pa.array([None if event.subscribers is None else str(event.subscribers)], pa.string()),
            "$subject": pa.array([event.subject], pa.string()),
            "$payload": pa.array([event.payload], pa.binary()),
            "$publisher": [event.publisher],
        }
    )


@st.composite
def events(draw: st.DrawFn) -> Event:
    return Event.of(
        draw(long_contents),
        id=uuid7(0, bytes(10)),
        publisher="pub",
        timestamp=0,
        subject=draw(subjects),
        payload=draw(payloads),
        context=draw(long_contents),
        subscribers=draw(st.one_of(st.none(), conditions(context=True).map(ContextFilterValue))),
    )


@st.composite
def boxes(draw: st.DrawFn) -> ContextFilterValue:
    """Filters that a grid of positions can answer."""
    r, q = draw(st.integers(0, 3)), draw(st.sampled_from([0.5, 1, 2, 100_000]))
    text = draw(
        st.sampled_from(
            [
                "a between this.a - {r} and this.a + {q}",
                "a between this.a - {r} and this.a + {r} and b between this.b - {q} and this.b + {q}",
                "distance(a, b, this.a, this.b) <= {q}",
                "geo_distance(a, b, this.a, this.b) < {q} * 100000",
                "geo_distance(this.a, this.b, a, b) <= 157225 and c = this.c",
            ]
        )
    )
    return ContextFilter.parse(text.format(r=r, q=q))


@st.composite
def subscriptions(draw: st.DrawFn, id: st.SearchStrategy[str]) -> Subscription:  # noqa: A002
    return Subscription(
        id=draw(id),
        subscriber=draw(clients),
        content=FilterValue(draw(conditions())),
        publishers=draw(st.one_of(st.none(), boxes(), conditions(context=True).map(ContextFilterValue))),
        structure=draw(structures),
        subject=draw(st.one_of(st.none(), subjects)),
    )


class IndexMachine(RuleBasedStateMachine):
    """Random histories, checked after every step."""

    ids = st.integers(0, 9).map("s{}".format)

    @initialize(by_place=st.booleans())
    def begin(self, by_place: bool) -> None:
        self.few = group.FEW_CANDIDATES
        group.FEW_CANDIDATES = -(1 << 40) if by_place else self.few  # with so few, content alone would decide
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

    @rule(client=clients, context=long_contents)
    def move(self, client: str, context: dict[str, Value]) -> None:
        self.both.set_context(client, context)

    @rule(event=events())
    def publish(self, event: Event) -> None:
        self.event = event

    @rule()
    def flush(self) -> None:
        self.both.index.parts.store.flushed_segments()

    @rule()
    def renew(self) -> None:
        self.both.index.compact()

    def teardown(self) -> None:
        group.FEW_CANDIDATES = self.few

    @invariant()
    def agree(self) -> None:
        self.both.check(self.event)
        assert len(self.both.index) == len(self.both.subscriptions)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(examples(30, 900), stateful_step_count=20)


@examples(10, 300)
@given(
    st.lists(subscriptions(st.uuids().map(str)), min_size=1, max_size=30), st.lists(events(), min_size=1, max_size=6)
)
def test_a_built_segment_agrees(given: list[Subscription], published: list[Event]) -> None:
    both = Both()
    for subscription in given:
        both.put(subscription)
    for client in ("ann", "bob"):
        both.set_context(client, {"a": 1, "b": 2.0})
    both.index.parts.store.flushed_segments()
    for event in published:
        both.check(event)


def test_conjuncts_are_few() -> None:
    for text in (
        "a in (" + ",".join(map(str, range(1000))) + ")",
        " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(40)),
    ):
        found = conjuncts_of(Filter.parse(text).expression)
        assert 1 <= len(found) <= MAX_CONJUNCTS
        assert not found[0].exact


def one_by_one(index: SubscriptionIndex, texts: list[str]) -> None:
    for i, text in enumerate(texts):
        index.put(Subscription(id=f"s{i}", subscriber="ann", content=Filter.parse(text)))


class TestManySubscriptions:
    def test_segments_grow_and_merge(self) -> None:
        index = SubscriptionIndex()
        one_by_one(index, [f"class = 'c{i % 7}' and n between {i % 50} and {i % 50 + 5}" for i in range(6_000)])
        assert len(index.parts.store.stored_segments) < 4
        for k in range(0, 60, 7):
            expected = {f"s{i}" for i in range(6_000) if i % 7 == 3 and i % 50 <= k <= i % 50 + 5}
            assert index.match({"class": "c3", "n": k}) == expected

    def test_the_dead_are_buried(self) -> None:
        index = SubscriptionIndex()
        one_by_one(index, [f"n = {i % 100}" for i in range(3_000)])
        for i in range(0, 3_000, 2):
            index.remove(f"s{i}")
        assert index.parts.store.dead <= 0.25 * 3_000
        assert index.match({"n": 51}) == {f"s{i}" for i in range(51, 3_000, 100)}
        assert index.match({"n": 50}) == set()

    def test_identical_subscriptions_overflow_no_buffer(self) -> None:
        index = SubscriptionIndex()
        one_by_one(index, ["n > 3"] * 10_000)
        assert len(index.match({"n": 4})) == 10_000
        assert index.match({"n": 3}) == set()

    def test_many_attributes(self) -> None:
        index = SubscriptionIndex()
        one_by_one(index, [f"a{i} = 1" for i in range(5_000)])
        assert index.match({f"a{i}": 1 for i in range(500)}) == {f"s{i}" for i in range(500)}


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
    index = SubscriptionIndex()
    one_by_one(index, [text])
    if built:
        index.parts.store.flushed_segments()
    assert (index.match(event) == {"s0"}) is expected


@pytest.mark.parametrize(
    "a", [0, 1, -1, 2, 3, 2**31, -(2**31), 2**32 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), 3037000500]
)
@pytest.mark.parametrize("operator", ["+", "-", "*", "%"])
def test_whole_numbers_overflow_where_they_do(a: int, operator: str) -> None:
    index = SubscriptionIndex()
    for name, text in (("yes", f"a {operator} b is null"), ("no", f"a {operator} b is not null")):
        index.put(Subscription(id=name, subscriber="ann", publishers=ContextFilter.parse(text)))
    for b in (0, 1, -1, 2, -2, 2**31, 2**32 - 1, -(2**33), 2**62, 2**63 - 1, -(2**63), 3037000499, -3037000500):
        expected = calculate(a, operator, b)
        assert index.match({}, context={"a": a, "b": b}) == {"yes" if expected is None else "no"}, (a, operator, b)


@examples(59, 2_500)
@given(st.data())
def test_programs_say_what_the_reference_says(data: st.DataObject) -> None:
    """Context filters in both directions, on values near the constants that they name."""
    condition = data.draw(conditions(context=True))
    nodes = list(walk(condition))
    names = sorted({node.name for node in nodes if isinstance(node, Attribute | OwnContextValue)}) or ["a"]
    known: list[Value] = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 0.5, "a", True]
    known += [node.value for node in nodes if isinstance(node, Constant) and node.value is not None]
    contexts = st.fixed_dictionaries({}, optional={name: st.sampled_from(known) for name in names})
    wanted, index = ContextFilterValue(condition), SubscriptionIndex()
    index.put(Subscription(id="asks", subscriber="ann", publishers=wanted))
    index.put(Subscription(id="asked", subscriber="ann"))
    for _ in range(3):
        mine, theirs = data.draw(contexts), data.draw(contexts)
        index.set_context("ann", mine)
        expected = matches_context(wanted, Context.of(theirs), Context.of(mine))
        assert ("asks" in index.match({}, context=theirs)) == expected
        expected = matches_context(wanted, Context.of(mine), Context.of(theirs))
        assert ("asked" in index.match({}, context=theirs, subscribers=wanted)) == expected


degrees: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from([0, 90, -90, 91, 180, -180, 179.9999999, 360, 2**60, 1e300, -0.0, "a", True]), st.floats(-180, 180)
)


@examples(200, 10_000)
@given(st.data())
def test_programs_say_what_the_reference_says_of_distances_on_the_sphere(data: st.DataObject) -> None:
    """Also where the distance is as close to the bound as it can be, or NULL, or calculated with."""
    sides = st.fixed_dictionaries({}, optional={"lat": degrees, "lon": degrees, "r": degrees})
    mine, theirs = data.draw(sides), data.draw(sides)
    exact = geo_distance(theirs.get("lat"), theirs.get("lon"), mine.get("lat"), mine.get("lon"))
    bounds: list[Value] = [0, 1000, 20_015_114, 0.0 if exact is None else exact]
    if exact is not None:
        bounds += [math.nextafter(exact, 0), math.nextafter(exact, math.inf), exact * (1 + 1e-12), exact * (1 - 1e-6)]
    call = Call("geo_distance", (Attribute("lat"), Attribute("lon"), OwnContextValue("lat"), OwnContextValue("lon")))
    inner = Call("distance", (call, Constant(0), Constant(0), Constant(0)))
    lefts: list[ValueExpression] = [call, call, Negative(call), Arithmetic(call, "*", Constant(1)), inner]
    rights: list[ValueExpression] = [call, OwnContextValue("r"), Constant("a"), Constant(None), *map(Constant, bounds)]
    left, right = data.draw(st.sampled_from(lefts)), data.draw(st.sampled_from(rights))
    plain = Comparison(left, data.draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), right)
    conditions: list[Condition] = [plain, Not(plain), IsNull(left), Comparison(right, plain.operator, left)]
    condition = data.draw(st.sampled_from(conditions))
    wanted, index = ContextFilterValue(condition), SubscriptionIndex()
    index.put(Subscription(id="asks", subscriber="ann", publishers=wanted))
    index.put(Subscription(id="asked", subscriber="ann"))
    index.set_context("ann", mine)
    assert ("asks" in index.match({}, context=theirs)) == matches_context(wanted, Context.of(theirs), Context.of(mine))
    expected = matches_context(wanted, Context.of(mine), Context.of(theirs))
    assert ("asked" in index.match({}, context=theirs, subscribers=wanted)) == expected


def test_distances_on_the_sphere_need_no_reference() -> None:
    contexts = Contexts()
    scopes = ContextFilterPrograms(contexts)
    number = scopes.acquire(ContextFilter.parse("geo_distance(lat, lon, this.lat, this.lon) < 20000"))
    contexts.set("ann", Context.of({"lat": 48.1, "lon": 11.5}))
    one = np.zeros(1, np.int32)
    for lon, expected in ((11.6, TRUE), (12.6, FALSE)):
        answers = scopes.evaluate_publisher(one, np.array([number], np.int32), one, {"lat": 48.1, "lon": lon})
        assert answers.tolist() == [expected]


def test_a_string_that_only_a_filter_names_is_known_from_the_first_match() -> None:
    index = td.Index()
    index.add("s", "TRUE", publishers="role = 'medic'")
    assert index.match({}, context={"role": "medic"}) == {"s"}


def test_strings_of_contexts_long_gone_are_forgotten() -> None:
    index = td.Index()
    index.add("s", "TRUE", subscriber="car", publishers="name = this.name or name = 'x' or name < this.name")
    for i in range(5_000):
        index.set_context("car", {"name": f"n{i}"})
    assert len(index.parts.contexts.saved()[1]["strings"]) < 2_000
    assert index.match({}, context={"name": "n4999"}) == {"s"}
    assert index.match({}, context={"name": "x"}) == {"s"}
    assert index.match({}, context={"name": "n4998"}) == {"s"}  # by order, which the reference decides
    assert index.match({}, context={"name": "z"}) == set()


def test_filters_that_come_with_events_leave_nothing_behind() -> None:
    index = td.Index()
    index.add("s", "TRUE", subscriber="car")
    index.set_context("car", {"a": 1})
    for i in range(50):
        assert index.match({}, context={"b": "q"}, subscribers=f"a = 1 and n{i} is null and this.b = 'q'") == {"s"}
        assert index.match({}, context={"b": "r"}, subscribers=f"a = 1 and n{i} is null and this.b = 'q'") == set()
    assert len(index.parts.contexts.columns) == 1
    asked = "late = 5"
    assert index.match({}, subscribers=asked) == set()
    index.set_context("car", {"late": 5})
    assert index.match({}, subscribers=asked) == {"s"}


def test_an_unchanged_context_is_noticed() -> None:
    index = SubscriptionIndex()
    assert index.set_context("ann", {"x": 1}) is True
    assert index.set_context("ann", {"x": 1}) is False
    assert index.set_context("ann", {"x": 1.0}) is True


def test_a_box_moves_with_its_subscriber() -> None:
    index = SubscriptionIndex()
    near = ContextFilter.parse("x between this.x - 20 and this.x + 20")
    index.put(Subscription(id="s", subscriber="car", content=Filter.parse("msg = 'accident'"), publishers=near))
    accident = {"msg": "accident"}
    assert index.match(accident, context={"x": 5.0}) == set()
    index.set_context("car", {"x": 10.0})
    assert index.match(accident, context={"x": 5.0}) == {"s"}
    assert index.match(accident, context={"x": 5.0}, subscribers=ContextFilter.parse("x > 50")) == set()
    index.set_context("car", {"x": 100.0})
    assert index.match(accident, context={"x": 5.0}) == set()


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    names = sorted({name for row in rows for name in row}) or ["nothing"]
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def pairs(index: td.Index, table: pa.Table) -> set[tuple[int, str]]:
    found = index.match_batch(table)
    assert found.schema.field("subscription").type.value_type == pa.string()
    events = found["event"].to_pylist()
    assert events == sorted(events)
    given = list(zip(events, found["subscription"].to_pylist(), strict=True))
    assert len(given) == len(set(given))
    return set(given)


class TestBatches:
    texts: ClassVar = [
        "class = 'a' and n > 3",
        "n between 2 and 5",
        "s like 'x%' or s like '%y'",
        "n + 1 > 5",
        "s is null",
        "flag",
        "class in ('a', 'b') and not flag",
        "s rlike '^[xy]'",
        "n = 9007199254740993",
        "$subject = '/a'",
    ]

    def index(self) -> td.Index:
        index = td.Index()
        index.add_many(pa.table({"id": [f"s{i}" for i in range(len(self.texts))], "content": self.texts}))
        return index

    rows = st.fixed_dictionaries(
        {},
        optional={
            "class": st.sampled_from("abc"),
            "n": st.integers(0, 8),
            "s": st.sampled_from(["x", "xy", "y", "zz"]),
            "flag": st.booleans(),
            "$subject": st.sampled_from(["/a", "/b"]),
        },
    )

    @examples(60, 2_000)
    @given(st.lists(rows, max_size=90))
    def test_many_at_once_is_the_same_as_one_by_one(self, rows: list[dict[str, Any]]) -> None:
        index = self.index()
        index.add("late", "n > 6")  # still in the buffer
        expected = set()
        for e, row in enumerate(rows):
            event = {name: value for name, value in row.items() if name != "$subject"}
            expected |= {(e, one) for one in index.match(event, subject=row.get("$subject"))}
        assert pairs(index, as_table(rows)) == expected
        plain = [{name: value for name, value in row.items() if name != "$subject"} for row in rows]
        texts = pa.table({"attributes": pa.array([json.dumps(row) for row in plain], pa.string())})
        asked = {(e, one) for e, row in enumerate(plain) for one in index.match(row)}
        assert pairs(index, texts) == asked
        maps = pa.array([[(k, str(v)) for k, v in row.items()] for row in plain], pa.map_(pa.string(), pa.string()))
        as_texts = {(e, one) for e, row in enumerate(plain) for one in index.match({k: str(v) for k, v in row.items()})}
        assert pairs(index, pa.table({"attributes": maps})) == as_texts

    def test_structs_dictionaries_nulls_and_large_numbers(self) -> None:
        index = td.Index()
        for id, text in {"s1": "engine.temp > 90", "s2": "class = 'a'", "s3": "big = 9223372036854775807"}.items():  # noqa: A001
            index.add(id, text)
        table = pa.table(
            {
                "engine": pa.array([{"temp": 95}, None, {"temp": None}]),
                "class": pa.array(["a", None, "b"]).dictionary_encode(),
                "big": pa.array([2**63 - 1, 2**63 - 2, None]),
                "nothing": pa.nulls(3),
            }
        )
        assert pairs(index, table) == {(0, "s1"), (0, "s2"), (0, "s3")}

    def test_payloads_are_looked_into(self) -> None:
        index = td.Index()
        index.add("goal", "goal.*Zidane", format="regex")
        index.add("order", "/order/item[@price>10]", format="xpath")
        payloads = [b"a goal by Zidane", b"<order><item price='11'/></order>", b"\xff", None]
        assert pairs(index, pa.table({"$payload": payloads})) == {(0, "goal"), (1, "order")}

    def test_contexts_in_both_directions(self) -> None:
        index = td.Index()
        index.add("near", "msg = 'accident'", subscriber="car", publishers="x between this.x - 20 and this.x + 20")
        assert index.set_contexts(pa.table({"client": ["car", "bus"], "x": [10.0, 20.0]})) == 2
        table = pa.table(
            {
                "msg": ["accident"] * 4,
                "context": pa.array([{"x": 5.0}, {"x": 50.0}, None, {"x": 6.0}]),
                "subscribers": [None, None, None, "x > 100"],
            }
        )
        assert pairs(index, table) == {(0, "near")}

    def test_empty_and_enormous(self) -> None:
        assert pairs(td.Index(), pa.table({"n": [1, 2]})) == set()
        index = td.Index()
        index.add_many(pa.table({"id": [f"s{i}" for i in range(3_000)], "content": ["n > 0"] * 3_000}))
        assert pairs(index, pa.table({"n": pa.array([], pa.int64())})) == set()
        found = index.match_batch(pa.table({"n": [1] * 1_000}))  # more than any buffer holds
        assert found.num_rows == 3_000_000

    def test_what_cannot_be_read_is_refused(self) -> None:
        index = self.index()
        for column, complaint in (
            (pa.array([float("nan")]), "n: has numbers that are not finite"),
            (pa.array([[1]]), "n: a column is of booleans, numbers or strings"),
        ):
            with pytest.raises(InvalidValueError, match=complaint):
                index.match_batch(pa.table({"n": column}))
        with pytest.raises(InvalidValueError, match="row 0: not JSON"):
            index.match_batch(pa.table({"attributes": ["{"]}))
        with pytest.raises(InvalidValueError, match="no column content"):
            index.add_many(pa.table({"id": ["x"]}))


def test_explanations_name_the_step_and_the_values() -> None:
    index = td.Index()
    index.add("s1", "class = 'a' and n > 3", subscriber="ann", publishers="x > this.x")
    index.set_context("ann", {"x": 1.0})
    say = index.explain
    assert say({"class": "a", "n": 2}, "s1") == (False, "content", "n > 3 is false: n is 2")
    assert say({"class": "a"}, "s1") == (False, "content", "n > 3 is unknown: n is missing")
    event = {"class": "a", "n": 4}
    assert say(event, "s1", context={"x": 0.5}) == (False, "publishers", "x > this.x is false: x is 0.5, this.x is 1.0")
    stopped = say(event, "s1", context={"x": 2.0}, subscribers="x > 5")
    assert stopped == (False, "subscribers", "x > 5 is false: x is 1.0")
    assert say(event, "s1", context={"x": 2.0}) == (True, "all", "every step was passed")
    with pytest.raises(KeyError):
        say(event, "s2")


def test_covering_queries() -> None:
    index = td.Index()
    for id, text in {"wide": "class = 'a'", "narrow": "class = 'a' and n > 9", "other": "class = 'b'"}.items():  # noqa: A001
        index.add(id, text)
    assert index.covering("class = 'a' and n > 5") == {"wide"}
    assert index.covered_by("class = 'a'") == {"wide", "narrow"}


def test_statistics_tell_what_there_is() -> None:
    index = td.Index()
    index.add_many(pa.table({"id": ["a", "b"], "content": ["n = 1 and m > 2", "n = 2 or n = 3"]}))
    index.match({"n": 1, "m": 3})
    stats = index.stats()
    assert (stats.subscriptions, stats.conjuncts, stats.clusters) == (2, 3, 3)
    assert stats.array_bytes > 0
    assert (stats.candidates, stats.matches, stats.candidates_per_match) == (1, 1, 1.0)
    index.remove("b")
    assert index.stats().subscriptions == 1
    assert "b" not in index


@examples(60, 1_000)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), contents.map(dict)), max_size=6),
        max_size=4,
    )
)
@example([[("a", {"client": "b", "x": 1}), ("b", {"client": "c"})]])
def test_contexts_in_bulk_are_contexts_one_by_one(rounds: list[list[tuple[str, dict[str, Value]]]]) -> None:
    """Columns of one kind each, so values that do not fit the column's first kind are left out."""
    bulk, single = td.Index(), td.Index()
    for index in (bulk, single):
        index.add("s", "TRUE", subscriber="a", publishers="a = this.a or b = this.b")
        index.set_context("a", {"kept": 1, "b": "x"})
    for changes in rounds:
        names = sorted({name for _, context in changes for name in context})
        kinds = {name: next(type(c[name]) for _, c in changes if name in c) for name in names}
        kept = [(client, {n: v for n, v in c.items() if type(v) is kinds[n]}) for client, c in changes]
        columns = {name: pa.array([context.get(name) for _, context in kept]) for name in names}
        if "client" in columns:  # a name that stands for the client where it has a column
            columns = {"context": pa.StructArray.from_arrays(list(columns.values()), names)}
        table = pa.table({"client": pa.array([client for client, _ in kept], pa.string()), **columns})
        assert bulk.set_contexts(table) == sum(single.set_context(client, context) for client, context in kept)
    assert bulk.parts.contexts.all() == single.parts.contexts.all()


def test_names_that_no_filter_asks_about_take_no_column() -> None:
    index = td.Index()
    index.add("s", "TRUE", subscriber="car", publishers="x > this.x")
    index.set_context("car", {"x": 1, "colour": "red", "wheels": 4})
    assert index.parts.contexts.columns == {"x": 0}
    assert index.parts.contexts.get("car") == {"x": 1, "colour": "red", "wheels": 4}
    assert index.match({}, context={"x": 2}, subscribers="colour = 'red' and wheels = 4") == {"s"}
    index.add("t", "TRUE", subscriber="car", publishers="this.colour = 'red'")
    assert index.match({}) == {"t"}
    assert index.set_context("car", {"x": 1, "colour": "red", "wheels": 4}) is False
    assert index.set_context("car", {"x": 1, "colour": "red"}) is True


def test_too_many_context_names_are_left_to_the_reference() -> None:
    index = td.Index()
    for i in range(100):
        index.add(f"s{i}", "TRUE", subscriber="car", publishers=f"n{i} = this.n{i}")
    index.set_context("car", {f"n{i}": i for i in range(100)})
    assert len(index.parts.contexts.columns) == MAX_CONTEXT_COLUMNS
    assert index.match({}, context={f"n{i}": i for i in range(0, 100, 2)}) == {f"s{i}" for i in range(0, 100, 2)}


def test_nothing_grows_with_those_who_come_and_go() -> None:
    index = td.Index()
    for i in range(20_000):
        index.add(f"s{i}", f"n = {i}", subscriber=f"c{i}", publishers=f"x > this.x + {i}")
        index.set_context(f"c{i}", {"x": i})
        if i >= 50:
            index.remove(f"s{i - 50}")
            index.set_context(f"c{i - 50}", {})
    assert len(index) == 50
    assert index.parts.position_table.size < 2_000
    assert len(index.parts.contexts) == 50
    assert len(index.parts.contexts.clients) < 100
    assert len(index.parts.programs.saved()["users"]) < 5_000
    assert index.match({"n": 19_990}, context={"x": 10**6}) == {"s19990"}


def test_words_that_no_filter_mentions_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.matching.index.index._COMPACTION_SLACK", 200)
    index = td.Index()
    kept = {"kept": "class = 'kept' and s like 'k%' and n > 3", "near": "class = 'kept' and s like '%k'"}
    box = "x between this.x - 1 and this.x + 1"
    index.add("kept", kept["kept"])
    index.add("near", kept["near"], subscriber="car", publishers=box)
    index.set_context("car", {"x": 5})
    for i in range(1_500):
        index.add(
            f"s{i}", f"class = 'c{i}' and a{i} > 1 or s like 'p{i}%'", publishers="x between this.x - 1 and this.x + 1"
        )
        index.add(f"t{i}", f"name = 'n{i}'")
        index.remove(f"s{i}")
        index.remove(f"t{i}")
    assert index.parts.columns.size < 1_000
    assert index.match({"class": "kept", "s": "kk", "n": 4}, context={"x": 5.5}) == {"kept", "near"}
    assert index.match({"class": "kept", "s": "kx", "n": 4}, context={"x": 5.5}) == {"kept"}
    assert index.match({"class": "c1499", "s": "p1499"}) == set()


def test_long_lists_of_strings_are_one_test() -> None:
    index = td.Index()
    many = ", ".join(f"'v{i}'" for i in range(1_000))
    index.add("one", f"s in ({many}) and n > 1")
    index.add("none", f"s not in ({many})")
    assert [one.exact for one in conjuncts_of(Filter.parse(f"s in ({many})").expression)] == [True]
    assert index.match({"s": "v999", "n": 2}) == {"one"}
    assert index.match({"s": "v1000", "n": 2}) == {"none"}
    assert index.match({"s": "", "n": 2}) == {"none"}
    assert index.match({"n": 2}) == set()


def test_many_events_at_once_find_the_index_in_order() -> None:
    index = td.Index()
    for number in range(1500):
        index.add(f"s{number}", f"a = {number % 50} and b > {number}")
    table = pa.table({"a": [row % 50 for row in range(2000)], "b": [float(row) for row in range(2000)]})
    expected = [index.match({"a": row % 50, "b": float(row)}) for row in range(0, 2000, 97)]
    assert index.stats().segments > 1
    found = index.match_batch(table)
    assert index.stats().segments == 1
    index.remove("s7")
    index.add("t", "a = 7")
    again = [index.match({"a": row % 50, "b": float(row)}) for row in range(0, 2000, 97)]
    for row, before, after in zip(range(0, 2000, 97), expected, again, strict=True):
        chosen = found.filter(pc.equal(found["event"], row))["subscription"].to_pylist()
        assert set(chosen) == before
        assert after == before - {"s7"} | ({"t"} if row % 50 == 7 else set())

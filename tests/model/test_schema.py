"""Schemas: the fourth paper's traffic loops, conformance, versions, and the three ways to write an attribute filter."""

import pickle
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings import AttributeFilter, Schema, SchemaError, Subjects
from tidings.model.schema import conforms
from tidings.model.values import Value

LOOP = Schema("Loop", {"li": int, "ts": int, "lo": str, "vc": str})


@dataclass
class ForVelocityMonitor:
    li: int
    ts: int


class ForStatistics(msgspec.Struct):
    ts: int
    lo: str
    vc: str


class TestTrafficLoops:
    """Section 5: two loops in each lane, a velocity monitor that wants both, a statistics collector that wants one."""

    first: ClassVar[dict[str, Value]] = {"li": 3, "ts": 100, "lo": "Main Street", "vc": "car"}
    second: ClassVar[dict[str, Value]] = {"li": 3, "ts": 101}
    monitor = AttributeFilter(LOOP, {"li", "ts"})
    collector = AttributeFilter(LOOP, {"ts", "lo", "vc"})

    def test_the_monitor_hears_both_loops(self) -> None:
        assert self.monitor.passes_bits(LOOP.bits_of(self.first))
        assert self.monitor.passes_bits(LOOP.bits_of(self.second))

    def test_the_collector_hears_only_the_first(self) -> None:
        assert self.collector.passes_bits(LOOP.bits_of(self.first))
        assert not self.collector.passes_bits(LOOP.bits_of(self.second))

    def test_sensors_with_a_confidence_factor_join_without_disruption(self) -> None:
        newer = LOOP.extend({"cf": float})
        old_sensor = LOOP.bits_of(self.first)
        new_sensor = newer.bits_of({**self.first, "cf": 0.9})
        # While sensors are being replaced, the subscriptions of before hear old and new ones.
        for bits in (old_sensor, new_sensor):
            assert self.collector.passes_bits(bits)
            assert self.monitor.passes_bits(bits)
        # When all are replaced, one new subscription asks for the new attribute.
        improved = AttributeFilter(newer, {"ts", "lo", "vc", "cf"})
        assert improved.passes_bits(new_sensor)
        assert not improved.passes_bits(old_sensor)
        assert self.collector.covers(improved)
        # An event of the new kind does not conform to the old version, which says so.
        with pytest.raises(SchemaError, match="Loop: has no attribute cf; version 1 has li, ts, lo, vc"):
            LOOP.bits_of({**self.first, "cf": 0.9})


def test_figure_1_of_the_paper() -> None:
    schema = Schema("S", {"a": int, "b": int, "c": int})
    bits = {names: schema.bits(set(names)) for names in ("", "a", "b", "c", "ab", "ac", "bc", "abc")}
    assert all(conforms(bits["abc"], to=one) for one in bits.values())
    assert {name for name, one in bits.items() if conforms(bits["ac"], to=one)} == {"ac", "a", "c", ""}
    only_b = AttributeFilter(schema, {"b"})
    assert {name for name, one in bits.items() if only_b.passes_bits(one)} == {"b", "ab", "bc", "abc"}
    assert all(AttributeFilter(schema).passes_bits(one) for one in bits.values())


def test_three_ways_to_write_one_filter() -> None:
    by_names = AttributeFilter(LOOP, names={"li", "ts"})
    assert AttributeFilter.from_bits(LOOP, 0b0011) == by_names
    assert AttributeFilter.from_class(LOOP, ForVelocityMonitor) == by_names
    assert AttributeFilter(LOOP).from_bits(0b0011) == by_names  # asked of a filter: its own schema
    assert AttributeFilter(LOOP).from_class(ForVelocityMonitor) == by_names
    assert AttributeFilter(LOOP, names={"li": int, "ts": int}) == by_names
    assert AttributeFilter.from_class(LOOP, ForStatistics) == AttributeFilter(LOOP, {"ts", "lo", "vc"})
    assert hash(AttributeFilter.from_bits(LOOP, 3)) == hash(by_names)


def test_names_that_must_be_absent() -> None:
    anonymous = AttributeFilter(LOOP, {"ts"}, absent={"lo"})
    assert anonymous.passes({"ts", "vc"})
    assert not anonymous.passes({"ts", "lo"})
    assert AttributeFilter.from_bits(LOOP, 0b0010, 0b0100) == anonymous


class Wrong:
    li: str


class Optional:
    li: int | None
    limit: ClassVar[int] = 3


def test_optional_fields_count_as_their_type() -> None:
    assert AttributeFilter.from_class(LOOP, Optional) == AttributeFilter(LOOP, {"li"})


@pytest.mark.parametrize(
    ("attempt", "complaint", "offender"),
    [
        (lambda: AttributeFilter(LOOP, {"speed"}), "has no attribute speed", "speed"),
        (lambda: AttributeFilter(LOOP, {"li"}, {"li"}), "both present and absent", "li"),
        (lambda: AttributeFilter(LOOP, {"li": str}), "li is int, not str", "li"),
        (lambda: AttributeFilter(LOOP, "li"), "a collection of names is needed", None),
        (lambda: AttributeFilter.from_bits(LOOP, 0b10000), "bit 4 is beyond its 4 attributes", None),
        (lambda: AttributeFilter.from_bits(LOOP, -1), "not negative", None),
        (lambda: AttributeFilter.from_class(LOOP, Wrong), "li is int, not str", "li"),
        (lambda: AttributeFilter.from_class(LOOP, type("Empty", (), {})), "has no fields", None),
        (lambda: AttributeFilter.from_class(LOOP, 3), "a class is needed", None),
        (lambda: LOOP.bits_of({"li": "three"}), "li is int, not str", "li"),
        (lambda: LOOP.bits_of({"li": True}), "li is int, not bool", "li"),
        (lambda: LOOP.extend({"li": int}), "li is there already", "li"),
        (lambda: LOOP.extend({}), "must add at least one", None),
        (lambda: LOOP.extend({"x": "list"}), "not 'list'", "x"),
        (lambda: LOOP.at_version(2), "there is no version 2", None),
        (
            lambda: Schema("S", {f"n{i}": int for i in range(1_025)}),
            "MAX_SCHEMA_ATTRIBUTES",
            "n1024",
        ),
    ],
)
def test_what_does_not_conform_is_refused_by_name(attempt: Any, complaint: str, offender: str | None) -> None:
    with pytest.raises(SchemaError, match=complaint) as refused:
        attempt()
    assert refused.value.name == offender


@dataclass
class Engine:
    temp: float


@dataclass
class Car:
    engine: Engine
    plate: str


def test_structured_content_has_dotted_names() -> None:
    car = Schema("Car", {"engine": {"temp": float}, "plate": str})  # type: ignore[dict-item]
    assert list(car.attributes) == ["engine.temp", "plate"]
    assert AttributeFilter.from_class(car, Car) == AttributeFilter(car, {"engine.temp", "plate"})
    assert AttributeFilter(car, {"plate"}).passes({"plate": None}) is False


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: Schema("L", None),  # type: ignore[arg-type]
        lambda: Schema("L", [("a", int)]),  # type: ignore[arg-type]
        lambda: LOOP.bits(5),  # type: ignore[arg-type]
        lambda: AttributeFilter(LOOP, None),  # type: ignore[arg-type]
        lambda: AttributeFilter("Loop"),  # type: ignore[arg-type]
        lambda: AttributeFilter.from_bits(LOOP, "x"),
        lambda: AttributeFilter.from_bits(3),
        lambda: AttributeFilter.from_class(ForVelocityMonitor),
        lambda: AttributeFilter(Schema("S", {"cf": float}), {"cf": int}),
    ],
)
def test_nonsense_is_a_schema_error(attempt: Any) -> None:
    with pytest.raises(SchemaError):
        attempt()


def test_names_may_come_from_a_generator() -> None:
    assert AttributeFilter(LOOP, (name for name in ("li", "ts"))) == AttributeFilter(LOOP, {"li", "ts"})  # type: ignore[arg-type]


def test_an_int_is_welcome_where_a_float_is_declared() -> None:
    assert Schema("S", {"x": float}).bits_of({"x": 3}) == 1


def test_vectors_come_through_the_same_door_as_events() -> None:
    engine = Schema("Engine", {"engine.temp": int, "oil": float})
    assert engine.bits_of({"engine": {"temp": 90}, "oil": None}) == 0b01


class TestVersions:
    def test_positions_are_for_ever(self) -> None:
        newer = LOOP.extend({"cf": "float"}).extend({"lane": "str"})
        assert newer.version == 3
        assert newer.bits({"li", "ts"}) == LOOP.bits({"li", "ts"})
        assert newer.at_version(1) == LOOP
        assert newer.at_version(2) == LOOP.extend({"cf": float})
        assert pickle.loads(pickle.dumps(newer)) == newer  # noqa: S301 - our own bytes

    @pytest.mark.parametrize(
        ("newer", "complaint"),
        [
            (Schema("Other", {"li": int}), "is not the subject Loop"),
            (Schema("Loop", {"li": int, "ts": int, "lo": str}), "vc is missing"),
            (Schema("Loop", {"li": int, "ts": int, "lo": str, "vc": int}), "vc was str and cannot become int"),
            (Schema("Loop", {"ts": int, "li": int, "lo": str, "vc": str}), "li must keep position 0"),
            (Schema("Loop", {"li": int, "ts": int, "lo": str, "vc": str, "x": int}), "version 1 is not among"),
        ],
    )
    def test_only_appending_is_a_successor(self, newer: Schema, complaint: str) -> None:
        subjects = Subjects()
        subjects.define(LOOP)
        with pytest.raises(SchemaError, match=complaint):
            LOOP.check_successor(newer)
        if newer.subject == "Loop":
            with pytest.raises(SchemaError, match=complaint):
                subjects.define(newer)
        assert subjects.schema("Loop") == LOOP


def test_subjects_bind_names_to_short_numbers() -> None:
    subjects = Subjects()
    assert subjects.define(LOOP) == 0
    assert subjects.define(Schema("Weather", {"temp": float})) == 1
    assert subjects.define(LOOP.extend({"cf": float})) == 0
    assert (subjects.number("Weather"), subjects.subject(1)) == (1, "Weather")
    assert subjects.schema("Loop").version == 2
    assert subjects.schema("Loop", version=1) == LOOP
    assert [schema.subject for schema in subjects] == ["Loop", "Weather"]
    with pytest.raises(SchemaError, match="no such subject; known are Loop, Weather"):
        subjects.schema("Loops")
    with pytest.raises(SchemaError, match="no subject has the number 7"):
        subjects.subject(7)


@examples(200, 5_000)
@given(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)))
def test_vector_and_names_say_the_same(present: set[int], absent: set[int], event: set[int]) -> None:
    names = list(LOOP.attributes)
    wanted, unwanted = {names[i] for i in present}, {names[i] for i in absent - present}
    structure = AttributeFilter(LOOP, wanted, unwanted)
    held = {names[i] for i in event}
    assert structure.passes_bits(LOOP.bits(held)) == structure.passes(held)


def test_covering_of_attribute_filters_is_exact() -> None:
    schema = Schema("S", {"a": int, "b": int, "c": int})
    filters = [
        AttributeFilter(schema, {n for n in "abc" if signs[n] == 1}, {n for n in "abc" if signs[n] == 2})
        for signs in (dict(zip("abc", chosen, strict=True)) for chosen in product(range(3), repeat=3))
    ]
    for one, other in product(filters, repeat=2):
        expected = all(one.passes_bits(bits) for bits in range(8) if other.passes_bits(bits))
        assert one.covers(other) == expected

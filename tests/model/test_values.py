"""The door for values: what comes in, in which shape, and what is refused with which words."""

import enum
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tidings.model.errors import InvalidValueError, TidingsError
from tidings.model.limits import MAX_ATTRIBUTES, MAX_NAME_CHARACTERS, MAX_STRING_CHARACTERS
from tidings.model.values import Attributes, Context, checked_value


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    HELLO = "hello"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("text", "text"),
        (Colour.RED, 1),
        (Word.HELLO, "hello"),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
    ],
)
def test_values_come_in_as_plain_types(given: Any, kept: Any) -> None:
    value = checked_value(given)
    assert value == kept
    assert type(value) is type(kept)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (float("nan"), "not a finite number"),
        (float("inf"), "not a finite number"),
        (2**63, "an integer of 64 bits and a sign does not fit"),
        pytest.param(10**5000, "does not fit", id="too long even to print"),
        pytest.param("\ud800", "half of a surrogate pair at character 0", id="surrogate"),
        ("x" * (MAX_STRING_CHARACTERS + 1), "MAX_STRING_CHARACTERS"),
        (b"bytes", "go into the payload"),
        ([1], "not list"),
        (Decimal("1.5"), "not Decimal"),
        (Fraction(1, 3), "not Fraction"),
        (1j, "not complex"),
    ],
)
def test_other_values_are_refused_by_name(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint) as refused:
        Attributes.of({"speed": given})
    assert str(refused.value).startswith("speed: ")
    assert isinstance(refused.value, TidingsError)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "must not be empty"),
        ("$subject", "the system's"),
        ("n" * (MAX_NAME_CHARACTERS + 1), "MAX_NAME_CHARACTERS"),
        (3, "must be a string"),
        ("\udfff", "surrogate"),
    ],
)
def test_names_are_checked(name: Any, complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint):
        Attributes.of({name: 1})


def test_none_is_missing_and_nesting_becomes_dots() -> None:
    given = {"a": None, "engine": {"temp": 90, "oil": {"level": 0.5, "kind": None}}}
    assert Attributes.of(given) == Attributes({"engine.temp": 90, "engine.oil.level": 0.5})


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"engine\.temp: given twice"):
        Attributes.of({"engine.temp": 1, "engine": {"temp": 2}})


def test_nesting_and_number_are_bounded() -> None:
    deep: dict[str, Any] = {"x": 1}
    for _ in range(20):
        deep = {"x": deep}
    with pytest.raises(InvalidValueError, match="MAX_ATTRIBUTE_NESTING"):
        Attributes.of(deep)
    with pytest.raises(InvalidValueError, match="MAX_ATTRIBUTES"):
        Attributes.of({f"n{i}": i for i in range(MAX_ATTRIBUTES + 1)})
    with pytest.raises(InvalidValueError, match="must be a mapping"):
        Attributes.of([("a", 1)])  # type: ignore[arg-type]


def test_attributes_never_change() -> None:
    attributes = Attributes.of({"a": 1})
    with pytest.raises(TypeError, match="never change"):
        attributes["a"] = 2
    with pytest.raises(TypeError, match="never change"):
        del attributes["a"]
    changes: list[tuple[str, list[Any]]] = [("update", [{"a": 2}]), ("pop", ["a"]), ("setdefault", ["b", 2])]
    for name, arguments in [*changes, ("clear", []), ("popitem", [])]:
        with pytest.raises(TypeError, match="never change"):
            getattr(attributes, name)(*arguments)
    assert attributes == Attributes({"a": 1})


def test_there_is_no_way_around_the_door() -> None:
    with pytest.raises(InvalidValueError, match="not a finite number"):
        Attributes({"x": float("nan")})
    attributes = Attributes({"a": 1})
    with pytest.raises(TypeError, match="never change"):
        attributes.__init__({"b": 2})  # type: ignore[misc]
    empty: list[Any] = [[], "", 0]
    for nothing in empty:
        with pytest.raises(InvalidValueError, match="must be a mapping"):
            Attributes.of(nothing)
    with pytest.raises(InvalidValueError, match="must not be empty"):
        Attributes.of({"a": {"": 1}})
    half = Context.of({f"a{i}": i for i in range(600)})
    with pytest.raises(InvalidValueError, match="MAX_ATTRIBUTES"):
        half.merged({f"b{i}": i for i in range(600)})


def test_one_and_true_and_one_point_nought_differ() -> None:
    one, true, real = Attributes.of({"a": 1}), Attributes.of({"a": True}), Attributes.of({"a": 1.0})
    assert one != true != real != one
    assert len({one, true, real}) == 3
    assert one == Attributes.of({"a": 1})
    assert hash(one) == hash(Attributes.of({"a": 1}))


def test_many_from_columns_are_those_of_each_row() -> None:
    columns: dict[str, list[Any]] = {"x": [1, None, 2.5], "y": ["a", "b", None], "z": [None, None, None]}
    found = Context.trusted_columns(columns, 3)
    assert found == [Context({"x": 1, "y": "a"}), Context({"y": "b"}), Context({"x": 2.5})]
    assert all(type(one) is Context for one in found)
    assert Context.trusted_columns({}, 2) == [Context(), Context()]


def test_trusted_attributes_are_not_copied_and_survive_pickling() -> None:
    attributes = Attributes.of({"a": 1, "b": "x"})
    assert Attributes.of(attributes) is attributes
    assert pickle.loads(pickle.dumps(attributes)) == attributes  # noqa: S301 - our own bytes


def test_a_context_merges_by_name() -> None:
    context = Context.of({"x": 1.0, "y": 2.0, "role": "medic"})
    assert context.merged({"x": 5.0, "role": None}) == Context.of({"x": 5.0, "y": 2.0})
    assert context["x"] == 1.0


def test_taking_away_reaches_what_is_nested() -> None:
    context = Context.of({"engine": {"temp": 90, "oil": 0.5}, "engines": 2})
    assert context.merged({"engine": {"temp": None}}) == Context.of({"engine.oil": 0.5, "engines": 2})
    assert context.merged({"engine": None}) == Context.of({"engines": 2})
    assert context.merged({"engine.temp": None, "engine": {"oil": 0.4}}) == Context.of(
        {"engine.oil": 0.4, "engines": 2}
    )

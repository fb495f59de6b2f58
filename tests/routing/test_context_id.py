"""A context's id says all that filters could tell, and nothing else."""

import os
import subprocess
import sys

import pytest
from hypothesis import given

from tests.sizes import examples
from tests.strategies import contents
from tidings.model.values import Context
from tidings.routing.bloom import context_id

DIFFERENT: list[dict[str, object]] = [
    {},
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": 0},
    {"a": 0.0},
    {"a": False},
    {"a": ""},
    {"b": 1},
    {"a": 2**53},
    {"a": 2**53 + 1},
    {"a": float(2**53)},
    {"a": -(2**63)},
    {"a": -(2.0**63)},
    {"a": "b", "c": "d"},
    {"a": "bc", "d": ""},
    {"ab": "c", "d": ""},
    {"a": "\0", "b": 1},
    {"a": "\0b", "c": 1},
]


def test_contexts_that_filters_can_tell_apart_have_different_ids() -> None:
    assert len({context_id(Context(one)) for one in DIFFERENT}) == len(DIFFERENT)


@given(contents, contents)
@examples(300, 5_000)
def test_ids_are_equal_exactly_when_contexts_are(one: dict[str, object], other: dict[str, object]) -> None:
    first, second = Context(one), Context(other)
    assert (context_id(first) == context_id(second)) is (first == second)


@given(contents)
@examples(100, 2_000)
def test_the_order_of_the_values_does_not_matter(given: dict[str, object]) -> None:
    forwards, backwards = Context(given), Context(dict(reversed(given.items())))
    context_id.cache_clear()
    first = context_id(forwards)
    context_id.cache_clear()
    assert context_id(backwards) == first


def test_zero_has_no_sign() -> None:
    """No filter can tell: nothing can be divided by zero."""
    context_id.cache_clear()
    negative = context_id(Context({"a": -0.0}))
    context_id.cache_clear()
    assert context_id(Context({"a": 0.0})) == negative


@pytest.mark.process
def test_ids_do_not_depend_on_the_process() -> None:
    program = (
        "from tidings.model.values import Context; from tidings.routing.bloom import context_id;"
        "print(context_id(Context({'zone': 'north', 'battery': 0.5, 'n': 7, 'on': True})).hex())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {"3e5f9124e2ec1d64aadd5d38aed4a557"}

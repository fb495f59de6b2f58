"""The engine on the index is the engine on the reference: effect by effect, on histories with policies of all kinds."""

from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.histories import LARGE, histories, own_elements
from tests.sizes import examples
from tidings.engine import Engine, Settings
from tidings.engine.matcher import FastMatcher, NaiveMatcher
from tidings.engine.operations import Operation


@pytest.fixture(scope="module", autouse=True)
def _own_elements() -> Iterator[None]:
    with own_elements():
        yield


@given(histories(answered=False))
@examples(18, 200)
def test_the_index_and_the_reference_lead_to_the_same_effects(history: list[tuple[int, Operation]]) -> None:
    settings = Settings(large_message_bytes=LARGE, host="here", govern=frozenset({"cyd"}))
    fast, naive = Engine(settings, FastMatcher()), Engine(settings, NaiveMatcher())
    for now, operation in history:
        assert fast.handle(operation, now) == naive.handle(operation, now), operation
    assert fast.save() == naive.save()

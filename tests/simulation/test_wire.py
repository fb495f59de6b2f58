"""What operations are on the wire: everything that they say, and nothing twice."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from tidings import AttributeFilter, Context, ContextFilter, Filter, Schema
from tidings.engine.journey import Journey, Shape, Way
from tidings.engine.operations import Advertise, Define, Publish, SetContext, SetPolicy, Subscribe, Unsubscribe
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.subscription import Subscription
from tidings.simulation.wire import encoded, size_of

ID = UUID("018bcfe5-6800-7000-8000-000000000001")
LOOP = Schema("Loop", {"li": int, "lo": str})
EVENT = Event.of({"n": 1, "s": "x"}, id=ID, publisher="p", timestamp=5, sequence=1, context={"x": 2.5})


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (Unsubscribe("c", "s1"), ["Unsubscribe", "c", "s1", None, None]),
        (SetContext("c", Context.of({"x": 1.5})), ["SetContext", "c", {"x": 1.5}, None, None]),
        (SetPolicy("c", "s1", None), ["SetPolicy", "c", "s1", None, None]),
        (
            Advertise(Advertisement.of(Filter.parse("n>1"), id="a", publisher="p", publisher_context=["x"])),
            ["Advertise", ["a", "p", "n > 1", ["x"], [], None], None],
        ),
        (
            Subscribe(
                Subscription.of(
                    Filter.parse("n > 1"),
                    id="s",
                    subscriber="c",
                    publishers=ContextFilter.parse("x = this.x"),
                    structure=AttributeFilter(LOOP, names={"lo", "li"}),
                ),
                Way("b1", (1, 3), "abc"),
            ),
            [
                "Subscribe",
                [
                    *("s", "c", None, [["Loop", 1, {"li": "int", "lo": "str"}], ["li", "lo"], []], "n > 1"),
                    *("x = this.x", None, None, "subscription"),
                ],
                ["b1", [1, 3], "abc", False, b""],
            ],
        ),
        (Define("c", LOOP), ["Define", "c", ["Loop", 1, {"li": "int", "lo": "str"}]]),
        (
            Publish(EVENT, Journey(common=Shape(removed=frozenset({"b", "a"})))),
            [
                "Publish",
                [ID.bytes, "p", 5, 1, {"n": 1, "s": "x"}, None, None, {"x": 2.5}, None, None, None, None],
                [
                    None,
                    False,
                    [False, ["a", "b"], [], [], None],
                    {},
                    ["", "", False, False, b"", None, [], 0, [], [], []],
                ],
            ],
        ),
    ],
)
def test_an_operation_is_the_array_of_its_fields(operation: Any, said: list[Any]) -> None:
    assert msgspec.msgpack.decode(encoded(operation)) == said
    assert size_of(operation) == len(encoded(operation))

"""What is addressed to a service is for who knows the address: nobody learns it by asking for everything."""

import pyarrow as pa
import pytest

from tests.engine.messages import publish, subscribe
from tidings.engine import Engine, Settings
from tidings.engine.effects import Deliver, Reject
from tidings.model.identity import uuid7

LONG = "0123456789abcdef" * 2
KNOWS = ["service_topic = 'abc'", "service_topic = 'abc' AND n > 0", "n > 0 AND 'abc' = service_topic"]
BROAD = ["", "n > 0", "n IS NOT NULL OR k = 1"]
GUESSES = [
    "service_topic LIKE '0123456789abcdef0123456789abcde%'",
    *("service_topic IS NOT NULL", "service_topic LIKE 'a%'", "service_topic > ''", "service_topic IN ('abc', 'x')"),
    *("service_topic = 'abc' OR n > 0", "NOT service_topic = 'x'", "service_topic = other"),
]


def engine() -> Engine:
    made = Engine(Settings())
    for number, content in enumerate([*KNOWS, *BROAD, "service_topic = 'other'"]):
        assert not [one for one in made.handle(subscribe(f"s{number}", content), 1) if isinstance(one, Reject)]
    return made


def test_only_who_names_the_address_gets_what_is_said_to_it() -> None:
    effects = engine().handle(publish({"service_topic": "abc", "n": 1}), 2)
    assert [one.notification.subscription for one in effects if isinstance(one, Deliver)] == ["s0", "s1", "s2"]
    plain = engine().handle(publish({"n": 1}), 2)
    assert [one.notification.subscription for one in plain if isinstance(one, Deliver)] == ["s3", "s4", "s5"]


@pytest.mark.parametrize("content", GUESSES)
def test_an_address_cannot_be_asked_for_by_guessing(content: str) -> None:
    (refused,) = engine().handle(subscribe("guess", content), 2)
    assert isinstance(refused, Reject)
    assert "service_topic can only be asked for with =" in refused.reason


def test_who_knows_most_of_an_address_may_ask_for_all_that_begin_so() -> None:
    made = engine()
    made.handle(subscribe("answers", f"service_topic LIKE '{LONG}/%'"), 2)
    effects = made.handle(publish({"service_topic": f"{LONG}/7"}), 3)
    assert [one.notification.subscription for one in effects if isinstance(one, Deliver)] == ["answers"]


def test_in_batches_too() -> None:
    rows = {
        "id": [str(uuid7(number, bytes(10))) for number in (1, 2)],
        "publisher": ["p", "p"],
        "timestamp": pa.array([2, 3], pa.timestamp("us", "UTC")),
        "service_topic": ["abc", None],
        "n": [1, 1],
    }
    notes = engine().batch(pa.table(rows)).notifications()
    told = sorted(zip(notes["event"].to_pylist(), notes["subscription"].to_pylist(), strict=True))
    assert told == [(0, "s0"), (0, "s1"), (0, "s2"), (1, "s3"), (1, "s4"), (1, "s5")]


def test_explained() -> None:
    made = engine()
    event = publish({"service_topic": "abc", "n": 1}).event
    (explanation,) = made.explain(event, subscription="s3")
    assert not explanation.delivered
    assert "does not name it" in explanation.reason
    assert [one.delivered for one in made.explain(event, subscription="s0")] == [True]

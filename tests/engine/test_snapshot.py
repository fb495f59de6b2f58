"""An engine's tables can be listed, and its whole state saved and restored."""

from typing import Any

import pytest

from tests.engine.messages import advertise, publish, situate, subscribe
from tests.engine.overlay import LINE, Overlay
from tidings import InvalidValueError, Schema, policies
from tidings.engine import Engine, Settings
from tidings.engine.operations import Define, DelegateContext, SetLoad, SetPolicy, Trust
from tidings.model.schema import AttributeFilter

LOOP = Schema("Loop", {"li": int, "ts": int}).extend({"lo": str})
CLASH = "PolicyStatement { On(Publication) { If {} Then {KeepOnlyAttributes(m)} } }"
HISTORY: list[Any] = [
    Define("bob", LOOP),
    situate("alice", x=1.5, role="driver"),
    DelegateContext("alice", "gps"),
    advertise("a1", "n > 0", policy=policies.remove("m"), publisher_context=["x"]),
    subscribe("s1", "n > 3", publishers="x > this.x", durable="mine", policy=CLASH),
    subscribe("s2", "", "carol", subject="Loop", structure=AttributeFilter(LOOP, {"li"}, {"lo"}), notify="client"),
    subscribe("wall", "n > 9", "hub", policy=policies.firewall()),
    SetPolicy("hub", "s1", str(policies.to_json())),
    subscribe("s3", "n > 5", "dave"),
    advertise("a2", "n < 5", "erin"),
    Trust("alice", "G", True, 1 << 50),
    SetLoad(0.5),
    publish({"n": 4, "m": 1}, context={"x": 9.0}),  # the conflict is told
]
AFTER: list[Any] = [
    publish({"n": 4, "m": 1}, number=2, context={"x": 9.0}),
    publish({"n": 6}, number=3),
    publish({"n": 10}, number=4),
    publish({"li": 1}, number=5, subject="Loop"),
    publish({"li": "one"}, number=6, subject="Loop"),
    situate("alice", x=10.0),
    subscribe("s4", "n < 3"),
]


def engine() -> Engine:
    made = Engine(Settings(govern=frozenset({"warden"})))
    for now, operation in enumerate(HISTORY, 1):
        made.handle(operation, now)
    return made


def test_what_is_restored_goes_on_as_if_nothing_had_happened() -> None:
    one = engine()
    other = Engine.restore(one.state.settings, one.save())
    assert other.tables() == one.tables()
    assert other.save() == one.save()
    for now, operation in enumerate(AFTER, 100):
        assert other.handle(operation, now) == one.handle(operation, now)
    assert other.save() == one.save()


def test_tables_can_be_listed() -> None:
    tables = engine().tables()
    assert [one.id for one in tables.subscriptions] == ["s1", "s2", "wall", "s3"]
    assert {one.id for one in tables.advertisements} == {"a1", "a2"}
    assert tables.contexts == {"alice": {"x": 1.5, "role": "driver"}}
    assert tables.policies.keys() == {"a1", "s1", "wall"}
    assert tables.operator_policies == {"s1": str(policies.to_json())}
    assert tables.hops["s3"] == "dave"
    assert [one.subject for one in tables.schemas] == ["Loop"]


def test_what_came_from_other_brokers_is_listed_and_not_saved() -> None:
    line = Overlay(LINE[:1])
    line.advertise("b2", "erin", "n < 5")
    line.subscribe("b1", "alice", "n > 3")
    tables = line.engines["b1"].tables()
    assert (tables.hops["a-erin"], tables.sent["s-alice"]) == ("b2", ["b2"])
    restored = Engine.restore(line.engines["b1"].state.settings, line.engines["b1"].save()).tables()
    assert (restored.hops, restored.sent) == ({"s-alice": "alice"}, {})


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"\x80", engine().save()[:-3], engine().save().replace(b"format\x04", b"format\x05")]
)
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValueError, match=r"no saved state|format 5"):
        Engine.restore(None, data)

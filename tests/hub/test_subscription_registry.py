"""What a hub must know of its clients, and for how long."""

import pytest

import tidings as td
from tidings.runtime import subscription_registry


def test_publishers_are_forgotten_when_there_are_very_many_and_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_registry, "MAX_REMEMBERED_PUBLISHERS", 3)
    with td.Hub() as hub:
        held = hub.client("car").subscribe("n > 0")
        for number in (1, 2):
            for name in ("a", "b", "c", "d"):
                hub.client(name).publish({"n": number})
        assert len(hub.processor.registry.events.sequences) == 3
        assert [note.event.publisher for note in held.take()] == ["a", "b", "c", "d"] * 2

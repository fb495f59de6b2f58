"""Observers: connections that only ask questions, beside the clients whose names they may have."""

from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.broker.running_broker import running_broker
from tidings.testing import broker


def test_an_observer_leaves_the_client_of_its_name_connected() -> None:
    with running_broker() as address, td.connect_sync(str(address), "car-1") as car:
        inbox = car.subscribe("n = 1")
        for _ in range(2):
            with td.connect_sync(str(address), "car-1", observer=True) as observer:
                [why] = observer.explain({"n": 1})
                assert (why.subscription, why.delivered) == (inbox.id, True)
        car.publish({"n": 1})
        assert [note.attributes["n"] for note in inbox.take(timeout=60)] == [1]
        assert car.state.connections == 1


def test_a_client_leaves_the_observer_of_its_name_connected() -> None:
    with running_broker() as address, td.connect_sync(str(address), "car-1", observer=True) as observer:
        with td.connect_sync(str(address), "car-1") as car:
            car.publish({"n": 1})
        assert observer.ask("status")["broker"] == "b1"
        assert observer.state.connections == 1


def test_an_observer_is_a_connection_like_others_for_the_broker() -> None:
    """Heartbeats, new limits and the end of the broker reach it."""
    seen: list[td.ConnectionState] = []
    with (
        broker() as served,
        td.connect_sync(served.address, "car-1", observer=True, on_state=seen.append) as observer,
    ):
        served.stop()
        assert next(state for state in observer.states() if state.state != "connected")
    assert "the broker stops" in {state.reason for state in seen}


def test_an_observer_does_not_replay_what_the_client_of_its_name_has(tmp_path: Path) -> None:
    with running_broker(tmp_path) as address, td.connect_sync(str(address), "car-1") as car:
        inbox = car.subscribe("n = 1")
        car.publish({"n": 1})
        with td.connect_sync(str(address), "car-1", observer=True) as observer:
            asked: dict[str, Any] = {"subscriptions": [inbox.id], "offset": 0}
            with pytest.raises(td.RefusedError, match="replay is for clients"):
                observer.ask("replay", **asked)
            assert car.ask("replay", **asked)["notes"]

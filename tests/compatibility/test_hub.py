"""Hubs of earlier versions are opened with all that they had, and go on."""

from pathlib import Path

import pytest

import tidings as td
from tests.compatibility.contents import event_id, hub_state
from tests.compatibility.release import Release
from tests.hub.cases import NOW
from tidings.model.errors import PublishedBeforeError
from tidings.testing import VirtualClock

LATER = NOW + 3_600_000_000


@pytest.fixture(params=["closed", "crashed"])
def hub_folder(release: Release, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a hub that was closed, whose last snapshot has its whole state, or of one that crashed, whose last
    records are not in the snapshot."""
    return release.unpack("hub", tmp_path / "hubs") / str(request.param)


def test_it_has_all_that_it_had(release: Release, hub_folder: Path) -> None:
    with td.Hub(hub_folder, clock=VirtualClock(LATER)) as hub:
        assert hub.notes == []
        assert hub_state(hub) == release.expected("hub")


def test_it_goes_on(release: Release, hub_folder: Path) -> None:
    waiting = [note["id"] for note in release.expected("hub")["backlogs"]["bus-1 every"]]
    with td.Hub(hub_folder, clock=VirtualClock(LATER), govern=["city"]) as hub:
        camera = hub.client("cam-1")
        with pytest.raises(PublishedBeforeError):
            camera.publish({"n": 7}, id=event_id(7))
        receipt = camera.publish({"n": 50, "plate": "b"}, id=event_id(50))
        assert receipt.event.sequence == 9
        assert receipt.event.context == {"x": 12.5, "zone": "a"}
        every = hub.client("bus-1").subscribe("n >= 0 or msg = 'jam'", durable="every")
        assert every.id == "every"
        taken = every.take()
        assert [str(note.event.id) for note in taken] == [*waiting, str(event_id(50))]
        assert taken[-1].attributes == {"n": 50}
        every.acknowledge(*taken)
    with td.Hub(hub_folder, clock=VirtualClock(LATER)) as hub:
        (every,) = [one for one in hub.client("bus-1").subscriptions() if one.durable == "every"]
        assert every.take() == []
        hub.client("cam-1").publish({"n": 51}, id=event_id(51))
        assert [note.attributes for note in every.take()] == [{"n": 51}]


def test_its_history_can_be_asked(hub_folder: Path) -> None:
    with td.Hub(hub_folder, clock=VirtualClock(LATER)) as hub:
        replayed = [note.attributes.get("n") for note in hub.client("bus-1").replay() if note.subscription == "every"]
    assert replayed == [0, 1, 2, 3, 4, None, 6, 7, 100]

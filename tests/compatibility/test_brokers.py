"""Brokers start on the journals of earlier versions: after a stop, and after a kill that tore the last record."""

from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.compatibility.brokers import PATIENCE, broker_tables, take_durable
from tests.compatibility.contents import event_id
from tests.compatibility.release import Release
from tidings.cli.overlay import LocalOverlay
from tidings.journal import Journal
from tidings.model.errors import PublishedBeforeError
from tidings.simulation.topologies import line

EVERY: dict[str, Any] = {"content": "n >= 0"}
NEAR: dict[str, Any] = {"content": "n >= 1", "publishers": "x between this.x - 5 and this.x + 5"}


@pytest.mark.process
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_overlay_goes_on(release: Release, tmp_path: Path, end: str) -> None:
    expected = release.expected("brokers")
    backlogs = expected.pop("backlogs")[end]
    folder = release.unpack("brokers", tmp_path / "brokers") / end
    with LocalOverlay(line(2), folder) as overlay:
        first, second = overlay.addresses["b1"], overlay.addresses["b2"]
        assert broker_tables(first) == expected
        assert take_durable(first, "bus-1", "every", len(backlogs["every"]), **EVERY) == backlogs["every"]
        assert take_durable(first, "car-1", "near", len(backlogs["near"]), **NEAR) == backlogs["near"]
        with td.connect_sync(second, name="cam-2") as camera:
            camera.advertise("n >= 0", ("x",))
            camera.set_context(x=12.5)
            overlay.settle()
            with pytest.raises(PublishedBeforeError):
                camera.publish({"n": 7}, id=event_id(7))
            camera.publish({"n": 20, "plate": "b"}, id=event_id(20), safe="settled")
        every, near = take_durable(first, "bus-1", "every", 1, **EVERY), take_durable(first, "car-1", "near", 1, **NEAR)
        assert [note["attributes"] for note in (*every, *near)] == [{"n": 20}, {"n": 20, "plate": "b"}]
        with td.connect_sync(first, name="bus-1") as bus:  # what was acknowledged does not come again
            again = bus.subscribe(durable="every", **EVERY)
            with td.connect_sync(first, name="cam-1") as camera:
                camera.advertise("n >= 0")
                camera.publish({"n": 21}, id=event_id(21))
            assert [note.attributes for note in again.take(timeout=PATIENCE)] == [{"n": 21}]


def test_a_torn_record_is_cut_off(release: Release, tmp_path: Path) -> None:
    folder = release.unpack("brokers", tmp_path / "brokers") / "killed" / "b1-journal"
    with Journal.open(folder, create=False) as journal:
        (note,) = journal.notes
        assert "an unfinished write" in note

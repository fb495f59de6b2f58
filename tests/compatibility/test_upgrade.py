"""A released version and the present one: folders that one wrote and the other opens, and overlays with both."""

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.compatibility.brokers import PATIENCE, take_durable
from tests.compatibility.old_version import MixedOverlay, unpack_wheel
from tests.compatibility.release import RELEASES, Release
from tidings.cli.overlay import LocalOverlay
from tidings.simulation.topologies import line

pytestmark = pytest.mark.process

TRIM = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([plate]) } } }"
EVERY: dict[str, Any] = {"content": "n >= 0", "policy": TRIM}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    given: Release = request.param
    return given


@pytest.fixture(scope="module")
def packages(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel of the release."""
    return unpack_wheel(release, tmp_path_factory.mktemp(f"tidings-{release.version}"))


def publish(address: str, numbers: range) -> list[dict[str, Any]]:
    """Publishes events with these numbers; their ids and attributes as a subscriber gets them."""
    with td.connect_sync(address, name="cam-1") as camera:
        camera.advertise("n >= 0")
        receipts = [camera.publish({"n": number, "plate": "a"}) for number in numbers]
    return [{"id": str(one.event.id), "attributes": {"n": one.event.attributes["n"]}} for one in receipts]


def short(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": note["id"], "attributes": note["attributes"]} for note in notes]


@pytest.mark.parametrize("end", ["terminated", "killed"])
def test_the_present_version_goes_on_with_a_broker_s_folder(
    release: Release, packages: Path, tmp_path: Path, end: str
) -> None:
    with MixedOverlay(line(1), tmp_path, release, packages, {"b1"}) as overlay:
        address = overlay.addresses["b1"]
        with td.connect_sync(address, name="bus-1") as bus:
            bus.subscribe(durable="every", **EVERY)
        due = publish(address, range(5))
        if end == "killed":
            overlay.kill("b1")
        else:
            overlay.children["b1"].ask_to_stop()
            assert overlay.children["b1"].await_end(PATIENCE) == 0
    with LocalOverlay(line(1), tmp_path) as overlay:
        address = overlay.addresses["b1"]
        due += publish(address, range(5, 8))
        assert short(take_durable(address, "bus-1", "every", len(due), **EVERY)) == due


def versions(overlay: LocalOverlay) -> dict[str, str]:
    """The version that each broker says it is, in its metrics."""
    found = {}
    for name, child in overlay.children.items():
        with urllib.request.urlopen(f"http://{child.http}/metrics", timeout=PATIENCE) as page:
            (found[name],) = re.findall(r'tidings_info\{.*version="(.*?)"', page.read().decode())
    return found


def exchange(overlay: LocalOverlay, first: int) -> None:
    """An event each way between the two brokers reaches a subscription at the other one, and no event comes twice."""
    one, other = overlay.addresses["b1"], overlay.addresses["b2"]
    with (
        td.connect_sync(one, name="bus-1") as bus,
        td.connect_sync(other, name="bus-2") as other_bus,
        td.connect_sync(one, name="cam-1") as camera,
        td.connect_sync(other, name="cam-2") as other_camera,
    ):
        for publisher in (camera, other_camera):
            publisher.advertise("n >= 0", ("x",))
            publisher.set_context(x=1.0)
        subscriptions = [one.subscribe("n >= 0", "x = 1.0", TRIM) for one in (bus, other_bus)]
        overlay.settle()
        for number, publisher in enumerate((camera, other_camera), first):
            publisher.publish({"n": number, "plate": "a"}, payload=b"picture", safe="settled")
        for subscription in subscriptions:
            notes = subscription.take(timeout=PATIENCE)
            while len(notes) < 2 and (more := subscription.take(timeout=PATIENCE)):
                notes += more
            assert sorted((note.attributes["n"], note.payload) for note in notes) == [
                (first, b"picture"),
                (first + 1, b"picture"),
            ]
            assert all(note.attributes.keys() == {"n"} for note in notes)


def test_brokers_are_upgraded_one_after_the_other(release: Release, packages: Path, tmp_path: Path) -> None:
    """What was published before an upgrade waits for a durable subscription at a broker of another version."""
    with MixedOverlay(line(2), tmp_path, release, packages, {"b1", "b2"}) as overlay:
        assert versions(overlay) == {"b1": release.version, "b2": release.version}
        with td.connect_sync(overlay.addresses["b2"], name="tram") as tram:
            tram.subscribe(durable="every", **EVERY)
        overlay.settle()
        due = publish(overlay.addresses["b1"], range(1))
        for number, name in enumerate(("b1", "b2"), 1):
            overlay.upgrade(name)
            overlay.settle()
            exchange(overlay, 100 * number)
            due += publish(overlay.addresses["b1"], range(number, number + 1))
            assert versions(overlay)[name] == td.__version__
        notes = take_durable(overlay.addresses["b2"], "tram", "every", len(due), **EVERY)
        assert [note for note in short(notes) if note["attributes"]["n"] < 100] == due

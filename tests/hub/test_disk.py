"""Disks that are full or fail: nothing is half done, and the caller is told."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import tidings as td
from tests.hub.cases import numbers
from tests.journal.cases import FailingDisk
from tidings.hub import Hub
from tidings.journal import JournalOptions
from tidings.model.errors import JournalError, JournalFailedError, JournalFullError

TRIM = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([secret]) } } }"

CHANGES: dict[str, Callable[[Hub], object]] = {
    "publish": lambda hub: hub.client("a").publish({"n": 9}),
    "subscribe": lambda hub: hub.client("a").subscribe("n > 3", id="new"),
    "subscribe again": lambda hub: hub.client("a").subscribe("n > 3", id="s1"),
    "unsubscribe": lambda hub: hub.client("a").unsubscribe("s1"),
    "advertise": lambda hub: hub.client("a").advertise("n > 3", id="new"),
    "unadvertise": lambda hub: hub.client("a").unadvertise("a1"),
    "set_context": lambda hub: hub.client("a").set_context(x=2),
    "set_policy": lambda hub: hub.client("a").set_policy("s1", None),
    "entrust": lambda hub: hub.client("a").let_set_context("b"),
    "schema": lambda hub: hub.client("a").schema(td.Schema("Loop", {"li": int})),
    "operator": lambda hub: hub.set_policy("a1", TRIM),
    "close": lambda hub: hub.client("c").close(),
}


def filled(folder: Path, disk: FailingDisk, options: JournalOptions | None = None) -> Hub:
    hub = Hub(folder, disk=disk, options=options)
    client = hub.client("a")
    client.set_context(x=1)
    client.subscribe("n > 0", id="s1", policy=TRIM)
    client.subscribe("n > 0", id="d1", durable="all")
    client.advertise("n > 0", id="a1")
    hub.client("c").subscribe("n > 0", id="c1")
    hub.client("a").publish({"n": 1, "secret": 2})
    return hub


@pytest.mark.parametrize("change", CHANGES)
def test_a_full_disk_refuses_and_leaves_everything_as_it_was(tmp_path: Path, change: str) -> None:
    disk = FailingDisk()
    hub = filled(tmp_path, disk)
    before = str(hub.tables())
    waiting = hub.stats().waiting
    disk.room = 20
    for _ in range(2):
        with pytest.raises(JournalFullError, match="make room and try again"):
            CHANGES[change](hub)
    assert str(hub.tables()) == before
    assert hub.client("a").context == {"x": 1}
    assert [one.id for one in hub.client("a").subscriptions()] == ["s1", "d1"]
    assert hub.stats().waiting == waiting
    with pytest.raises(td.RefusedError, match="has no schema"):
        hub.client("a").schema("Loop")
    with pytest.raises(td.RefusedError, match="does not let"):
        hub.client("b").set_context(of="a", x=5)
    disk.room = None
    hub.client("a").publish({"n": 2, "secret": 2})
    assert [note.attributes for note in hub.client("a").subscriptions()[0].take()] == [{"n": 1}, {"n": 2}]
    CHANGES[change](hub)
    after = str(hub.tables())
    hub.close()
    with Hub(tmp_path) as again:
        assert str(again.tables()) == after
        assert numbers(again.client("a").subscriptions()[-1 if change != "subscribe" else 1].take())[:2] == [1, 2]


def test_what_cannot_be_acknowledged_is_not(tmp_path: Path) -> None:
    disk = FailingDisk()
    hub = filled(tmp_path, disk)
    sub = hub.client("a").subscriptions()[1]
    taken = sub.take()
    disk.room = 0
    with pytest.raises(JournalFullError):
        sub.acknowledge_all()
    assert (sub.redeliver(), sub.take()) == (1, taken)
    disk.room = None
    assert sub.acknowledge_all() == 1
    hub.close()


def test_a_callback_on_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    hub = Hub(tmp_path, disk=disk)
    client = hub.client("a")

    def fill(note: td.Notification) -> None:
        disk.room = 0

    sub = client.subscribe("n > 0", durable="all", callback=fill)
    client.publish({"n": 1})
    assert "cannot be acknowledged" in caplog.text
    disk.room = None
    assert sub.redeliver() == 1
    disk.room = None
    hub.close()


def test_a_failed_fsync_delivers_nothing_and_ends_the_hub(tmp_path: Path) -> None:
    disk = FailingDisk()
    hub = filled(tmp_path, disk)
    client = hub.client("a")
    sub = client.subscriptions()[0]
    sub.take()
    disk.sync_error = errno.EIO
    with pytest.raises(JournalFailedError):
        client.publish({"n": 2})
    assert sub.take() == []
    disk.sync_error = None
    for use in (lambda: client.publish({"n": 3}), lambda: client.set_context(x=3), lambda: hub.set_load(0.1)):
        with pytest.raises(JournalFailedError):
            use()
    assert sub.take() == []
    hub.close()
    with Hub(tmp_path) as again:
        client = again.client("a")
        assert client.context == {"x": 1}
        assert numbers(client.subscriptions()[1].take())[0] == 1


def test_a_failed_write_ends_the_hub(tmp_path: Path) -> None:
    disk = FailingDisk()
    hub = filled(tmp_path, disk)
    disk.write_error = errno.EIO
    with pytest.raises(JournalFailedError):
        hub.client("a").subscribe("n > 3", id="new")
    disk.write_error = None
    with pytest.raises(JournalFailedError):
        hub.client("a").publish({"n": 3})
    hub.close()
    with Hub(tmp_path) as again:
        assert [one.id for one in again.client("a").subscriptions()] == ["s1", "d1"]


def test_a_snapshot_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.runtime.journal_upkeep.ROWS", 10)
    disk = FailingDisk()
    hub = Hub(tmp_path, disk=disk)
    client = hub.client("a")
    sub = client.subscribe("n > 0", durable="all")
    journal_store = hub.processor.journal_store
    assert journal_store is not None

    def refuse(offset: int, data: bytes) -> None:
        raise JournalFullError("no room for a snapshot")

    monkeypatch.setattr(journal_store.journal, "write_snapshot", refuse)
    for n in range(1, 31):
        client.publish({"n": n})
    assert journal_store.upkeep.wait()
    assert any("upkeep failed: no room for a snapshot" in note for note in hub.notes)
    hub.close()
    assert list((tmp_path / "snapshots").iterdir()) == []
    with Hub(tmp_path) as again:
        assert again.client("a").subscriptions()[0].waiting == 30
    assert sub.closed


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError):
        Hub(tmp_path / "file")


def test_below_the_reserve_events_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    disk = FailingDisk()
    hub = filled(tmp_path, disk, JournalOptions(convert=False, reserve_bytes=1000))
    client = hub.client("a")
    durable = client.subscriptions()[1]
    disk.free = 1000
    with pytest.raises(JournalFullError, match="are kept for acknowledgements and control"):
        client.publish({"n": 2})
    assert len(durable.take()) == 1
    assert durable.acknowledge_all() == 1
    client.subscribe("n > 7", id="new")
    hub.client("c").close()
    disk.free = None
    client.publish({"n": 9})
    assert numbers(client.subscriptions()[2].take()) == [9]
    hub.close()
    with Hub(tmp_path) as again:
        assert numbers(again.client("a").subscriptions()[1].take()) == [9]

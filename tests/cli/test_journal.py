"""`tidings journal` as a user runs it: checking, showing, repairing and trimming, also beside a process that writes."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import as_json, run, start
from tests.journal.cases import flip, log_of, segments_of
from tests.limits import PATIENCE
from tidings.hub import Hub
from tidings.journal import Journal, JournalOptions, Operation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a hub with a durable subscription that has read 15 of 40 events, in segments of ten records."""
    path = tmp_path / "b1"
    with Hub(path, options=JournalOptions(roll_records=10)) as hub:
        car, camera = hub.client("car-1"), hub.client("cam-1")
        sub = car.subscribe("n > 0", durable="all")
        camera.set_context(x=1.0)
        for n in range(1, 41):
            camera.publish({"n": n, "f": 1.0}, payload=b"\0abc")
        for note in sub.take(limit=15):
            sub.acknowledge(note)
    return path


def test_a_sound_journal(folder: Path) -> None:
    done = run("journal", "check", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "nothing is damaged"
    found = as_json("journal", "check", str(folder))
    assert {name: found[name] for name in ("journal", "first", "next", "records", "lost", "writer", "damage")} == {
        "journal": "hub",
        "first": 0,
        "next": 57,
        "records": 57,
        "lost": 0,
        "writer": None,
        "damage": [],
    }
    files = [path for path in folder.rglob("*") if path.parent != folder and path.is_file()]
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    assert run("journal", "repair", str(folder)).stdout == "nothing was damaged\n"


def test_damage_is_found_everywhere_then_repaired(folder: Path) -> None:
    one, other = segments_of(folder)[1], segments_of(folder)[3]
    flip(one, 40)
    flip(other, 40)
    done = run("journal", "check", str(folder))
    assert (done.returncode, done.stderr) == (1, "")
    for path in (one, other):
        [line] = [line for line in done.stdout.splitlines() if line.startswith(str(path))]
        assert f"`tidings journal repair {folder}` keeps what can be read" in line
    told = run("journal", "repair", str(folder), "--dry-run")
    lost = "20 records are lost (offsets 10 to 19, 30 to 39)"
    assert told.stdout == f"this would be done: {lost}; put aside: {one.name}, {other.name}\n"
    assert run("journal", "check", str(folder)).returncode == 1, "nothing was done"
    found = as_json("journal", "repair", str(folder))
    assert found["lost"] == [{"first": 10, "next": 20}, {"first": 30, "next": 40}]
    assert [Path(path).exists() for path in found["aside"]] == [True, True]
    assert as_json("journal", "check", str(folder))["lost"] == 20


def test_a_damaged_snapshot_is_a_remark(folder: Path) -> None:
    flip(next((folder / "snapshots").iterdir()), 60)
    done = run("journal", "check", str(folder))
    assert done.returncode == 0
    assert ".snapshot: damaged; it is passed over" in done.stdout


def test_records_are_shown_as_lines_of_json(folder: Path) -> None:
    done = run("journal", "show", str(folder), "--from", "1", "--limit", "2")
    context, event = map(json.loads, done.stdout.splitlines())
    assert {name: context[name] for name in ("offset", "kind", "client", "body")} == {
        "offset": 1,
        "kind": "set_context",
        "client": "cam-1",
        "body": {"x": 1.0},
    }
    assert event["attributes"] == {"n": 1, "f": 1.0}
    assert '"f": 1.0' in done.stdout
    assert (event["payload"], event["publisher"], event["sequence"]) == ("AGFiYw==", "cam-1", 1)
    assert event["timestamp"].endswith("+00:00")
    assert len(run("journal", "show", str(folder)).stdout.splitlines()) == 57
    assert run("journal", "show", str(folder), "--from", "57", "--json").stdout == ""


def test_what_a_durable_subscription_has_yet_to_read_is_kept(folder: Path) -> None:
    done = run("journal", "retain", str(folder), "--bytes", "0")
    assert done.returncode == 0
    assert done.stdout.startswith("files removed: 1, with ")
    assert "the rest is needed" in done.stderr
    assert as_json("journal", "retain", str(folder), "--days", "30")["removed"] == 0
    with Hub(folder) as hub:
        sub = hub.client("car-1").subscribe("n > 0", durable="all")
        assert [note.attributes["n"] for note in sub.take()] == list(range(16, 41))
        sub.acknowledge_all()
    found = as_json("journal", "retain", str(folder), "--days", "0")
    assert (found["removed"], found["first"]) == (4, 50)
    assert found["bytes"] == as_json("journal", "check", str(folder))["bytes"]


def test_a_journal_with_snapshots_of_others_is_left_alone(tmp_path: Path) -> None:
    with Journal.open(tmp_path, options=JournalOptions(roll_records=2)) as journal:
        journal.commit([Operation.control("k") for _ in range(5)], 1)
        journal.write_snapshot(5, b"mine")
    done = run("journal", "retain", str(tmp_path), "--bytes", "0")
    assert done.returncode == 1
    assert "whoever wrote them knows what is still needed" in done.stderr


def test_beside_a_process_that_has_it_open(folder: Path) -> None:
    with Hub(folder) as hub:
        hub.client("cam-1").publish({"n": 100})
        done = run("journal", "check", str(folder))
        assert done.returncode == 0
        assert "open in process " in done.stdout
        assert run("journal", "show", str(folder), "--from", "57").stdout.count("\n") == 1
        for arguments in (["repair"], ["repair", "--dry-run"], ["retain", "--days", "1"]):
            done = run("journal", arguments[0], str(folder), *arguments[1:])
            assert (done.returncode, done.stdout) == (1, "")
            assert "is open in process" in done.stderr
            assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["check", "no/such"], 1, "no/such is not a journal: there is no journal.toml"),
        (["show", "no/such"], 1, "is not a journal"),
        (["repair", "no/such"], 1, "is not a journal"),
        (["retain", "no/such", "--days", "1"], 1, "is not a journal"),
        (["retain", "no/such"], 2, "one of --days and --bytes is required"),
        (["retain", "no/such", "--days", "-1"], 2, "Invalid value for '--days'"),
        (["show", "no/such", "--limit", "0"], 2, "Invalid value for '--limit'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], code: int, complaint: str) -> None:
    done = run("journal", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_that_is_cut_short_is_damage(folder: Path) -> None:
    path = log_of(folder)
    path.write_bytes(path.read_bytes()[:-1])
    found = run("journal", "check", str(folder), "--json")
    assert found.returncode == 1
    [line] = json.loads(found.stdout)["damage"]
    assert line.startswith(str(path))


@pytest.mark.process
def test_whoever_reads_the_records_may_leave(folder: Path) -> None:
    with start("journal", "show", str(folder), stdout=left_pipe()) as process:
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE) != 0


def left_pipe() -> int:
    """One that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing

"""A broker as a process: when it is ready, how it is stopped, what it reloads, and what it does not start with."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.limits import PATIENCE
from tidings.cli.overlay.broker_process import ChildBroker
from tidings.model.errors import RefusedError

pytestmark = pytest.mark.process


def written(folder: Path, text: str, name: str = "b1") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'[broker]\nname = "{name}"\nlisten = "127.0.0.1:0"\n{text}')
    return path


@contextmanager
def running(folder: Path, text: str = "") -> Iterator[ChildBroker]:
    child = ChildBroker("b1", written(folder, text), folder / "b1.log")
    child.start()
    try:
        child.await_ready(PATIENCE)
        yield child
    finally:
        child.kill()


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def refused_start(path: Path) -> str:
    command = [sys.executable, "-m", "tidings", "broker", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    complaints = [line for line in done.stderr.splitlines() if line.startswith("tidings: ")]
    assert len(complaints) == 1
    return complaints[0]


def test_is_ready_when_it_says_so_and_gives_its_clients_all_before_it_ends(tmp_path: Path) -> None:
    with running(tmp_path, '[http]\nlisten = "127.0.0.1:0"\n') as child:
        with urllib.request.urlopen(f"http://{child.http}/readyz", timeout=60) as answer:
            assert json.load(answer) == {"ready": True, "reasons": []}
        with td.connect_sync(child.address, name="car") as car, td.connect_sync(child.address, name="cam") as cam:
            sub = car.subscribe("n >= 0")
            cam.publish_many([{"n": number} for number in range(3_000)], safe="accepted")
            with urllib.request.urlopen(f"http://{child.http}/metrics", timeout=60) as page:
                assert b'tidings_publications_total{outcome="accepted"} 3000.0' in page.read()
            child.ask_to_stop()
            assert child.await_end(PATIENCE) == 0
            got: list[Any] = []
            while len(got) < 3_000 and (more := sub.take(timeout=60)):
                got += more
            assert [note.attributes["n"] for note in got] == list(range(3_000))
    told = child.log.read_text()
    assert "signal=SIGTERM" in told
    assert "b1 has stopped" in told


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with running(tmp_path, "stop_seconds = 3600\n") as child, td.connect_sync(child.address, name="cam") as cam:
        idle = td.connect_sync(child.address, name="idle")
        idle.subscribe("n >= 0", limit=1)  # it takes nothing: what waits for it keeps the broker
        cam.publish_many([{"n": number} for number in range(40)], payload=b"x" * 500_000, safe="accepted")
        child.ask_to_stop()
        eventually(lambda: "signal=SIGTERM" in child.log.read_text())
        assert child.is_running
        child.ask_to_stop()
        assert child.await_end(PATIENCE) == 128 + signal.SIGTERM


def test_stands_still_once_it_is_paused(tmp_path: Path) -> None:
    with running(tmp_path) as child:
        for _round in range(50):
            child.pause()
            states = [path.read_text().rpartition(")")[2].split()[0] for path in _threads(child)]
            assert set(states) == {"T"}
            child.resume()
    child.pause()  # one that has ended: nothing to wait for


def _threads(child: ChildBroker) -> list[Path]:
    return list(Path(f"/proc/{child.process}/task").glob("*/stat"))


@pytest.fixture
def takes_orphans() -> Iterator[None]:
    """As the first process of a container does: an orphan is in the session of who takes it, and nobody wakes it."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    prctl(set_child_subreaper, 1)
    yield
    prctl(set_child_subreaper, 0)


@pytest.mark.usefixtures("takes_orphans")
def test_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = f"""
import pathlib, time
from tidings.cli.overlay.broker_process import ChildBroker
folder = pathlib.Path({str(tmp_path)!r})
child = ChildBroker("b1", folder / "b1.toml", folder / "b1.log")
child.start()
child.await_ready({PATIENCE})
child.pause()
print(child.process, flush=True)
time.sleep({PATIENCE})
"""
    written(tmp_path, "")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        number = int(starter.stdout.readline())
        starter.kill()
    eventually(lambda: os.waitpid(number, os.WNOHANG) != (0, 0))
    assert "its parent process has ended" in (tmp_path / "b1.log").read_text()


def test_reloads_its_file_and_says_what_needs_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as child, td.connect_sync(child.address, name="boss") as boss:
        with pytest.raises(RefusedError, match="no operator"):
            boss.ask("tables")
        written(tmp_path, 'operators = ["boss"]\nhost = "elsewhere"\n[logs]\nformat = "json"\n')
        child.reload()
        eventually(lambda: "needs a restart" in child.log.read_text())
        assert boss.ask("tables")["broker"] == "b1"
        lines = [json.loads(line) for line in child.log.read_text().splitlines() if line.startswith("{")]
        assert {"keys": "broker.host"} in [line["fields"] for line in lines]
        (tmp_path / "b1.toml").write_text("[broker]\nnmae = 'b1'\n")
        child.reload()
        eventually(lambda: "could not be reloaded" in child.log.read_text())
        assert "there is no such key" in child.log.read_text()
        assert boss.ask("tables")["broker"] == "b1"
        assert f"{tmp_path / 'b1.toml'}:2" in child.log.read_text()


def test_says_who_has_its_journal_or_its_address(tmp_path: Path) -> None:
    with running(tmp_path, '[journal]\nfolder = "kept"\n') as child:
        other = written(tmp_path, '[journal]\nfolder = "kept"\n')
        told = refused_start(other)
        assert f"is open in process {child.process}" in told
        assert "stop that one" in told
        (tmp_path / "b2.toml").write_text(f'[broker]\nname = "b2"\nlisten = "{child.address}"\n')
        assert "another program listens there already" in refused_start(tmp_path / "b2.toml")


def test_says_how_to_repair_a_journal_that_is_damaged(tmp_path: Path) -> None:
    with running(tmp_path, '[journal]\nfolder = "kept"\n') as child:
        with td.connect_sync(child.address, name="cam") as cam:
            cam.publish_many([{"n": number} for number in range(100)])
        child.kill()
    log = max((tmp_path / "kept" / "log").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    assert f"tidings journal repair {tmp_path / 'kept'}" in refused_start(tmp_path / "b1.toml")

"""A pipeline beside a running broker: it reads the journal that another process writes, and delivers through it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.limits import PATIENCE
from tests.sizes import sized
from tests.spark.settings import TOML as SETTINGS_IN_TOML
from tidings.cli.overlay.broker_process import ChildBroker
from tidings.client import SyncClient, SyncSubscription, connect_sync
from tidings.journal.lock import FILE as LOCK
from tidings.model.values import Value

pytestmark = [pytest.mark.spark, pytest.mark.java]
SUBSCRIPTIONS = {"all": "n >= 0", "even": "even = true", "late": "n >= 2000"}


@contextmanager
def broker(folder: Path) -> Iterator[ChildBroker]:
    path = folder / "broker.toml"
    path.write_text(f'[broker]\nname = "b1"\nlisten = "127.0.0.1:0"\n\n[journal]\nfolder = "{folder / "journal"}"\n')
    child = ChildBroker("b1", path, folder / "broker.log")
    child.start()
    try:
        child.await_ready(PATIENCE)
        yield child
    finally:
        child.kill()


def described(folder: Path, address: str) -> Path:
    lines = [json.dumps({"id": name, "subscriber": "desk", "content": text}) for name, text in SUBSCRIPTIONS.items()]
    (folder / "subscriptions.json").write_text("\n".join(lines))
    path = folder / "pipeline.toml"
    path.write_text(f"""
name = "city"
checkpoint = "checkpoint"
trigger = "200 milliseconds"

[spark]
master = "local[2]"
{SETTINGS_IN_TOML}

[journal]
path = "journal"
options = {{ kinds = "publish" }}

[subscriptions]
path = "subscriptions.json"
follow = false

[[sinks]]
format = "broker"
address = "tidings://{address}"
name = "city"
partitions = 2
""")
    return path


def started(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidings", "pipeline", "run", str(path)]
    with (path.parent / "log").open("ab") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    lock, until = path.parent / "checkpoint" / LOCK, time.monotonic() + PATIENCE
    while not lock.exists() or lock.read_text() != str(running.pid):  # Spark has not started yet
        assert running.poll() is None, (path.parent / "log").read_text()[-3000:]
        assert time.monotonic() < until, "the pipeline has not started Spark"
        time.sleep(0.1)
    return running


def killed(running: subprocess.Popen[bytes]) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def publish(client: SyncClient, first: int, end: int) -> None:
    client.publish_many({"n": number, "even": number % 2 == 0} for number in range(first, end))


def due(first: int, end: int) -> Counter[tuple[Value, Value]]:
    wants: dict[str, Callable[[int], bool]] = {
        "all": lambda _: True,
        "even": lambda number: number % 2 == 0,
        "late": lambda number: number >= 2000,
    }
    return Counter((name, number) for name, wanted in wants.items() for number in range(first, end) if wanted(number))


class Desk:
    """A live subscriber of what the pipeline found, who keeps all that it is told."""

    def __init__(self, client: SyncClient) -> None:
        self._inbox: SyncSubscription = client.subscribe("subscription IS NOT NULL", limit=1_000_000)
        self.told: list[tuple[Value, Value]] = []
        self.publishers: set[str] = set()

    def take(self, running: subprocess.Popen[bytes], count: int, log: Path) -> None:
        """Until it has been told so much."""
        until = time.monotonic() + PATIENCE
        while len(self.told) < count:
            assert running.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            for note in self._inbox.take(timeout=0.1):
                self.told.append((note.attributes["subscription"], note.attributes["n"]))
                self.publishers.add(note.event.publisher)

    def rest(self) -> None:
        """What comes after all that is due."""
        for note in self._inbox.take(timeout=3):
            self.told.append((note.attributes["subscription"], note.attributes["n"]))

    def in_order(self) -> bool:
        orders = {name: [number for one, number in self.told if one == name] for name in SUBSCRIPTIONS}
        return all(numbers == sorted(numbers, key=float) for numbers in orders.values())


def test_a_pipeline_that_is_killed_in_the_middle_of_a_batch_tells_everything_once(tmp_path: Path) -> None:
    with broker(tmp_path) as child, connect_sync(child.address, "cam") as cam, connect_sync(child.address, "d") as d:
        path, desk, events, log = described(tmp_path, child.address), Desk(d), 4_000, tmp_path / "log"
        publish(cam, 0, events)
        for _ in range(sized(1, 10)):
            running = started(path)
            before = len(desk.told)
            desk.take(running, before + 500, log)
            assert len(desk.told) < due(0, events).total()
            killed(running)
            publish(cam, events, events + 4_000)
            events += 4_000
        running = started(path)
        desk.take(running, due(0, events).total(), log)
        publish(cam, events, events + 100)  # while it runs
        events += 100
        desk.take(running, due(0, events).total(), log)
        desk.rest()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0, log.read_text()[-3000:]
        assert Counter(desk.told) == due(0, events)
        assert desk.in_order()
        assert desk.publishers == {"city/0", "city/1"}

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
from typing import TYPE_CHECKING, Any

import pytest

from tests.limits import PATIENCE
from tests.sizes import sized
from tidings.cli.overlay.child import Child
from tidings.client import SyncClient, SyncSubscription, connect_sync
from tidings.journal.lock import FILE as LOCK
from tidings.model.errors import InvalidValueError
from tidings.model.values import Value
from tidings.spark.broker_sink import BrokerSink, to_broker
from tidings.spark.pipeline.configuration import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SUBSCRIPTIONS = {"all": "n >= 0", "even": "even = true", "late": "n >= 2000"}


@contextmanager
def broker(folder: Path) -> Iterator[Child]:
    path = folder / "broker.toml"
    path.write_text(f'[broker]\nname = "b1"\nlisten = "127.0.0.1:0"\n\n[journal]\nfolder = "{folder / "journal"}"\n')
    child = Child("b1", path, folder / "broker.log")
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
spark.sql.shuffle.partitions = 2
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

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


def sunk(spark: "SparkSession", rows: list[dict[str, Any]], sink: BrokerSink, batch: int = 0) -> None:
    sink(spark.createDataFrame(rows, "street string, cars long"), batch)


def test_rows_of_any_query_are_published_once(spark: "SparkSession", tmp_path: Path) -> None:
    rows = [{"street": f"s{number % 7}", "cars": number % 3} for number in range(50)]
    with broker(tmp_path) as child, connect_sync(child.address, "d") as client:
        inbox = client.subscribe("cars >= 0")
        sink = to_broker(child.address, "counts", folder=tmp_path / "marks", by="street", partitions=2)
        for batch in (0, 0, 1):
            sunk(spark, rows, sink, batch)
        assert (sink.published, sink.known, sink.refused) == (100, 50, 0)
        told = Counter((note.attributes["street"], note.attributes["cars"]) for note in inbox.take())
        assert told == Counter({(row["street"], row["cars"]): 2 * rows.count(row) for row in rows})


def test_rows_that_the_broker_refuses_are_told(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as child:
        sink = to_broker(child.address, "p", folder=tmp_path / "marks", partitions=1)
        sink(spark.createDataFrame([('{"n":1}',), ("[1]",)], "attributes string"), 0)
        assert (sink.published, sink.refused) == (1, 1)
        assert "attributes: not a JSON object" in caplog.text


def test_a_broker_that_is_not_there_ends_the_batch_with_its_address(spark: "SparkSession", tmp_path: Path) -> None:
    sink = to_broker("tidings://127.0.0.1:9", folder=tmp_path, partitions=1, patience=0.5)
    with pytest.raises(Exception, match=r"UnreachableError: no broker could be reached: tidings://127\.0\.0\.1:9"):
        sunk(spark, [{"street": "s", "cars": 1}], sink)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("", "address: is missing"),
        ('address = "http://x"', "address: .* is not an address"),
        ('address = "b:1"\nsafe = "very"', "safe: 'very' is none of accepted, journaled, settled"),
        ('address = "b:1"\npartitions = 0', "partitions: must be at least 1"),
        ('address = "b:1"\npatience = "soon"', "patience: a number and a unit"),
        ('address = "b:1"\nkey = "k.pem"', "authority: is missing"),
        ('address = "b:1"\npath = "p"', "path: is for parquet and json and hub alone"),
        ('address = "b:1"\nwhat = "matches"', "what: 'matches' is none of notifications"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, said: str, wrong: str) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(f'checkpoint = "c"\n[journal]\npath = "j"\n[[sinks]]\nformat = "broker"\n{said}\n')
    with pytest.raises(InvalidValueError, match=wrong):
        read(path)

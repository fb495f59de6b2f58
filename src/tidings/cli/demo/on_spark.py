"""The same on Spark: SQL as a judge of filters, and a hub's journal as a stream that gives what the hub gave."""

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tidings.cli.demo.scene import Scene, good, plainly, quiet
from tidings.cli.terminal import err
from tidings.engine.settings import Settings
from tidings.filters import Filter
from tidings.hub import Hub
from tidings.matching.reference import Scope, truth
from tidings.model.errors import TidingsError
from tidings.model.values import Attributes, Value
from tidings.policy import policies
from tidings.spark.session import is_running

Notes = set[tuple[str, str, str]]  # event, subscription, attributes
_CARS, _CAMERAS, _ROUNDS = 60, 12, 25


def spark_agrees() -> Scene:
    """The canonical text is Spark SQL too: the same events, asked of Spark."""
    random = Random(7)  # noqa: S311 - a workload, not a secret
    events = [_reading(random) for _ in range(20_000)]
    wanted = Filter.parse("class in ('a', 'b') and (n > 500 or note like '%x%') and not d between 0.25 and 0.5")
    ours = sum(truth(wanted.expression, Scope(Attributes.of(event))) is True for event in events)
    if not is_running():
        err.print("starting Spark ...", style="dim")
    rows = [tuple(event.get(name) for name in ("class", "n", "d", "note")) for event in events]
    frame = local_session().createDataFrame(rows, "class string, n bigint, d double, note string")
    theirs = frame.filter(str(wanted)).count()
    if ours != theirs:
        raise TidingsError(f"Tidings finds {ours} events and Spark {theirs}: please report this")
    lines = [str(wanted), f"of {len(events):,} events, Tidings finds {ours:,} and Spark SQL finds {theirs:,}"]
    return plainly(
        "Spark SQL reads the same filter",
        lines,
        {"events": len(events), "tidings": ours, "spark": theirs},
    )


def spark_streams() -> Scene:
    """Cars and cameras once more, more of them; the journal of their hub then streams through a pipeline."""
    from tidings.spark.pipeline import Folder, Pipeline

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        due, published, changes = _drive(folder / "hub")
        spark = local_session()
        stream = spark.readStream.format("tidings").option("maxRowsPerBatch", 1_000).load(str(folder / "hub"))
        sink = Folder(path=str(folder / "notifications"))
        pipeline = Pipeline(
            journal=stream,
            checkpoint=folder / "checkpoint",
            sinks=[sink],
            trigger="available-now",
            settings=Settings(name="hub"),
        )
        pipeline.start().await_termination()
        batches = len(pipeline.ledger.batches()) - 1
        found = spark.read.parquet(sink.path).select("event_id", "subscription_id", "attributes").collect()
        got = {(row[0], row[1], _sorted(json.loads(row[2]))) for row in found}
        twice = len(found) - len(got)
    if got != due or twice:
        raise TidingsError(f"the hub gave {len(due)} notifications and Spark {len(found)}: please report this")
    story = (
        f"{_CARS} cars move past {_CAMERAS} cameras on a hub, some trim what they get, some change their minds: "
        f"{changes:,} changes and {published:,} events in its journal"
    )
    end = (
        f"a pipeline reads the journal in {batches} batches: the hub gave {good(f'{len(due):,}')} notifications, "
        f"Spark gives {good(f'{len(got):,}')}, the same to the last attribute"
    )
    lines = [story, end, quiet("each event met the contexts, subscriptions and policies of its own time")]
    facts = {"hub": len(due), "spark": len(got), "journaled": published + changes, "batches": batches}
    return Scene("The same history as a stream on Spark", lines, {"stream": facts})


def local_session() -> Any:
    from tidings.spark import session

    return session("tidings demo", master="local[2]", **{"spark.sql.shuffle.partitions": 2})


def _drive(folder: Path) -> tuple[Notes, int, int]:
    """What a hub in that folder gave; how many events there were, and how many changes."""
    random = Random(11)  # noqa: S311
    near = "x between this.x - 20 and this.x + 20 and y between this.y - 20 and this.y + 20"
    shapes = [None, policies.trim(), policies.remove("plate")]
    notes: Notes = set()
    changes = events = 0
    with Hub(folder, name="hub") as hub:
        cameras = [hub.client(f"cam-{number}") for number in range(_CAMERAS)]
        for camera in cameras:
            camera.set_context(x=random.random() * 200, y=random.random() * 200)
        cars = [hub.client(f"car-{number}") for number in range(_CARS)]
        inboxes = {}
        for number, car in enumerate(cars):
            car.set_context(x=random.random() * 200, y=random.random() * 200)
            inboxes[car.name] = car.subscribe(
                f"msg = 'accident' and severity >= {number % 3}",
                id=f"s{number}",
                publishers=near,
                policy=shapes[number % 3],
            )
        changes += _CAMERAS + 2 * _CARS
        for _ in range(_ROUNDS):
            for car in random.sample(cars, _CARS // 2):
                car.set_context(x=random.random() * 200, y=random.random() * 200)
            for camera in cameras:
                seen = {"msg": "accident", "severity": random.randrange(4), "plate": f"ATX {random.randrange(999)}"}
                camera.publish(seen, subscribers="x < 180")
            changed = random.randrange(_CARS)
            cars[changed].set_policy(f"s{changed}", random.choice(shapes))
            changes += _CARS // 2 + 1
            events += _CAMERAS
        for inbox in inboxes.values():
            notes |= {(str(one.event.id), one.subscription, _sorted(one.attributes)) for one in inbox.take()}
    return notes, events, changes


def _sorted(attributes: Any) -> str:
    return json.dumps(attributes, sort_keys=True)


def _reading(random: Random) -> dict[str, Value]:
    everything: dict[str, Value] = {
        "class": random.choice("abc"),
        "n": random.randrange(1000),
        "d": random.random(),
        "note": "".join(random.choices("wxyz", k=3)),
    }
    return {name: value for name, value in everything.items() if random.random() < 0.9}

"""Scenes on Spark: Spark SQL evaluates the same filter, and a pipeline replays a hub's journal with the same result."""

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tidings.cli.demo.stories import Scene, dim, green, plain_scene
from tidings.cli.output import err
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
    """Evaluate a filter's canonical text with Spark SQL and with Tidings. Raises TidingsError if the counts differ."""
    random = Random(7)  # noqa: S311 - a workload, not a secret
    events = [_reading(random) for _ in range(20_000)]
    parsed = Filter.parse("class in ('a', 'b') and (n > 500 or note like '%x%') and not d between 0.25 and 0.5")
    count = sum(truth(parsed.expression, Scope(Attributes.of(event))) is True for event in events)
    if not is_running():
        err.print("starting Spark ...", style="dim")
    rows = [tuple(event.get(name) for name in ("class", "n", "d", "note")) for event in events]
    frame = local_session().createDataFrame(rows, "class string, n bigint, d double, note string")
    spark_count = frame.filter(str(parsed)).count()
    if count != spark_count:
        raise TidingsError(f"Tidings finds {count} events and Spark {spark_count}: please report this")
    lines = [str(parsed), f"of {len(events):,} events, Tidings finds {count:,} and Spark SQL finds {spark_count:,}"]
    return plain_scene(
        "Spark SQL reads the same filter",
        lines,
        {"events": len(events), "tidings": count, "spark": spark_count},
    )


def spark_streams() -> Scene:
    """Run cars and cameras on a hub, and stream its journal through a pipeline.

    Raises TidingsError unless the pipeline gives exactly the hub's notifications, each once.
    """
    from tidings.spark.pipeline import Folder, Pipeline

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        expected, event_count, changes = _run_hub(folder / "hub")
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
        rows = spark.read.parquet(sink.path).select("event_id", "subscription_id", "attributes").collect()
        notifications = {(row[0], row[1], _sorted(json.loads(row[2]))) for row in rows}
        duplicates = len(rows) - len(notifications)
    if notifications != expected or duplicates:
        raise TidingsError(f"the hub gave {len(expected)} notifications and Spark {len(rows)}: please report this")
    story = (
        f"{_CARS} cars move past {_CAMERAS} cameras on a hub, some trim what they get, some change their minds: "
        f"{changes:,} changes and {event_count:,} events in its journal"
    )
    end = (
        f"a pipeline reads the journal in {batches} batches: the hub gave {green(f'{len(expected):,}')} notifications, "
        f"Spark gives {green(f'{len(notifications):,}')}, the same to the last attribute"
    )
    lines = [story, end, dim("each event met the contexts, subscriptions and policies of its own time")]
    facts = {"hub": len(expected), "spark": len(notifications), "journaled": event_count + changes, "batches": batches}
    return Scene("The same history as a stream on Spark", lines, {"stream": facts})


def local_session() -> Any:
    """Return the demo's local Spark session."""
    from tidings.spark import session

    return session("tidings demo", master="local[2]", **{"spark.sql.shuffle.partitions": 2})


def _run_hub(folder: Path) -> tuple[Notes, int, int]:
    """Run cars and cameras on a hub with a journal in `folder`; return notifications and the counts of events and
    changes."""
    random = Random(11)  # noqa: S311
    near = "x between this.x - 20 and this.x + 20 and y between this.y - 20 and this.y + 20"
    shapes = [None, policies.trim(), policies.remove("plate")]
    notifications: Notes = set()
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
                attributes = {
                    "msg": "accident",
                    "severity": random.randrange(4),
                    "plate": f"ATX {random.randrange(999)}",
                }
                camera.publish(attributes, subscribers="x < 180")
            changed = random.randrange(_CARS)
            cars[changed].set_policy(f"s{changed}", random.choice(shapes))
            changes += _CARS // 2 + 1
            events += _CAMERAS
        for inbox in inboxes.values():
            notifications |= {
                (str(notification.event.id), notification.subscription, _sorted(notification.attributes))
                for notification in inbox.take()
            }
    return notifications, events, changes


def _sorted(attributes: Any) -> str:
    return json.dumps(attributes, sort_keys=True)


def _reading(random: Random) -> dict[str, Value]:
    """Draw a random event in which each attribute is missing now and then."""
    everything: dict[str, Value] = {
        "class": random.choice("abc"),
        "n": random.randrange(1000),
        "d": random.random(),
        "note": "".join(random.choices("wxyz", k=3)),
    }
    return {name: value for name, value in everything.items() if random.random() < 0.9}

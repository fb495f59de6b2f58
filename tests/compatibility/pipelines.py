"""Runs the pipelines of a release: `write_fixtures` for the first time, tests for a further batch."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import tidings as td
from tests.compatibility.release import MODIFIED
from tests.hub.cases import NOW
from tidings.testing import VirtualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put_files(folder: Path, files: Mapping[str, str]) -> None:
    """Puts files into the folders that a pipeline follows, by their relative paths, such as `events/1.json`.

    Spark compares the times of files, so each has a time that only depends on its number.
    """
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        modified = MODIFIED + int(path.stem)
        os.utime(path, (modified, modified))


def publish(folder: Path, events: Mapping[str, Mapping[str, Any]]) -> None:
    """Publishes events of cam-1, by their ids, into the hub of a folder."""
    with td.Hub(folder, name="hub-1", clock=VirtualClock(NOW + 1_000_000)) as hub:
        camera = hub.client("cam-1")
        for identity, attributes in events.items():
            camera.publish(attributes, id=UUID(identity))


def run(spark: "SparkSession", folder: Path) -> None:
    """Runs the pipeline of `pipeline.toml` until it has taken everything that is there."""
    from tidings.spark import Pipeline

    pipeline = Pipeline.from_file(folder / "pipeline.toml", spark, trigger="available-now")
    assert pipeline.start().await_termination()


def notifications(spark: "SparkSession", folder: Path) -> list[list[str]]:
    """The batch, event, subscription and attributes of all notifications that the pipeline has given."""
    rows = spark.read.parquet(str(folder / "out" / "notifications")).collect()
    return sorted(
        [str(row["batch"]), row["event_id"], row["subscription_id"], by_name(row["attributes"])] for row in rows
    )


def rejected(spark: "SparkSession", folder: Path) -> list[list[str]]:
    rows = spark.read.parquet(str(folder / "out" / "rejected")).collect()
    return sorted([row["event_id"], row["step"]] for row in rows)


def published(folder: Path) -> list[list[Any]]:
    """The publisher and the attributes of all events that the pipeline has published into its hub."""
    from tidings.journal import Journal

    with Journal.open(folder / "out" / "hub", create=False) as journal:
        events = [record.operation for record in journal.read() if record.operation.kind == "publish"]
    return sorted([event.publisher, by_name(event.attributes or "")] for event in events)


def by_name(text: str) -> str:
    """JSON text with its names in order: a pipeline keeps values exactly, 1.0 as 1.0, and not the order of names."""
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))

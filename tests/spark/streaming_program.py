"""A pipeline as a program of its own, which a test may kill at any moment: `streaming_program.py FOLDER MASTER`."""

import sys
from pathlib import Path

from tests.spark.cuts import streams
from tests.spark.settings import SETTINGS
from tests.spark.test_pipeline import CONTEXTS
from tests.spark.test_route import EVENTS, SUBSCRIPTIONS
from tidings.spark import session
from tidings.spark.pipeline import Folder, Pipeline


def main(folder: Path, master: str) -> None:
    spark = session("killed", master, **SETTINGS)
    pipeline = Pipeline(
        streams(spark, folder / "events", EVENTS),
        streams(spark, folder / "subscriptions", SUBSCRIPTIONS).drop("policy"),
        streams(spark, folder / "contexts", CONTEXTS),
        checkpoint=folder / "checkpoint",
        sinks=[Folder(path=str(folder / what), what=what) for what in ("notifications", "rejected")],
        trigger="available-now",
        shards=2,
        watermark="1 second",  # changes stand before the events of their time: see `prepare` in test_killed.py
    )
    pipeline.start().await_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

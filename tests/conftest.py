"""Fixtures that several packages of tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One small, quickly started Spark session for all tests that are marked `spark`."""
    from tidings.spark import session

    started = session(
        "tidings-tests",
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield started
    started.stop()

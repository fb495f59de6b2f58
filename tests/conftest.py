"""Fixtures that several packages of tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.settings import CHECKPOINT_SETTINGS, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One small, quickly started Spark session for all tests that are marked `spark`."""
    from tidings.spark import session

    started = session("tidings-tests", "local[2]", **SETTINGS, **CHECKPOINT_SETTINGS)
    yield started
    started.stop()

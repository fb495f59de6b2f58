"""Fixtures that several packages of tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.settings import shared_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One small, quickly started Spark session for all tests that are marked `spark`."""
    started = shared_session()
    yield started
    started.stop()

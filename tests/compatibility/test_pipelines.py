"""Pipelines go on from the checkpoints of earlier versions: no event is given twice, none is left out."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compatibility import pipelines
from tests.compatibility.release import Release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_over_files_with_two_shards(spark: "SparkSession", release: Release, tmp_path: Path) -> None:
    expected = release.expected("pipelines")["files"]
    folder = release.unpack("pipelines", tmp_path / "pipelines") / "files"
    assert pipelines.notifications(spark, folder) == expected["notifications"]
    assert pipelines.rejected(spark, folder) == expected["rejected"]
    assert pipelines.published(folder) == expected["published"]
    pipelines.put_files(folder, expected["further_input"])
    pipelines.run(spark, folder)
    assert pipelines.notifications(spark, folder) == [*expected["notifications"], *expected["further_notifications"]]
    assert pipelines.rejected(spark, folder) == expected["rejected"]
    assert pipelines.published(folder) == sorted([*expected["published"], *expected["further_published"]])


def test_over_the_journal_of_a_hub(spark: "SparkSession", release: Release, tmp_path: Path) -> None:
    expected = release.expected("pipelines")["journal"]
    folder = release.unpack("pipelines", tmp_path / "pipelines") / "journal"
    assert pipelines.notifications(spark, folder) == expected["notifications"]
    pipelines.publish(folder / "hub", expected["further_input"])
    pipelines.run(spark, folder)
    assert pipelines.notifications(spark, folder) == [*expected["notifications"], *expected["further_notifications"]]

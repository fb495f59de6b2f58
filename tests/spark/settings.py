"""Settings for Spark sessions of tests, which are small and end soon."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sizes import LONG
from tidings.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"  # see tests/spark/archive.py
# Java compiles quickly rather than well. It keeps little room then for what it has compiled, and when that is full, it
# interprets everything else.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
_JAVA = f"{JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if ARCHIVE.exists() else JAVA
_PAGE = "1m"  # Spark takes 64 MB for every sort and aggregation of a task, however small
_PARTITIONS = "spark.sql.shuffle.partitions"
# Spark plans each stage anew and compiles Java for it, which takes longer than the few rows of a test; a long run does
# both, as users do.
_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SETTINGS = {
    **({} if LONG else _FEW_ROWS),
    _PARTITIONS: 2,
    "spark.buffer.pageSize": _PAGE,
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}
# For the session that tests share. The usual class starts a process for each file of a checkpoint; tests that kill a
# pipeline run with the usual one, as users do.
CHECKPOINT_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
TOML = "\n".join(f"{name} = {value!r}" for name, value in SETTINGS.items())


def shared_session() -> "SparkSession":
    """The session of this process, which its tests share."""
    return session("tidings-tests", "local[2]", **SETTINGS, **CHECKPOINT_SETTINGS)


@contextmanager
def lent_session() -> Iterator[None]:
    """For a pipeline in this process, which takes the session that there is and makes some settings of its own."""
    spark = shared_session()
    before = spark.conf.get(_PARTITIONS)
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, str(before))


@cache
def defaults() -> "tempfile.TemporaryDirectory[str]":
    """A folder for SPARK_CONF_DIR with the settings of Java: for programs that users run with Spark's own settings."""
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory()
    lines = (f"spark.driver.defaultJavaOptions {_JAVA}", f"spark.buffer.pageSize {_PAGE}")
    Path(folder.name, "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return folder

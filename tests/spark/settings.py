"""Settings for Spark sessions of tests, which are small and end soon."""

import sys
import tempfile
from functools import cache
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"  # see tests/spark/archive.py
# Java compiles quickly rather than well. It keeps little room then for what it has compiled, and when that is full, it
# interprets everything else.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
_JAVA = f"{JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if ARCHIVE.exists() else JAVA
_PAGE = "1m"  # Spark takes 64 MB for every sort and aggregation of a task, however small
SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
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


@cache
def defaults() -> "tempfile.TemporaryDirectory[str]":
    """A folder for SPARK_CONF_DIR with the settings of Java: for programs that users run with Spark's own settings."""
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory()
    lines = (f"spark.driver.defaultJavaOptions {_JAVA}", f"spark.buffer.pageSize {_PAGE}")
    Path(folder.name, "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return folder
